"""What a trainable drafter is: the types between the training loop and the methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from drafters.checkpoint import Checkpoint
from drafters.specs import SpecError
from drafters.training.frozen import FrozenTarget

__all__ = ["Batch", "Losses", "Method", "MethodClass", "MethodSettings"]


class MethodSettings(BaseModel):
    """What every method is told; each adds its own. ``num_tokens`` is how many tokens are drafted, and scored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_tokens: int = Field(default=4, ge=1, le=63)
    seed: int = 0

    @property
    def places_per_row(self) -> int | None:
        """How many places of one sequence are learnt from at most; ``None`` for all of its answers."""
        return None

    def agree_with(self, method: str, found: Mapping[str, Any]) -> None:
        """Raise SpecError where a setting was given and a checkpoint to start from has another: its shapes hold."""
        for name, has in found.items():
            given = getattr(self, name)
            if name in self.model_fields_set and given is not None and given != has:
                raise SpecError(
                    f"{method}: {name!r} is {given!r}, but the checkpoint to start from has {has!r}; leave the setting "
                    "out, or train from fresh weights"
                )


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences of one step, padded on the right.

    ``answers`` marks the tokens that the target wrote: what a drafter is to learn. ``hidden`` at position t is the state
    after the final norm from which token t + 1 is predicted; ``features`` are the states of the method's
    ``feature_layers``, in that order. What stands beyond a row's length is to be ignored.
    """

    token_ids: Tensor  # [rows, length] long, 0 beyond the row's length
    lengths: Tensor  # [rows] long
    answers: Tensor  # [rows, length] bool, false beyond the row's length
    features: Tensor  # [rows, length, layers, hidden]
    hidden: Tensor  # [rows, length, hidden]

    @property
    def present(self) -> Tensor:
        """[rows, length] bool: within the row's length."""
        return torch.arange(self.token_ids.shape[1], device=self.lengths.device) < self.lengths.unsqueeze(1)


@dataclass(frozen=True, slots=True)
class Losses:
    """What one batch gave, as sums, so that batches and processes of any size add up before anything is divided.

    The loss is ``total / weight``; ``weights`` are each row's part of the weight. ``drafted[i]`` counts the places at
    which a chain of at least i + 1 tokens was tried, ``accepted[i]`` those at which its first i + 1 tokens, each the
    drafter's best one, are those of the text: both [num_tokens], detached. Text before the place, and the chain as far
    as it was right, are the text's own.
    """

    total: Tensor  # scalar with a gradient
    weights: Tensor  # [rows], detached
    drafted: Tensor
    accepted: Tensor
    parts: Mapping[str, Tensor]  # further sums worth a log line, each already part of ``total`` or only told

    @property
    def weight(self) -> Tensor:
        """Scalar: what the total is divided by."""
        return self.weights.sum()

    def __add__(self, other: Losses) -> Losses:
        """Both, of other places of the same rows."""
        return Losses(
            self.total + other.total,
            self.weights + other.weights,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
            {name: value + other.parts[name] for name, value in self.parts.items()},
        )


class Method(Protocol):
    """A drafter in training. ``module`` holds all that is trained and nothing of the target."""

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Layers of the target that `Batch.features` carries, as in `drafters.base.Drafter`; empty for none."""
        ...

    @property
    def module(self) -> nn.Module:
        """The trained weights, float32."""
        ...

    def losses(self, batch: Batch, generator: torch.Generator) -> Losses:
        """Forward pass of one batch. ``generator`` (CPU) is the only source of chance."""
        ...

    def checkpoint(self) -> Checkpoint:
        """The drafter as the engine loads it: configuration and tensors under their published names, detached copies."""
        ...


class MethodClass(Protocol):
    """What the class of every method offers. It satisfies `Method` once built."""

    settings: ClassVar[type[MethodSettings]]

    def __call__(self, target: FrozenTarget, settings: Any, start: Checkpoint | None = None) -> Method:
        """Fresh weights by the settings' seed, or those of ``start``, whose shapes then hold.

        Raises SpecError for a checkpoint of another target or method.
        """
        ...
