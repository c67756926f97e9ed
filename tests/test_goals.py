"""Objectives and thresholds are checked with the workload, before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import WorkloadError
from harness.overrides import Overrides
from harness.prepare import experiment_of

WORKLOADS = Path(__file__).parent.parent / "workloads"
LINES = (WORKLOADS / "office-ko.yaml").read_text(encoding="utf-8").count("\n")


def workload(path: Path, goals: str) -> Path:
    """Write the committed Korean office workload (20 tasks, loads 1, 4 and 16) with goals behind it."""
    text = (WORKLOADS / "office-ko.yaml").read_text(encoding="utf-8")
    text = text.replace("data/office-ko.jsonl", str(WORKLOADS / "data" / "office-ko.jsonl"))
    file = path / "own.yaml"
    file.write_text(f"{text}{goals}\n", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("goals", "said"),
    [
        ("thresholds: ['speed_up{arm=ngrm-simple} >= 1']", "did you mean 'ngram-simple'?"),
        ("thresholds: ['task_time_p90{concurrency=8} <= 40s']", "known: 1, 4, 16"),
        ("thresholds: ['ttft_p99 <= 2s']", "ttft_p99 needs at least 100 different tasks, the workload has 20"),
        ("slo: {task_time_p99: 40s}", "task_time_p99 needs at least 100 different tasks"),
        ("thresholds: ['agents >= 8']", "needs objectives; add a key slo"),
        ("slo: {task_time_p90: '40'}", "with a unit"),
    ],
)
def test_goals_that_cannot_be_judged_are_refused_with_file_and_line(tmp_path: Path, goals: str, said: str) -> None:
    """A wrong arm, a load that is not run, more tasks than there are: said at once, not after an hour."""
    file = workload(tmp_path, goals)
    with pytest.raises(WorkloadError) as error:
        experiment_of([file], Overrides())
    assert str(error.value).startswith(f"{file}:{LINES + 1}: ")
    assert said in str(error.value)


def test_goals_that_can_be_judged_pass(tmp_path: Path) -> None:
    """Selectors, percentiles and agents per server on what the file has."""
    goals = (
        "slo: {task_time_p90: 40s, ttft_p50: 2s}\n"
        "thresholds: ['agents{arm=ngram-simple} >= 8', 'acceptance_length{language=ko,kind=summarize} >= 2.5',"
        " 'task_time_p90{concurrency=16} <= 40s', 'slo_attainment_low >= 90%']"
    )
    experiment = experiment_of([workload(tmp_path, goals)], Overrides())
    assert len(experiment.workloads[0].workload.thresholds) == 4
