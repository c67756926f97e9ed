"""Steps as columns: what is cut out of a line is what parsing it as JSON says."""

from __future__ import annotations

from pathlib import Path

import orjson
import polars as pl
import pytest

from harness.analysis.rows import MOMENTS, STEP_ROWS
from harness.analysis.step_lines import _cut, parsed, read_lines
from harness.records import StepRecord
from tests.builders import cell_key, counters, step

KEY = cell_key()
PLAIN = [
    step(KEY, "t1"),
    step(KEY, "t2", spec=counters(3, 12, 6, [3, 2, 1, 0]), spec_source="round", decode_passes=5),
    step(KEY, "t3", spec=counters(0, 0, 0, []), spec_source="round"),
    step(cell_key("초안"), "t4", text=None),
    step(KEY, "t5", error_kind="timeout", error_message="no answer after 30 s"),
]
ODD = [
    step(KEY, "t6", error_kind="http_status", error_message="503: overloaded"),
    step(KEY, "t7", error_kind="http_status", error_message='"busy", said the server\n'),
    step(KEY, "t:8"),
]


def written(path: Path, lines: list[bytes]) -> Path:
    """Write lines and return their file."""
    file = path / "steps.jsonl"
    file.write_bytes(b"".join(lines))
    return file


def line(record: StepRecord) -> bytes:
    """Return a record as a run writes it."""
    return orjson.dumps(record.to_row()) + b"\n"


def same(file: Path) -> pl.DataFrame:
    """Return the rows of a file after seeing that the slow reading says the same."""
    found = read_lines(file, STEP_ROWS, MOMENTS)
    assert found.schema == STEP_ROWS
    assert found.equals(parsed(file, STEP_ROWS))
    return found


def test_plain_lines_are_cut(tmp_path: Path) -> None:
    """Numbers, texts in Korean, lists, an empty one too, and what is unknown; no line needs to be parsed."""
    file = written(tmp_path, [line(record) for record in PLAIN])
    found = same(file)
    assert found["num_accepted_tokens_per_pos"].to_list() == [None, [3, 2, 1, 0], [], None, None]
    assert found["arm"].to_list() == ["ngram", "ngram", "ngram", "초안", "ngram"]
    cut = _cut(file, STEP_ROWS, MOMENTS)
    assert cut is not None
    assert not cut["odd"].any()


def test_odd_lines_among_many_are_parsed(tmp_path: Path) -> None:
    """A colon, a quotation mark or a break in a text, and keys in another order: rows stay in their order."""
    turned = orjson.dumps(dict(reversed(PLAIN[0].to_row().items()))) + b"\n"
    lines = [*[line(record) for record in PLAIN * 6], *map(line, ODD), turned, b"\n", *map(line, PLAIN * 6)]
    found = same(written(tmp_path, lines))
    assert found["task_id"].to_list()[30:35] == ["t6", "t7", "t:8", "t1", "t1"]
    assert found["error_message"].to_list()[30:32] == ["503: overloaded", '"busy", said the server\n']


def test_where_most_lines_are_odd_all_are_parsed(tmp_path: Path) -> None:
    """Three lines with colons."""
    assert same(written(tmp_path, [line(record) for record in ODD])).height == 3


@pytest.mark.parametrize("end", [b'{"workload": "off', line(PLAIN[0])[:-1], line(PLAIN[0])[:-2]])
def test_a_last_line_without_its_end_is_left_out(tmp_path: Path, end: bytes) -> None:
    """Cut early or only just before its end."""
    assert same(written(tmp_path, [*map(line, PLAIN), end])).height == len(PLAIN)
    assert same(written(tmp_path, [end])).is_empty()


@pytest.mark.parametrize("damage", [b"{broken\n", b'{"workload":"office"\n', b"7\n", line(PLAIN[0]).replace(b"}", b"")])
def test_damage_is_refused(tmp_path: Path, damage: bytes) -> None:
    """One line that is no step among twenty that are."""
    lines = [line(record) for record in PLAIN * 4]
    with pytest.raises(pl.exceptions.PolarsError):
        read_lines(written(tmp_path, [*lines, damage, *lines]), STEP_ROWS, MOMENTS)
