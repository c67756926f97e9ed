"""Percentiles with the tasks behind them, and bounds where those are too few."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.percentiles import order_statistics, relied_on_from
from harness.analysis.run import analyse
from harness.records import StepRecord
from tests.builders import BASELINE, cell_key, run_folder, solo_tasks, workload_entry


@pytest.mark.parametrize(("percent", "tasks"), [(50, 11), (90, 64), (99, 662)])
def test_a_percentile_is_relied_on_once_two_tasks_surely_lie_beyond_it(percent: int, tasks: int) -> None:
    """The numbers of MLPerf Inference: 64 for p90, 662 for p99."""
    assert relied_on_from(percent) == tasks


@pytest.mark.parametrize(
    ("n", "percent", "bounds"),
    [
        (5, 50, (None, None)),  # from the smallest to the largest of five covers the median in 15 of 16 cases only
        (6, 50, (1, 6)),  # of six in 31 of 32
        (20, 50, (6, 15)),  # as the tables of the sign test say
        (72, 99, (69, None)),  # even the largest of 72 lies below p99 in half of all cases
    ],
)
def test_order_statistics_that_bound_a_percentile(n: int, percent: int, bounds: tuple[int | None, int | None]) -> None:
    """Each bound holds in 97.5 % of all samples; where no value does, there is none."""
    assert order_statistics(n, percent) == bounds


def rows(folder: Path, records: list[StepRecord], **entry: Any) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the percentiles of one cell by metric and percent."""
    frame = analyse(run_folder(folder, records, workloads=[workload_entry(**entry)])).percentiles
    return {(row["metric"], row["percent"]): row for row in frame.iter_rows(named=True)}


def test_a_percentile_comes_with_its_bounds_and_a_too_high_one_with_a_lower_bound_only(tmp_path: Path) -> None:
    """Twenty tasks of 1 to 20 s: the median is 10.5, between 6 and 15; p99 cannot be said, but it is no less than 19."""
    found = rows(tmp_path, solo_tasks(cell_key(BASELINE), [1000.0 * second for second in range(1, 21)]))
    names = ("observed", "observed_low", "observed_high", "n", "n_tasks", "n_needed")
    assert [found["task_time", 50][name] for name in names] == pytest.approx([10.5, 6, 15, 20, 20, 11])
    assert [found["task_time", 99][name] for name in names] == pytest.approx([None, 19, None, 20, 20, 662])


def test_two_runs_of_a_task_are_one_look_at_the_world(tmp_path: Path) -> None:
    """The same twenty tasks in two repeats have forty values and the bounds of twenty."""
    once = solo_tasks(cell_key(BASELINE), [1000.0 * second for second in range(1, 21)])
    twice = [*once, *(replace(record, cell=replace(record.cell, repeat=2)) for record in once)]
    row = rows(tmp_path, twice, repeats=2)["task_time", 50]
    assert [row[name] for name in ("observed_low", "observed_high", "n", "n_tasks")] == pytest.approx([6, 15, 40, 20])


@pytest.mark.parametrize(("tasks", "severity"), [(9, "warning"), (20, "note")])
def test_an_objective_that_rests_on_too_few_tasks_is_told(tmp_path: Path, tasks: int, severity: str) -> None:
    """Nine tasks cannot judge p90, twenty can but do not bear reliance; either way it is said how many are needed."""
    records = solo_tasks(cell_key(BASELINE), [500.0] * tasks)
    folder = run_folder(tmp_path, records, workloads=[workload_entry(slo={"task_time_p90": "1s"})])
    told = [item for item in analyse(folder).findings if item.code == "percentile_unsure"]
    assert [(item.severity, item.values["n_needed"], item.values["n_tasks"]) for item in told] == [
        (severity, 64, tasks)
    ]
