"""Thresholds: refused before the run when wrong, judged after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.analysis.run import analyse
from harness.analysis.thresholds import missed, parse_threshold
from harness.errors import UsageError
from tests.analysis.test_agents import at_loads
from tests.analysis.test_breakeven import curve
from tests.builders import ARM, BASELINE, cell_key, counters, run_folder, solo_tasks, step, workload_entry


def test_parse_reads_every_part() -> None:
    """Metric, filters, comparison and value, with a time in seconds."""
    threshold = parse_threshold("task_time_p90{concurrency=8, arm=ngram} <= 40s")
    assert (threshold.metric, threshold.comparison, threshold.value) == ("task_time_p90", "<=", 40)
    assert threshold.filters == {"concurrency": "8", "arm": "ngram"}


@pytest.mark.parametrize(
    ("text", "value"),
    [("acceptance_rate >= 60%", 0.6), ("tpot_p50 < 80ms", 80), ("break_even > 8", 8), ("identical_share>=1", 1)],
)
def test_parse_values(text: str, value: float) -> None:
    """Shares may be percentages, TPOT is in milliseconds, everything else a plain number."""
    assert parse_threshold(text).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speedup >= 1", "did you mean 'speed_up'"),
        ("speed_up 1.1", "metric{filter=value}"),
        ("speed_up == 1.1", "metric{filter=value}"),
        ("speed_up >= fast", "give a number"),
        ("speed_up >= 110%", "give a number"),
        ("ttft_p90 <= 2", "unit"),
        ("break_even{concurrency=1} >= 2", "known: arm"),
        ("speed_up{kind=plan} >= 2", "known: arm, concurrency"),
        ("acceptance_length{langauge=ko} >= 2", "did you mean 'language'"),
        ("acceptance_length{language=kr} >= 2", "known: ko, ko"),
        ("acceptance_length{kind=sumarize} >= 2", "did you mean 'summarize'"),
        ("speed_up{arm=ngrm} >= 1", "did you mean 'ngram'"),
        ("speed_up{concurrency=3} >= 1", "known: 1, 4"),
        ("speed_up{arm=ngram,arm=ngram} >= 1", "twice"),
        ("break_even >= nan", "not negative"),
        ("break_even >= inf", "not negative"),
        ("acceptance_length >= -2", "not negative"),
        ("acceptance_rate >= 250%", "from 0 to 1"),
        ("slo_attainment >= 90", "from 0 to 1"),
    ],
)
def test_parse_refuses(text: str, message: str) -> None:
    """Whatever is wrong is named, with what is known and the closest name."""
    with pytest.raises(UsageError, match=message):
        parse_threshold(text, arms=["baseline", "ngram"], concurrency=[1, 4])


def judged(folder: Path, text: str, records: Any = None, **entry: Any) -> list[tuple[str, float | None, bool | None]]:
    """Return arm, observed and met of one threshold; by default on tasks at 2x alone and 0.5x among four."""
    records = curve({1: [2, 2], 4: [0.5, 0.5]}) if records is None else records
    entries = [workload_entry(thresholds=[text], **({"concurrency": [1, 4]} | entry))]
    frame = analyse(run_folder(folder, records, workloads=entries)).thresholds
    assert frame["threshold"].to_list() == [text] * len(frame)
    return list(frame.select("arm", "observed", "met").iter_rows())


@pytest.mark.parametrize(
    ("text", "observed", "met"),
    [
        ("speed_up{concurrency=1} >= 1.9", 2.0, True),
        ("speed_up{concurrency=1} > 2.1", 2.0, False),
        ("speed_up >= 1", 0.5, False),  # must hold at every load: the worst is shown
        ("break_even >= 1.5", 2.0, True),
        ("break_even >= 3", 2.0, False),
        ("identical_share >= 1", 1.0, True),
        ("failed_share <= 0%", 0.0, True),
        ("task_time_p50{concurrency=1} <= 600ms", 0.5, True),
        ("ttft_p90 <= 1s", None, None),  # two tasks alone have no p90
        ("acceptance_length >= 2", None, None),  # the engine tells none
    ],
)
def test_judge(tmp_path: Path, text: str, observed: float | None, met: bool | None) -> None:
    """A threshold without an arm filter is judged for the drafting arm."""
    ((arm, value, outcome),) = judged(tmp_path, text)
    assert (arm, outcome) == (ARM, met)
    assert value == (None if observed is None else pytest.approx(observed))


def test_acceptance_can_be_asked_per_kind_and_language(tmp_path: Path) -> None:
    """Of a Korean summary with 3 tokens a round and an English reply with 2, the Korean one is judged."""
    records = [
        step(cell_key(), "t1", kind="summarize", language="ko", spec=counters(10, 40, 20)),
        step(cell_key(), "t2", due=1000, end=2000, spec=counters(10, 40, 10)),
    ]
    rows = judged(tmp_path, "acceptance_length{language=ko,kind=summarize} >= 2.5", records)
    assert rows == [(ARM, 3.0, True)]


@pytest.mark.parametrize(
    ("text", "met"), [("break_even >= 4", True), ("break_even >= 5", None), ("break_even < 3", False)]
)
def test_a_break_even_beyond_the_range_answers_what_it_can(tmp_path: Path, text: str, met: bool | None) -> None:
    """Faster at every load up to 4: at least 4 holds, at least 5 cannot be said, below 3 is wrong."""
    records = curve({1: [2, 2], 4: [1.5, 1.5]})
    assert judged(tmp_path, text, records) == [(ARM, None, met)]


def test_a_break_even_below_the_range_misses(tmp_path: Path) -> None:
    """Slower already at the lowest load: no break-even of 2 or more."""
    assert judged(tmp_path, "break_even >= 2", curve({1: [0.9, 0.9], 4: [0.5, 0.5]})) == [(ARM, None, False)]


def test_a_run_of_the_baseline_alone_is_judged_on_it(tmp_path: Path) -> None:
    """Without a drafting arm, times are those of the baseline, and a speed-up cannot be said."""
    records = solo_tasks(cell_key(BASELINE), [500, 500])
    alone: dict[str, Any] = {"methods": {BASELINE: "none"}, "concurrency": [1]}
    assert judged(tmp_path / "a", "task_time_p50 <= 1s", records, **alone) == [(BASELINE, 0.5, True)]
    assert judged(tmp_path / "b", "speed_up >= 1", records, **alone) == [(BASELINE, None, None)]


@pytest.mark.parametrize(
    ("text", "observed"), [("speed_up >= 1.5", 2.0), ("task_time_p50 <= 1s", 0.5), ("failed_share <= 0", 0.0)]
)
def test_a_planned_load_that_was_not_measured_leaves_a_threshold_open(
    tmp_path: Path, text: str, observed: float
) -> None:
    """Planned at 1 and 4, measured and good at 1 alone: not met, whatever 4 would have shown."""
    assert judged(tmp_path, text, curve({1: [2, 2]})) == [(ARM, observed, None)]


@pytest.mark.parametrize(
    "text", ["task_time_p50 <= 1s", "ttft_p50 <= 1s", "task_time_p50 >= 1ms"], ids=["task", "step", "lower limit"]
)
def test_failures_count_as_values_beyond_every_limit(tmp_path: Path, text: str) -> None:
    """Of five tasks two are fast and three failed: the median is a failure, which no condition accepts."""
    key = cell_key(BASELINE)
    failed = [step(key, f"t{i}", due=100 * i, end=100 * i + 100, error_kind="timeout") for i in (10, 11, 12)]
    records = [*solo_tasks(key, [500, 500]), *failed]
    assert judged(tmp_path, text, records, methods={BASELINE: "none"}, concurrency=[1]) == [(BASELINE, None, False)]


def test_a_row_that_could_not_be_judged_says_why(tmp_path: Path) -> None:
    """Two tasks have no p90, an unmeasured load has no values, and a judged threshold needs no reason."""
    texts = ["task_time_p90{concurrency=1} <= 1s", "task_time_p50{concurrency=4} <= 1s", "speed_up{concurrency=1} >= 1"]
    entries = [workload_entry(thresholds=texts, concurrency=[1, 4])]
    frame = analyse(run_folder(tmp_path, curve({1: [2, 2]}), workloads=entries)).thresholds
    assert frame["reason"].to_list() == ["too_few_values", "no_values", None]
    assert frame["met"].to_list() == [None, None, True]


def test_what_cannot_be_said_counts_as_missed(tmp_path: Path) -> None:
    """Of three thresholds, one met, one missed and one open, two are missed."""
    texts = ["speed_up{concurrency=1} >= 1.9", "speed_up >= 1", "acceptance_length >= 2"]
    entries = [workload_entry(thresholds=texts, concurrency=[1, 4])]
    frame = analyse(run_folder(tmp_path, curve({1: [2, 2], 4: [0.5, 0.5]}), workloads=entries)).thresholds
    assert missed(frame)["threshold"].to_list() == texts[1:]


@pytest.mark.parametrize(
    ("text", "limit", "observed", "met", "reason"),
    [
        ("agents >= 3", "3s", 3.0, True, None),
        ("agents >= 4", "3s", 3.0, False, None),
        ("agents_low >= 3", "3s", 3.0, True, None),
        ("agents >= 4", "9s", 4.0, True, None),  # kept at 4, the highest load
        ("agents >= 5", "9s", 4.0, None, "beyond_measured"),  # nobody tried
        ("agents <= 3", "9s", 4.0, False, None),
        ("agents >= 1", "100ms", 0.0, False, None),
        ("slo_attainment{concurrency=4} >= 90%", "3s", 0.0, False, None),
        ("good_tasks_per_hour{concurrency=2} >= 3500", "3s", 3600.0, True, None),  # two at a time, 2 s each
    ],
)
def test_thresholds_on_the_service_level(
    tmp_path: Path, text: str, limit: str, observed: float, met: bool | None, reason: str | None
) -> None:
    """Tasks take as many seconds as there are in progress; what the highest load carries is a lower bound."""
    records = at_loads({(BASELINE, load): 1000.0 * load for load in (1, 2, 4)})
    entry = workload_entry(
        methods={BASELINE: "none"}, concurrency=[1, 2, 4], slo={"task_time_p50": limit}, thresholds=[text]
    )
    row = analyse(run_folder(tmp_path, records, workloads=[entry])).thresholds.row(0, named=True)
    assert (row["observed"], row["met"], row["reason"]) == (pytest.approx(observed), met, reason)
