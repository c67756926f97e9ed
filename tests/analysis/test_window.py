"""The steady window: when is the full concurrency in progress?"""

from __future__ import annotations

import numpy as np

from harness.analysis.window import steady_window

MS = 1_000_000


def window(*spans: tuple[float, float], concurrency: int) -> tuple[float, float] | None:
    """Return the window over tasks given as (start, end) in milliseconds."""
    starts = np.array([start * MS for start, _ in spans], dtype=np.int64)
    ends = np.array([end * MS for _, end in spans], dtype=np.int64)
    found = steady_window(starts, ends, concurrency)
    return None if found is None else (found[0] / MS, found[1] / MS)


def test_the_window_spans_the_time_with_all_slots_busy() -> None:
    """It begins when the second of two tasks starts and ends when the first of them ends."""
    assert window((0, 500), (200, 900), concurrency=2) == (200, 500)


def test_no_window_when_the_level_is_never_reached() -> None:
    """Two tasks one after the other never are two at once."""
    assert window((0, 500), (500, 900), concurrency=2) is None


def test_a_gap_between_a_task_and_its_successor_is_tolerated() -> None:
    """A slot that is empty for 50 ms between two tasks keeps the window open."""
    assert window((0, 500), (550, 900), concurrency=1) == (0, 900)


def test_a_longer_gap_ends_the_window_and_the_longest_stretch_counts() -> None:
    """A slot that is empty for 51 ms is idle: the longer of the two stretches is the window."""
    assert window((0, 300), (351, 900), concurrency=1) == (351, 900)


def test_a_warm_up_before_the_load_does_not_end_the_search() -> None:
    """A lone early task below the level leaves the window to the full load after it."""
    assert window((0, 100), (400, 900), (400, 950), concurrency=2) == (400, 900)


def test_the_first_wave_lies_inside_the_window() -> None:
    """Tasks that start within 50 ms before the level is reached fill the slots: the window begins with the first of them."""
    assert window((0, 500), (10, 600), (20, 700), concurrency=3) == (0, 500)
