"""Percentiles with the number of tasks behind them, and bounds that hold where there are too few tasks to say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from harness.analysis.bootstrap import HIGH, LOW
from harness.analysis.frames import PERCENTILES, PERCENTILES_SCHEMA, Finding
from harness.analysis.latency import LOAD, needed
from harness.analysis.plan import WorkloadPlan
from harness.analysis.slo import STEP_METRICS, TASK_METRICS, parse_percentile
from harness.analysis.steps import counted
from harness.analysis.validity import finding

SHOWN = (50, 90, 99)
RELIED_ON = 0.99  # confidence that a percentile is not only the largest value under another name


@cache
def relied_on_from(percent: int) -> int:
    """Return from how many distinct tasks on a percentile can be relied on: p50 11, p90 64, p99 662.

    The fewest with which, with 99 % confidence, at least two lie beyond it. MLPerf Inference asks for as many queries before it lets a
    run stop early.
    """
    share, n = percent / 100, 2
    while share**n + n * (1 - share) * share ** (n - 1) > 1 - RELIED_ON:
        n += 1
    return n


@cache  # most loads of a run have as many tasks
def order_statistics(n: int, percent: int) -> tuple[int | None, int | None]:
    """Return which of n sorted independent values (from 1) bound a percentile from below and above, each with 97.5 % confidence.

    ``None`` where no value of so few does: nothing of 72 values bounds p99 from above.
    """
    below = np.cumsum(
        _binomial(n, percent / 100)
    )  # probability that at most so many values are at or below the percentile
    low = int(np.searchsorted(below, LOW, side="right"))
    high = int(np.searchsorted(below, HIGH)) + 1
    return low or None, high if high <= n else None


def _binomial(n: int, share: float) -> NDArray[np.float64]:
    """Return the probabilities of 0 to n successes. # [n + 1]"""
    counts = np.arange(n)
    steps = np.log(n - counts) - np.log(counts + 1) + np.log(share / (1 - share))
    found: NDArray[np.float64] = np.exp(n * np.log1p(-share) + np.concatenate([[0.0], np.cumsum(steps)]))
    return found


def percentiles(steps: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """Return ``frames.PERCENTILES`` of counted steps and tasks inside the steady window that succeeded.

    The steps, instances and repeats of a task are not independent looks at the world: the bounds take every task for one value, which
    is on the safe side (Woodruff's interval with the tasks as the sample).
    """
    rows = [
        row
        for frame, metrics in ((steps, STEP_METRICS), (tasks, TASK_METRICS))
        for place, part in _inside(frame, tuple(metrics.values()))
        for row in _of_load(part, metrics, place)
    ]
    return pl.DataFrame(rows, schema=PERCENTILES_SCHEMA, orient="row").sort(PERCENTILES[:5])


def _inside(frame: pl.DataFrame, columns: Sequence[str]) -> Iterator[tuple[tuple[object, ...], pl.DataFrame]]:
    """Yield each load with the values of its tasks; cells have numbers, which tell rows apart faster than the names of their loads."""
    inside = counted(frame.select(*LOAD, "cell", "task", "phase", "done", "steady", *columns)).filter("steady")
    loads = inside.group_by("cell", maintain_order=True).agg(pl.col(LOAD).first())
    of_cell = inside.select("cell", "task", *columns).partition_by("cell", as_dict=True)
    for place, cells in loads.group_by(LOAD, maintain_order=True):
        yield place, pl.concat([of_cell[cell,] for cell in cells["cell"]])


def _of_load(part: pl.DataFrame, metrics: Mapping[str, str], place: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    n_tasks = part["task"].n_unique()
    for metric, column in metrics.items():
        known = part.filter(pl.col(column).is_not_null()) if part[column].null_count() else part
        values = np.sort(known[column].to_numpy())
        if len(values):
            of_tasks = n_tasks if known is part else known["task"].n_unique()
            yield from _of(values, of_tasks, (*place, metric))


def _of(ordered: NDArray[np.float64], n_tasks: int, key: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    n = len(ordered)
    for percent in SHOWN:
        shown = percentile(ordered, percent) if n_tasks >= needed(percent) else None
        yield (*key, percent, n, n_tasks, relied_on_from(percent), shown, *bounds(ordered, n_tasks, percent))


def percentile(ordered: NDArray[np.float64], percent: int) -> float:
    """Return a percentile of sorted values, interpolated between two of them; some may be infinite."""
    place = (len(ordered) - 1) * percent / 100
    lower = math.floor(place)
    part = place - lower
    if part == 0:
        return float(ordered[lower])
    above = float(ordered[lower + 1])  # between two infinite values there is no number, and none is needed
    return above if math.isinf(above) else float(ordered[lower]) * (1 - part) + above * part


def bounds(ordered: NDArray[np.float64], n_tasks: int, percent: int) -> tuple[float | None, float | None]:
    """Return what bounds a percentile of sorted values of so many tasks from below and above, see :func:`order_statistics`.

    Of n tasks with several values each, the j-th task stands for a stretch of the sorted values: its outer end is taken.
    """
    n = len(ordered)
    low, high = order_statistics(n_tasks, percent)
    return (
        None if low is None else float(ordered[(low - 1) * n // n_tasks]),
        None if high is None else float(ordered[-(-high * n // n_tasks) - 1]),
    )


def unsure(found: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> Iterator[Finding]:
    """Yield the objectives whose percentile rests on too few tasks: a warning where it could not be judged for that, else a note.

    Args:
        found: of :func:`percentiles`.
        plans: workloads of the run.
    """
    for plan in plans:
        for name in plan.slo:
            metric, percent = parse_percentile(name)
            own = found.filter((pl.col("workload") == plan.name) & (pl.col("metric") == metric)).sort(
                "n_tasks", "concurrency"
            )
            if own.is_empty() or own["n_tasks"][0] >= relied_on_from(percent):
                continue
            load, n_tasks = own["concurrency"][0], own["n_tasks"][0]
            values = (name, load, relied_on_from(percent), n_tasks)
            yield finding(
                "percentile_unsure", "warning" if n_tasks < needed(percent) else "note", plan.name, None, *values
            )
