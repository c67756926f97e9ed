"""Times of steps and tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.analysis.run import analyse
from harness.records import StepRecord
from tests.builders import cell_key, run_folder, step, workload_entry


def only(folder: Path, *records: StepRecord, frame: str = "steps") -> dict[str, Any]:
    """Return the only row of a frame."""
    return dict(getattr(analyse(run_folder(folder, records)), frame).row(0, named=True))


def test_ttft_counts_from_sending_to_the_first_token(tmp_path: Path) -> None:
    """Sent at 100 ms with the first token at 105 ms: 5 ms."""
    row = only(tmp_path, step(cell_key(), due=90, sent=100, first=105, end=115))
    assert row["ttft_s"] == pytest.approx(0.005)


def test_step_latency_counts_from_the_due_time(tmp_path: Path) -> None:
    """Due at 90 ms, sent 10 ms late, ended at 115 ms: 25 ms, the wait at the client included."""
    row = only(tmp_path, step(cell_key(), due=90, sent=100, first=105, end=115))
    assert (row["step_latency_s"], row["late_ms"]) == (pytest.approx(0.025), 10)


def test_tpot_leaves_the_first_token_out(tmp_path: Path) -> None:
    """Eleven tokens, the first at 500 ms, the last at 1,500 ms: ten tokens in a second."""
    assert only(tmp_path, step(cell_key(), first=500, end=1500, output_tokens=11))["tpot_ms"] == 100


def test_tpot_of_one_token_is_unknown(tmp_path: Path) -> None:
    """One token has no time per further token."""
    assert only(tmp_path, step(cell_key(), output_tokens=1))["tpot_ms"] is None


def test_a_failed_step_has_no_times(tmp_path: Path) -> None:
    """How long a failure took is no latency."""
    row = only(tmp_path, step(cell_key(), error_kind="timeout", error_message="no answer in 300 s"))
    assert (row["step_latency_s"], row["ttft_s"], row["tpot_ms"]) == (None, None, None)


def test_task_time_spans_all_steps_and_waits(tmp_path: Path) -> None:
    """Two steps of one second with a wait of three between them: five seconds, two of them without the wait."""
    row = only(tmp_path, step(cell_key(), end=1000), step(cell_key(), step_index=1, due=4000, end=5000), frame="tasks")
    assert (row["task_time_s"], row["task_time_no_wait_s"], row["steps"], row["ok"]) == (5, 2, 2, True)


def test_a_task_with_a_failed_step_has_no_time(tmp_path: Path) -> None:
    """A task that did not end well is not ok and has no task time."""
    failed = step(cell_key(), step_index=1, due=1000, end=1100, error_kind="http_status", error_message="500")
    row = only(tmp_path, step(cell_key()), failed, frame="tasks")
    assert (row["ok"], row["task_time_s"]) == (False, None)


def test_the_cancelled_tail_is_no_failure(tmp_path: Path) -> None:
    """A cool-down step that was cancelled counts neither as a failed step nor as a step at all."""
    tail = step(cell_key(), "t2", due=1000, end=1500, phase="cool_down", error_kind="cancelled")
    row = only(tmp_path, step(cell_key()), tail, frame="cells")
    assert (row["n_steps"], row["n_steps_failed"], row["n_tasks"]) == (1, 0, 1)


def test_only_what_lies_wholly_inside_the_window_is_steady(tmp_path: Path) -> None:
    """With two slots, the task that runs on alone after the other's end is not steady."""
    key = cell_key(concurrency=2)
    records = [step(key, "t1", end=1000), step(key, "t2", end=2000)]
    analysis = analyse(run_folder(tmp_path, records, workloads=[workload_entry(concurrency=[2])]))
    assert analysis.tasks["steady"].to_list() == [True, False]
    assert analysis.summary["n_tasks"].to_list() == [1]


def test_the_warm_up_lies_outside_the_window(tmp_path: Path) -> None:
    """At concurrency 1 a cold warm-up of 9 s fills the only slot too, yet the window is the second after it: 11 tokens in 1 s."""
    warm = step(cell_key(), "t9", end=9000, phase="warm_up")
    row = only(tmp_path, warm, step(cell_key(), due=9000, end=10_000), frame="cells")
    assert (row["steady_s"], row["output_tokens_per_s"], row["tasks_per_hour"]) == (1, 11, 3600)
