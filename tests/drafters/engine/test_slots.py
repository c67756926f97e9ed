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


def full(*sizes: int) -> Slots:
    """Memory filled with kept texts of these sizes, the first the longest unused."""
    slots = Slots(sum(sizes))
    places = [slots.reserve(size) for size in sizes]
    for place, size in zip(places, sizes, strict=True):
        assert place is not None
        slots.keep(place, size, range(size))
    return slots


def test_only_what_lies_together_is_given_up() -> None:
    """Six texts of two side by side, used last in this order: 2nd, 5th, 3rd, 6th, 1st, 4th. Four slots in a row take two
    neighbours, and of these the 2nd and 3rd have been unused for longest; giving up the oldest ones one by one would have
    taken the 5th as well."""
    slots = full(2, 2, 2, 2, 2, 2)
    for slot in (2, 8, 4, 10, 0, 6):
        slots.touch(next(entry for entry in slots.kept if entry.slot == slot))
    assert slots.reserve(4) == 2
    assert [entry.slot for entry in slots.kept] == [8, 10, 0, 6]


def test_no_more_is_given_up_than_it_takes() -> None:
    """The newest of three texts, of eight slots, is needed for nine in any case; the one of two beside it suffices, and
    the older one of five stays."""
    slots = full(5, 8, 2)
    slots.touch(slots.kept[1])
    assert slots.reserve(9) == 5
    assert [entry.slot for entry in slots.kept] == [0]


def test_live_and_spared_runs_part_what_can_be_cleared() -> None:
    """A live run and one to be copied divide twelve slots into three, five and two: four in a row are found in the five
    alone, though those were used last."""
    slots = Slots(12)
    for size in (3, 1, 5, 1, 2):
        slots.reserve(size)
    for slot, size in ((0, 3), (9, 1), (10, 2), (4, 5)):
        slots.keep(slot, size, range(size))
    spared = next(entry for entry in slots.kept if entry.slot == 9)
    assert slots.reserve(6, sparing=spared) is None
    assert slots.reserve(4, sparing=spared) == 4
    assert [entry.slot for entry in slots.kept] == [0, 9, 10]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), min_size=1, max_size=12), st.integers(1, 30))
def test_the_clearing_is_the_best_of_all(texts: list[tuple[int, int]], size: int) -> None:
    """Against trying every place: nowhere is what must go unused for longer, and nowhere as long with fewer tokens."""
    slots = Slots(sum(length for length, _ in texts) + 2)
    places = [(slots.reserve(length), length, pick) for length, pick in texts]
    order = sorted(places, key=lambda place: place[2])
    for slot, length, pick in order:
        assert slot is not None
        if pick == 9:
            continue  # lives on
        slots.keep(slot, length, range(length - (pick % 2 if length > 1 else 0)))
    before = slots.kept
    living = {slot + each for slot, length, pick in places if pick == 9 and slot is not None for each in range(length)}
    costs: list[tuple[int, int]] = []
    for first in range(slots.capacity - size + 1):
        stretch = set(range(first, first + size))
        inside = [
            (use, len(entry.token_ids))
            for use, entry in enumerate(before)
            if stretch & set(range(entry.slot, entry.slot + len(entry.token_ids)))
        ]
        if not stretch & living:
            costs.append((max((use for use, _ in inside), default=-1), sum(tokens for _, tokens in inside)))
    found = slots.reserve(size)
    lost = [(use, len(entry.token_ids)) for use, entry in enumerate(before) if entry not in slots.kept]
    assert (found is None) == (not costs)
    if costs:
        assert (max((use for use, _ in lost), default=-1), sum(tokens for _, tokens in lost)) == min(costs)
    else:
        assert not lost


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
