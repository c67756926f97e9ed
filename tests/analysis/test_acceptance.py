"""Acceptance: sums first, then ratios."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from harness.analysis.frames import RunAnalysis
from harness.analysis.run import analyse
from harness.records import StepRecord
from tests.builders import ARM, BASELINE, cell_key, counters, run_folder, step, workload_entry

MIXED = [  # 10 rounds with 10 accepted and 2 rounds with 6 accepted
    step(cell_key(), "t1", end=1000, kind="plan", language="ko", spec=counters(10, 40, 10, (6, 4)), decode_passes=20),
    step(cell_key(), "t2", due=1000, end=2000, kind="reply", spec=counters(2, 8, 6, (2, 2, 2)), decode_passes=12),
]


def analysed(folder: Path, records: Sequence[StepRecord], **entry: Any) -> RunAnalysis:
    """Analyse the steps as one workload."""
    return analyse(run_folder(folder, records, workloads=[workload_entry(**entry)]))


def row(analysis: RunAnalysis, kind: str | None = None, language: str | None = None, arm: str = ARM) -> dict[str, Any]:
    """Return the row of acceptance pooled over concurrency."""
    frame = analysis.acceptance.filter(
        (pl.col("arm") == arm)
        & pl.col("concurrency").is_null()
        & pl.col("kind").eq_missing(kind)
        & pl.col("language").eq_missing(language)
    )
    return dict(frame.row(0, named=True))


def pooled(analysis: RunAnalysis) -> pl.DataFrame:
    """Return the survival of all steps of the workload together."""
    apart = pl.all_horizontal(pl.col("kind", "language", "genre").is_null())
    return analysis.survival.filter(apart & (pl.col("workload") == "office"))


def test_acceptance_length_is_a_ratio_of_sums(tmp_path: Path) -> None:
    """16 accepted in 12 rounds: 1 + 4/3, while the mean of the steps' own 2 and 4 is 3 and says macro."""
    pooled = row(analysed(tmp_path, MIXED))
    assert pooled["acceptance_length"] == pytest.approx(1 + 4 / 3)
    assert pooled["acceptance_length_macro"] == 3


def test_acceptance_rate_leaves_the_bonus_out(tmp_path: Path) -> None:
    """16 of 48 drafted tokens were accepted: a third."""
    assert row(analysed(tmp_path, MIXED))["acceptance_rate"] == pytest.approx(1 / 3)


def test_tokens_per_pass_counts_passes_without_a_draft(tmp_path: Path) -> None:
    """16 accepted in 32 passes, of which 12 drafted: one and a half tokens a pass."""
    assert row(analysed(tmp_path, MIXED))["tokens_per_pass"] == 1.5


def test_acceptance_is_told_per_kind_and_language(tmp_path: Path) -> None:
    """The Korean plan has 2 tokens a round, the English reply 4."""
    analysis = analysed(tmp_path, MIXED)
    assert row(analysis, "plan", "ko")["acceptance_length"] == 2
    assert row(analysis, kind="reply")["acceptance_length"] == 4
    assert row(analysis, language="en")["acceptance_length"] == 4


def test_acceptance_stands_per_concurrency_and_pooled(tmp_path: Path) -> None:
    """Each step counts once in the rows of its concurrency and once in the pooled ones."""
    frame = analysed(tmp_path, MIXED).acceptance
    total = frame.filter(pl.col("kind").is_null() & pl.col("language").is_null())
    assert total.select("concurrency", "n_steps").rows() == [(None, 2), (1, 2)]


def test_a_baseline_has_no_acceptance(tmp_path: Path) -> None:
    """A baseline that reports zero drafts has unknown acceptance, not an acceptance length of 1."""
    baseline = row(
        analysed(tmp_path, [step(cell_key(BASELINE), spec=counters(0, 0, 0), decode_passes=10)]), arm=BASELINE
    )
    assert (baseline["acceptance_length"], baseline["acceptance_rate"], baseline["tokens_per_pass"]) == (None,) * 3


def test_steps_without_rounds_are_left_out_of_the_length(tmp_path: Path) -> None:
    """An engine that tells no rounds for one step: the length rests on the other (10 accepted in 10 rounds), the rate on both."""
    records = [MIXED[0], step(cell_key(), "t2", due=1000, end=2000, spec=counters(None, 10, 5))]
    pooled = row(analysed(tmp_path, records))
    assert (pooled["n_steps"], pooled["n_steps_with_rounds"], pooled["acceptance_length"]) == (2, 1, 2)
    assert pooled["acceptance_rate"] == pytest.approx(15 / 50)
    names = ("num_drafts", "num_accepted_in_rounds", "num_accepted_tokens")
    assert tuple(pooled[name] for name in names) == (10, 10, 15)


def test_nothing_drafted_is_no_acceptance(tmp_path: Path) -> None:
    """A drafter that found nothing to propose has an unknown acceptance length and rate."""
    pooled = row(analysed(tmp_path, [step(cell_key(), spec=counters(0, 0, 0), decode_passes=10)]))
    assert (pooled["acceptance_length"], pooled["acceptance_rate"], pooled["tokens_per_pass"]) == (None, None, 1)


def test_warm_up_steps_do_not_count(tmp_path: Path) -> None:
    """Of a warm-up step and a counted one, only the counted one enters."""
    warm = step(cell_key(), "t9", end=100, phase="warm_up", spec=counters(10, 100, 100))
    counted = step(cell_key(), due=100, end=1000, spec=counters(10, 40, 10))
    assert row(analysed(tmp_path, [warm, counted]))["acceptance_length"] == 2


def test_survival_counts_missing_positions_as_not_accepted(tmp_path: Path) -> None:
    """Of 12 rounds 8 accepted the first token, 6 the second, and the third only where it was drafted: 2 of 12."""
    frame = pooled(analysed(tmp_path, MIXED))
    assert frame["num_drafts"].to_list() == [12, 12, 12]
    assert frame["survival"].to_list() == pytest.approx([8 / 12, 6 / 12, 2 / 12])


def test_acceptance_length_is_one_plus_the_sum_of_survival(tmp_path: Path) -> None:
    """The curve and the length tell the same story."""
    analysis = analysed(tmp_path, MIXED)
    curve = pooled(analysis)
    assert 1 + float(curve["survival"].sum()) == pytest.approx(row(analysis)["acceptance_length"])


def test_a_synthetic_arm_keeps_its_acceptance(tmp_path: Path) -> None:
    """Made-up acceptance is shown as measured: it is the check of the arithmetic."""
    analysis = analysed(tmp_path, MIXED, methods={BASELINE: "none", ARM: "synthetic"})
    assert row(analysis)["acceptance_length"] == pytest.approx(1 + 4 / 3)
