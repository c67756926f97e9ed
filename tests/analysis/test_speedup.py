"""Speed-up of task time, paired by task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from harness.analysis.run import analyse
from harness.records import StepRecord
from tests.builders import ARM, BASELINE, cell_key, run_folder, solo_tasks, step, waves, workload_entry


def speed_up(folder: Path, records: Sequence[StepRecord], window: str = "steady", **entry: Any) -> list[dict[str, Any]]:
    """Return the rows of one window."""
    frame = analyse(run_folder(folder, records, workloads=[workload_entry(**entry)])).speed_up
    return list(frame.filter(pl.col("window") == window).iter_rows(named=True))


def test_speed_up_is_a_ratio_of_sums(tmp_path: Path) -> None:
    """1 s + 9 s against 1 s + 4 s is 2x, not the mean of 1x and 2.25x."""
    records = solo_tasks(cell_key(BASELINE), [1000, 9000]) + solo_tasks(cell_key(ARM), [1000, 4000])
    (row,) = speed_up(tmp_path, records)
    assert (row["speed_up"], row["n_tasks"]) == (2, 2)


def test_only_tasks_that_succeeded_in_both_arms_are_paired(tmp_path: Path) -> None:
    """A task that failed in the arm is left out of the baseline's sum too."""
    records = solo_tasks(cell_key(BASELINE), [1000, 9000]) + solo_tasks(cell_key(ARM), [500, 100])
    records[3] = replace(records[3], error_kind="timeout", error_message="no answer")
    (row,) = speed_up(tmp_path, records)
    assert (row["speed_up"], row["n_tasks"]) == (2, 1)


@pytest.mark.parametrize(("n_tasks", "limit"), [(4, None), (5, 2)])
def test_an_interval_needs_five_tasks(tmp_path: Path, n_tasks: int, limit: float | None) -> None:
    """Five tasks, each at 2x, have an interval from 2 to 2; how much tasks differ cannot be seen from four."""
    records = solo_tasks(cell_key(BASELINE), [1000] * n_tasks) + solo_tasks(cell_key(ARM), [500] * n_tasks)
    (row,) = speed_up(tmp_path, records)
    assert (row["speed_up"], row["n_tasks"]) == (2, n_tasks)
    assert (row["speed_up_low"], row["speed_up_high"]) == (limit, limit)


def test_repeats_of_a_task_are_one_task(tmp_path: Path) -> None:
    """Two repeats of one task are summed and still one task without an interval."""
    records = []
    for repeat in (1, 2):
        records += solo_tasks(cell_key(BASELINE, repeat=repeat), [1000 * repeat])
        records += solo_tasks(cell_key(ARM, repeat=repeat), [500])
    (row,) = speed_up(tmp_path, records, repeats=2)
    assert (row["speed_up"], row["n_tasks"], row["speed_up_low"]) == (3, 1, None)


def test_waits_dilute_the_speed_up(tmp_path: Path) -> None:
    """Two steps of 1 s against 0.5 s with a wait of 2 s between: 4 s / 3 s with the wait, 2x without."""
    records = []
    for arm, length in ((BASELINE, 1000), (ARM, 500)):
        records.append(step(cell_key(arm), end=length))
        records.append(step(cell_key(arm), step_index=1, due=length + 2000, end=2 * length + 2000))
    (row,) = speed_up(tmp_path, records)
    assert (row["speed_up"], row["speed_up_no_wait"]) == (pytest.approx(4 / 3), 2)


def test_whole_and_steady_windows_are_both_told(tmp_path: Path) -> None:
    """With two slots the longer task of the wave runs on alone: it counts in the whole cell only."""
    records = waves(cell_key(BASELINE, 2), [1000, 4000]) + waves(cell_key(ARM, 2), [1000, 1500])
    (steady,) = speed_up(tmp_path / "a", records, concurrency=[2])
    (whole,) = speed_up(tmp_path / "b", records, "whole", concurrency=[2])
    assert (steady["n_tasks"], steady["speed_up"]) == (1, 1)
    assert (whole["n_tasks"], whole["speed_up"]) == (2, 2)


def test_without_a_baseline_there_is_no_speed_up(tmp_path: Path) -> None:
    """Nothing to compare with is no row, not a speed-up of 1."""
    assert speed_up(tmp_path, solo_tasks(cell_key(ARM), [500]), methods={ARM: "ngram-map-k"}) == []
