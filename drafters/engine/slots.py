"""Who owns which token slots of the cache, and what finished sequences left there. Imports no torch.

A sequence gets one run of neighbouring slots for its whole life, first fit. What a finished sequence computed stays as
long as nobody needs the space, so that a later prompt with the same beginning can copy it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Kept", "Slots", "common_length"]


@dataclass(frozen=True, slots=True)
class Kept:
    """Computed tokens of a finished sequence, from ``slot`` on; the first ``featured`` of them with their features."""

    slot: int
    token_ids: tuple[int, ...]
    featured: int = 0


class Slots:
    """``capacity`` slots; never more are handed out."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a capacity of {capacity} tokens given; allowed: 1 or more")
        self.capacity = capacity
        self._runs: list[tuple[int, int]] = []  # (first slot, size), sorted; owned and kept ones alike
        self._kept: list[Kept] = []  # oldest use first

    @property
    def used(self) -> int:
        """Slots owned by sequences or kept for reuse."""
        return sum(size for _, size in self._runs)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """What finished sequences left, the longest unused first."""
        return tuple(self._kept)

    @property
    def owned(self) -> int:
        """Slots that belong to live sequences."""
        return self.used - sum(len(entry.token_ids) for entry in self._kept)

    def reserve(self, size: int, sparing: Kept | None = None) -> int | None:
        """Take ``size`` neighbouring slots and return the first; ``None`` when there is no such run.

        Kept tokens are given up for it, those longest unused first and ``sparing`` never; only if that helps.
        """
        victims = [entry for entry in self._kept if entry is not sparing]
        if self._fit(size, victims) is None:
            return None
        while (slot := self._fit(size, [])) is None:
            self.drop(victims.pop(0))
        insort(self._runs, (slot, size))
        return slot

    def release(self, slot: int, size: int) -> None:
        """Give back a run exactly as it was reserved."""
        self._runs.remove((slot, size))

    def keep(self, slot: int, size: int, token_ids: Sequence[int], featured: int = 0) -> None:
        """Give back a run, all but its first ``len(token_ids)`` slots, which stay for reuse."""
        self.release(slot, size)
        if token_ids:
            insort(self._runs, (slot, len(token_ids)))
            self._kept.append(Kept(slot, tuple(token_ids), featured))

    def touch(self, entry: Kept) -> None:
        """Mark as used now."""
        self._kept.remove(entry)
        self._kept.append(entry)

    def drop(self, entry: Kept) -> None:
        """Give up what was kept."""
        self._kept.remove(entry)
        self._runs.remove((entry.slot, len(entry.token_ids)))

    def _fit(self, size: int, without: Sequence[Kept]) -> int | None:
        gone = {entry.slot for entry in without}
        end = 0
        for slot, length in self._runs:
            if slot in gone:
                continue
            if slot - end >= size:
                return end
            end = slot + length
        return end if self.capacity - end >= size else None


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two sequences share from their beginning; both must be of one type (slices are compared)."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while low < high:  # the first `low` tokens agree, the first `high` + 1 do not
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
