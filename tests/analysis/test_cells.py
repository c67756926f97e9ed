"""Figures of whole cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.run import analyse
from harness.records import CellRecord, StepRecord
from tests.builders import cell, cell_key, counters, run_folder, solo_tasks, step, workload_entry

PAIR = cell_key(concurrency=2)


def figures(folder: Path, records: Sequence[StepRecord], cells: Sequence[CellRecord] | None = None) -> dict[str, Any]:
    """Return the row of the only cell."""
    analysis = analyse(run_folder(folder, records, cells, [workload_entry(concurrency=[1, 2])]))
    return dict(analysis.cells.row(0, named=True))


def test_throughput_counts_the_steady_window(tmp_path: Path) -> None:
    """Two slots for two seconds, 20 tokens a step of one second: 40 tokens/s, and 7,200 tasks an hour."""
    records = [
        step(PAIR, f"t{i}", due=due, sent=due, first=due, end=due + 1000, output_tokens=20)
        for i, due in enumerate([0, 0, 1000, 1000])
    ]
    row = figures(tmp_path, records)
    assert (row["steady_s"], row["output_tokens_per_s"], row["tasks_per_hour"]) == (2, 40, 7200)
    assert row["requests_in_flight"] == 2


def test_a_step_across_the_edge_counts_by_its_share(tmp_path: Path) -> None:
    """The window ends after one second; of the step that runs on for a second more, half the tokens count."""
    records = [
        step(PAIR, "t1", first=0, end=1000, output_tokens=10),
        step(PAIR, "t2", first=0, end=2000, output_tokens=10),
    ]
    row = figures(tmp_path, records)
    assert row["output_tokens_per_s"] == pytest.approx(15)  # 10 + 5 in one second
    assert row["output_tokens_per_s_whole"] == pytest.approx(10)  # 20 in two


def test_rates_end_where_the_cancelled_tail_begins(tmp_path: Path) -> None:
    """What a cancelled step would have written is unknown, so tokens are counted up to its start: 10 + 10 in one second."""
    records = [
        step(PAIR, "t1", first=0, end=1000, output_tokens=10),
        step(PAIR, "t2", first=0, end=2000, output_tokens=20),
        step(PAIR, "t3", due=1000, end=2000, phase="cool_down", error_kind="cancelled"),
    ]
    row = figures(tmp_path, records)
    assert (row["steady_s"], row["output_tokens_per_s"]) == (2, 20)


def test_tasks_per_hour_do_not_depend_on_where_the_tail_begins(tmp_path: Path) -> None:
    """Tasks of 1 s and 2 s in two slots take 1.5 s on average: 4,800 an hour, wherever the cancelled tail begins."""
    records = [
        step(PAIR, "t1", end=1000),
        step(PAIR, "t2", end=2000),
        step(PAIR, "t3", due=1000, end=2000, phase="cool_down", error_kind="cancelled"),
    ]
    assert figures(tmp_path, records)["tasks_per_hour"] == pytest.approx(4800)


def test_failed_tasks_take_time_and_finish_nothing(tmp_path: Path) -> None:
    """Of four tasks of 1 s two fail: two in 4 s are 1,800 an hour, in the cell and in the summary alike."""
    failing = [step(cell_key(), f"f{i}", due=1000 * i, end=1000 * (i + 1), error_kind="timeout") for i in (2, 3)]
    records = [*solo_tasks(cell_key(), [1000, 1000]), *failing]
    analysis = analyse(run_folder(tmp_path, records))
    assert analysis.cells["tasks_per_hour"].to_list() == [1800]
    assert analysis.summary["tasks_per_hour"].to_list() == [1800]
    assert analysis.summary["task_time_mean_s"].to_list() == [1]


def test_a_step_that_does_not_tell_its_tokens_leaves_the_rate_unknown(tmp_path: Path) -> None:
    """Of two answers one tells no token count: the rate is not that of the other alone; tasks per hour stand."""
    records = [*solo_tasks(cell_key(), [1000]), step(cell_key(), "t2", due=1000, end=2000, output_tokens=None)]
    row = figures(tmp_path, records)
    assert (row["output_tokens_per_s"], row["output_tokens_per_s_whole"]) == (None, None)
    assert row["tasks_per_hour"] == pytest.approx(3600)


def test_a_cool_down_task_in_its_tool_wait_is_still_in_progress(tmp_path: Path) -> None:
    """Task t1 again, cancelled while it waits for a tool, keeps the load up to the end of the cell."""
    records = [
        step(PAIR, "t1", 0, end=500),
        step(PAIR, "t1", 1, due=500, end=1000),
        step(PAIR, "t2", end=3000),
        step(PAIR, "t1", 0, due=1000, end=1500, phase="cool_down", instance=3),
    ]
    assert figures(tmp_path, records)["steady_s"] == 3


def test_late_requests_show_in_the_cell(tmp_path: Path) -> None:
    """One request that left 80 ms after it was due is the latest of the cell."""
    assert figures(tmp_path, [step(cell_key(), sent=80)])["late_p99_ms"] == 80


def test_cached_share_is_a_ratio_of_sums(tmp_path: Path) -> None:
    """50 of 50 and 0 of 150 prompt tokens from the cache are a quarter of all, not a half."""
    records = solo_tasks(cell_key(), [100], prompt_tokens=50, cached_tokens=50)
    records.append(step(cell_key(), "t2", due=100, end=200, prompt_tokens=150, cached_tokens=0))
    assert figures(tmp_path, records)["cached_share"] == 0.25


@pytest.mark.parametrize(
    ("after", "expected"), [(counters(20, 60, 30), True), (counters(21, 63, 31), False), (counters(19, 57, 30), False)]
)
def test_counters_are_compared_with_the_servers(tmp_path: Path, after: object, expected: bool) -> None:
    """Two steps with 20 drafted and 10 accepted each, against a server that stood at (20, 10) before the cell."""
    spec = counters(5, 20, 10)
    ended = cell(cell_key(), server_before=counters(10, 20, 10), server_after=after)
    row = figures(tmp_path, solo_tasks(cell_key(), [100, 100], spec=spec), [ended])
    assert row["counters_match"] is expected


def test_a_cancelled_request_may_explain_what_the_server_counted_more(tmp_path: Path) -> None:
    """With a cancelled request, a server that counted more is no contradiction: unknown."""
    records = [
        step(cell_key(), spec=counters(5, 20, 10)),
        step(cell_key(), "t2", due=1000, end=1100, phase="cool_down", error_kind="cancelled"),
    ]
    ended = cell(cell_key(), server_before=counters(0, 0, 0), server_after=counters(7, 28, 12))
    assert figures(tmp_path, records, [ended])["counters_match"] is None


def test_without_server_counters_a_match_is_unknown(tmp_path: Path) -> None:
    """An engine that has no counters can neither confirm nor contradict."""
    assert figures(tmp_path, [step(cell_key(), spec=counters(5, 20, 10))])["counters_match"] is None


@pytest.mark.parametrize(("rounds", "total", "expected"), [(5, 10, False), (None, None, True)])
def test_rounds_are_compared_where_both_sides_tell_them(
    tmp_path: Path, rounds: int | None, total: int | None, expected: bool
) -> None:
    """Two steps of 5 rounds against 11 of the server contradict it; steps that tell no rounds agree in their tokens."""
    ended = cell(cell_key(), server_before=counters(0, 0, 0), server_after=counters(11, 40, 20))
    row = figures(tmp_path, solo_tasks(cell_key(), [100, 100], spec=counters(rounds, 20, 10)), [ended])
    assert (row["num_drafts"], row["counters_match"]) == (total, expected)


def test_rounds_known_for_part_of_the_steps_have_no_sum(tmp_path: Path) -> None:
    """5 rounds and an unknown number are not 5 rounds."""
    records = solo_tasks(cell_key(), [100], spec=counters(5, 20, 10))
    records.append(step(cell_key(), "t2", due=100, end=200, spec=counters(None, 20, 10)))
    row = figures(tmp_path, records)
    assert (row["num_drafts"], row["num_draft_tokens"]) == (None, 40)
