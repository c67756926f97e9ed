"""Least squares without negative coefficients."""

from __future__ import annotations

import numpy as np
import pytest

from harness.analysis.nonnegative import nonnegative


def test_a_line_that_fits_exactly_is_found_exactly() -> None:
    """2 + 3x through four points is 2 and 3."""
    x = np.array([0.0, 1.0, 2.0, 5.0])
    found = nonnegative(np.column_stack([np.ones(4), x]), 2 + 3 * x)
    assert found == pytest.approx([2, 3])


def test_what_would_be_negative_is_nothing_and_the_rest_fits_as_well_as_it_can() -> None:
    """A falling line has no non-negative slope: what is left is the mean."""
    x = np.array([0.0, 1.0, 2.0])
    found = nonnegative(np.column_stack([np.ones(3), x]), np.array([3.0, 2.0, 1.0]))
    assert found == pytest.approx([2, 0])


def test_one_wrong_guess_is_taken_back() -> None:
    """The column that looks best alone has no part in the solution: (1, 1) is the sum of the other two."""
    design = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.9], [0.0, 0.0, 0.1]])
    found = nonnegative(design, np.array([1.0, 1.0, 0.0]))
    assert found == pytest.approx([1, 1, 0], abs=1e-9)


def test_columns_of_very_different_size_lose_no_digits() -> None:
    """Thousands of tokens beside ones."""
    tokens = np.array([1000.0, 4000.0, 9000.0])
    found = nonnegative(np.column_stack([np.ones(3), tokens]), 5 + 1e-6 * tokens)
    assert found == pytest.approx([5, 1e-6])


def test_the_gradient_at_the_solution_allows_no_better_one() -> None:
    """Kuhn–Tucker on random problems: used columns have no slope left, unused ones would only make it worse."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        design, target = rng.normal(size=(30, 6)), rng.normal(size=30)
        found = nonnegative(design, target)
        slope = design.T @ (target - design @ found)
        assert (found >= 0).all()
        assert np.abs(slope[found > 0]).max(initial=0) < 1e-8
        assert (slope[found == 0] < 1e-8).all()


def test_a_column_of_zeros_gets_nothing() -> None:
    """Nothing can be said of what never varied from 0."""
    assert nonnegative(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([4.0, 6.0])) == pytest.approx([5, 0])


def test_shapes_that_do_not_fit_are_refused() -> None:
    """A defect of the caller, said at once."""
    with pytest.raises(ValueError, match="do not fit"):
        nonnegative(np.ones((3, 2)), np.ones(2))
