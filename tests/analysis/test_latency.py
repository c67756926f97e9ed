"""Percentiles and the summary of times."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from harness.analysis.latency import needed, quantile
from harness.analysis.run import analyse
from tests.builders import cell_key, run_folder, solo_tasks, workload_entry


@pytest.mark.parametrize(("percent", "values"), [(50, 1), (90, 10), (95, 20), (99, 100)])
def test_a_percentile_needs_tasks_beyond_it(percent: int, values: int) -> None:
    """p90 needs ten tasks, so that at least one is expected above it; a median needs one."""
    assert needed(percent) == values


def test_too_few_values_give_no_percentile() -> None:
    """Nine values have no p90; with ten it lies between the two largest; unknown values do not count."""
    tasks = [f"t{i}" for i in range(10)]
    frame = pl.DataFrame({"task_id": tasks, "nine": [*range(1, 10), None], "ten": range(1, 11)})
    row = frame.select(quantile(pl.col("nine"), 90), quantile(pl.col("ten"), 90)).row(0)
    assert row == (None, pytest.approx(9.1))


def test_repeats_of_few_tasks_give_no_percentile() -> None:
    """Ten values of two tasks have a median and no p90: five looks at a task are not five tasks."""
    frame = pl.DataFrame({"task_id": ["t1", "t2"] * 5, "time": [1, 3] * 5})
    p50, p90 = quantile(pl.col("time"), 50).alias("p50"), quantile(pl.col("time"), 90).alias("p90")
    assert frame.select(p50, p90).row(0) == (2, None)


def test_the_summary_pools_repeats(tmp_path: Path) -> None:
    """Task times of 1 s and 3 s in two repeats: a mean of 2 s over two runs of the task, and 22 tokens in 4 s."""
    records = solo_tasks(cell_key(), [1000]) + solo_tasks(cell_key(repeat=2), [3000])
    for record in records:
        assert record.output_tokens == 11
    analysis = analyse(run_folder(tmp_path, records, workloads=[workload_entry(repeats=2)]))
    row = analysis.summary.row(0, named=True)
    assert (row["n_tasks"], row["task_time_mean_s"], row["task_time_p50_s"]) == (2, 2, 2)
    assert (row["tasks_per_hour"], row["output_tokens_per_s"]) == (1800, 5.5)


def test_a_repeat_without_token_counts_leaves_the_rate_to_the_others(tmp_path: Path) -> None:
    """11 tokens in 1 s, and a repeat of 3 s that tells none: 11 a second, not 11 in 4 s."""
    records = solo_tasks(cell_key(), [1000]) + solo_tasks(cell_key(repeat=2), [3000], output_tokens=None)
    analysis = analyse(run_folder(tmp_path, records, workloads=[workload_entry(repeats=2)]))
    assert analysis.summary["output_tokens_per_s"].to_list() == [11]
