"""Objectives and how far they are attained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.run import analyse
from harness.analysis.slo import parse_slo
from harness.errors import UsageError
from tests.builders import BASELINE, cell_key, run_folder, solo_tasks, step, workload_entry


@pytest.mark.parametrize(
    ("name", "text", "metric", "percent", "limit"),
    [
        ("ttft_p90", "2s", "ttft", 90, 2.0),
        ("tpot_p50", "80ms", "tpot", 50, 80.0),
        ("tpot_p50", "0.1s", "tpot", 50, 100.0),
        ("task_time_p90", "1.5min", "task_time", 90, 90.0),
        ("task_time_no_wait_p95", "40 s", "task_time_no_wait", 95, 40.0),
    ],
)
def test_parse(name: str, text: str, metric: str, percent: int, limit: float) -> None:
    """Limits are in seconds, those of TPOT in milliseconds."""
    objective = parse_slo(name, text)
    assert (objective.metric, objective.percent) == (metric, percent)
    assert objective.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tfft_p90", "2s", "did you mean 'ttft_p90'"),
        ("ttft", "2s", "percentile"),
        ("ttft_p0", "2s", "p1 to p99"),
        ("ttft_p90", "2", "unit"),
        ("ttft_p90", "0s", "above 0"),
        ("ttft_p90", "two seconds", "'two seconds'"),
    ],
)
def test_parse_refuses(name: str, text: str, message: str) -> None:
    """A wrong objective is refused with what was given and what is allowed."""
    with pytest.raises(UsageError, match=message):
        parse_slo(name, text)


def test_attainment_counts_failures_as_missed(tmp_path: Path) -> None:
    """Of three fast tasks and one failed one, three quarters attain 1 s; the median is of those that succeeded."""
    key = cell_key(BASELINE)
    records = [*solo_tasks(key, [500, 500, 500]), step(key, "t4", due=1500, end=1600, error_kind="timeout")]
    analysis = analyse(run_folder(tmp_path, records, workloads=[workload_entry(slo={"task_time_p50": "1s"})]))
    row = analysis.slo.row(0, named=True)
    assert (row["objective"], row["limit"], row["observed"], row["n"]) == ("task_time_p50", 1, 0.5, 4)
    assert (row["attained_share"], row["met"]) == (0.75, True)


def test_a_percentile_with_too_few_values_is_neither_met_nor_missed(tmp_path: Path) -> None:
    """Three values have no p90."""
    records = solo_tasks(cell_key(BASELINE), [500, 500, 500])
    analysis = analyse(run_folder(tmp_path, records, workloads=[workload_entry(slo={"ttft_p90": "1s"})]))
    assert analysis.slo.select("observed", "met", "attained_share").row(0) == (None, None, 1)


def test_a_load_attains_with_tasks_that_keep_every_limit(tmp_path: Path) -> None:
    """Task 1 keeps both limits, task 2 misses the first-token time of one step, task 3 the task time: a third."""
    key = cell_key(BASELINE)
    records = [
        step(key, "t1", 0, first=100, end=500),
        step(key, "t1", 1, due=500, first=600, end=1000),
        step(key, "t2", 0, due=1000, first=1900, end=2000),
        step(key, "t2", 1, due=2000, first=2100, end=2100),
        step(key, "t3", 0, due=2100, first=2200, end=9000),
        step(key, "t3", 1, due=9000, first=9100, end=9200),
    ]
    slo = {"ttft_p50": "500ms", "task_time_p50": "2s"}
    analysis = analyse(run_folder(tmp_path, records, workloads=[workload_entry(slo=slo)]))
    assert analysis.summary["slo_attainment"].to_list() == [pytest.approx(1 / 3)]


def test_an_arm_that_fails_most_of_its_tasks_does_not_meet_what_the_rest_keeps(tmp_path: Path) -> None:
    """One fast task of four: its own median keeps 1 s, but only a quarter of the tasks did."""
    key = cell_key(BASELINE)
    failed = [step(key, f"t{i}", due=100 * i, end=100 * i + 100, error_kind="timeout") for i in (5, 6, 7)]
    records = [*solo_tasks(key, [500]), *failed]
    analysis = analyse(run_folder(tmp_path, records, workloads=[workload_entry(slo={"task_time_p50": "1s"})]))
    assert analysis.slo.select("observed", "attained_share", "met").row(0) == (0.5, 0.25, False)


def test_ten_runs_of_one_task_have_no_p90(tmp_path: Path) -> None:
    """A percentile beyond the median needs distinct tasks: ten runs of one are neither met nor missed."""
    records = [replace(record, task_id="t1") for record in solo_tasks(cell_key(BASELINE), [500] * 10)]
    analysis = analyse(run_folder(tmp_path, records, workloads=[workload_entry(slo={"ttft_p90": "1s"})]))
    assert analysis.slo.select("observed", "met", "n").row(0) == (None, None, 10)
