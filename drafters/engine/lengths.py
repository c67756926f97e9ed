"""How many tokens to draft, decided before each round. Imports no torch.

A policy sees committed tokens and finished rounds only, so the length never depends on what is about to be drafted:
that is what keeps sampled verification exact (see `drafters.verify`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from drafters.engine.records import RoundRecord
from drafters.engine.sequence import RunningSequence

__all__ = ["BatchTable", "FullLength", "LengthPolicy", "Outcome", "Rest"]


@dataclass(frozen=True, slots=True)
class Rest:
    """What else is in the round: everything but the sequences that the policy is asked about.

    ``sequences`` decode beside them and bring ``rows`` rows into the forward, their drafts included as far as they are
    chosen (a group that is still to choose counts one row a sequence). ``prompt_rows`` are prompt tokens fed in the same
    forward. ``context_tokens`` are those of all decoding sequences together, the policy's own included.
    """

    sequences: int = 0
    rows: int = 0
    prompt_rows: int = 0
    context_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one sequence in a round.

    ``asked`` nodes were asked of the drafter, ``drafted`` of them verified (fewer where it found no more), ``path`` among
    these accepted (`Verdict.path`). ``spare`` are the tokens of its draft beyond the length chosen, which nobody verified;
    ``None`` where the draft is a tree or was drawn by chance, so that the text does not show what they were worth.
    """

    sequence: RunningSequence
    asked: int
    drafted: int
    path: tuple[int, ...]
    spare: tuple[int, ...] | None = ()


class LengthPolicy(Protocol):
    """Chooses the draft lengths of the sequences that use one drafter."""

    def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int], rest: Rest) -> list[int]:
        """Return the nodes to draft for each sequence, from 0 to its bound.

        ``bounds[i]`` is what sequence i's request, drafter and remaining tokens allow.
        """
        ...

    def ask(self, lengths: Sequence[int], bounds: Sequence[int]) -> list[int]:
        """Return the nodes to ask the drafter for, from what was chosen to the bound.

        What lies beyond the length is not verified: it comes back as `Outcome.spare`, for a policy that learns from
        comparing it with the text.
        """
        ...

    def observe(self, record: RoundRecord, outcomes: Sequence[Outcome], draft_ns: int) -> None:
        """Take note of a finished round, whoever took part in it.

        ``outcomes`` are those of the policy's own sequences, and ``draft_ns`` is the time that their drafter took.
        """
        ...

    def release(self, sequence_id: int) -> None:
        """Forget a sequence; unknown ids are ignored."""
        ...

    def reset(self) -> None:
        """Forget everything learnt, that of sequences still running too."""
        ...


class FullLength:
    """Always as many as allowed: the fixed k of the request or the drafter."""

    def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int], rest: Rest) -> list[int]:
        """Return the bounds."""
        return list(bounds)

    def ask(self, lengths: Sequence[int], bounds: Sequence[int]) -> list[int]:
        """What is verified, no more."""
        return list(lengths)

    def observe(self, record: RoundRecord, outcomes: Sequence[Outcome], draft_ns: int) -> None:
        """Nothing is learnt."""

    def release(self, sequence_id: int) -> None:
        """Nothing is known."""

    def reset(self) -> None:
        """Nothing is known."""


class BatchTable:
    """Draft length by the number of sequences that decode together, whatever they draft with.

    ``table`` maps the smallest batch to the length from there on: ``{1: 8, 4: 3, 16: 0}``. Below its first key
    everything allowed is drafted.
    """

    def __init__(self, table: Mapping[int, int]) -> None:
        if not table or any(batch < 1 or length < 0 for batch, length in table.items()):
            raise ValueError(f"table {dict(table)} given; allowed: batch sizes of 1 or more to lengths of 0 or more")
        self._steps = sorted(table.items(), reverse=True)

    def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int], rest: Rest) -> list[int]:
        """Look up the batch and cut the bounds to its length."""
        for batch, length in self._steps:
            if len(sequences) + rest.sequences >= batch:
                return [min(bound, length) for bound in bounds]
        return list(bounds)

    def ask(self, lengths: Sequence[int], bounds: Sequence[int]) -> list[int]:
        """What is verified, no more."""
        return list(lengths)

    def observe(self, record: RoundRecord, outcomes: Sequence[Outcome], draft_ns: int) -> None:
        """Nothing is learnt."""

    def release(self, sequence_id: int) -> None:
        """Nothing is known."""

    def reset(self) -> None:
        """Nothing is known."""
