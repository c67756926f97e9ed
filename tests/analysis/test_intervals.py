"""Intervals of ratios of sums, group by group."""

from __future__ import annotations

import polars as pl
import pytest

from harness.analysis.intervals import add_ratio, draws_of, grouped, ratio_limits


def rows(values: dict[str, list[tuple[float, float]]]) -> pl.DataFrame:
    """Return tasks a, b, … of some groups with what stands above and below."""
    found = [
        (group, "abcdefghij"[index], above, below)
        for group, pairs in values.items()
        for index, (above, below) in enumerate(pairs)
    ]
    return pl.DataFrame(found, schema=["group", "task_id", "up", "down"], orient="row")


def test_an_interval_lies_between_the_extreme_tasks() -> None:
    """Five tasks with ratios from 1 to 2: no draw goes beyond, and the interval has a width."""
    [group] = grouped(rows({"x": [(1, 1), (1, 1), (2, 1), (2, 1), (1.5, 1)]}), ["group"], ["up", "down"])
    [(low, high)] = ratio_limits([group])
    assert low is not None
    assert high is not None
    assert 1 <= low < 1.5 < high <= 2


def test_a_group_has_the_same_interval_alone_and_among_others() -> None:
    """Other groups of as many tasks share the draws, and change nothing."""
    one = [(float(value), 2.0) for value in range(1, 7)]
    alone = ratio_limits(grouped(rows({"x": one}), ["group"], ["up", "down"]))
    others = ratio_limits(grouped(rows({"w": [(9, 1)] * 6, "x": one, "y": [(1, 1)] * 5}), ["group"], ["up", "down"]))
    assert alone[0] == others[1]
    assert others[0] == (9, 9)


def test_tasks_that_bear_nothing_are_not_counted_for_an_interval() -> None:
    """Six tasks of which two have anything to divide by: no interval."""
    assert ratio_limits(grouped(rows({"x": [(1, 1), (2, 1), *[(0, 0)] * 4]}), ["group"], ["up", "down"])) == [
        (None, None)
    ]


def test_two_ratios_of_one_group_draw_the_same_tasks() -> None:
    """A ratio less itself is 0 in every draw."""
    data = rows({"x": [(1, 1), (5, 2), (2, 3), (7, 1), (1, 9)]}).with_columns(up_after="up", down_after="down")
    [group] = grouped(data, ["group"], ["up", "down", "up_after", "down_after"])
    assert not (draws_of(group, 2, 3) - draws_of(group, 0, 1)).any()


def test_a_ratio_is_joined_to_its_group_null_ones_too() -> None:
    """Σ above / Σ below plus the bonus token; a group without anything below has none."""
    data = rows({"x": [(1, 2), (3, 2)], "y": [(1, 0)]}).with_columns(pl.col("group").replace({"x": None}))
    frame = add_ratio(data.select("group").unique(), data, ["group"], "length", "up", "down", plus=1.0)
    assert dict(frame.select("group", "length").iter_rows()) == {None: pytest.approx(2.0), "y": None}
