"""Where the rounds of steps are in their file."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.analysis.round_lines import LINES, _read, round_lines
from harness.errors import RunFolderError
from harness.records import Round
from harness.store import RunFolder
from tests.builders import cell_key, step, workload_entry


def written(path: Path) -> RunFolder:
    """Return a run folder with the rounds of two steps: one of one round, one of three."""
    folder = RunFolder.create(path / "run", {"created": "now", "engine": None, "workloads": [workload_entry()]})
    folder.append_step(step(cell_key(concurrency=4), "t7", 2), rounds=[Round(1, 4, 2)])
    folder.append_step(step(cell_key(repeat=2), "t1"), rounds=[Round(1, 4, 2), Round(2, 4, 0), Round(3, 4, 1)])
    folder.close()
    return folder


def test_a_line_is_found_by_the_place_of_its_step(tmp_path: Path) -> None:
    """The place is the list as it is written; offset and length lead to the line."""
    folder = written(tmp_path)
    data = folder.rounds_file().read_bytes()
    found = list(round_lines(folder).iter_rows(named=True))
    assert [row["place"] for row in found] == ['["office","ngram",4,1,1,7,2]', '["office","ngram",1,2,1,1,0]']
    assert b"".join(data[row["offset"] : row["offset"] + row["length"]] for row in found) == data


def test_the_scan_says_what_the_slow_reading_says(tmp_path: Path) -> None:
    """The same rows from the same file, with and without a half-written last line."""
    folder = written(tmp_path)
    assert round_lines(folder).equals(_read(folder))
    data = folder.rounds_file().read_bytes()
    folder.rounds_file().write_bytes(data[:-3])
    assert round_lines(folder).height == 1
    assert round_lines(folder).equals(_read(folder))


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    """A line that is none, and one that ends too soon."""
    folder = written(tmp_path)
    data = folder.rounds_file().read_bytes()
    for damaged in (b"7\n" + data, data.replace(b"]]}\n", b"]]\n", 1)):
        folder.rounds_file().write_bytes(damaged)
        with pytest.raises(RunFolderError, match=r"rounds\.jsonl:1: damaged line"):
            round_lines(folder)


def test_a_run_without_rounds_has_no_lines(tmp_path: Path) -> None:
    """No file, no rows, the same columns."""
    folder = written(tmp_path)
    folder.rounds_file().unlink()
    assert round_lines(folder).schema == LINES
    assert round_lines(folder).is_empty()
