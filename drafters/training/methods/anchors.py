"""Where the blocks of DFlash begin in training: anywhere in the target's answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from drafters.training.method import Batch

__all__ = ["Anchors", "all_anchors", "anchors_of", "draw_anchors"]


@dataclass(frozen=True, slots=True)
class Anchors:
    """Places that drafting starts from: ``positions`` [rows, blocks], of which those in ``there`` count."""

    positions: Tensor
    there: Tensor


def anchors_of(batch: Batch, most: int, generator: torch.Generator) -> Iterator[Anchors]:
    """What one call of ``losses`` goes through: with gradients one draw, without all anchors, ``most`` a row at once."""
    if torch.is_grad_enabled():
        yield draw_anchors(batch, most, generator)
    else:
        yield from all_anchors(batch, most)


def draw_anchors(batch: Batch, most: int, generator: torch.Generator) -> Anchors:
    """Up to ``most`` positions in each row, ascending, whose token and the next one are the target's own.

    The last token of a prompt is none: when the engine first drafts, the target has already written one token.
    """
    follows = _follows(batch)
    counts = follows.sum(dim=1)
    ranks = torch.rand(follows.shape, generator=generator).to(follows.device).masked_fill(~follows, -1.0)
    blocks = max(1, min(most, int(counts.max())))
    positions = ranks.topk(blocks, dim=1).indices
    positions = positions.masked_fill(~follows.gather(1, positions), follows.shape[1]).sort(dim=1).values
    there = positions < follows.shape[1]
    return Anchors(positions.masked_fill(~there, 0), there)


def all_anchors(batch: Batch, at_once: int) -> Iterator[Anchors]:
    """Every such position, ``at_once`` of each row at a time, in order."""
    follows = _follows(batch)
    count = max(1, int(follows.sum(dim=1).max()))
    there, positions = follows.int().sort(dim=1, descending=True, stable=True)
    for begin in range(0, count, at_once):
        part = there[:, begin : min(begin + at_once, count)].bool()
        yield Anchors(positions[:, begin : begin + part.shape[1]].masked_fill(~part, 0), part)


def _follows(batch: Batch) -> Tensor:
    """[rows, length] bool: this token and the next one are the target's own."""
    follows = torch.zeros_like(batch.answers)
    follows[:, :-1] = batch.answers[:, :-1] & batch.answers[:, 1:]
    return follows
