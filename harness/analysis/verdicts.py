"""What the run says of each arm, in the few figures that a sentence holds."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from harness.analysis.acceptance import acceptance_length
from harness.analysis.bootstrap import MIN_TASKS, interval
from harness.analysis.breakeven import Curve
from harness.analysis.frames import Verdict
from harness.analysis.speedup import Paired
from harness.analysis.steps import steady_ok

NEEDED = ("workload", "arm", "drafter", "num_drafts", "num_accepted_tokens")


def verdicts(
    curves: Sequence[Curve], break_even: pl.DataFrame, lossless: pl.DataFrame, steps: pl.DataFrame
) -> tuple[Verdict, ...]:
    """Return one verdict a curve, in the order of ``break_even``; arms that never finished a cell have side ``unknown``."""
    accepted = steady_ok(steps, NEEDED)
    found = []
    for curve, row in zip(curves, break_even.iter_rows(named=True), strict=True):
        own = pl.col("arm") == curve.arm
        if curve.workload is not None:
            own &= pl.col("workload") == curve.workload
        same = lossless.filter(own).select(pl.col("n_identical").sum(), pl.col("n_steps").sum()).row(0)
        first, last = _ends(curve.paired)
        measured = curve.paired.concurrency if curve.paired is not None else ()
        found.append(
            Verdict(
                **{name: value for name, value in row.items() if name not in ("n_tasks", "interval")},
                speed_up_first=first,
                speed_up_last=last,
                identical_share=same[0] / same[1] if same[1] else None,
                acceptance_length=accepted.filter(own).select(acceptance_length()).item(),
                n_tasks=min(curve.paired.n_tasks) if curve.paired is not None else None,
                unmeasured=tuple(load for load in curve.planned if load not in measured),
                consistent=curve.consistent,
            )
        )
    return tuple(found)


def _ends(paired: Paired | None) -> tuple[tuple[float, float, float] | None, tuple[float, float, float] | None]:
    """Return (estimate, low, high) at the lowest and the highest load, ``None`` where too few tasks give no interval."""
    if paired is None:
        return None, None
    draws, estimates = paired.draws(), paired.estimates()
    ends: list[tuple[float, float, float] | None] = []
    for index in (0, -1):
        limits = interval(draws[:, index], paired.n_tasks[index]) if paired.n_tasks[index] >= MIN_TASKS else None
        ends.append(None if limits is None else (float(estimates[index]), *limits))
    return ends[0], ends[1]
