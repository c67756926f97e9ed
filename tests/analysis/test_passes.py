"""What calls saw of the engine while they decoded."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.analysis.loading import read_records
from harness.analysis.passes import batches, decode_passes
from harness.records import StepRecord
from tests.builders import BASELINE, cell_key, counters, run_folder, step, workload_entry

KEY = cell_key(BASELINE, concurrency=2)
PLAN = [workload_entry(concurrency=[2])]


def call(task: str, sent: float, first: float, end: float, **fields: object) -> StepRecord:
    """Return a call that was due at once, had a prompt of 100 tokens and took ten passes."""
    plain = {"decode_passes": 10, "prompt_tokens": 100, "cached_tokens": 0, "output_tokens": 10}
    return step(KEY, task, due=0, sent=sent, first=first, end=end, **(plain | fields))  # type: ignore[arg-type]


def test_a_call_sees_the_others_for_as_long_as_they_decode_beside_it(tmp_path: Path) -> None:
    """t1 decodes from 100 to 300; t2 reads its prompt until 200, then decodes: 1.5 requests on average, 100 prompt tokens in ten passes."""
    found = decode_passes(
        read_records(
            run_folder(tmp_path / "run", [call("t1", 0, 100, 300), call("t2", 100, 200, 300)], None, PLAN)
        ).steps
    ).sort("decode_ms")
    second, first = found.iter_rows(named=True)
    assert (first["batch"], second["batch"]) == (pytest.approx(1.5), pytest.approx(2))
    assert (first["prefill"], second["prefill"]) == (pytest.approx(10), pytest.approx(0))
    assert first["context"] == pytest.approx(105 * 1.5)
    assert first["decode_ms"] == pytest.approx(200)
    assert first["tokens"] == pytest.approx(1.5)


def test_drafted_tokens_are_rows_of_every_pass(tmp_path: Path) -> None:
    """30 drafted tokens in ten passes: a lone request brings 4 tokens to each."""
    key = cell_key(concurrency=1)
    record = step(key, "t1", first=100, end=300, decode_passes=10, spec=counters(10, 30, 12), spec_source="round")
    (row,) = decode_passes(read_records(run_folder(tmp_path / "run", [record])).steps).iter_rows(named=True)
    assert (row["tokens"], row["drafted"]) == (pytest.approx(4), pytest.approx(3))


def test_calls_of_few_passes_and_failed_ones_say_nothing(tmp_path: Path) -> None:
    """Three passes are too few; an engine that tells no passes leaves nothing to divide by."""
    short, untold = call("t1", 0, 100, 300, decode_passes=3), call("t2", 0, 100, 300, decode_passes=None)
    failed = call("t3", 0, 100, 300, error_kind="timeout")
    records = read_records(run_folder(tmp_path / "run", [short, untold, failed], None, PLAN))
    assert decode_passes(records.steps).is_empty()


def test_batches_are_means_over_the_time_of_decoding(tmp_path: Path) -> None:
    """200 ms at 1.5 and 100 ms at 2 are 1.67."""
    records = read_records(
        run_folder(tmp_path / "run", [call("t1", 0, 100, 300), call("t2", 100, 200, 300)], None, PLAN)
    )
    (row,) = batches(decode_passes(records.steps)).iter_rows(named=True)
    assert row["batch"] == pytest.approx((200 * 1.5 + 100 * 2) / 300)
    assert (row["concurrency"], row["passes"]) == (2, 20)
