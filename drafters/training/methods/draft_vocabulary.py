"""Which of the target's tokens EAGLE-3 can draft: chosen by how often the target wrote them, and chosen anew where a
drafter goes on with answers of another kind.

The bound is hard: a token outside the draft vocabulary is never drafted, whatever is learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drafters.checkpoint import Checkpoint
from drafters.specs import SpecError

__all__ = ["Choice", "choose", "choose_vocabulary", "drafted_ids", "head_rows", "listed_ids"]


def choose_vocabulary(counts: Tensor, size: int) -> tuple[int, ...]:
    """The ``size`` ids with the largest ``counts`` [vocab], ascending; of equal ones the lower ids.

    ``counts`` are how often the target wrote each token, answers of the training side alone. Raises SpecError for a size
    that is not within the vocabulary.
    """
    if not 1 <= size <= len(counts):
        raise SpecError(f"eagle3: 'draft_vocab_size' is {size}; allowed: 1 to {len(counts)}, the target's vocabulary")
    order = counts.cpu().sort(descending=True, stable=True).indices
    return tuple(sorted(order[:size].tolist()))


def drafted_ids(start: Checkpoint) -> Tensor:
    """[draft vocab] long: the target's ids of a checkpoint's draft vocabulary. Raises SpecError where it has none."""
    if "d2t" not in start.tensors:
        raise SpecError(
            "eagle3: the checkpoint lacks d2t; give one whose tensors are those its configuration describes"
        )
    offsets = start.tensors["d2t"].cpu().long()
    return torch.arange(len(offsets)) + offsets


def head_rows(ids: Tensor, target_rows: Tensor, start: Checkpoint | None = None) -> Tensor:
    """The head [n, hidden] of a draft vocabulary ``ids`` [n]: of the tokens that ``start`` has, its rows; of all others
    the target's, of whose head ``target_rows`` [vocab, hidden] are all."""
    rows = target_rows[ids.to(target_rows.device)].detach().float().cpu()
    if start is None:
        return rows
    place = torch.full((len(target_rows),), -1)
    known = drafted_ids(start)
    place[known] = torch.arange(len(known))
    kept = place[ids] >= 0
    rows[kept] = start.tensors["lm_head.weight"].cpu().float()[place[ids][kept]]
    return rows


def listed_ids(ids: Sequence[int] | None, size: int | None, vocab_size: int) -> Sequence[int]:
    """The draft vocabulary of fresh weights; raises SpecError for one that is no part of the target's."""
    if ids is None:
        if size not in (None, vocab_size):
            raise SpecError(
                f"eagle3: 'draft_vocab_size' is {size} of {vocab_size} without 'draft_vocabulary'; give the ids (the "
                "most frequent tokens of the answers), or leave the size out to draft all tokens"
            )
        return range(vocab_size)
    if not ids or sorted(set(ids)) != list(ids) or not 0 <= ids[0] <= ids[-1] < vocab_size:
        raise SpecError(f"eagle3: 'draft_vocabulary' allowed: ids from 0 to {vocab_size - 1}, ascending, each once")
    if size not in (None, len(ids)):
        raise SpecError(f"eagle3: 'draft_vocab_size' is {size}, but 'draft_vocabulary' has {len(ids)} ids")
    return ids


@dataclass(frozen=True, slots=True)
class Choice:
    """A draft vocabulary, and what is to be said of it; ``ids`` is ``None`` where the checkpoint's stays."""

    ids: tuple[int, ...] | None
    said: str


def choose(
    counts: Tensor, start: Checkpoint | None, size: int | None, given: tuple[int, ...] | None, gain: float
) -> Choice:
    """The vocabulary for answers of so many tokens ``counts`` [vocab].

    ``given`` ids are taken as they are. A ``start``'s vocabulary is chosen anew, of the same size, where that takes more
    than the share ``gain`` of the answers' tokens in from outside, or where another ``size`` is asked for.
    """
    kept = None if start is None else drafted_ids(start)
    if kept is not None and len(kept) == len(counts) and given is None and size in (None, len(counts)):
        return Choice(None, "the draft vocabulary is the target's: every token can be drafted")
    before = None if kept is None else _outside(counts, kept)
    if given is None and size is None and kept is None:
        return Choice(None, "the draft vocabulary is the target's: every token can be drafted")
    ids = given or choose_vocabulary(counts, size or (0 if kept is None else len(kept)))
    after = _outside(counts, torch.tensor(ids))
    if kept is None or before is None:
        return Choice(ids, f"{after:.2%} of the answers' tokens are outside the draft vocabulary of {len(ids):,}")
    if given is None and size in (None, len(kept)) and before - after <= gain:
        return Choice(
            None,
            f"{before:.2%} of the answers' tokens are outside the checkpoint's draft vocabulary of {len(kept):,}; it stays "
            f"({after:.2%} would be outside the best one)",
        )
    new = len(set(ids) - set(kept.tolist()))
    return Choice(
        ids,
        f"{before:.2%} of the answers' tokens are outside the checkpoint's draft vocabulary of {len(kept):,}: it is "
        f"chosen anew, {new:,} of {len(ids):,} tokens with it, their rows of the head the target's; {after:.2%} are outside",
    )


def _outside(counts: Tensor, ids: Tensor) -> float:
    """Share of the counted tokens that are not among ``ids``."""
    total = float(counts.sum())
    return (total - float(counts[ids.to(counts.device)].sum())) / total if total else 0.0
