"""How many tokens to draft, decided before each round. Imports no torch.

A policy sees committed tokens and finished rounds only, so the length never depends on what is about to be drafted:
that is what keeps sampled verification exact (see `drafters.verify`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from drafters.engine.records import RoundRecord
from drafters.engine.sequence import RunningSequence

__all__ = ["BatchTable", "FullLength", "LengthPolicy"]


class LengthPolicy(Protocol):
    """Chooses draft lengths. ``bounds[i]`` is what sequence i's request, drafter and remaining tokens allow."""

    def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int]) -> list[int]:
        """Return the nodes to draft for each sequence, from 0 to its bound."""
        ...

    def observe(self, record: RoundRecord) -> None:
        """Take note of a finished round; each sequence's own part is in its ``rounds``."""
        ...


class FullLength:
    """Always as many as allowed: the fixed k of the request or the drafter."""

    def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int]) -> list[int]:
        """Return the bounds."""
        return list(bounds)

    def observe(self, record: RoundRecord) -> None:
        """Nothing is learnt."""


class BatchTable:
    """Draft length by the number of sequences that decode together.

    ``table`` maps the smallest batch to the length from there on: ``{1: 8, 4: 3, 16: 0}``. Below its first key
    everything allowed is drafted.
    """

    def __init__(self, table: Mapping[int, int]) -> None:
        if not table or any(batch < 1 or length < 0 for batch, length in table.items()):
            raise ValueError(f"table {dict(table)} given; allowed: batch sizes of 1 or more to lengths of 0 or more")
        self._steps = sorted(table.items(), reverse=True)

    def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int]) -> list[int]:
        """Look up the batch and cut the bounds to its length."""
        for batch, length in self._steps:
            if len(sequences) >= batch:
                return [min(bound, length) for bound in bounds]
        return list(bounds)

    def observe(self, record: RoundRecord) -> None:
        """Nothing is learnt."""
