"""How long work still takes, by a clock of the test's own."""

from __future__ import annotations

from drafters.training.progress import Pace


def test_what_is_left_goes_by_the_pace_so_far() -> None:
    """Ten pieces in twenty seconds: thirty more take a minute, three hundred ten."""
    times = iter([100.0, *[120.0] * 3])
    pace = Pace(clock=lambda: next(times))
    assert pace.per_second(10) == 0.5
    assert pace.left(10, 30) == "about 60 s left"
    assert pace.left(10, 300) == "about 10.0 min left"


def test_before_anything_is_done_nothing_is_claimed() -> None:
    """No piece yet: no division by it."""
    assert Pace().left(0, 30) == "what is left is not known"


def test_something_is_said_every_five_seconds() -> None:
    """Not after four, after five once, and again after ten."""
    times = iter([100.0, 104.0, 105.0, 105.0, 109.0, 110.0])
    pace = Pace(5.0, lambda: next(times))
    assert [pace.due() for _ in range(5)] == [False, True, False, False, True]
