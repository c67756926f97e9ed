"""Which rows a round's forward has, and whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drafters.base import Draft
from drafters.engine.scheduler import Plan
from drafters.engine.target import Span

__all__ = ["Rows", "lay_out"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Where a sequence's rows begin in the forward's output: among all rows, and among those with logits."""

    row: int
    logit: int


def lay_out(plan: Plan, drafts: Sequence[Draft]) -> tuple[list[Span], list[Rows]]:
    """The forward's rows: each decoding sequence's last token and draft, then the prompt chunks."""
    spans: list[Span] = []
    places: list[Rows] = []
    row = logit = 0
    for sequence, draft in zip(plan.decoding, drafts, strict=True):
        tokens = [sequence.token_ids[-1], *draft.token_ids]
        spans.append(Span(sequence.slot, sequence.computed, tokens, len(tokens), draft.parents))
        places.append(Rows(row, logit))
        row, logit = row + len(tokens), logit + len(tokens)
    for chunk in plan.chunks:
        tokens = chunk.sequence.token_ids[chunk.start : chunk.end]
        spans.append(Span(chunk.sequence.slot, chunk.start, tokens, int(chunk.last)))
        places.append(Rows(row, logit))
        row, logit = row + len(tokens), logit + int(chunk.last)
    return spans, places
