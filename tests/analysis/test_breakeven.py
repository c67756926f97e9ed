"""The concurrency at which the speed-up crosses 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.analysis.breakeven import crossings
from harness.analysis.frames import RunAnalysis
from harness.analysis.run import analyse
from harness.records import StepRecord
from tests.builders import ARM, BASELINE, cell_key, run_folder, waves, workload_entry


def crossing(concurrency: Sequence[int], *speed_ups: float) -> float:
    """Return the crossing of one curve."""
    return float(crossings(concurrency, np.array([speed_ups]))[0])


def test_the_crossing_lies_halfway_in_doublings() -> None:
    """From 2x at 1 to 0.5x at 16 the curve falls evenly: break-even after half of the four doublings, at 4."""
    assert crossing([1, 16], 2.0, 0.5) == pytest.approx(4)


def test_the_nearer_side_pulls_the_crossing() -> None:
    """4x at 1 and 0.5x at 8: two of three halvings bring 4x to 1x, so two of three doublings: 4."""
    assert crossing([1, 8], 4.0, 0.5) == pytest.approx(4)


def test_the_first_downward_crossing_counts() -> None:
    """A curve that dips below 1 between 1 and 4 and recovers has its break-even in the dip."""
    assert crossing([1, 4, 16], 2.0, 0.5, 2.0) == pytest.approx(2)


def test_a_measured_speed_up_of_one_is_the_break_even() -> None:
    """Exactly 1 at 4 and below after it: 4."""
    assert crossing([1, 4, 16], 2.0, 1.0, 0.5) == pytest.approx(4)


def test_a_curve_that_never_falls_below_one_is_above_the_range() -> None:
    """1 at the highest load is not yet slower."""
    assert crossing([1, 4], 2.0, 1.0) == np.inf


def test_a_curve_that_starts_below_one_is_below_the_range() -> None:
    """Slower already at the lowest load, whatever comes after."""
    assert crossing([1, 4], 0.9, 1.5) == -np.inf


def test_a_curve_with_an_unknown_load_is_unknown() -> None:
    """Without a value at one load nothing is said: neither a side nor a crossing."""
    assert np.isnan(crossing([1, 4, 16], 2.0, np.nan, 0.5))


def test_between_two_loads_the_other_axis_crosses_later() -> None:
    """From 2x at 1 to 0.5x at 16: in the middle of the axis, which is 8.5 tasks where it is not drawn by doubling."""
    found = crossings([1, 16], np.array([[2.0, 0.5]]), by_doubling=False)
    assert found[0] == pytest.approx(8.5)


def curve(ratios: Mapping[int, Sequence[float]], workload: str = "office", arm: str = ARM) -> list[StepRecord]:
    """Return steps in which task i at a concurrency is ``ratios[concurrency][i]`` times faster than 1 s in the baseline.

    Tasks run in waves of equal tasks (instances of one), so that every task is steady.
    """
    records = []
    for load, speed_ups in ratios.items():
        for name, lengths in ((BASELINE, [1000.0] * len(speed_ups)), (arm, [1000 / ratio for ratio in speed_ups])):
            own = [length for length in lengths for _ in range(load)]
            wave = waves(cell_key(name, load, workload=workload), own)
            records += [replace(record, task_id=f"t{i // load}") for i, record in enumerate(wave)]
    return records


def analysed(folder: Path, records: Sequence[StepRecord], *entries: dict[str, Any]) -> RunAnalysis:
    """Analyse the steps; by default as one workload at 1 and 4."""
    return analyse(run_folder(folder, records, workloads=entries or [workload_entry(concurrency=[1, 4])]))


def test_alike_tasks_leave_only_what_was_not_measured(tmp_path: Path) -> None:
    """Every task at 2x alone and at 0.5x among four: break-even at 2 of doublings, at 2.5 of tasks, and no draw knows which."""
    row = analysed(tmp_path, curve({1: [2] * 5, 4: [0.5] * 5})).break_even.row(0, named=True)
    assert (row["side"], row["interval"]) == ("crossed", "both")
    assert row["break_even"] == pytest.approx(2)
    assert row["break_even_low"] == pytest.approx(2)
    assert row["break_even_high"] == pytest.approx(2.5)
    assert (row["lowest_concurrency"], row["highest_concurrency"], row["n_tasks"]) == (1, 4, 5)


ONE_SLOW, TWO_FAST = [2, 2, 2, 2, 0.5], [2, 2, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("alone", "among_four", "low", "high", "interval"),
    [
        (ONE_SLOW, [0.5] * 5, None, 2.5, "open_low"),  # draws with the slow task twice or more begin below 1
        ([2] * 5, TWO_FAST, 2, None, "open_high"),  # draws with four fast tasks of five stay above 1
        (ONE_SLOW, TWO_FAST, None, None, "open_both"),
        ([2] * 4, [0.5] * 4, None, None, "none"),  # too few tasks for an interval
        ([2] * 5, [0.5] * 4, None, None, "none"),  # too few at one of the loads
    ],
)
def test_the_interval_says_which_ends_lie_beyond_the_range(
    tmp_path: Path, alone: list[float], among_four: list[float], low: float | None, high: float | None, interval: str
) -> None:
    """An end that more than one draw in forty puts beyond the range is null and called open; no interval is something else."""
    row = analysed(tmp_path, curve({1: alone, 4: among_four})).break_even.row(0, named=True)
    assert (row["side"], row["interval"]) == ("crossed", interval)
    assert row["break_even_low"] == (None if low is None else pytest.approx(low))
    assert row["break_even_high"] == (None if high is None else pytest.approx(high))


def test_a_curve_above_the_range_has_no_break_even(tmp_path: Path) -> None:
    """Faster at every measured load: side above, no number, and both limits beyond the range."""
    row = analysed(tmp_path, curve({1: [2] * 5, 4: [1.5] * 5})).break_even.row(0, named=True)
    assert (row["side"], row["interval"]) == ("above", "open_both")
    assert (row["break_even"], row["break_even_low"], row["break_even_high"]) == (None, None, None)


def test_a_curve_below_the_range_has_no_break_even(tmp_path: Path) -> None:
    """Slower already alone: side below, no number."""
    row = analysed(tmp_path, curve({1: [0.8, 0.8], 4: [0.5, 0.5]})).break_even.row(0, named=True)
    assert (row["side"], row["break_even"]) == ("below", None)


def test_an_arm_that_never_ran_is_unknown(tmp_path: Path) -> None:
    """A baseline without the arm's cells: the arm is named, its side unknown, and every planned load unmeasured."""
    records = [record for record in curve({1: [2, 2]}) if record.cell.arm == BASELINE]
    analysis = analysed(tmp_path, records)
    assert analysis.break_even.select("arm", "side", "interval", "n_tasks").rows() == [(ARM, "unknown", "none", 0)]
    (verdict,) = analysis.verdicts
    assert (verdict.side, verdict.n_tasks, verdict.unmeasured) == ("unknown", None, (1, 4))


def test_synthetic_arms_have_no_break_even_and_no_verdict(tmp_path: Path) -> None:
    """Made-up acceptance stays in the speed-ups and out of everything that concludes."""
    entry = workload_entry(methods={BASELINE: "none", ARM: "synthetic"}, concurrency=[1, 4])
    analysis = analysed(tmp_path, curve({1: [2, 2], 4: [0.5, 0.5]}), entry)
    assert len(analysis.speed_up) == 4
    assert (len(analysis.break_even), len(analysis.lossless), analysis.verdicts) == (0, 0, ())


def test_several_workloads_are_pooled_at_the_loads_that_all_measured(tmp_path: Path) -> None:
    """Office at 1, 4, 16 and code at 1 and 4: the pooled row spans 1 to 4, and what only office planned is not missing."""
    records = curve({1: [2, 2], 4: [2, 2], 16: [0.1, 0.1]}) + curve({1: [2, 2], 4: [0.25, 0.25]}, "code")
    entries = [workload_entry(concurrency=[1, 4, 16]), workload_entry("code", concurrency=[1, 4])]
    analysis = analysed(tmp_path, records, *entries)
    assert analysis.break_even["workload"].to_list() == ["office", "code", None]
    pooled = analysis.break_even.row(2, named=True)
    assert (pooled["lowest_concurrency"], pooled["highest_concurrency"], pooled["side"]) == (1, 4, "crossed")
    assert analysis.verdicts[2].unmeasured == ()


def test_a_task_in_two_workloads_is_one_task(tmp_path: Path) -> None:
    """The same four tasks in two workloads are four tasks when pooled: too few for an interval."""
    records = curve({1: [2] * 4, 4: [0.5] * 4}) + curve({1: [2] * 4, 4: [0.5] * 4}, "code")
    entries = [workload_entry(concurrency=[1, 4]), workload_entry("code", concurrency=[1, 4])]
    pooled = analysed(tmp_path, records, *entries).break_even.row(2, named=True)
    assert (pooled["workload"], pooled["n_tasks"], pooled["interval"]) == (None, 4, "none")


def test_the_verdict_gathers_the_ends_of_the_curve(tmp_path: Path) -> None:
    """A verdict holds the break-even, the speed-up with its interval at the lowest and highest load, and the tasks behind them."""
    (verdict,) = analysed(tmp_path, curve({1: [2] * 6, 4: [0.5] * 5})).verdicts
    assert verdict.break_even == pytest.approx(2)
    assert verdict.speed_up_first == pytest.approx((2, 2, 2))
    assert verdict.speed_up_last == pytest.approx((0.5, 0.5, 0.5))
    assert (verdict.identical_share, verdict.n_tasks, verdict.unmeasured) == (1, 5, ())


def test_a_planned_load_that_was_not_measured_is_named(tmp_path: Path) -> None:
    """Planned at 1 and 4, measured at 1 alone: 4 is unmeasured."""
    (verdict,) = analysed(tmp_path, curve({1: [2] * 5})).verdicts
    assert (verdict.highest_concurrency, verdict.unmeasured) == (1, (4,))


@pytest.mark.parametrize(
    ("repeats", "expected"),
    [([2.0], False), ([2.0, 1.5], True), ([2.0, 0.8], False), ([0.5, 0.8], True), ([2.0, 1.5, 1.2], False)],
)
def test_repeats_are_consistent_when_even_in_number_and_on_one_side(
    tmp_path: Path, repeats: list[float], expected: bool
) -> None:
    """Two repeats that are both faster or both slower agree; one faster and one slower do not, nor does an odd number."""
    records = [
        replace(record, cell=replace(record.cell, repeat=number))
        for number, ratio in enumerate(repeats, start=1)
        for record in curve({1: [ratio] * 2})
    ]
    (verdict,) = analysed(tmp_path, records, workload_entry(repeats=len(repeats))).verdicts
    assert verdict.consistent is expected


def test_repeats_that_disagree_at_the_highest_load_are_not_consistent(tmp_path: Path) -> None:
    """Twice as fast alone in both repeats, but faster in one and slower in the other among four."""
    records = [
        replace(record, cell=replace(record.cell, repeat=number))
        for number, ratio in enumerate([1.5, 0.8], start=1)
        for record in curve({1: [2, 2], 4: [ratio, ratio]})
    ]
    (verdict,) = analysed(tmp_path, records, workload_entry(concurrency=[1, 4], repeats=2)).verdicts
    assert not verdict.consistent
