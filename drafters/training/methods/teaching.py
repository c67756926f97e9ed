"""What the target itself says at the places that a drafter learns from, and how many logits are made at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from drafters.training.frozen import FrozenTarget
from drafters.training.methods.blocks import wide

__all__ = ["LOGITS", "fitting", "piecewise", "taught"]

LOGITS = 2**27
"""Logits held at once in a forward pass, at most: half a GiB in float32, about three times that with their gradients."""
Made = TypeVar("Made")


@torch.no_grad()
def taught(target: FrozenTarget, hidden: Tensor) -> Tensor:
    """[n, hidden], states after the final norm → the target's logits [n, vocab], float32 at least.

    In the target's own type whatever training computes in: rounding would turn its likeliest token into another one.
    """
    with torch.autocast(target.device.type, enabled=False):
        return wide(target.head(hidden.to(target.dtype)))


def fitting(width: int) -> int:
    """How many places of ``width`` logits fit, at least one."""
    return max(1, LOGITS // width)


def piecewise(work: Callable[[slice], Made], places: int, width: int) -> Iterator[Made]:
    """Yield ``work`` of slices of ``places``, each of as many as fit, at least one slice.

    Where one is not enough, gradients cost a second forward pass of each instead of the memory of all.
    """
    size = fitting(width)
    parts = [slice(begin, begin + size) for begin in range(0, max(places, 1), size)]
    again = len(parts) > 1 and torch.is_grad_enabled()
    for part in parts:
        yield checkpoint(work, part, use_reentrant=False, preserve_rng_state=False) if again else work(part)
