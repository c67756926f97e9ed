"""Intervals of the figures that a reader looks at first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.analysis.run import analyse
from tests.analysis.test_agents import at_loads
from tests.builders import ARM, BASELINE, TEXT, cell_key, run_folder, solo_tasks, step, workload_entry


def row(folder: Path, records: list[Any], arm: str, **entry: Any) -> dict[str, Any]:
    """Return the summary of one arm at the only load."""
    summary = analyse(run_folder(folder, records, workloads=[workload_entry(**entry)])).summary
    return next(item for item in summary.iter_rows(named=True) if item["arm"] == arm)


def test_task_time_and_tasks_per_hour_have_one_interval_turned_over(tmp_path: Path) -> None:
    """Five tasks of 1 s and five of 3 s: the mean of 2 s may be anything between, tasks per hour are 3600 ÷ it."""
    found = row(tmp_path, solo_tasks(cell_key(BASELINE), [1000.0, 3000.0] * 5), BASELINE)
    low, high = found["task_time_mean_s_low"], found["task_time_mean_s_high"]
    assert 1 < low < 2 < high < 3
    assert found["tasks_per_hour_low"] == pytest.approx(3600 / high)
    assert found["tasks_per_hour_high"] == pytest.approx(3600 / low)


def test_four_tasks_have_no_interval(tmp_path: Path) -> None:
    """The figure stands, its ends are unknown."""
    found = row(tmp_path, solo_tasks(cell_key(BASELINE), [1000.0, 3000.0] * 2), BASELINE)
    assert found["task_time_mean_s"] == 2
    assert found["task_time_mean_s_low"] is found["tasks_per_hour_high"] is None


def test_unchanged_outputs_have_an_interval(tmp_path: Path) -> None:
    """Two of six tasks write something else: two thirds are identical, and it may be fewer or more."""
    records = solo_tasks(cell_key(BASELINE), [1000.0] * 6)
    for number, record in enumerate(solo_tasks(cell_key(ARM), [500.0] * 6), start=1):
        other = "Something else altogether." if number <= 2 else None
        own = (
            step(record.cell, record.task_id, due=500 * (number - 1), end=500 * number, text=other) if other else record
        )
        records.append(own)
    folder = run_folder(tmp_path, records, workloads=[workload_entry()], texts=(TEXT, "Something else altogether."))
    found = next(item for item in analyse(folder).summary.iter_rows(named=True) if item["arm"] == ARM)
    assert found["identical_share"] == pytest.approx(2 / 3)
    assert 0 <= found["identical_share_low"] < 2 / 3 < found["identical_share_high"] <= 1


def test_all_of_a_few_is_no_certainty(tmp_path: Path) -> None:
    """Six of six tasks keep the service level: with a true share of 54 % that happens once in forty runs, so it may be as low as that."""
    records = solo_tasks(cell_key(BASELINE), [1000.0] * 6)
    kept = row(tmp_path / "kept", records, BASELINE, slo={"task_time_p50": "2s"})
    assert (kept["slo_attainment"], kept["slo_attainment_high"]) == (1, 1)
    assert kept["slo_attainment_low"] == pytest.approx(0.54, abs=0.005)
    missed = row(tmp_path / "missed", records, BASELINE, slo={"task_time_p50": "500ms"})
    assert (missed["slo_attainment"], missed["slo_attainment_low"]) == (0, 0)
    assert missed["slo_attainment_high"] == pytest.approx(0.46, abs=0.005)


def test_goodput_counts_the_time_of_tasks_that_failed(tmp_path: Path) -> None:
    """Of eight tasks of 1 s each, half fail: four good ones in 8 s are 1,800 an hour, not 3,600."""
    records = [
        *solo_tasks(cell_key(BASELINE), [1000.0] * 4),
        *(
            step(cell_key(BASELINE), f"t{number}", due=1000 * (number - 1), end=1000 * number, error_kind="timeout")
            for number in range(5, 9)
        ),
    ]
    found = row(tmp_path, records, BASELINE, slo={"task_time_p50": "2s"})
    assert found["good_tasks_per_hour"] == pytest.approx(1800)
    assert found["slo_attainment"] == 0.5
    assert found["slo_attainment_low"] < 0.5 < found["slo_attainment_high"]


def test_at_more_than_one_agent_goodput_is_that_of_the_server(tmp_path: Path) -> None:
    """Two tasks at a time of 2 s each are 3,600 an hour."""
    found = row(tmp_path, at_loads({(BASELINE, 2): 2000.0}), BASELINE, concurrency=[2], slo={"task_time_p50": "3s"})
    assert found["good_tasks_per_hour"] == pytest.approx(3600)
