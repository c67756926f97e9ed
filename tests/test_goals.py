"""Objectives and thresholds are checked with the workload, before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import cli
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


def test_objectives_of_the_command_line_stand_in_place_of_those_of_the_files(tmp_path: Path) -> None:
    """They are told by their option, and a threshold on agents may rest on them."""
    file = workload(tmp_path, "slo: {ttft_p50: 2s}\nthresholds: ['agents >= 8']")
    found = experiment_of([file], Overrides(slo={"task_time_p90": "40s"})).workloads[0]
    assert found.workload.slo == {"task_time_p90": "40s"}
    assert found.where("slo", "task_time_p90") == "--slo task_time_p90=40s"
    alone = workload(tmp_path, "thresholds: ['agents >= 8']")
    assert experiment_of([alone], Overrides(slo={"task_time_p90": "40s"})).workloads[0].workload.slo


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--slo", "task_time_p90"], "--slo is 'task_time_p90'; give a percentile and its limit"),
        (["--slo", "task_time_p90=40"], "--slo task_time_p90=40: '40' is no limit for task_time"),
        (["--slo", "task_tim_p90=40s"], "did you mean 'task_time_p90'?"),
        (
            ["--slo", "task_time_p99=40s"],
            "own.yaml: task_time_p99 needs at least 100 different tasks, the workload has 20",
        ),
        (["--slo", "ttft_p90=1s", "--slo", "ttft_p90=2s"], "--slo names 'ttft_p90' twice"),
        (["--slo", "ttft_p90=1s", "--resume", "run"], "--resume takes no workloads"),
    ],
)
def test_objectives_of_the_command_line_that_cannot_be_judged_are_refused(
    tmp_path: Path, given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and no run folder."""
    out = tmp_path / "out"
    assert cli.run(["run", str(workload(tmp_path, "")), "--out", str(out), *given]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()
