"""A run folder that was cut or written to twice is no whole run, and two copies of one run are no two runs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.compare import compare_runs
from harness.analysis.frames import Finding
from harness.analysis.run import analyse
from harness.records import Round
from harness.store import RunFolder
from reports.comparison import console, render
from tests.builders import BASELINE, cell, cell_key, run_folder, step, workload_entry
from tests.comparing import THREE, TWO, run

ARMS = {"d2": {"ko": TWO, "en": TWO}}
NEXT = {"d2": {"ko": THREE, "en": TWO}}
KEYS = {"steps_missing", "steps_doubled", "outputs_missing", "rounds_missing", "cells_missing", "one_run"}


def found(folder: RunFolder) -> dict[str, Finding]:
    """Return what a report finds about the folder itself, by code."""
    return {item.code: item for item in analyse(RunFolder.open(folder.path)).findings if item.code in KEYS}


def differences(before: RunFolder, after: RunFolder) -> list[tuple[str | None, ...]]:
    """Return what a comparison finds about the folders themselves."""
    frame = compare_runs(RunFolder.open(before.path), RunFolder.open(after.path)).differences
    return [row for row in frame.iter_rows() if row[2] in KEYS]


def keep(folder: RunFolder, name: str, *, lines: slice) -> None:
    """Leave only these lines in a file of the folder."""
    file = folder.path / name
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[lines]))


def test_two_whole_runs_lack_nothing(tmp_path: Path) -> None:
    """Nothing is found in either."""
    before, after = run(tmp_path / "a", ARMS), run(tmp_path / "b", NEXT)
    assert (found(before), found(after), differences(before, after)) == ({}, {}, [])


def test_steps_that_were_cut_off_are_missed(tmp_path: Path) -> None:
    """Of 48 steps in four cells 30 are left, the last cell has none and the one before lacks some: both sides of two cells."""
    before, after = run(tmp_path / "a", ARMS), run(tmp_path / "b", NEXT)
    keep(after, "steps.jsonl", lines=slice(30))
    finding = found(after)["steps_missing"]
    assert (finding.severity, finding.workload, finding.arm) == ("invalid", "office", None)
    assert finding.values == {"n_cells": 2, "n_done": 4, "missing": "baseline at 1, d2 at 1"}
    assert differences(before, after) == [("invalid", "office", "steps_missing", None, "2")]
    assert differences(after, before) == [("invalid", "office", "steps_missing", "2", None)]


def test_steps_that_are_all_gone_are_missed(tmp_path: Path) -> None:
    """The cells say that they were finished, and no step is there."""
    folder = run(tmp_path, ARMS)
    folder.steps_file().unlink()
    assert found(folder)["steps_missing"].values["n_cells"] == 4


def test_one_step_out_of_the_middle_is_missed(tmp_path: Path) -> None:
    """The first step of a task is gone, its second is there."""
    folder = run(tmp_path, ARMS)
    lines = folder.steps_file().read_bytes().splitlines(keepends=True)
    folder.steps_file().write_bytes(b"".join(lines[:4] + lines[5:]))
    assert found(folder)["steps_missing"].values["missing"] == "baseline at 1"


def test_a_workload_with_no_step_left_is_named(tmp_path: Path) -> None:
    """All steps of one of two workloads are gone: no pair of them is left to compare, and the comparison says so."""
    entries = [workload_entry(name) for name in ("office", "support")]
    folders = []
    for place, due in (("a", 0), ("b", 1)):
        records = [step(cell_key(arm, workload=name)) for name in ("office", "support") for arm in (BASELINE, "ngram")]
        cells = [cell(record.cell, start_ns=due, end_ns=due + 9) for record in records]
        folders.append(run_folder(tmp_path / place, records, cells, entries))
    keep(folders[1], "steps.jsonl", lines=slice(2))
    assert differences(*folders) == [("invalid", "support", "steps_missing", None, "2")]


def test_a_last_step_that_is_gone_everywhere_is_missed_where_cells_count_steps(tmp_path: Path) -> None:
    """The second of two steps is in no cell, so nothing but the count of the cell tells of it; older cells do not count."""
    for name, counted, expected in (("a", 2, {"steps_missing"}), ("b", 1, set()), ("c", None, set())):
        cells = [cell(cell_key(arm), counted_steps=counted) for arm in (BASELINE, "ngram")]
        folder = run_folder(tmp_path / name, [step(item.cell) for item in cells], cells)
        assert set(found(folder)) == expected


def test_steps_written_twice_are_told(tmp_path: Path) -> None:
    """Every line stands there twice."""
    before, after = run(tmp_path / "a", ARMS), run(tmp_path / "b", NEXT)
    after.steps_file().write_bytes(after.steps_file().read_bytes() * 2)
    finding = found(after)["steps_doubled"]
    assert finding.severity == "invalid"
    assert finding.values == {"n_steps": 48, "n_cells": 4, "missing": "baseline at 1, d2 at 1"}
    assert differences(before, after) == [("invalid", "office", "steps_doubled", None, "48")]


def test_failed_and_cancelled_steps_are_not_missing(tmp_path: Path) -> None:
    """A failed task has rows for the steps after it, and the tail that was cut belongs to no counted task."""
    base, arm = cell_key(BASELINE), cell_key()
    rows = [step(base, "t1"), step(base, "t1", 1), step(arm, "t1", error_kind="timeout")]
    rows += [step(arm, "t1", 1, error_kind="not_sent"), step(arm, "t2", phase="cool_down", error_kind="cancelled")]
    rows += [step(base, "t2"), step(base, "t2", 1), step(arm, "t3"), step(arm, "t3", 1)]
    assert found(run_folder(tmp_path, rows)) == {}


def test_texts_and_rounds_that_are_gone_are_told(tmp_path: Path) -> None:
    """Two texts and the rounds of two steps; what is there of another attempt does not stand in for them."""
    key = cell_key()
    folder = run_folder(tmp_path / "a", [], [cell(key, attempt=2, counted_tasks=2)], texts=())
    for number, text in ((1, "one"), (2, "two")):
        told = replace(step(key, f"t{number}", text=text), attempt=2, spec_source="round")
        folder.append_step(told, text, [Round(1, 2, 1)])
    folder.append_step(replace(step(key), spec_source="round"), None, [Round(1, 2, 1)])
    folder.close()
    assert found(folder) == {}
    keep(folder, "outputs.jsonl", lines=slice(1))
    keep(folder, "rounds.jsonl", lines=slice(1, None))
    gone = found(folder)
    assert gone["outputs_missing"].values == {"n_missing": 1, "n_outputs": 2}
    assert gone["rounds_missing"].values == {"n_missing": 1, "n_steps": 2}
    assert {item.severity for item in gone.values()} == {"warning"}
    (folder.path / "outputs.jsonl").unlink()
    (folder.path / "rounds.jsonl").unlink()
    gone = found(folder)
    assert [gone[code].values["n_missing"] for code in ("outputs_missing", "rounds_missing")] == [2, 2]


def test_a_comparison_tells_texts_that_are_gone(tmp_path: Path) -> None:
    """It stays sound, and what is not in order is named in words of the language."""
    before, after = run(tmp_path / "a", ARMS), run(tmp_path / "b", NEXT)
    (after.path / "outputs.jsonl").unlink()
    assert differences(before, after) == [("warning", None, "outputs_missing", None, "1")]
    said = compare_runs(before, after)
    assert said.sound
    assert console(said, "en").startswith("The pairing is sound, but not everything is in order (1): output texts that")
    assert "outputs.jsonl에 없는 출력 텍스트" in console(said, "ko")


def test_cells_that_a_complete_run_lacks_are_told(tmp_path: Path) -> None:
    """The file of cells was cut to three of four although the run says that it is complete; a run that was stopped says that itself."""
    before, after = run(tmp_path / "a", ARMS), run(tmp_path / "b", NEXT)
    keep(after, "cells.jsonl", lines=slice(3))
    assert differences(before, after) == [("warning", "office", "cells_missing", None, "1")]
    after.manifest["status"] = "stopped: why"
    after.write_manifest()
    assert differences(before, after) == []


def test_two_copies_of_one_run_are_said_to_be_one(tmp_path: Path) -> None:
    """A copy measured nothing: all four cells are the same, whatever the folder is called."""
    before = run(tmp_path / "a", ARMS)
    shutil.copytree(before.path, tmp_path / "b")
    said = compare_runs(before, RunFolder.open(tmp_path / "b"))
    assert said.differences.rows() == [("invalid", None, "one_run", "4", "4")]
    assert console(said, "en").startswith("NOT SOUND (1): cells that are one and the same measurement on both sides.")
    assert "양쪽이 같은 측정인 셀" in render(said, "ko")


@pytest.mark.parametrize("arms", [[("d2", "x2")]])
def test_two_arms_of_one_run_are_no_copies(tmp_path: Path, arms: list[tuple[str, str]]) -> None:
    """Within one run both sides are the same folder, and that is what was asked for."""
    folder = run(tmp_path, {**ARMS, "x2": NEXT["d2"]})
    assert compare_runs(folder, None, arms).differences.is_empty()
