"""What Korean loses against English with the same drafter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from harness.analysis.language_loss import language_loss
from harness.analysis.loading import read_records
from harness.records import StepRecord
from tests.builders import ARM, BASELINE, cell_key, counters, run_folder, step

KEY = cell_key(ARM, concurrency=1)


def call(task: int, language: str, accepted: int, kind: str = "reply") -> StepRecord:
    """Return a task of one step of a second: 0.5 s of prompt, 0.5 s of decoding in ten passes that all draft four tokens."""
    spec = counters(10, 40, accepted, [accepted])
    place = {"due": 1000 * task, "end": 1000 * task + 1000}
    rest = {"language": language, "kind": kind, "decode_passes": 10, "spec": spec, "spec_source": "round"}
    return step(KEY, f"t{task + 1}", **place, **rest)  # type: ignore[arg-type]


def loss(path: Path, records: Sequence[StepRecord]) -> pl.DataFrame:
    """Return the language loss of these calls."""
    found = read_records(run_folder(path / "run", records))
    return language_loss(found.steps, found.tasks, found.plans)


def only(frame: pl.DataFrame, load: int | None) -> dict[str, object]:
    """Return the row of Korean against English at a load, or over all."""
    own = frame.filter((pl.col("reference_group") == "en") & pl.col("concurrency").eq_missing(pl.lit(load, pl.Int64)))
    (row,) = own.iter_rows(named=True)
    return row


def test_korean_is_told_what_it_loses_in_tokens_and_in_time(tmp_path: Path) -> None:
    """English accepts 10 in ten rounds (2.0), Korean 5 (1.5): 0.5 lost. 0.5 s of decoding would be 0.375 s: 0.125 s, a quarter; a task of
    1 s would take 0.875 s, so an hour is won back in 7."""
    frame = loss(tmp_path, [call(n, "ko" if n < 6 else "en", 5 if n < 6 else 10) for n in range(12)])
    pooled, row = only(frame, None), only(frame, 1)
    assert (pooled["acceptance_length"], pooled["acceptance_length_reference"]) == (1.5, 2.0)
    assert [pooled[f"acceptance_length_loss{end}"] for end in ("", "_low", "_high")] == [0.5, 0.5, 0.5]
    assert (pooled["time_loss_s"], pooled["win_back"]) == (None, None)
    assert row["time_loss_s"] == pytest.approx(0.125)
    assert row["time_loss_share"] == pytest.approx(0.25)
    assert row["win_back"] == pytest.approx(7)
    assert (row["n_tasks"], row["n_tasks_reference"], row["n_steps"], row["n_kinds"]) == (6, 6, 6, 1)


def test_only_kinds_that_both_have_are_compared_and_weigh_as_in_korean(tmp_path: Path) -> None:
    """Korean: half replies (4), half summaries (8). English edits code brilliantly, which nobody does in Korean; its replies have 6, its
    summaries 10: (6 + 10) / 2 ÷ 10 rounds = 0.8 against 0.6."""
    korean = [call(n, "ko", 4 if n % 2 else 8, "reply" if n % 2 else "summarize") for n in range(6)]
    english = [call(6, "en", 6, "reply"), *(call(n, "en", 10, "summarize") for n in range(7, 11))]
    code = [call(n, "en+code", 40, "code_edit") for n in range(11, 14)]
    row = only(loss(tmp_path, [*korean, *english, *code]), None)
    assert row["acceptance_length"] == pytest.approx(1.6)
    assert row["acceptance_length_reference"] == pytest.approx(1.8)
    assert row["n_kinds"] == 2


def test_without_a_kind_in_common_all_steps_are_compared_and_it_is_said(tmp_path: Path) -> None:
    """0 kinds."""
    records = [call(n, "ko", 5, "summarize") for n in range(5)] + [call(n, "en", 10, "plan") for n in range(5, 10)]
    row = only(loss(tmp_path, records), None)
    assert (row["n_kinds"], row["acceptance_length_loss"]) == (0, 0.5)


@pytest.mark.parametrize(("bare_ms", "win_back"), [(900, 7), (800, None)])
def test_what_would_still_be_slower_than_no_drafter_is_worth_nothing(
    tmp_path: Path, bare_ms: int, win_back: float | None
) -> None:
    """Korean tasks take 1 s, without the loss 0.875 s: faster than 0.9 s without a drafter, slower than 0.8 s."""
    drafted = [call(n, "ko" if n < 6 else "en", 5 if n < 6 else 10) for n in range(12)]
    bare = [
        step(cell_key(BASELINE), f"t{n + 1}", due=1000 * n, end=1000 * n + bare_ms, language="ko", kind="reply")
        for n in range(6)
    ]
    row = only(loss(tmp_path, [*bare, *drafted]), 1)
    assert row["time_loss_share"] == pytest.approx(0.25)
    assert row["win_back"] == (None if win_back is None else pytest.approx(win_back))


def test_few_tasks_have_no_interval_and_nothing_to_win_back(tmp_path: Path) -> None:
    """Four tasks on one side."""
    row = only(loss(tmp_path, [call(n, "ko" if n < 4 else "en", 5 if n < 4 else 10) for n in range(12)]), 1)
    assert (row["acceptance_length_loss"], row["acceptance_length_loss_low"]) == (0.5, None)
    assert row["win_back"] is None


def test_a_loss_that_is_not_shown_is_not_priced(tmp_path: Path) -> None:
    """Korean swings around English: the interval includes 0, so no hours are given."""
    korean = [call(n, "ko", 2 if n % 2 else 17) for n in range(6)]
    row = only(loss(tmp_path, [*korean, *(call(n, "en", 10) for n in range(6, 12))]), 1)
    assert row["acceptance_length_loss_low"] < 0 < row["acceptance_length_loss_high"]  # type: ignore[operator]
    assert row["win_back"] is None


def test_code_is_a_reference_too_and_one_language_alone_has_no_loss(tmp_path: Path) -> None:
    """Korean against code; nothing where there is nothing to compare with."""
    records = [call(n, "ko+code" if n < 5 else "code", 5 if n < 5 else 30) for n in range(10)]
    frame = loss(tmp_path, records)
    assert set(frame["reference_group"]) == {"code"}
    assert frame["acceptance_length_loss"].to_list() == pytest.approx([2.5, 2.5])
    assert loss(tmp_path / "alone", records[:5]).is_empty()


def test_where_no_task_succeeded_decoding_has_no_time(tmp_path: Path) -> None:
    """Every Korean task fails at its second step: its first still tells acceptance, but no run of a task has a time."""
    first = [call(n, "ko" if n < 6 else "en", 5 if n < 6 else 10) for n in range(12)]
    failed = [
        step(KEY, f"t{n + 1}", 1, due=1000 * n + 1000, end=1000 * n + 1000, language="ko", kind="reply",
             error_kind="timeout", error_message="no answer")
        for n in range(6)
    ]  # fmt: skip
    row = only(loss(tmp_path, [*first, *failed]), 1)
    assert row["acceptance_length_loss"] == pytest.approx(0.5)
    assert (row["decode_s"], row["time_loss_s"], row["win_back"]) == (None, None, None)
