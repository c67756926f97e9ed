"""Who owns which token slots of the cache, and what finished sequences left there. Imports no torch.

A sequence gets one run of neighbouring slots for its whole life, first fit. What a finished sequence computed stays as
long as nobody needs the space, so that a later prompt with the same beginning can copy it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
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
        self._kept: dict[int, Kept] = {}  # by slot, oldest use first

    @property
    def used(self) -> int:
        """Slots owned by sequences or kept for reuse."""
        return sum(size for _, size in self._runs)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """What finished sequences left, the longest unused first."""
        return tuple(self._kept.values())

    @property
    def owned(self) -> int:
        """Slots that belong to live sequences."""
        return self.used - sum(len(entry.token_ids) for entry in self._kept.values())

    def reserve(self, size: int, sparing: Kept | None = None) -> int | None:
        """Take ``size`` neighbouring slots and return the first; ``None`` when there is no such run.

        Where no gap is wide enough, kept tokens that lie together are given up, only as many as it takes: those among
        which the most recent use is longest ago. ``sparing`` never is.
        """
        slot = self._gap(size)
        if slot is None:
            slot, given_up = self._clearing(size, sparing)
            for entry in given_up:
                self.drop(entry)
        if slot is not None:
            insort(self._runs, (slot, size))
        return slot

    def release(self, slot: int, size: int) -> None:
        """Give back a run exactly as it was reserved."""
        self._remove(slot, size)

    def keep(self, slot: int, size: int, token_ids: Sequence[int], featured: int = 0) -> None:
        """Give back a run, all but its first ``len(token_ids)`` slots, which stay for reuse."""
        self.release(slot, size)
        if token_ids:
            insort(self._runs, (slot, len(token_ids)))
            self._kept[slot] = Kept(slot, tuple(token_ids), featured)

    def touch(self, entry: Kept) -> None:
        """Mark as used now."""
        self._kept[entry.slot] = self._kept.pop(entry.slot)

    def drop(self, entry: Kept) -> None:
        """Give up what was kept."""
        del self._kept[entry.slot]
        self._remove(entry.slot, len(entry.token_ids))

    def _remove(self, slot: int, size: int) -> None:
        place = bisect_left(self._runs, (slot, size))
        if self._runs[place : place + 1] != [(slot, size)]:
            raise ValueError(f"no run of {size} slots from {slot} on is taken; give it back as it was reserved")
        del self._runs[place]

    def _gap(self, size: int) -> int | None:
        """The first slot of the first gap that is wide enough."""
        end = 0
        for slot, length in self._runs:
            if slot - end >= size:
                return end
            end = slot + length
        return end if self.capacity - end >= size else None

    def _clearing(self, size: int, sparing: Kept | None) -> tuple[int | None, list[Kept]]:
        """Where ``size`` slots become free by giving up neighbouring kept entries, and those. One walk over all runs."""
        uses = {slot: use for use, slot in enumerate(self._kept)}
        if sparing is not None:
            del uses[sparing.slot]
        best: tuple[int, int, int, int] | None = None  # most recent use, tokens given up, first slot, end
        window: deque[tuple[int, int, int]] = deque()  # gap's first slot before an entry, its first slot, its length
        newest: deque[tuple[int, int]] = deque()  # (use, first slot) of those that nothing later in the window outdoes
        held = end = 0
        for slot, length in [*self._runs, (self.capacity, 0)]:
            # Before this run lies the end of a clearing; those that begin later are shorter and give up less.
            while window and slot - window[0][0] >= size:
                begin, first, tokens = window.popleft()
                found = (newest[0][0], held, begin, slot)
                best = found if best is None else min(best, found)
                held -= tokens
                if newest[0][1] == first:
                    newest.popleft()
            use = uses.get(slot)
            if use is None:
                window.clear()
                newest.clear()
                held = 0
            else:
                while newest and newest[-1][0] < use:
                    newest.pop()
                newest.append((use, slot))
                window.append((end, slot, length))
                held += length
            end = slot + length
        if best is None:
            return None, []
        _, _, begin, stop = best
        inside = range(bisect_left(self._runs, (begin, 0)), bisect_left(self._runs, (stop, 0)))
        return begin, [self._kept[self._runs[place][0]] for place in inside]


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
