"""How many more repeats or tasks a verdict needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.analysis.repeats import Spread, more_repeats, spread, tasks_needed
from harness.analysis.run import analyse
from harness.records import StepRecord
from tests.builders import ARM, BASELINE, cell_key, run_folder, solo_tasks, workload_entry

MANY = 1_000_001  # tasks with which Student's t is 1.96
SEEN = 0.0196  # log of the speed-up; over 1.96 it is 0.01, so variances below 0.0001 tell it from 0


def test_chance_of_single_runs_is_averaged_over_repeats() -> None:
    """Runs add 0.00035 at one repeat: four repeats bring it below 0.0001, two more than the two there are."""
    assert more_repeats(SEEN, Spread(0.0, 0.0, 0.00035 * MANY), MANY, 2) == 2


def test_the_repeats_are_an_even_number() -> None:
    """Three would do, but arms alternate over two: four."""
    assert more_repeats(SEEN, Spread(0.0, 0.0, 0.00025 * MANY), MANY, 2) == 2


def test_a_drift_of_the_machine_is_averaged_over_repeats_too() -> None:
    """Repeats that differ by 0.00055 as a whole take six of them."""
    assert more_repeats(SEEN, Spread(0.0, 0.00055, 0.0), MANY, 2) == 4


def test_no_number_of_repeats_makes_up_for_too_few_tasks() -> None:
    """Tasks that differ by 1 take 10,000 of them, however often each is run."""
    found = Spread(1.0, 0.0, 0.0)
    assert more_repeats(SEEN, found, 100, 2) is None
    assert tasks_needed(SEEN, found, 2) == pytest.approx(10_000, rel=0.01)


def test_one_repeat_cannot_tell_its_own_chance() -> None:
    """With a single repeat nothing is said of repeats, but tasks can be counted."""
    found = Spread(1.0, None, None)
    assert more_repeats(SEEN, found, 100, 1) is None
    assert tasks_needed(SEEN, found, 1) == pytest.approx(10_000, rel=0.01)


def test_no_difference_takes_for_ever() -> None:
    """Nothing that a run can hold shows a difference of nothing."""
    assert tasks_needed(0.0, Spread(1.0, 0.0, 0.0), 2) is None


def test_the_sources_of_spread_are_told_apart() -> None:
    """Two tasks at 1x and 3x in both repeats differ by task; the same 2x that is 1x in one repeat and 3x in the other, by repeat."""
    ones = np.ones((2, 2))
    _, of_tasks = spread(ones, np.array([[1.0, 1.0], [3.0, 3.0]]))
    _, of_repeats = spread(ones, np.array([[1.0, 3.0], [1.0, 3.0]]))
    assert of_tasks.task > 0
    assert of_repeats.repeat is not None and of_repeats.repeat > 0
    assert of_repeats.task == of_tasks.repeat == of_tasks.run == 0


def both(arm_ms: list[float]) -> list[StepRecord]:
    """Return two repeats of tasks that take 1 s in the baseline and so long in the arm."""
    once = [*solo_tasks(cell_key(BASELINE), [1000.0] * len(arm_ms)), *solo_tasks(cell_key(ARM), arm_ms)]
    return [*once, *(replace(record, cell=replace(record.cell, repeat=2)) for record in once)]


def test_six_tasks_that_agree_decide(tmp_path: Path) -> None:
    """Every task is twice as fast in both repeats: nothing more is needed."""
    frame = analyse(run_folder(tmp_path, both([500.0] * 6), workloads=[workload_entry(repeats=2)])).repeats
    row = frame.row(0, named=True)
    assert (row["n_tasks"], row["repeats"], row["decided"], row["repeats_more"]) == (6, 2, True, 0)


def test_tasks_that_disagree_need_more_tasks(tmp_path: Path) -> None:
    """Some twice as fast, some half: repeating the same six does not help, more tasks would."""
    records = both([500.0, 2000.0, 500.0, 1500.0, 500.0, 1600.0])
    row = analyse(run_folder(tmp_path, records, workloads=[workload_entry(repeats=2)])).repeats.row(0, named=True)
    assert (row["decided"], row["repeats_more"]) == (False, None)
    assert row["tasks_needed"] > 6
