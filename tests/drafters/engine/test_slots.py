"""Ownership of token slots; nothing here needs torch."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.engine.slots import Slots, common_length


def test_the_first_gap_that_fits_is_taken() -> None:
    """Runs of 4, 3 and 3 fill ten slots; the middle one, given back, takes 2 and then has no room for 2 more."""
    slots = Slots(10)
    assert [slots.reserve(4), slots.reserve(3), slots.reserve(3)] == [0, 4, 7]
    assert slots.reserve(1) is None
    slots.release(4, 3)
    assert slots.reserve(2) == 4
    assert slots.reserve(2) is None
    assert slots.reserve(1) == 6


def test_kept_tokens_give_way_oldest_first() -> None:
    """Two texts of four are kept in ten slots; six slots are wanted: the older one goes, the younger one stays."""
    slots = Slots(10)
    first, second = slots.reserve(4), slots.reserve(4)
    assert first is not None
    assert second is not None
    slots.keep(second, 4, [5, 6, 7, 8])
    slots.keep(first, 4, [1, 2, 3, 4])
    assert slots.reserve(6) == 4
    assert [entry.token_ids for entry in slots.kept] == [(1, 2, 3, 4)]
    assert (slots.used, slots.owned) == (10, 6)


def test_nothing_is_given_up_for_what_cannot_fit_anyway() -> None:
    """A live run in the middle leaves no room for six in a row, so what is kept beside it stays."""
    slots = Slots(10)
    assert [slots.reserve(4), slots.reserve(2)] == [0, 4]
    slots.keep(0, 4, [1, 2])
    assert slots.reserve(6) is None
    assert len(slots.kept) == 1


def test_the_spared_entry_survives() -> None:
    """The only thing in the way is what is about to be copied: then there is no room."""
    slots = Slots(8)
    slots.reserve(6)
    slots.keep(0, 6, [1, 2, 3, 4, 5, 6])
    assert slots.reserve(4, sparing=slots.kept[0]) is None
    assert slots.reserve(4) == 0


def test_common_beginnings_are_counted_in_tokens() -> None:
    """Equal, one inside the other, different from the first token on, and somewhere between."""
    assert common_length([1, 2, 3], [1, 2, 3]) == 3
    assert common_length([1, 2], [1, 2, 3]) == 2
    assert common_length([1], [2]) == 0
    assert common_length([], [1]) == 0
    assert common_length([1, 2, 3, 4, 5, 9, 7], [1, 2, 3, 4, 5, 6, 7]) == 5


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 12), st.sampled_from(["end", "keep"]), st.integers(0, 12)), max_size=40))
def test_runs_never_overlap_nor_leave_the_memory(actions: list[tuple[int, str, int]]) -> None:
    """Whatever joins and leaves, each slot has one owner and the bound holds."""
    slots = Slots(30)
    live: list[tuple[int, int]] = []
    for size, how, pick in actions:
        slot = slots.reserve(size)
        if slot is not None:
            live.append((slot, size))
        elif live:
            start, length = live.pop(pick % len(live))
            if how == "keep":
                slots.keep(start, length, list(range(min(pick, length))))
            else:
                slots.release(start, length)
        taken = [slot for start, length in live for slot in range(start, start + length)]
        taken += [slot for entry in slots.kept for slot in range(entry.slot, entry.slot + len(entry.token_ids))]
        assert len(taken) == len(set(taken)) == slots.used
        assert all(0 <= slot < 30 for slot in taken)
