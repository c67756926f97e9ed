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


def test_alike_tasks_give_a_point_interval(tmp_path: Path) -> None:
    """Every task at 2x alone and at 0.5x among four: break-even at 2, certain as far as tasks go."""
    row = analysed(tmp_path, curve({1: [2, 2, 2], 4: [0.5, 0.5, 0.5]})).break_even.row(0, named=True)
    assert row["side"] == "crossed"
    assert row["break_even"] == pytest.approx(2)
    assert row["break_even_low"] == pytest.approx(2)
    assert row["break_even_high"] == pytest.approx(2)
    assert (row["lowest_concurrency"], row["highest_concurrency"]) == (1, 4)


def test_draws_beyond_the_range_leave_the_upper_end_open(tmp_path: Path) -> None:
    """When some draws of tasks stay above 1 at the highest load, the upper end is null and the lower is known."""
    row = analysed(tmp_path, curve({1: [2, 2], 4: [0.5, 1.25]})).break_even.row(0, named=True)
    assert row["side"] == "crossed"
    assert row["break_even_low"] == pytest.approx(2)
    assert row["break_even_high"] is None


def test_a_curve_above_the_range_has_no_break_even(tmp_path: Path) -> None:
    """Faster at every measured load: side above, no number."""
    row = analysed(tmp_path, curve({1: [2, 2], 4: [1.5, 1.5]})).break_even.row(0, named=True)
    assert (row["side"], row["break_even"], row["break_even_low"], row["break_even_high"]) == (
        "above",
        None,
        None,
        None,
    )


def test_a_curve_below_the_range_has_no_break_even(tmp_path: Path) -> None:
    """Slower already alone: side below, no number."""
    row = analysed(tmp_path, curve({1: [0.8, 0.8], 4: [0.5, 0.5]})).break_even.row(0, named=True)
    assert (row["side"], row["break_even"]) == ("below", None)


def test_an_arm_that_never_ran_is_unknown(tmp_path: Path) -> None:
    """A baseline without the arm's cells: the arm is named, its side unknown."""
    records = [record for record in curve({1: [2, 2]}) if record.cell.arm == BASELINE]
    analysis = analysed(tmp_path, records)
    assert analysis.break_even.select("arm", "side", "n_tasks").rows() == [(ARM, "unknown", 0)]
    assert analysis.verdicts[0].side == "unknown"


def test_synthetic_arms_have_no_break_even_and_no_verdict(tmp_path: Path) -> None:
    """Made-up acceptance stays in the speed-ups and out of everything that concludes."""
    entry = workload_entry(methods={BASELINE: "none", ARM: "synthetic"}, concurrency=[1, 4])
    analysis = analysed(tmp_path, curve({1: [2, 2], 4: [0.5, 0.5]}), entry)
    assert len(analysis.speed_up) == 4
    assert (len(analysis.break_even), len(analysis.lossless), analysis.verdicts) == (0, 0, ())


def test_several_workloads_are_pooled_at_the_loads_that_all_measured(tmp_path: Path) -> None:
    """Office at 1, 4, 16 and code at 1 and 4: the pooled row spans 1 to 4 and counts the tasks of both."""
    records = curve({1: [2, 2], 4: [2, 2], 16: [0.1, 0.1]}) + curve({1: [2, 2], 4: [0.25, 0.25]}, "code")
    entries = [workload_entry(concurrency=[1, 4, 16]), workload_entry("code", concurrency=[1, 4])]
    frame = analysed(tmp_path, records, *entries).break_even
    assert frame["workload"].to_list() == ["office", "code", None]
    pooled = frame.row(2, named=True)
    assert (pooled["lowest_concurrency"], pooled["highest_concurrency"], pooled["side"]) == (1, 4, "crossed")


def test_the_verdict_gathers_the_ends_of_the_curve(tmp_path: Path) -> None:
    """A verdict holds the break-even and the speed-up with its interval at the lowest and highest load."""
    (verdict,) = analysed(tmp_path, curve({1: [2, 2], 4: [0.5, 0.5]})).verdicts
    assert verdict.break_even == pytest.approx(2)
    assert verdict.speed_up_first == pytest.approx((2, 2, 2))
    assert verdict.speed_up_last == pytest.approx((0.5, 0.5, 0.5))
    assert verdict.identical_share == 1
