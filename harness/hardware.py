"""The catalogue of hardware that a measurement can be carried over to: the rows of ``hardware.yaml`` and those of the user."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from harness.errors import UsageError

OWN = "hardware.yaml"
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Hardware(BaseModel):
    """One row: memory bandwidth in GB/s, dense bf16 products in TFLOP/s, memory in GB (all decimal), and who says so."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    title: Annotated[str, Field(min_length=1)]
    bandwidth_gb_s: _Positive
    dense_tflops: _Positive
    memory_gb: _Positive
    source: Annotated[str, Field(min_length=1)]


_ROWS = TypeAdapter(list[Hardware])


def catalogue(own: Path | None = None) -> Mapping[str, Hardware]:
    """Return the known hardware by name, in the order of the files.

    Args:
        own: a file of further rows; one of a known name replaces it.

    Raises:
        UsageError: if that file cannot be read, or a row is not as described at the head of ``hardware.yaml``.
    """
    shipped = resources.files("harness").joinpath(OWN).read_text(encoding="utf-8")
    rows = _read(shipped, OWN)
    if own is not None:
        try:
            text = own.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--hardware-file {own}: cannot read it ({error}); give a YAML file in UTF-8") from error
        rows += _read(text, str(own))
    return {row.name: row for row in rows}


def choose(names: Sequence[str], known: Mapping[str, Hardware]) -> list[Hardware]:
    """Return the rows of these names.

    Raises:
        UsageError: for a name that is not among them.
    """
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UsageError(
                f"unknown hardware {name!r}; {hint}known: {', '.join(known)}; add a row of your own with --hardware-file"
            )
    return [known[name] for name in dict.fromkeys(names)]


def _read(text: str, place: str) -> list[Hardware]:
    try:
        data = yaml.safe_load(text)
        lines = _lines(text)
        return _ROWS.validate_python(data)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        raise UsageError(
            f"{place}:{line}: no YAML ({getattr(error, 'problem', error)}); write rows as in {OWN}"
        ) from error
    except ValidationError as error:
        raise UsageError("\n".join(_explain(place, lines, item) for item in error.errors())) from error


def _lines(text: str) -> list[int]:
    """Return the line of each row."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return [item.start_mark.line + 1 for item in root.value] if isinstance(root, yaml.SequenceNode) else []


def _explain(place: str, lines: Sequence[int], problem: object) -> str:
    assert isinstance(problem, dict)
    where = problem["loc"]
    line = lines[where[0]] if where and isinstance(where[0], int) and where[0] < len(lines) else 1
    key = ".".join(str(part) for part in where[1:])
    allowed = ", ".join(Hardware.model_fields)
    if problem["type"] == "extra_forbidden":
        return f"{place}:{line}: unknown key {key!r}; a row has {allowed}"
    if problem["type"] == "missing":
        return f"{place}:{line}: {key} is missing; a row has {allowed}"
    said = f"{key} is {problem['input']!r}: " if key else ""
    return f"{place}:{line}: {said}{problem['msg'][:1].lower()}{problem['msg'][1:]}; see the head of {OWN}"
