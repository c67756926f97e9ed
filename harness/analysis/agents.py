"""Agents per server: the largest number of tasks in progress at which an arm keeps the workload's objectives.

For each objective the percentile is taken at every measured load (a failure is beyond every limit), fitted so that it only rises with
the load, and read off where it reaches the limit: between two loads linearly in log(time) and log2(load), as the break-even is. The
objective that gives way first decides. High loads may count more tasks than low ones; here only those count that ran at all loads, unless
these are too few for the percentiles. The interval comes from the bounds of the percentiles: the same tasks run at all loads, so where
they are slower than most, they are so at all of them, and the curve through the bounds bounds the crossing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from harness.analysis.intervals import grouped, ratio_limits
from harness.analysis.latency import LOAD, needed
from harness.analysis.percentiles import bounds, percentile
from harness.analysis.plan import WorkloadPlan
from harness.analysis.slo import STEP_METRICS, TASK_METRICS, Objective, parse_slo

Matrix = NDArray[np.float64]
NEEDED = (*LOAD, "task_id", "phase", "steady", "error_kind", *STEP_METRICS.values())
NEEDED_OF_TASKS = (*LOAD, "task_id", "phase", "steady", "ok", "slot_s", *TASK_METRICS.values())
Three = tuple[float, float, float]
INSIDE = pl.col("steady") & (pl.col("phase") == "counted")
ESTIMATE, LOW, HIGH = range(3)
"""Rows and places of a figure with the two ends of its interval; NaN: unknown."""


@dataclass(frozen=True, slots=True)
class Carrying:
    """How many tasks in progress one arm carries on one workload.

    ``reached`` holds, for each objective, the load at which it gives way, and both ends of its interval: ``+inf`` where it is kept at
    the highest load, ``-inf`` where it is missed at the lowest, NaN where the tasks are too few to say. ``task_time_s`` is the mean over
    the tasks that succeeded, ``slot_s`` the time of all tasks, failed ones included, ÷ those that succeeded: what a finished task takes
    of a server's time. ``n_tasks`` are the distinct tasks of the load that has the fewest; without a load that has enough tasks
    for every percentile ``loads`` is empty.
    """

    workload: str
    arm: str
    objectives: tuple[Objective, ...]
    loads: tuple[int, ...]
    n_tasks: int
    reached: Matrix  # [objectives, 3]
    task_time_s: Matrix  # [3, loads]
    slot_s: Matrix  # [3, loads]
    missed: Missed | None = None

    @property
    def slo(self) -> str:
        """The objectives as a text."""
        return ", ".join(objective.text for objective in self.objectives)


@dataclass(frozen=True, slots=True)
class Missed:
    """Why nothing is carried: at the lowest load so many of the runs of tasks or steps failed, or the percentile lies beyond the limit."""

    objective: Objective
    load: int
    n: int
    failed: int
    observed: float  # of the objective's metric, in its unit; infinite where failures reach the percentile


def carrying(steps: pl.DataFrame, tasks: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> list[Carrying]:
    """Return what every arm of every workload with objectives carries, from counted rows inside the steady window.

    Raises:
        UsageError: if an objective cannot be read.
    """
    arm_of = ("workload", "arm")
    of_steps = steps.select(NEEDED).filter(INSIDE)
    of_tasks = tasks.select(NEEDED_OF_TASKS).filter(INSIDE)
    steps_of, tasks_of = (frame.partition_by(arm_of, as_dict=True) for frame in (of_steps, of_tasks))
    found = []
    for plan in plans:
        objectives = tuple(parse_slo(name, text) for name, text in plan.slo.items())
        if not objectives:
            continue
        for arm in plan.methods:
            place = (plan.name, arm)
            own = (steps_of.get(place, of_steps.clear()), tasks_of.get(place, of_tasks.clear()))
            found.append(_carrying(plan.name, arm, objectives, *own))
    return found


def _carrying(
    workload: str, arm: str, objectives: tuple[Objective, ...], steps: pl.DataFrame, tasks: pl.DataFrame
) -> Carrying:
    least = max(needed(objective.percent) for objective in objectives)
    names = at_all_loads(tasks)
    alike = pl.col("task_id").is_in(names) if len(names) >= least else pl.lit(True)
    values = [_Values.of(judged(objective, steps.filter(alike), tasks.filter(alike))) for objective in objectives]
    counts = [item.distinct() for item in values]
    loads = sorted(
        load
        for load in counts[0]
        if all(of.get(load, 0) >= needed(item.percent) for of, item in zip(counts, objectives, strict=True))
    )
    fewest = [of[load] for of in counts for load in loads] or [max(of.values(), default=0) for of in counts]
    reached = np.full((len(objectives), 3), np.nan)
    for index, (objective, item) in enumerate(zip(objectives, values, strict=True)):
        if loads:
            curves = np.array([item.percentile(load, objective.percent) for load in loads]).T
            weights = np.array([len(item.at(load)) for load in loads], dtype=np.float64)
            reached[index] = gives_way(loads, isotonic(np.log(curves / objective.limit), weights))
    took = tasks.with_columns(n=pl.col("ok").cast(pl.Int64))
    times = (_mean_times(took.filter("ok"), loads), _mean_times(took, loads))
    missed = None
    for objective, item, ends in zip(objectives, values, reached, strict=True):
        if loads and missed is None and ends[ESTIMATE] == -np.inf:
            own = item.at(loads[0])
            observed = item.percentile(loads[0], objective.percent)[ESTIMATE]
            missed = Missed(objective, loads[0], len(own), int(np.isinf(own).sum()), observed)
    return Carrying(workload, arm, objectives, tuple(loads), min(fewest), reached, *times, missed)


def at_all_loads(tasks: pl.DataFrame) -> list[str]:
    """Return the names of the tasks that have a row at each load, sorted."""
    loads = tasks["concurrency"].n_unique()
    found = tasks.group_by("task_id").agg(pl.col("concurrency").n_unique())
    return sorted(found.filter(pl.col("concurrency") == loads)["task_id"])


def _mean_times(tasks: pl.DataFrame, loads: Sequence[int]) -> Matrix:
    """Return the time of the tasks ÷ those that succeeded at each load with its interval, NaN where none did. # [3, loads]"""
    groups = {
        group.key[0]: group for group in grouped(tasks, ["concurrency"], ("slot_s", "n")) if group.sums[:, 1].any()
    }
    found = np.full((3, len(loads)), np.nan)
    for column, load in enumerate(loads):
        if load in groups:
            total, n = groups[load].sums.sum(axis=0)
            found[ESTIMATE, column] = total / n
            found[LOW:, column] = [math.nan if end is None else end for end in ratio_limits([groups[load]])[0]]
    return found


def judged(objective: Objective, steps: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """Return what an objective judges as concurrency, task_id, value; a failure is infinite, a step without a value is left out."""
    of_steps = objective.metric in STEP_METRICS
    failed = pl.col("error_kind").is_not_null() if of_steps else ~pl.col("ok")
    value = pl.when(failed).then(np.inf).otherwise(pl.col(objective.column))
    return (steps if of_steps else tasks).select("concurrency", "task_id", value=value).drop_nulls("value")


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of each load in order of size, and of how many tasks they are."""

    of_load: Mapping[int, tuple[Matrix, int]]

    @classmethod
    def of(cls, frame: pl.DataFrame) -> _Values:
        parts = frame.partition_by("concurrency", as_dict=True)
        found = {
            load: (np.sort(part["value"].to_numpy()), part["task_id"].n_unique()) for (load,), part in parts.items()
        }
        return cls(dict(sorted(found.items())))

    def at(self, load: int) -> Matrix:
        return self.of_load[load][0]

    def distinct(self) -> dict[int, int]:
        return {load: n_tasks for load, (_, n_tasks) in self.of_load.items()}

    def percentile(self, load: int, percent: int) -> Three:
        """Return the percentile of a load and what bounds it, each in the place of the agents that follow from it.

        A percentile that may be as high as its upper bound carries as few agents as the lower end says.
        """
        values, n_tasks = self.of_load[load]
        low, high = (math.nan if end is None else end for end in bounds(values, n_tasks, percent))
        return percentile(values, percent), high, low


def isotonic(values: Matrix, weights: Matrix) -> Matrix:
    """Return the closest curves that never fall (weighted least squares, by the max-min formula); infinite values stay. # [curves, loads]

    Args:
        values: one curve a row. # [curves, loads]
        weights: of the loads. # [loads]
    """
    loads = values.shape[1]
    fitted = np.empty_like(values)
    means = [
        [(values[:, j : k + 1] @ weights[j : k + 1]) / weights[j : k + 1].sum() for k in range(j, loads)]
        for j in range(loads)
    ]
    for i in range(loads):
        lowest = [np.minimum.reduce(means[j][i - j :]) for j in range(i + 1)]
        fitted[:, i] = np.maximum.reduce(lowest)
    return fitted


def gives_way(loads: Sequence[int], over: Matrix) -> Matrix:
    """Return the largest load at which each curve is at or below 0, interpolated in log2(load). # [curves]

    Args:
        loads: measured loads, rising. # [loads]
        over: log(percentile ÷ limit), never falling. # [curves, loads]
    """
    kept = (over <= 0).sum(axis=1)
    found = np.where(kept == 0, -np.inf, np.inf)
    inside = np.flatnonzero((kept > 0) & (kept < over.shape[1]))
    right = kept[inside]
    left_over, right_over = over[inside, right - 1], over[inside, right]
    steps = np.log2(np.asarray(loads, dtype=np.float64)) if len(loads) else np.empty(0)
    with np.errstate(invalid="ignore"):
        share = np.where(np.isinf(right_over), 0.0, -left_over / (right_over - left_over))
    found[inside] = 2.0 ** (steps[right - 1] + np.nan_to_num(share) * (steps[right] - steps[right - 1]))
    found[np.isnan(over).any(axis=1)] = np.nan
    return found
