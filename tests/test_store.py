"""A run folder: what is appended is read back, and a kill in the middle of a line loses that line alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import RunFolderError
from harness.records import CellKey, CellRecord, CellStatus, Round, SpecCounters, StepRecord
from harness.store import Output, RunFolder, text_sha256

KEY = CellKey("w", "drafted", 4, 1)


def step(index: int, text: str | None = "출력") -> StepRecord:
    """Return a successful step of a drafting arm."""
    return StepRecord(
        cell=KEY,
        attempt=1,
        phase="counted",
        instance=0,
        task_id="t1",
        step_index=index,
        kind="plan",
        language="ko",
        due_ns=100,
        sent_ns=101,
        first_token_ns=105,
        end_ns=115,
        tool_wait_ns=0,
        max_tokens=32,
        prompt_tokens=9,
        cached_tokens=None,
        output_tokens=6,
        output_sha256=None if text is None else text_sha256(text),
        decode_passes=3,
        spec=SpecCounters(2, 6, 3, (2, 1, 0)),
        spec_source="round",
        finish_reason="stop",
        chunks=6,
    )


def cell(status: CellStatus = "done") -> CellRecord:
    """Return a cell whose server counted two rounds."""
    return CellRecord(KEY, 1, 0, status, 0, 10, 3, "salt", SpecCounters(0, 0, 0, (0,)), SpecCounters(2, 6, 3, (2,)))


def test_round_trip(tmp_path: Path) -> None:
    """Steps, cells and outputs come back equal; an output that appears twice is stored once."""
    run = RunFolder.create(tmp_path / "run", {"created": "now"})
    for index in (0, 1):
        run.append_step(step(index), "출력", [Round(103, 3, 2, 4)])
    run.append_cell(cell())
    run.close()
    again = RunFolder.open(tmp_path / "run")
    assert list(again.steps()) == [step(0), step(1)]
    assert list(again.cells()) == [cell()]
    assert list(again.outputs()) == [Output(text_sha256("출력"), "출력", None)]
    assert [row["rounds"] for row in again.rows("rounds.jsonl")] == [[[103, 3, 2, 4]]] * 2
    assert again.manifest["created"] == "now"


def test_rounds_are_read_back(tmp_path: Path) -> None:
    """What the engine told of a round comes back, what it did not tell is None, and short rows of older runs are read too."""
    whole = Round(103, 3, 2, 4, round_index=9, draft_ns=10, verify_ns=20, host_ns=None)
    run = RunFolder.create(tmp_path / "run", {})
    run.append_step(step(0), rounds=[whole, Round(104, 0, 0)])
    run.append_step(step(1), rounds=[Round(105, 3, 1, 2)])
    run.append_step(step(2))
    run.append_step(step(3), rounds=[Round(106, 1, 1, 1, 10, 1, 2, 3, prefill_tokens=0, context_tokens=50)])
    run.close()
    rows = [row["rounds"] for row in run.rows("rounds.jsonl")]
    assert rows == [
        [[103, 3, 2, 4, 9, 10, 20, None], [104, 0, 0, None]],
        [[105, 3, 1, 2]],
        [[106, 1, 1, 1, 10, 1, 2, 3, 0, 50]],
    ]
    found = list(RunFolder.open(run.path).rounds())
    assert [(item.cell, item.step_index, item.task_id) for item in found] == [
        (KEY, 0, "t1"),
        (KEY, 1, "t1"),
        (KEY, 3, "t1"),
    ]
    assert [item.rounds for item in found][:2] == [(whole, Round(104, 0, 0)), (Round(105, 3, 1, 2),)]
    assert found[2].rounds[0].context_tokens == 50


def test_unknown_stays_unknown(tmp_path: Path) -> None:
    """A step of an engine that tells nothing keeps None, not 0, through the file."""
    run = RunFolder.create(tmp_path / "run", {})
    bare = StepRecord(
        **{
            **{f: getattr(step(0), f) for f in StepRecord.__slots__},
            "spec": None,
            "spec_source": None,
            "output_tokens": None,
        }
    )
    run.append_step(bare)
    assert next(RunFolder.open(run.path).steps()).spec is None
    assert json.loads((run.path / "steps.jsonl").read_text())["num_accepted_tokens"] is None


def test_half_written_line_is_cut(tmp_path: Path) -> None:
    """After a kill inside a write the whole lines are read, and repair makes room for the next append."""
    run = RunFolder.create(tmp_path / "run", {})
    run.append_step(step(0))
    run.close()
    with run.steps_file().open("ab") as stream:
        stream.write(b'{"workload": "w", "arm"')
    again = RunFolder.open(run.path)
    assert list(again.steps()) == [step(0)]
    assert again.repair() == 1
    again.append_step(step(1))
    assert list(again.steps()) == [step(0), step(1)]


def test_damaged_line_inside_is_told(tmp_path: Path) -> None:
    """A damaged line that is not the last one is an error with its number, never skipped."""
    run = RunFolder.create(tmp_path / "run", {})
    run.append_step(step(0))
    run.close()
    content = run.steps_file().read_bytes()
    run.steps_file().write_bytes(content + b"\x00\x00\n" + content)
    with pytest.raises(RunFolderError, match=r"steps\.jsonl:2: damaged line"):
        list(RunFolder.open(run.path).steps())


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    """While one process writes to a run, another cannot; after it closed the folder, it can."""
    run = RunFolder.create(tmp_path / "run", {})
    with pytest.raises(RunFolderError, match="is in use by a run that goes on"):
        RunFolder.open(run.path).lock()
    run.close()
    RunFolder.open(run.path).lock()


def test_a_full_disk_is_told_with_how_to_go_on(tmp_path: Path) -> None:
    """A write that fails is an error that names the folder and the way to continue."""
    run = RunFolder.create(tmp_path / "run", {})
    (run.path / "steps.jsonl").symlink_to("/dev/full")
    with pytest.raises(
        RunFolderError, match="No space left on device; make room, then continue with: harness run --resume"
    ):
        run.append_step(step(0))


def test_only_done_cells_count_as_done(tmp_path: Path) -> None:
    """A failed cell is kept on record and is run again."""
    run = RunFolder.create(tmp_path / "run", {})
    run.append_cell(cell("failed"))
    assert run.done_cells() == {}
    run.append_cell(cell("done"))
    assert run.done_cells() == {KEY: 1}


def test_refuses_to_overwrite_a_run(tmp_path: Path) -> None:
    """A folder that already holds a run is never written over."""
    RunFolder.create(tmp_path / "run", {})
    with pytest.raises(RunFolderError, match="already holds a run"):
        RunFolder.create(tmp_path / "run", {})


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "is no run folder"), ("{", "damaged"), ('{"format": 99}', "format 99"), ("[]", "format None")],
)
def test_folders_that_cannot_be_opened(tmp_path: Path, content: str | None, words: str) -> None:
    """A missing, damaged or foreign manifest is told in words."""
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(RunFolderError, match=words):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("name", ["steps.jsonl", "rounds.jsonl", "outputs.jsonl", "cells.jsonl"])
def test_a_folder_in_the_place_of_a_line_file_is_told_in_words(tmp_path: Path, name: str) -> None:
    """It is named, before anything is read."""
    RunFolder.create(tmp_path, {}).close()
    (tmp_path / name).mkdir()
    with pytest.raises(RunFolderError, match=f"{name} is no file; put back"):
        RunFolder.open(tmp_path, append=False)


def test_counters_add_and_subtract() -> None:
    """Counters of two windows add up position by position, and an unknown part stays unknown."""
    assert SpecCounters(2, 6, 3, (2, 1)) + SpecCounters(1, 3, 3, (1, 1, 1)) == SpecCounters(3, 9, 6, (3, 2, 1))
    assert SpecCounters(3, 9, 6, (3, 2, 1)) - SpecCounters(1, 3, 3, (1, 1, 1)) == SpecCounters(2, 6, 3, (2, 1, 0))
    assert SpecCounters(None, 6, 3) + SpecCounters(1, 3, 3, (1,)) == SpecCounters(None, 9, 6, None)
