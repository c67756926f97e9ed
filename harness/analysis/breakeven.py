"""The concurrency at which the speed-up crosses 1 on its way down: where batched load has used up what drafting gained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from harness.analysis.bootstrap import MIN_TASKS, interval
from harness.analysis.frames import BREAK_EVEN
from harness.analysis.plan import WorkloadPlan
from harness.analysis.speedup import Paired, matrices

SCHEMA = dict(
    zip(
        BREAK_EVEN,
        (pl.String, pl.String, *[pl.Float64] * 3, pl.String, pl.String, pl.Int64, pl.Int64, pl.Int64),
        strict=True,
    )
)
BELOW, ABOVE = -np.inf, np.inf
Ends = Literal["both", "open_low", "open_high", "open_both", "none"]
Row = tuple[str | None, str, float | None, float | None, float | None, Ends, str, int | None, int | None, int]


def crossings(
    concurrency: Sequence[int], speed_ups: NDArray[np.float64], *, by_doubling: bool = True
) -> NDArray[np.float64]:
    """Return where each row of speed-ups first crosses 1 downwards.

    Between two measured concurrencies the crossing is interpolated linearly in log2(concurrency) and log(speed-up): loads are chosen
    by doubling, so equal steps of the axis are equal factors, and a speed-up of 2 lies as far above 1 as one of ½ lies below.

    Args:
        concurrency: measured loads, rising. # [loads]
        speed_ups: one curve a row. # [curves, loads]
        by_doubling: whether the axis is log2(concurrency); else it is the concurrency itself, as where each further request adds the
            same to a pass. The two agree at every measured load and bend the curve between two in opposite ways.

    Returns:
        The concurrency; ``+inf`` if the curve stays at 1 or above, ``-inf`` if it is below 1 already at the lowest load, NaN if a load
        has no value (a draw without any task of that load says nothing). # [curves]
    """
    loads, heights = np.asarray(concurrency, dtype=np.float64), np.log(speed_ups)
    loads = np.log2(loads) if by_doubling else loads
    below = heights < 0
    first = np.argmax(below, axis=1)  # index of the first load at which the curve is below 1
    result = np.where(below.any(axis=1), BELOW, ABOVE)
    rows = np.flatnonzero(first > 0)
    right = first[rows]
    upper, lower = heights[rows, right - 1], heights[rows, right]
    share = upper / (upper - lower)
    places = loads[right - 1] + share * (loads[right] - loads[right - 1])
    result[rows] = 2.0**places if by_doubling else places
    result[np.isnan(heights).any(axis=1)] = np.nan
    return result


@dataclass(frozen=True, slots=True)
class Curve:
    """Speed-up over concurrency of one arm on one workload (``None``: all pooled); ``paired`` is ``None`` where no task is paired.

    ``planned`` are the loads that should have been measured; ``consistent`` is that of ``frames.Verdict``.
    """

    workload: str | None
    arm: str
    paired: Paired | None
    planned: tuple[int, ...]
    consistent: bool


def curves(found: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> list[Curve]:
    """Return the curve of every arm with a real drafter, per workload and, for an arm in several, pooled over them.

    Pairs inside the steady window count. Pooled curves use the concurrencies that every workload with that arm measured: else the mix
    of tasks would change along the curve; so the loads planned for it are those that all these workloads plan.
    """
    steady = found.filter("steady")
    result = []
    for plan in plans:
        for arm in plan.drafting:
            own = steady.filter((pl.col("workload") == plan.name) & (pl.col("arm") == arm))
            result.append(_curve(plan.name, arm, own, plan.concurrency))
    for arm in _shared_arms(plans):
        having = [plan for plan in plans if arm in plan.drafting]
        own = steady.filter((pl.col("arm") == arm) & pl.col("workload").is_in([plan.name for plan in having]))
        measured = own.group_by("concurrency").agg(n=pl.col("workload").n_unique())
        everywhere = measured.filter(pl.col("n") == own["workload"].n_unique())
        own = own.join(everywhere, on="concurrency", how="semi", maintain_order="left")
        planned = tuple(load for load in having[0].concurrency if all(load in plan.concurrency for plan in having))
        result.append(_curve(None, arm, own, planned))
    return result


def _curve(workload: str | None, arm: str, own: pl.DataFrame, planned: tuple[int, ...]) -> Curve:
    paired = matrices(own, "task_time_s", (workload, arm, "steady"))
    return Curve(workload, arm, paired, planned, paired is not None and _consistent(own, paired))


def _consistent(own: pl.DataFrame, paired: Paired) -> bool:
    """Tell whether the repeats agree on the side of 1 at the lowest and at the highest load, and are even in number.

    The bootstrap draws tasks, not repeats: a drift of the machine is in no interval. Arms alternate from one repeat to the next, so
    that a drift cancels over an even number of them and shows as a disagreement between them.
    """
    ends = own.filter(pl.col("concurrency").is_in([paired.concurrency[0], paired.concurrency[-1]]))
    repeats = ends.group_by("workload", "concurrency").agg(n=pl.col("repeat").n_unique())
    sums = ends.group_by("concurrency", "repeat").agg(pl.col("baseline_task_time_s").sum(), pl.col("task_time_s").sum())
    gain = (pl.col("baseline_task_time_s") - pl.col("task_time_s")).sign()
    sides = sums.group_by("concurrency").agg(n=gain.n_unique())
    return all(n % 2 == 0 for n in repeats["n"]) and all(n == 1 for n in sides["n"])


def break_even(found: Iterable[Curve]) -> pl.DataFrame:
    """Return ``frames.BREAK_EVEN``, one row a curve; ``n_tasks`` are the distinct tasks of the load that has the fewest.

    The interval comes from draws of tasks over all concurrencies at once, allows for two ways to interpolate, and needs ``MIN_TASKS``
    at every one. A draw that stays above 1 lies beyond the range, one that starts below 1 lies under it; a limit there is null, and the
    column ``interval`` says which limits are (``open_low``, ``open_high``, ``open_both``; ``none``: there is no interval). So
    ``break_even_low`` can stand alone when the estimate itself is beyond the range; both limits are open as well where the whole
    interval lies on one side of the range.
    """
    return pl.DataFrame([_row(curve.workload, curve.arm, curve.paired) for curve in found], schema=SCHEMA, orient="row")


def _shared_arms(plans: Iterable[WorkloadPlan]) -> list[str]:
    arms = [arm for plan in plans for arm in plan.drafting]
    return [arm for arm in dict.fromkeys(arms) if arms.count(arm) > 1]


def _row(workload: str | None, arm: str, paired: Paired | None) -> Row:
    if paired is None:
        return (workload, arm, None, None, None, "none", "unknown", None, None, 0)
    crossing = float(crossings(paired.concurrency, paired.estimates()[None, :])[0])
    n_tasks = min(paired.n_tasks)
    limits = _limits(paired, n_tasks) if n_tasks >= MIN_TASKS else None
    low, high = (_finite(value) for value in limits or (np.nan, np.nan))
    ends: Ends = "none" if limits is None else _ends(low, high)
    lowest, highest = paired.concurrency[0], paired.concurrency[-1]
    return (workload, arm, _finite(crossing), low, high, ends, side_of(crossing), lowest, highest, n_tasks)


def _limits(paired: Paired, n_tasks: int) -> tuple[float, float] | None:
    """Return the interval of the crossing: of the draws, whichever way the curve bends between two measured loads.

    No draw of tasks knows what the curve does where nothing was measured, so the interval reaches as far as the wider of two ways to
    draw it does at either end. It holds a known break-even in 95 % of simulated runs; by doubling alone it did in less.
    """
    draws = paired.draws()
    ends = [interval(crossings(paired.concurrency, draws, by_doubling=way), n_tasks) for way in (True, False)]
    known = [pair for pair in ends if pair is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def _ends(low: float | None, high: float | None) -> Ends:
    if low is None:
        return "open_both" if high is None else "open_low"
    return "open_high" if high is None else "both"


def side_of(crossing: float) -> Literal["crossed", "above", "below"]:
    """Return on which side of the measured range a crossing lies."""
    return "above" if crossing == ABOVE else "below" if crossing == BELOW else "crossed"


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
