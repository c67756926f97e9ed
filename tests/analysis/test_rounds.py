"""Rounds read back as columns."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from harness.analysis.rounds import LEAST, engine_rounds, read_rounds
from harness.errors import RunFolderError
from harness.records import Round, StepRecord
from harness.store import RunFolder
from tests.builders import cell_key, step, workload_entry

KEY = cell_key(concurrency=2)
CELLS = pl.DataFrame(
    {
        "cell": pl.Series([7], dtype=pl.UInt32),
        "workload": ["office"],
        "arm": ["ngram"],
        "concurrency": [2],
        "repeat": [1],
        "attempt": [1],
        "status": ["done"],
    }
)


def round_(index: int, drafted: int, batch: int = 2, **fields: int) -> Round:
    """Return one request's share of a round that took 10 ms to verify."""
    return Round(100 + index, drafted, 0, batch, index, 1_000_000, 10_000_000, 0, **fields)


def written(path: Path, *rows: tuple[StepRecord, list[Round]]) -> RunFolder:
    """Return a run folder with these steps and their rounds."""
    folder = RunFolder.create(path / "run", {"created": "now", "engine": None, "workloads": [workload_entry()]})
    for record, rounds in rows:
        folder.append_step(record, rounds=rounds)
    folder.close()
    return folder


def test_two_requests_that_shared_a_round_are_one_round_of_the_engine(tmp_path: Path) -> None:
    """3 and 1 drafted tokens of two requests are 4 in one round, the longest 3; its time is told once."""
    folder = written(
        tmp_path,
        (step(KEY, "t1"), [round_(5, 3, prefill_tokens=0, context_tokens=900)]),
        (step(KEY, "t2"), [round_(5, 1, prefill_tokens=0, context_tokens=900)]),
    )
    rounds = read_rounds(folder, CELLS)
    assert rounds.height == 2
    (found,) = engine_rounds(rounds).iter_rows(named=True)
    assert {name: found[name] for name in ("cell", "round_index", "batch_size", "num_draft_tokens", "longest")} == {
        "cell": 7, "round_index": 5, "batch_size": 2, "num_draft_tokens": 4, "longest": 3,
    }  # fmt: skip
    assert (found["verify_ns"], found["context_tokens"]) == (10_000_000, 900)


def test_a_round_of_which_a_request_is_missing_does_not_count(tmp_path: Path) -> None:
    """Its drafted tokens would be too few for its time."""
    folder = written(tmp_path, (step(KEY, "t1"), [round_(5, 3), round_(6, 3, batch=1)]))
    assert engine_rounds(read_rounds(folder, CELLS))["round_index"].to_list() == [6]


def test_rounds_without_times_are_read_and_are_no_rounds_of_the_engine(tmp_path: Path) -> None:
    """llama.cpp tells drafts and acceptance of its rounds alone."""
    rounds = read_rounds(written(tmp_path, (step(KEY, "t1"), [Round(1, 4, 2), Round(2, 3, 3)])), CELLS)
    assert rounds["num_draft_tokens"].to_list() == [4, 3]
    assert engine_rounds(rounds).is_empty()


def test_only_finished_attempts_that_count_are_read(tmp_path: Path) -> None:
    """A failed attempt and another cell leave no rows."""
    folder = written(
        tmp_path,
        (step(KEY, "t1", attempt=2), [round_(1, 3)]),
        (step(cell_key("baseline"), "t1"), [round_(2, 0)]),
        (step(KEY, "t1"), [round_(3, 3)]),
    )
    assert read_rounds(folder, CELLS)["round_index"].to_list() == [3]
    assert read_rounds(folder, CELLS.with_columns(status=pl.lit("failed"))).is_empty()


def test_of_many_rounds_a_stretch_around_the_middle_is_read(tmp_path: Path) -> None:
    """Of 4,000 rounds in 400 steps the middle 300 are taken, all of them in a row."""
    rows = [(step(KEY, f"t{n}"), [round_(10 * n + k, 1, batch=1) for k in range(10)]) for n in range(400)]
    found = read_rounds(written(tmp_path, *rows), CELLS, sample=1)["round_index"].sort()
    assert len(found) == LEAST
    assert found[0] == 1850
    assert found[-1] == 2149


def test_a_half_written_last_line_is_left_out_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    """A kill cuts the last line; anything else is damage."""
    folder = written(tmp_path, (step(KEY, "t1"), [round_(1, 3)]))
    file = folder.rounds_file()
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:-20])
    assert read_rounds(folder, CELLS).height == 1
    file.write_bytes(whole.replace(b'"rounds":[[', b'"rounds":[3,['))
    with pytest.raises(RunFolderError, match=r"rounds\.jsonl"):
        read_rounds(folder, CELLS)


def test_a_run_without_rounds_has_none(tmp_path: Path) -> None:
    """No file, no rows."""
    assert read_rounds(written(tmp_path, (step(KEY, "t1"), [])), CELLS).is_empty()
