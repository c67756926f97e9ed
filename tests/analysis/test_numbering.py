"""One number in the place of several columns."""

from __future__ import annotations

import polars as pl

from harness.analysis.numbering import numbered

ROWS = pl.DataFrame({"task": ["a", "b", "a", "a"], "step": [0, 0, 1, 0], "far": [-(1 << 62), 1 << 62, 0, -(1 << 62)]})


def test_rows_that_are_equal_share_a_number_and_others_do_not() -> None:
    """Of a-0, b-0, a-1 and a-0 the first and the last are one."""
    number = numbered(ROWS, ("task", "step")).to_list()
    assert number[0] == number[3]
    assert len(set(number)) == 3


def test_numbers_too_far_apart_to_be_packed_are_told_apart_all_the_same() -> None:
    """Two values that lie 2^63 apart leave no room for another column in 64 bits."""
    number = numbered(ROWS, ("task", "step", "far")).to_list()
    assert number[0] == number[3]
    assert len(set(number)) == 3


def test_what_is_unknown_has_no_number() -> None:
    """A row without a task is no row of any task."""
    rows = pl.DataFrame({"task": ["a", None], "step": [0, 0]})
    assert [number is None for number in numbered(rows, ("task", "step"))] == [False, True]
