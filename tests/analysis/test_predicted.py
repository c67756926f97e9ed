"""From a run folder to predictions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from harness.analysis.run import analyse
from harness.records import CellKey, CellRecord, Round, SpecCounters
from harness.store import RunFolder
from tests.analysis.modelled import verify_us
from tests.builders import BASELINE, cell, cell_key, step, workload_entry

ARM = "eagle"
LOADS = (1, 2, 4, 8)
TOKENS = 61  # of each call: one from the prompt, sixty from rounds
ACCEPTED = {
    0: (0,),
    1: (1, 1, 1, 0, 0, 1),
    2: (2, 2, 0, 0, 1) * 2 + (2, 0, 1, 0, 0, 1),
    3: (3, 1, 0, 0, 1),
}
"""In turn, by drafted tokens, all of them on the same text: what a drafter knows of it does not depend on where its drafts begin. Three
drafted tokens yield ten tokens in five rounds; after a whole draft the drafter knows the next token two times of three."""
CONTEXT = 100


def run_of(path: Path, *, times: bool = True, lengths: Sequence[int] = (3,), tokens: int = TOKENS) -> RunFolder:
    """Return a run of the known engine: at each load as many tasks at once, each of one call whose rounds all of them share.

    Several draft lengths are arms of their own, ``eagle-1``, ``eagle-2`` …
    """
    arms = {BASELINE: 0} | (
        {ARM: lengths[0]} if len(lengths) == 1 else {f"{ARM}-{length}": length for length in lengths}
    )
    entry = workload_entry(
        methods={arm: "eagle3" if length else "none" for arm, length in arms.items()}, concurrency=LOADS
    )
    for item in entry["arms"]:
        item["options"] = {"num_tokens": arms[item["name"]]} if arms[item["name"]] else {}
    folder = RunFolder.create(path, {"created": "now", "engine": None, "workloads": [entry]})
    order = 0
    for load in LOADS:
        for arm, length in arms.items():
            _cell(folder, cell_key(arm, load), order, drafted=length, times=times, tokens=tokens)
            order += 1
    folder.close()
    return RunFolder.open(path)


def _cell(folder: RunFolder, key: CellKey, order: int, *, drafted: int, times: bool, tokens: int = TOKENS) -> None:
    batch, accepted = key.concurrency, ACCEPTED[drafted]
    n_rounds = (tokens - 1) * len(accepted) // sum(1 + each for each in accepted)
    for wave in range(5):
        verify = verify_us(batch * (1 + drafted), batch * CONTEXT) * 1000
        start = wave * 10_000_000_000
        rounds, t_ns = [], start + 1_000_000_000
        for index in range(n_rounds):
            t_ns += verify + 500_000 * drafted + 200_000
            told = (batch, wave * 1000 + index, 500_000 * drafted, verify, 200_000, 0, batch * CONTEXT) if times else ()
            if drafted or times:
                rounds.append(Round(t_ns, drafted, accepted[index % len(accepted)], *told))
        taken = sum(item.num_accepted_tokens for item in rounds)
        positions = tuple(sum(item.num_accepted_tokens > place for item in rounds) for place in range(drafted))
        for lane in range(batch):
            record = step(
                key, f"t{wave * batch + lane + 1}", due=start / 1e6, first=start / 1e6 + 1000, end=t_ns / 1e6,
                prompt_tokens=CONTEXT - tokens // 2, output_tokens=tokens, decode_passes=n_rounds,
                spec=SpecCounters(n_rounds, n_rounds * drafted, taken, positions) if drafted else None,
                spec_source="round" if drafted else None,
            )  # fmt: skip
            folder.append_step(record, rounds=rounds or None)
    folder.append_cell(_ended(key, order, 5 * batch))


def _ended(key: CellKey, order: int, tasks: int) -> CellRecord:
    return cell(key, order=order, counted_tasks=tasks)


def crossing_at(frame: pl.DataFrame, num_tokens: int) -> dict[str, object]:
    """Return what is predicted of the break-even at one draft length."""
    (row,) = frame.filter(pl.col("num_tokens") == num_tokens).iter_rows(named=True)
    return row


@pytest.mark.parametrize("times", [True, False], ids=["rounds", "cells"])
def test_the_break_even_of_the_known_engine_is_predicted_with_and_without_times_of_rounds(
    tmp_path: Path, times: bool
) -> None:
    """Three drafts: 2 tokens for 10 + (4B − 8) + 0.1B + 1.7 ms, plain 10 + 0.1B + 0.2 ms: 2 (10.2 + 0.1B) = 3.7 + 4.1B at B = 4.28."""
    found = analyse(run_of(tmp_path / "run", times=times))
    row = crossing_at(found.predicted_break_even, 3)
    assert row["side"] == "crossed"
    assert row["batch_break_even"] == pytest.approx(4.28, rel=0.02 if times else 0.15)
    assert row["break_even_modelled"] == pytest.approx(
        row["batch_break_even"]
    )  # nobody waits: as many decode as are in progress
    assert row["break_even"] == pytest.approx(found.break_even["break_even"][0])
    assert row["source"] == "modelled"
    assert set(found.costs["cost_source"]) == {"rounds" if times else "cells"}


def test_other_draft_lengths_are_predicted_and_have_no_measured_break_even(tmp_path: Path) -> None:
    """One draft yields 10 tokens in 6 rounds: 10/6 (10.2 + 0.1B) = 10 + (2B − 8) + 0.1B + 0.7 at B = 7.40."""
    row = crossing_at(analyse(run_of(tmp_path / "run")).predicted_break_even, 1)
    assert row["batch_break_even"] == pytest.approx(7.40, rel=0.02)
    assert row["break_even"] is None


def test_every_prediction_says_that_it_is_modelled_and_one_length_a_batch_is_the_fastest(tmp_path: Path) -> None:
    """Batch sizes up to twice the tokens of the largest round, draft lengths up to the longest draft."""
    frame = analyse(run_of(tmp_path / "run")).predicted
    assert set(frame["source"]) == {"modelled"}
    assert set(frame["num_tokens"]) == {0, 1, 2, 3}
    assert frame.filter("best").group_by("batch_size").len()["len"].unique().to_list() == [1]
    assert (frame["batch_size"] * (1 + frame["num_tokens"])).max() == 64


@pytest.mark.parametrize("times", [True, False], ids=["rounds", "cells"])
def test_a_run_without_a_baseline_or_without_a_finished_cell_has_no_model(tmp_path: Path, times: bool) -> None:
    """Empty frames with their columns, no figure."""
    folder = RunFolder.create(
        tmp_path / "alone",
        {"created": "now", "engine": None, "workloads": [workload_entry(methods={ARM: "eagle3"}, concurrency=[1])]},
    )
    _cell(folder, cell_key(ARM, 1), 0, drafted=3, times=times)
    folder.close()
    found = analyse(RunFolder.open(folder.path))
    assert found.predicted.is_empty()
    assert found.costs.is_empty()
    assert [item.vllm_table for item in found.hand_overs] == [None]
    empty = RunFolder.create(tmp_path / "empty", {"created": "now", "engine": None, "workloads": [workload_entry()]})
    empty.close()
    assert analyse(RunFolder.open(empty.path)).predicted_break_even.is_empty()
