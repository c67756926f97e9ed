"""Objectives and thresholds as people read them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from harness.analysis import frames
from harness.analysis.frames import RunAnalysis
from reports.objectives import missed_thresholds, slo, thresholds, unit_of
from reports.wording import wording
from tests.reports import sample


def run_with(**changes: Any) -> RunAnalysis:
    """Return the small run with one threshold."""
    frame = sample.frame(frames.THRESHOLDS, [sample.THRESHOLD | changes])
    return replace(sample.small(), thresholds=frame.with_columns(pl.col("met").cast(pl.Boolean)))


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("ttft_p90", "s"),
        ("tpot_p50", "ms"),
        ("task_time_p90{concurrency=8} <= 40s", "s"),
        ("speed_up{concurrency=4} > 1.2", "x"),
        ("break_even >= 8", "tasks"),
        ("failed_share <= 1%", "share"),
        ("never_heard_of > 1", None),
    ],
)
def test_a_metric_tells_its_unit(text: str, unit: str | None) -> None:
    """An objective of a newer version has no unit, and is shown all the same."""
    assert unit_of(text) == unit


def test_limits_and_what_was_observed_carry_their_unit() -> None:
    """Seconds and milliseconds stand in one column."""
    assert slo(sample.small(), wording("en")).rows[0][4:6] == ("2.00 s", "1.40 s")
    assert thresholds(sample.small(), wording("en")).rows[0][3:] == ("1.52x", "yes", "–")


def test_an_open_threshold_shows_its_reason_in_words() -> None:
    """Not a code, not None."""
    open_run = run_with(observed=None, met=None, reason="no_baseline")
    assert thresholds(open_run, wording("ko")).rows[0][3:] == ("–", "–", "기준 구성이 없음")


def test_a_threshold_that_was_reached_is_not_missed() -> None:
    """Nothing to say."""
    assert missed_thresholds(sample.small(), "en") == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"met": False, "observed": 1.12}, "speed_up{concurrency=4} > 1.2 (observed 1.12x)"),
        ({"met": None, "observed": None, "reason": "no_values"}, "(a planned load has no value)"),
        ({"met": False, "observed": None, "threshold": "break_even >= 8"}, "(no break-even in the measured range)"),
        ({"met": False, "observed": None, "threshold": "ttft_p90 <= 2s"}, "(too many steps or tasks failed)"),
    ],
)
def test_a_missed_threshold_says_what_was_seen_or_why_nothing_was(changes: dict[str, Any], said: str) -> None:
    """One line, with workload and arm."""
    (line,) = missed_thresholds(run_with(**changes), "en")
    assert "coding-en, ngram-map-k: " in line
    assert line.endswith(said)
    assert "None" not in line
