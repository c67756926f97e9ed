"""The bootstrap over tasks."""

from __future__ import annotations

import numpy as np
import pytest

from harness.analysis.bootstrap import DRAWS, draw_counts, interval, intervals, ratio_draws, seed_of, student, tails


def test_the_same_key_draws_the_same_tasks() -> None:
    """A report of the same records never changes."""
    first, second = (np.concatenate(list(draw_counts(5, seed_of("office", "ngram")))) for _ in range(2))
    assert np.array_equal(first, second)


def test_another_key_draws_other_tasks() -> None:
    """Arms do not share their luck by accident."""
    assert seed_of("office", "ngram") != seed_of("office", "mtp")


def test_every_draw_takes_as_many_tasks_as_there_are() -> None:
    """2,000 draws of five tasks hold five each, and on average every task once."""
    counts = np.concatenate(list(draw_counts(5, 1)))
    assert counts.shape == (DRAWS, 5)
    assert set(counts.sum(axis=1)) == {5}
    assert counts.mean(axis=0) == pytest.approx(np.ones(5), abs=0.1)  # 0.1 is over four standard errors of 0.02


def test_tasks_that_are_all_alike_leave_no_uncertainty() -> None:
    """When every task is exactly twice as fast, so is every draw."""
    draws = ratio_draws(np.array([[2.0], [4.0], [6.0]]), np.array([[1.0], [2.0], [3.0]]), 1)
    assert interval(draws[:, 0]) == (2.0, 2.0)


def test_a_draw_of_two_tasks_takes_one_task_twice_half_of_the_time() -> None:
    """With two tasks at 1x and 3x the interval reaches from one to the other."""
    draws = ratio_draws(np.array([[1.0], [3.0]]), np.array([[1.0], [1.0]]), 1)
    assert interval(draws[:, 0]) == (1.0, 3.0)
    assert float((draws == 2).mean()) == pytest.approx(0.5, abs=0.05)  # four standard errors are 0.045


def test_a_load_without_the_drawn_tasks_is_unknown_in_that_draw() -> None:
    """Where none of the drawn tasks ran at a load, that draw has no value there and the interval leaves it out."""
    draws = ratio_draws(np.array([[2.0], [0.0]]), np.array([[1.0], [0.0]]), 1)
    assert np.isnan(draws).any()
    assert interval(draws[:, 0]) == (2.0, 2.0)


def test_limits_may_lie_beyond_the_range() -> None:
    """With four in a hundred draws infinite, the upper limit is infinite and the lower is not."""
    assert interval(np.array([1.0] * 96 + [np.inf] * 4)) == (1.0, np.inf)


def test_no_draw_no_interval() -> None:
    """An interval of nothing is unknown."""
    assert interval(np.array([np.nan, np.nan])) is None


@pytest.mark.parametrize(("freedom", "point"), [(4, 2.776), (9, 2.262), (19, 2.093), (10_000, 1.960)])
def test_the_point_of_students_t(freedom: int, point: float) -> None:
    """As printed in the tables, within the 1 % that the expansion allows itself."""
    assert student(freedom) == pytest.approx(point, rel=0.01)


def test_few_tasks_widen_the_tails_and_many_do_not() -> None:
    """Five tasks leave 0.1 % of the draws outside at each end, twenty 1.6 %, a great many 2.5 %."""
    assert tails(5)[0] == pytest.approx(0.001, abs=0.0002)
    assert tails(20)[0] == pytest.approx(0.016, abs=0.0005)
    assert tails(100_000) == pytest.approx((0.025, 0.975), abs=1e-4)
    draws = np.arange(1000.0)
    few, many = interval(draws, 5), interval(draws, 100_000)
    assert few is not None and many is not None
    assert few[0] < many[0] < many[1] < few[1]


@pytest.mark.parametrize("n_tasks", [5, 11, 54, 5000])
def test_many_intervals_at_once_are_those_of_each(n_tasks: int) -> None:
    """Columns with every kind of value: equal ones, infinite ones, unknown ones, none known."""
    draws = np.random.default_rng(7).normal(size=(DRAWS, 6)).round(1)
    draws[:100, 1], draws[:3, 2], draws[:, 3], draws[5:, 4] = np.inf, np.nan, np.nan, np.nan
    assert intervals(draws, n_tasks) == [interval(column, n_tasks) for column in draws.T]
