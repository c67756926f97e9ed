"""Figures with intervals: ratios of sums, pairing by task, seeds as blocks."""

from __future__ import annotations

import pytest

from drafters.claims.bootstrap import Sample, mean
from drafters.claims.counts import Row
from tests.drafters.claims.rows import row, rows


def test_acceptance_is_a_ratio_of_sums() -> None:
    """One task of ten rounds with none accepted and one of thirty with all of sixty: 60 / 40, not the mean of 0 and 2."""
    sample = Sample([row("a", 1, accepted=0, rounds=10), row("a", 2, accepted=60, rounds=30)])
    assert sample.acceptance("a").value == 1 + 60 / 40


def test_a_difference_is_paired_by_task() -> None:
    """Tasks that differ widely say nothing of a change that is the same in all of them."""
    hard = [row("before", task, accepted=3 * task) for task in range(1, 9)]
    change = [row("after", task, accepted=3 * task + 5) for task in range(1, 9)]
    sample = Sample([*hard, *change])
    difference = sample.acceptance("after") - sample.acceptance("before")
    assert difference.value == pytest.approx(0.5)
    assert difference.interval == pytest.approx((0.5, 0.5))
    low, high = sample.acceptance("before").interval or (0, 0)
    assert high - low > 0.5


def test_few_tasks_give_a_figure_and_no_interval() -> None:
    """Four are too few, five are not."""
    assert Sample(rows("a", tasks=4)).acceptance("a").interval is None
    assert Sample(rows("a", tasks=5)).acceptance("a").interval == (2.0, 2.0)


def test_seeds_are_drawn_as_blocks() -> None:
    """Three trainings that differ leave an interval, however many tasks agree on each."""
    trained: list[Row] = [each for seed in (1, 2, 3) for each in rows("a", 5 * seed, seed=seed)]
    figure = Sample(trained).acceptance("a")
    assert (figure.value, figure.seeds, figure.tasks) == (2.0, 3, 8)
    assert figure.interval == pytest.approx((1.5, 2.5))


def test_what_is_not_known_is_not_zero() -> None:
    """An arm that drafts nothing has no acceptance; a mean with it has none either."""
    sample = Sample([*rows("baseline", rounds=None, accepted=None), *rows("a")])
    plain = sample.acceptance("baseline")
    assert (plain.value, plain.interval) == (None, None)
    assert mean([plain, sample.acceptance("a")]).value is None


def test_a_ratio_of_times_is_of_the_same_steps() -> None:
    """Half of the time."""
    sample = Sample([*rows("a", seconds=0.5), *rows("baseline", seconds=1.0)])
    assert (sample.seconds("a") / sample.seconds("baseline")).value == 0.5
