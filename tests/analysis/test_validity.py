"""Every reason to trust a figure less is found, and none in a run that is sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.frames import Finding
from harness.analysis.run import analyse
from harness.analysis.validity import CODES
from harness.records import ENGINE_DIED, CellRecord, StepRecord
from harness.tasks import tasks_sha256
from tests.analysis.test_language import KOREAN
from tests.analysis.test_outputs import LETTER, workload_files
from tests.builders import (
    ARM,
    BASELINE,
    TEXT,
    cell,
    cell_key,
    counters,
    run_folder,
    solo_tasks,
    step,
    waves,
    workload_entry,
)

LOOP = "Thank you for your help. " * 20
SPEC = counters(5, 20, 10)


def found(
    folder: Path, records: Sequence[StepRecord], cells: Sequence[CellRecord] | None = None, **entry: Any
) -> dict[str, Finding]:
    """Return the findings of a run of one workload by code."""
    run = run_folder(folder, records, cells, [workload_entry(**entry)], texts=(TEXT, LOOP, LETTER, KOREAN))
    findings = {finding.code: finding for finding in analyse(run).findings}
    assert all(set(finding.values) == set(CODES[code]) for code, finding in findings.items())
    return findings


def both(lengths: Sequence[float] = (100,) * 10, **fields: Any) -> list[StepRecord]:
    """Return the same tasks in baseline and arm; ``fields`` go to the arm's steps."""
    return solo_tasks(cell_key(BASELINE), lengths) + solo_tasks(cell_key(), lengths, **({"spec": SPEC} | fields))


def test_a_sound_run_has_no_findings(tmp_path: Path) -> None:
    """Ten tasks in both arms, all well, in two repeats: nothing but that no task files are at hand; with one repeat, drift is in it."""
    again = [replace(record, cell=replace(record.cell, repeat=2)) for record in both()]
    findings = found(tmp_path / "two", both() + again, repeats=2)
    assert set(findings) == {"echo_not_checked"}
    assert findings["echo_not_checked"].severity == "note"
    assert findings["echo_not_checked"].values == {"reason": "task_files_missing"}
    assert found(tmp_path / "one", both())["drift_not_cancelled"].values == {"repeats": 1}


def test_no_finished_cell(tmp_path: Path) -> None:
    """A run that finished nothing is invalid as a whole."""
    finding = found(tmp_path, both(), [])["no_finished_cell"]
    assert (finding.severity, finding.values["n_cells"]) == ("invalid", 2)


def test_cells_unfinished(tmp_path: Path) -> None:
    """Of four planned cells one is done, one failed, one cut short, and one never started: both arms lack a repeat."""
    keys = [cell_key(BASELINE), cell_key(), cell_key(BASELINE, repeat=2)]
    records = [step(key) for key in keys]
    finding = found(tmp_path, records, [cell(keys[0]), cell(keys[1], "failed")], repeats=2)["cells_unfinished"]
    counts = {"n_planned": 4, "n_done": 1, "n_failed": 1, "n_unfinished": 2}
    assert finding.values == counts | {"missing": "baseline at 1, ngram at 1"}


def test_a_load_that_was_not_finished_is_named_with_its_arm(tmp_path: Path) -> None:
    """Everything planned at 1 is done, nothing of the arm at 2."""
    records = [*both(), *waves(cell_key(BASELINE, 2), [100] * 10)]
    assert found(tmp_path, records, concurrency=[1, 2])["cells_unfinished"].values["missing"] == "ngram at 2"


def test_failed_warm_up_requests_are_told_without_keys(tmp_path: Path) -> None:
    """Of two warm-up steps one failed and the one after it was not sent; the counted ones went well. The message had a key in it."""
    key = cell_key()
    words = "status 401: no such key sk-abcdefghijklmnopqrstuv"
    failed = step(key, "w1", phase="warm_up", error_kind="http_status", error_message=words)
    after = step(key, "w1", 1, phase="warm_up", error_kind="not_sent", error_message="step 0 failed")
    fine = step(cell_key(BASELINE), "w1", phase="warm_up")
    finding = found(tmp_path, [*both(), failed, after, fine])["warm_up_failed"]
    assert (finding.severity, finding.arm) == ("warning", ARM)
    assert finding.values == {
        "n_failed": 2,
        "n_steps": 2,
        "n_cells": 1,
        "error_kind": "http_status",
        "example": "status 401: no such key ***",
    }


def test_cells_foreign(tmp_path: Path) -> None:
    """A cell that the manifest does not plan is named."""
    records = [*both(), step(cell_key(arm="mtp"))]
    assert found(tmp_path, records)["cells_foreign"].values == {"n_cells": 1}


def test_no_baseline(tmp_path: Path) -> None:
    """Without an arm of method none there is nothing to compare with."""
    assert "baseline_missing" in found(tmp_path, solo_tasks(cell_key(), [100]), methods={ARM: "ngram-map-k"})


def test_an_unfinished_baseline(tmp_path: Path) -> None:
    """A baseline that finished no cell leaves every arm without a comparison."""
    assert found(tmp_path, solo_tasks(cell_key(), [100]))["baseline_unfinished"].values == {"baseline": BASELINE}


def test_a_baseline_that_drafts(tmp_path: Path) -> None:
    """A baseline with drafted tokens is none: invalid."""
    records = solo_tasks(cell_key(BASELINE), [100] * 10, spec=SPEC) + solo_tasks(cell_key(), [100] * 10, spec=SPEC)
    finding = found(tmp_path, records)["baseline_drafted"]
    assert (finding.severity, finding.values["num_draft_tokens"]) == ("invalid", 200)


def test_a_synthetic_arm(tmp_path: Path) -> None:
    """An arm with made-up acceptance is announced."""
    assert "synthetic_arm" in found(tmp_path, both(), methods={BASELINE: "none", ARM: "synthetic"})


def test_temperature_above_zero_and_live_history(tmp_path: Path) -> None:
    """What keeps outputs from being compared is said."""
    assert found(tmp_path / "a", both(), temperature=0.5)["temperature_above_zero"].values == {"temperature": 0.5}
    assert "live_history" in found(tmp_path / "b", both(), history="live")


@pytest.mark.parametrize(("n_failed", "severity"), [(1, "warning"), (9, "invalid")])
def test_steps_failed(tmp_path: Path, n_failed: int, severity: str) -> None:
    """One failed step of ten is a warning with its cause; nine leave no figure of the workload."""
    good = solo_tasks(cell_key(BASELINE), [100] * 10) + solo_tasks(cell_key(), [100] * (10 - n_failed), spec=SPEC)
    bad = [
        step(cell_key(), f"t{20 + i}", due=2000, end=2100, error_kind="http_status", error_message="500")
        for i in range(n_failed)
    ]
    finding = found(tmp_path, [*good, *bad])["steps_failed"]
    assert (finding.severity, finding.arm) == (severity, ARM)
    assert dict(finding.values) == {
        "concurrency": 1, "n_failed": n_failed, "n_steps": 10, "share": n_failed / 10, "error_kind": "http_status", "example": "500"
    }  # fmt: skip


def test_the_load_with_most_failures_speaks_for_the_arm(tmp_path: Path) -> None:
    """All ten steps at 1 are well and the only two at 2 failed: a sixth of the arm's steps, yet invalid at 2."""
    bad = [step(cell_key(concurrency=2), f"t{i}", end=100, error_kind="timeout") for i in (1, 2)]
    finding = found(tmp_path, [*both(), *bad], concurrency=[1, 2])["steps_failed"]
    assert finding.severity == "invalid"
    assert (finding.values["concurrency"], finding.values["n_failed"], finding.values["n_steps"]) == (2, 2, 2)


def test_failures_of_the_baseline_keep_its_name(tmp_path: Path) -> None:
    """A failed step of the baseline is a finding about the baseline."""
    failed = step(cell_key(BASELINE), "t11", due=1000, end=1100, error_kind="timeout")
    assert found(tmp_path, [*both(), failed])["steps_failed"].arm == BASELINE


def late_records() -> list[StepRecord]:
    """Return a baseline that is in time and an arm whose requests leave 60 ms after they were due."""
    records = solo_tasks(cell_key(BASELINE), [100] * 10)
    return records + [
        step(cell_key(), f"t{i}", due=100 * i, sent=100 * i + 60, end=100 * i + 100, spec=SPEC) for i in range(10)
    ]


def test_requests_that_left_late(tmp_path: Path) -> None:
    """Requests that leave 60 ms after they were due show that the client was the bottleneck."""
    finding = found(tmp_path, late_records())["requests_late"]
    assert (finding.arm, finding.values["late_p99_ms"]) == (ARM, pytest.approx(60))


def test_requests_that_were_held_back_are_not_late(tmp_path: Path) -> None:
    """With a limit of requests per second the wait is the workload's own order."""
    assert "requests_late" not in found(tmp_path, late_records(), engine={"max_requests_per_s": 5.0})


@pytest.mark.parametrize(("later", "expected"), [("10:08:00", False), ("10:31:00", True)])
def test_cells_of_one_load_that_ran_far_apart(tmp_path: Path, later: str, expected: bool) -> None:
    """A cell of one minute at ten o'clock and its counterpart seven minutes after it are neighbours, half an hour after it not."""
    times: dict[str, Any] = {"start_ns": 0, "end_ns": 60_000_000_000}
    cells = [
        cell(cell_key(BASELINE), started_at="2026-11-29T10:00:00+00:00", order=0, **times),
        cell(cell_key(), started_at=f"2026-11-29T{later}+00:00", order=1, **times),
    ]
    finding = found(tmp_path, both(), cells).get("cells_far_apart")
    assert (finding is not None) == expected
    if finding is not None:
        assert finding.values == {"concurrency": 1, "gap_min": 30.0}


def test_a_server_still_busy_after_its_cell(tmp_path: Path) -> None:
    """Work left over when the next cell begins is told with the loads it happened at."""
    cells = [cell(cell_key(BASELINE), drained=True), cell(cell_key(), drained=False)]
    assert found(tmp_path, both(), cells)["server_not_drained"].values["n_cells"] == 1


def test_few_tasks(tmp_path: Path) -> None:
    """Nine distinct tasks are too few for a trustworthy interval."""
    assert found(tmp_path, both([100] * 9))["few_tasks"].values == {"n_tasks": 9}


def test_a_steady_window_that_never_came(tmp_path: Path) -> None:
    """One task after the other at concurrency 2: the full load never was there."""
    records = [step(cell_key(concurrency=2), f"t{i}", due=200 * i, end=200 * i + 100) for i in range(3)]
    assert found(tmp_path, records, concurrency=[2])["steady_window_missing"].values["concurrency"] == [2]


def test_a_short_steady_window(tmp_path: Path) -> None:
    """Two at once for one second of ten: a tenth of the cell."""
    records = [step(cell_key(concurrency=2), "t1", end=1000), step(cell_key(concurrency=2), "t2", end=10_000)]
    assert found(tmp_path, records, concurrency=[2])["steady_window_short"].values["share"] == pytest.approx(0.1)


@pytest.mark.parametrize(("slower", "expected"), [(1.2, False), (1.5, True)])
def test_drift_between_repeats(tmp_path: Path, slower: float, expected: bool) -> None:
    """The second repeat takes 1.5 times as long as the first: drift. 1.2 times is what machines do."""
    records = both()
    for arm in (BASELINE, ARM):
        records += solo_tasks(cell_key(arm, repeat=2), [100 * slower] * 10, spec=SPEC if arm == ARM else None)
    findings = found(tmp_path, records, repeats=2)
    assert ("repeats_drift" in findings) is expected
    if expected:
        assert findings["repeats_drift"].values["ratio"] == pytest.approx(1.5)


def test_counters_that_contradict_the_server(tmp_path: Path) -> None:
    """Ten steps of 20 drafted tokens against a server that counted 999."""
    ended = cell(cell_key(), server_before=counters(0, 0, 0), server_after=counters(50, 999, 100))
    finding = found(tmp_path, both(), [cell(cell_key(BASELINE)), ended])["counters_mismatch"]
    assert (finding.severity, finding.values["num_draft_tokens"], finding.values["server_num_draft_tokens"]) == (
        "invalid", 200, 999
    )  # fmt: skip


def test_unknown_acceptance_unknown_rounds_and_nothing_drafted(tmp_path: Path) -> None:
    """No counts, counts without rounds, and zero drafts are three different things."""
    assert "acceptance_unknown" in found(tmp_path / "a", both(spec=None))
    assert "rounds_unknown" in found(tmp_path / "b", both(spec=counters(None, 20, 10)))
    assert "nothing_drafted" in found(tmp_path / "c", both(spec=counters(0, 0, 0)))


def test_rounds_that_are_known_for_part_of_the_steps(tmp_path: Path) -> None:
    """One step of ten without its rounds is told: acceptance length rests on the nine others."""
    records = both([100] * 9)
    records.append(step(cell_key(BASELINE), "t10", due=900, end=1000))
    records.append(step(cell_key(), "t10", due=900, end=1000, spec=counters(None, 20, 10)))
    assert found(tmp_path, records)["rounds_unknown"].values["n_steps"] == 1


def test_cached_shares_that_differ(tmp_path: Path) -> None:
    """An arm that found half of its prompts in the cache, against none in the baseline."""
    finding = found(tmp_path, both(cached_tokens=25))["cached_share_differs"]
    assert (finding.values["cached_share"], finding.values["baseline_cached_share"]) == (0.5, 0)


@pytest.mark.parametrize(("output", "work"), [(6, 4 / 52), (50, None)])
def test_a_small_part_of_a_prompt_can_be_much_of_the_work(tmp_path: Path, output: int, work: float | None) -> None:
    """Four of 50 prompt tokens come from the cache: told where outputs are short (4 of 52 computed), not where they are long (of 96)."""
    finding = found(tmp_path, both(cached_tokens=4, output_tokens=output)).get("cached_share_differs")
    assert (None if finding is None else finding.values["work"]) == (None if work is None else pytest.approx(work))


def test_repeats_that_found_different_shares_in_the_cache(tmp_path: Path) -> None:
    """One repeat of the arm found 6 of 50 prompt tokens, the other none: 6 of 58 computed in the mean, and no word on the baseline."""
    records = both(cached_tokens=6)
    for arm in (BASELINE, ARM):
        records += solo_tasks(cell_key(arm, repeat=2), [100] * 10, spec=SPEC if arm == ARM else None)
    findings = found(tmp_path, records, repeats=2)
    finding = findings["cached_share_varies"]
    assert (finding.arm, finding.values["concurrency"]) == (ARM, 1)
    assert [finding.values[name] for name in ("lowest", "highest", "work")] == [0, 0.12, pytest.approx(6 / 58)]


def test_a_server_that_died_in_a_cell_that_was_run_again(tmp_path: Path) -> None:
    """The cell counts by its second attempt, without a failure; that there was a first is told, for its arm alone."""
    key = cell_key()
    records = [*both(), *solo_tasks(key, [100] * 3, attempt=2, spec=SPEC)]
    died = cell(key, "failed", order=1, error_message=ENGINE_DIED)
    findings = found(tmp_path, records, [cell(cell_key(BASELINE)), died, cell(key, attempt=2, order=1)])
    assert (findings["engine_died"].severity, findings["engine_died"].arm) == ("warning", ARM)
    assert findings["engine_died"].values == {"n_deaths": 1, "n_cells": 1, "n_again": 1, "where": [1]}
    assert "steps_failed" not in findings
    assert "costs_measured_again" not in findings


def test_a_cell_that_failed_otherwise_is_no_death(tmp_path: Path) -> None:
    """A cell in which every task failed says nothing of the server's end."""
    failed = cell(cell_key(), "failed", error_message="every counted task failed")
    assert "engine_died" not in found(tmp_path, both(), [cell(cell_key(BASELINE)), failed])


@pytest.mark.parametrize(("place", "expected"), [(0, False), (1, True), (4, False)])
def test_costs_that_were_measured_again_between_cells(tmp_path: Path, place: int, expected: bool) -> None:
    """The arm's draft lengths rest on measured costs; its cells are the first and the last of four, so a death between tells them apart."""
    keys = [cell_key(), cell_key(BASELINE), cell_key(BASELINE, repeat=2), cell_key(repeat=2)]
    records = [record for key in keys for record in solo_tasks(key, [100] * 10, spec=SPEC if key.arm == ARM else None)]
    cells = [cell(key, order=order) for order, key in enumerate(keys)]
    cells.append(cell(cell_key(BASELINE), "failed", attempt=0, order=place, error_message=ENGINE_DIED))
    arms = [
        {"name": BASELINE, "method": "none", "options": {}},
        {"name": ARM, "method": "ngram", "options": {"lengths": "goodput"}},
    ]
    finding = found(tmp_path, records, cells, repeats=2, arms=arms).get("costs_measured_again")
    assert (finding is not None) is expected
    if finding is not None:
        assert (finding.arm, finding.values) == (ARM, {"n_deaths": 1})


def test_outputs_cut_by_the_limit(tmp_path: Path) -> None:
    """When every answer ends at max_tokens, task times are those of the limit."""
    assert found(tmp_path, both(finish_reason="length"))["cut_by_max_tokens"].values["share"] == 1


def test_repetitive_outputs(tmp_path: Path) -> None:
    """Loops in every step of an arm spoil its acceptance."""
    finding = found(tmp_path, both(text=LOOP))["repetitive_output"]
    assert (finding.arm, finding.severity, finding.values["share"]) == (ARM, "invalid", 1)


@pytest.mark.parametrize(("n_english", "severity"), [(9, "warning"), (4, "invalid")])
def test_loops_in_one_language_spoil_an_arm_that_mostly_writes_it(
    tmp_path: Path, n_english: int, severity: str
) -> None:
    """All Korean steps loop and no English one: a tenth of the arm's steps is a warning about Korean, a fifth voids the arm."""
    records = both([100] * n_english)
    at = 100 * n_english
    records += [step(cell_key(arm), "ko", due=at, end=at + 100, language="ko", text=LOOP) for arm in (BASELINE, ARM)]
    finding = found(tmp_path, records)["repetitive_output"]
    assert (finding.severity, finding.values["language"], finding.values["share"]) == (severity, "ko", 1)


@pytest.mark.parametrize(("n_korean", "severity"), [(1, "warning"), (4, "invalid")])
def test_signs_of_odd_text_add_up(tmp_path: Path, n_korean: int, severity: str) -> None:
    """Of ten English steps four loop; with four others in Korean eight are odd, over half, though neither sign alone is."""
    texts = [LOOP] * 4 + [KOREAN] * n_korean + [TEXT] * (6 - n_korean)
    records = solo_tasks(cell_key(BASELINE), [100] * 10)
    records += [step(cell_key(), f"t{i}", due=100 * i, end=100 * i + 100, text=text) for i, text in enumerate(texts)]
    finding = found(tmp_path, records)["repetitive_output"]
    assert (finding.severity, finding.values["share"], finding.values["n_steps"]) == (severity, 0.4, 10)


def test_outputs_in_another_language(tmp_path: Path) -> None:
    """English answers in steps labelled Korean are a mismatch, told per language."""
    finding = found(tmp_path, both(language="ko"))["output_language_mismatch"]
    assert (finding.values["language"], finding.values["share"]) == ("ko", 1)


def test_outputs_that_copy_the_prompt(tmp_path: Path) -> None:
    """A model that returns its input is found where the task files of the run are at hand."""
    path, task = workload_files(tmp_path)
    records = [step(cell_key(arm), "letter", text=LETTER) for arm in (BASELINE, ARM)]
    findings = found(tmp_path / "run", records, path=str(path), task_ids=["letter"], tasks_sha256=tasks_sha256([task]))
    assert findings["prompt_echo"].values["share"] == 1
    assert "echo_not_checked" not in findings


def test_a_threshold_that_cannot_be_judged(tmp_path: Path) -> None:
    """A percentile with too few values leaves its threshold open, and says why."""
    finding = found(tmp_path, both([100] * 9), thresholds=["task_time_p90 <= 2s"])["threshold_not_evaluated"]
    assert finding.values == {"threshold": "task_time_p90 <= 2s", "reason": "too_few_values"}
