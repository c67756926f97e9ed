"""Reading records: which attempt of a cell counts, and what a kill leaves behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.run import analyse
from harness.errors import RunFolderError
from tests.builders import ARM, BASELINE, cell, cell_key, run_folder, solo_tasks, step, workload_entry


def test_the_last_finished_attempt_counts_and_others_leave_no_rows(tmp_path: Path) -> None:
    """A cell that was run twice has the steps of its second attempt only."""
    key = cell_key()
    rows = [step(key, end=9000), step(key, end=1000, attempt=2)]
    analysis = analyse(run_folder(tmp_path, rows, [cell(key, "failed"), cell(key, attempt=2)]))
    assert analysis.steps["attempt"].to_list() == [2]
    assert analysis.cells.select("attempt", "status").rows() == [(2, "done")]


def test_a_failed_cell_is_shown_but_not_counted(tmp_path: Path) -> None:
    """A failed cell stands among the cells and its steps among the steps, and no figure rests on it."""
    key = cell_key()
    analysis = analyse(run_folder(tmp_path, [step(key)], [cell(key, "failed")]))
    assert analysis.cells["status"].to_list() == ["failed"]
    assert analysis.steps["steady"].to_list() == [False]
    assert analysis.summary.is_empty()


def test_a_cell_that_was_killed_is_unfinished(tmp_path: Path) -> None:
    """Steps without a record of their cell come from a kill: the cell is unfinished and counts nowhere."""
    analysis = analyse(run_folder(tmp_path, [step(cell_key())], []))
    assert analysis.cells["status"].to_list() == ["unfinished"]
    assert analysis.acceptance.is_empty()


def test_a_cell_of_another_workload_is_foreign(tmp_path: Path) -> None:
    """A finished cell that the manifest does not plan is shown as foreign and counts nowhere."""
    analysis = analyse(run_folder(tmp_path, [step(cell_key(workload="other"))]))
    assert analysis.cells["status"].to_list() == ["foreign"]
    assert analysis.summary.is_empty()


def test_a_half_written_last_line_is_left_out(tmp_path: Path) -> None:
    """What a kill cut off is not read; the lines before it are."""
    folder = run_folder(tmp_path, solo_tasks(cell_key(), [100, 100]))
    with folder.steps_file().open("ab") as stream:
        stream.write(b'{"workload": "off')
    assert len(analyse(folder).steps) == 2


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    """Damage before the last line is an error with file and line, not a shorter run."""
    folder = run_folder(tmp_path, solo_tasks(cell_key(), [100]))
    with folder.steps_file().open("ab") as stream:
        stream.write(b"{broken\n{}\n")
    with pytest.raises(RunFolderError, match=r"steps\.jsonl:2"):
        analyse(folder)


def test_a_manifest_without_workloads_is_refused(tmp_path: Path) -> None:
    """A manifest that lacks its workloads is an error that names what is missing."""
    folder = run_folder(tmp_path, [])
    del folder.manifest["workloads"]
    with pytest.raises(RunFolderError, match="workloads"):
        analyse(folder)


def test_resumed_rows_equal_uninterrupted_rows(tmp_path: Path) -> None:
    """A run that was killed in a cell and resumed has the frames of one that was not, the attempt's number aside."""
    keys = [cell_key(BASELINE), cell_key(ARM)]
    whole = [record for key in keys for record in solo_tasks(key, [300, 400])]
    again = [*whole[:3], *(replace(record, attempt=2) for record in whole[2:])]
    entry = [workload_entry()]
    first = analyse(run_folder(tmp_path / "a", whole, workloads=entry))
    cells = [cell(keys[0]), cell(keys[1], attempt=2, order=1)]
    second = analyse(run_folder(tmp_path / "b", again, cells, workloads=entry))
    assert second.steps.drop("attempt").equals(first.steps.drop("attempt"))
    assert second.speed_up.equals(first.speed_up)
