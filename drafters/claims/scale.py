"""How much work the claims are given, and on which models: read once, and part of every stage's command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drafters.training.stage import StageError

__all__ = ["FAMILIES", "SCALES", "Form", "Scale", "Setting", "family_settings", "load_scale"]

FILE = Path(__file__).with_name("scales.yaml")
FAMILIES = Path(__file__).parents[1] / "training" / "reference" / "families.yaml"
"""Settings of the shipped drafters; what is trained here is trained alike."""
SCALES = ("quick", "full")
Form = Literal["plain", "rtn4", "nf4"]


class Scale(BaseModel):
    """One entry of ``scales.yaml``; tokens and tasks are of one training, one cell."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seeds: int = Field(ge=1, le=20)
    tasks: int = Field(ge=1)
    """Where times are compared."""
    read: int | None = Field(default=None, ge=1)
    """Where acceptance alone is read: cheap, and its interval is of tasks. ``None``: the same."""
    steps: int = Field(ge=1)
    max_tokens: int = Field(ge=2)
    repeats: int = Field(ge=1)
    together: int = Field(ge=1)
    loads: tuple[int, ...] = Field(min_length=2)
    methods: tuple[str, ...] = Field(min_length=1)
    forms: tuple[Form, ...] = Field(min_length=1)
    shipped: tuple[str, ...] = ("medusa", "mtp", "eagle3", "dflash", "dflash2")
    """Methods whose shipped drafters are all looked at, where a claim asks for every method."""
    answers: int = Field(ge=1)
    tokens: int = Field(ge=1)
    threads: int = Field(default=2, ge=1)
    train: Mapping[str, str | int | float] = {}
    """Options of ``drafters train`` in place of those of the shipped drafters."""
    sets: Mapping[str, Mapping[str, str | int | float]] = {}
    """Settings by method, likewise."""
    layers: str = "2,3,4,5,6"
    """Of the target, whose states are stored for drafters that read some."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a claim is tested with: how much, which target, whose workloads."""

    scale: Scale
    workloads: Path
    """Folder of the workload files that nothing was trained on."""
    target: str = "ref-koen"
    """A shipped model, or a Hugging Face folder."""

    @property
    def seeds(self) -> range:
        """The trainings' seeds, from 1."""
        return range(1, self.scale.seeds + 1)


def load_scale(given: str, seeds: int | None = None) -> Scale:
    """Read ``quick``, ``full`` or a YAML file with the keys of one of them. Raises StageError for anything else."""
    try:
        read = yaml.safe_load((FILE if given in SCALES else Path(given)).read_text("utf-8"))
        value = read[given] if given in SCALES else read
        if not isinstance(value, dict):
            raise StageError(f"--scale {given}: holds no mapping; give {', '.join(SCALES)} or a file with their keys")
        return Scale(**(value if seeds is None else {**value, "seeds": seeds}))
    except OSError as error:
        raise StageError(
            f"--scale {given}: {error.strerror}; give {', '.join(SCALES)} or a file with their keys"
        ) from error
    except (ValidationError, TypeError, yaml.YAMLError) as error:
        raise StageError(f"--scale {given}: {' '.join(str(error).split())[:400]}") from error


def family_settings() -> dict[str, Any]:
    """The committed settings of the shipped drafters."""
    value: dict[str, Any] = yaml.safe_load(FAMILIES.read_text("utf-8"))
    return value
