"""Agents per server: the largest number of tasks in progress at which an arm keeps the workload's objectives.

For each objective the percentile is taken at every measured load (a failure is beyond every limit), fitted so that it only rises with
the load, and read off where it reaches the limit: between two loads linearly in log(time) and log2(load), as the break-even is. The
objective that gives way first decides. The interval draws tasks, the same at all loads and in all arms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from harness.analysis.bootstrap import DRAWS, MIN_TASKS, draw_counts, interval, seed_of
from harness.analysis.frames import AGENTS, AGENTS_SCHEMA
from harness.analysis.latency import needed
from harness.analysis.plan import WorkloadPlan
from harness.analysis.slo import STEP_METRICS, Objective, parse_slo

Matrix = NDArray[np.float64]
MOST_BINS = 256
"""Of values that a percentile is drawn from; more are taken together, near the percentile as finely as so many allow.

Within eight standard errors of it a bin is then a sixteenth of a standard error, far below what the draws tell apart.
"""
WHOLE = 1e-9  # below a whole number by less is rounding, not a smaller server


@dataclass(frozen=True, slots=True)
class Carrying:
    """How many tasks in progress one arm carries on one workload. Row 0 of the matrices is the estimate, the others are draws.

    ``reached`` holds, for each objective, the load at which it gives way: ``+inf`` where it is kept at the highest, ``-inf`` where it
    is missed at the lowest, NaN where a draw says nothing. ``n_tasks`` are the distinct tasks of the load that has the fewest; without
    a load that has enough tasks for every percentile ``loads`` is empty.
    """

    workload: str
    arm: str
    objectives: tuple[Objective, ...]
    loads: tuple[int, ...]
    n_tasks: int
    reached: Matrix  # [objectives, 1 + draws]
    task_time_s: Matrix  # mean over tasks that succeeded. # [1 + draws, loads]

    @property
    def slo(self) -> str:
        """The objectives as a text."""
        return ", ".join(objective.text for objective in self.objectives)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Agents per server of a mix of workloads: ``lower`` and ``upper`` bound what was measured; they differ where a load was too low.

    Row 0 is the estimate. Both are 0 where the service level is missed at the lowest load; NaN: unknown.
    """

    lower: Matrix  # [1 + draws]
    upper: Matrix  # [1 + draws]
    n_tasks: int
    limited_by: str | None

    @property
    def agents(self) -> float | None:
        """The estimate, a lower bound where the highest measured load is carried too; ``None``: unknown."""
        return None if np.isnan(self.lower[0]) else float(self.lower[0])

    @property
    def open_ended(self) -> bool:
        """Whether more may be carried than was measured."""
        return bool(self.upper[0] > self.lower[0])

    def limits(self) -> tuple[float, float] | None:
        """Return the interval (95 %), ``None`` where too few tasks bear one; the upper end may be infinite."""
        if self.n_tasks < MIN_TASKS:
            return None
        ends = [interval(side[1:], self.n_tasks) for side in (self.lower, self.upper)]
        return None if ends[0] is None or ends[1] is None else (ends[0][0], ends[1][1])


def carrying(steps: pl.DataFrame, tasks: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> list[Carrying]:
    """Return what every arm of every workload with objectives carries, from counted rows inside the steady window.

    Raises:
        UsageError: if an objective cannot be read.
    """
    inside = pl.col("steady") & (pl.col("phase") == "counted")
    steps, tasks = steps.filter(inside), tasks.filter(inside)
    found = []
    for plan in plans:
        objectives = tuple(parse_slo(name, text) for name, text in plan.slo.items())
        if not objectives:
            continue
        for arm in plan.methods:
            own = (pl.col("workload") == plan.name) & (pl.col("arm") == arm)
            found.append(_carrying(plan.name, arm, objectives, steps.filter(own), tasks.filter(own)))
    return found


def _carrying(
    workload: str, arm: str, objectives: tuple[Objective, ...], steps: pl.DataFrame, tasks: pl.DataFrame
) -> Carrying:
    names = pl.concat([tasks["task_id"], steps["task_id"]]).unique().sort()
    rows = pl.DataFrame({"task_id": names}).with_row_index("row")
    values = [_Values.of(_judged(objective, steps, tasks), rows) for objective in objectives]
    counts = [item.distinct() for item in values]
    loads = sorted(
        load
        for load in counts[0]
        if all(of.get(load, 0) >= needed(item.percent) for of, item in zip(counts, objectives, strict=True))
    )
    fewest = [of[load] for of in counts for load in loads] or [max(of.values(), default=0) for of in counts]
    percentiles = [
        [Percentile.of(*item.at(load), len(names), objective.percent / 100) for load in loads]
        for objective, item in zip(objectives, values, strict=True)
    ]
    good = _Values.of(tasks.filter("ok").select("concurrency", "task_id", value="task_time_s"), rows)
    sums = [_sums(*good.at(load), len(names)) for load in loads]
    weights = np.array([max(1, len(good.at(load)[0])) for load in loads], dtype=np.float64)
    curves = np.empty((len(objectives), 1 + DRAWS, len(loads)))
    task_time_s = np.empty((1 + DRAWS, len(loads)))
    for part, taken in _drawn(len(names), seed_of("agents", workload)):
        for column in range(len(loads)):
            for index, of_objective in enumerate(percentiles):
                curves[index, part, column] = of_objective[column].in_draws(taken)
            total = taken @ sums[column]
            n = total[:, 1]
            task_time_s[part, column] = np.divide(total[:, 0], n, out=np.full_like(n, np.nan), where=n > 0)
    reached = np.full((len(objectives), 1 + DRAWS), np.nan)
    if loads:
        for index, objective in enumerate(objectives):
            reached[index] = gives_way(loads, isotonic(np.log(curves[index] / objective.limit), weights))
    return Carrying(workload, arm, objectives, tuple(loads), min(fewest), reached, task_time_s)


def _drawn(n_tasks: int, seed: int) -> Iterator[tuple[slice, Matrix]]:
    """Yield how often each draw takes each task, the first taking every task once: the estimate. # [draws, tasks]"""
    yield slice(0, 1), np.ones((1, n_tasks))
    begin = 1
    for counts in draw_counts(n_tasks, seed) if n_tasks else ():
        yield slice(begin, begin + len(counts)), counts
        begin += len(counts)


def _sums(values: Matrix, rows: NDArray[np.int64], n_tasks: int) -> Matrix:
    """Return sum and number of the values of each task. # [tasks, 2]"""
    return np.stack(
        [np.bincount(rows, weights=weights, minlength=n_tasks) for weights in (values, None)], axis=1
    ).astype(float)


def _judged(objective: Objective, steps: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """Return what an objective judges as concurrency, task_id, value; a failure is infinite, a step without a value is left out."""
    of_steps = objective.metric in STEP_METRICS
    failed = pl.col("error_kind").is_not_null() if of_steps else ~pl.col("ok")
    value = pl.when(failed).then(np.inf).otherwise(pl.col(objective.column))
    return (steps if of_steps else tasks).select("concurrency", "task_id", value=value).drop_nulls("value")


@dataclass(frozen=True, slots=True)
class _Values:
    """Values sorted by load, then by size, with the number of the task that each is of."""

    loads: NDArray[np.int64]
    values: Matrix
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, frame: pl.DataFrame, rows: pl.DataFrame) -> _Values:
        joined = frame.join(rows, on="task_id")
        loads, values, numbers = (joined[name].to_numpy() for name in ("concurrency", "value", "row"))
        order = np.lexsort((numbers, values, loads))
        return cls(loads[order], values[order], numbers[order].astype(np.int64))

    def at(self, load: int) -> tuple[Matrix, NDArray[np.int64]]:
        part = slice(*np.searchsorted(self.loads, [load, load + 1]))
        return self.values[part], self.rows[part]

    def distinct(self) -> dict[int, int]:
        return {int(load): len(np.unique(self.at(load)[1])) for load in np.unique(self.loads)}


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile of the values of one load, ready to be taken in draws of tasks."""

    held: Matrix  # how many values of each bin each task has. # [tasks, bins]
    values: Matrix  # of the bins, rising; may be infinite. # [bins]
    share: float  # of the percentile, from 0 to 1

    @classmethod
    def of(cls, values: Matrix, rows: NDArray[np.int64], n_tasks: int, share: float) -> Percentile:
        """Make one of sorted values and the task that each is of."""
        stops = _bins(len(values), n_tasks, share)
        bins = np.searchsorted(stops, np.arange(len(values)), side="right")
        held = np.zeros((n_tasks, len(stops)))
        np.add.at(held, (rows, bins), 1.0)
        return cls(held, values[stops - 1 - np.diff(stops, prepend=0) // 2], share)

    def in_draws(self, counts: Matrix) -> Matrix:
        """Return the linearly interpolated percentile in every draw, NaN where it holds no value. # [draws]"""
        cumulated = np.cumsum(counts @ self.held, axis=1)
        total = cumulated[:, -1]
        place = np.maximum(total - 1, 0) * self.share
        lower = np.floor(place)

        def at(rank: Matrix) -> Matrix:
            taken: Matrix = self.values[np.minimum((cumulated <= rank[:, None]).sum(axis=1), len(self.values) - 1)]
            return taken

        first, second, part = at(lower), at(np.minimum(lower + 1, np.maximum(total - 1, 0))), place - lower
        with np.errstate(invalid="ignore"):  # between two infinite values there is no number, and none is needed
            between = first + part * (second - first)
        between = np.where(part == 0, first, np.where(np.isinf(second), np.inf, between))
        return np.where(total > 0, between, np.nan)


def _bins(n: int, n_tasks: int, share: float) -> NDArray[np.int64]:
    """Return where the bins of n sorted values end: single values where there are few, else finely only around the percentile."""
    if n <= MOST_BINS:
        return np.arange(1, n + 1)
    reach = 8 * np.sqrt(share * (1 - share) / n_tasks)
    begin, end = max(0, int((share - reach) * n)), min(n, int((share + reach) * n) + 1)
    stops = np.linspace(begin, end, MOST_BINS + 1).astype(np.int64)
    return np.unique(np.concatenate([stops[stops > 0], [n]]))


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


def capacity(carried: Sequence[Carrying], shares: Mapping[str, float]) -> Capacity:
    """Return the agents per server of a mix: an agent of a workload takes 1/(its agents per server) of one.

    For one workload that is what was measured. For a mix it is modelled: it takes for granted that tasks of another workload weigh on
    a server like those of the same at the load that it carries.

    Args:
        carried: of one arm, one a workload.
        shares: share of the agents by workload; the sum is 1.
    """
    lower, upper = np.zeros(1 + DRAWS), np.zeros(1 + DRAWS)
    most: tuple[float, str | None] = (-1.0, None)
    for item in carried:
        share = shares[item.workload]
        if not item.loads:
            return Capacity(np.full(1 + DRAWS, np.nan), np.full(1 + DRAWS, np.nan), item.n_tasks, None)
        reached = item.reached.min(axis=0)
        bounds = np.where(reached == -np.inf, 0.0, np.minimum(reached, item.loads[-1]))
        with np.errstate(divide="ignore"):
            lower += share / bounds
            upper += share / np.where(reached == -np.inf, 0.0, reached)
        taken = share / bounds[0] if bounds[0] else np.inf
        first = int(np.argmin(item.reached[:, 0]))
        if taken > most[0]:
            named = (
                item.objectives[first].name if len(carried) == 1 else f"{item.workload}: {item.objectives[first].name}"
            )
            most = (taken, None if np.isinf(reached[0]) and reached[0] > 0 else named)
    with np.errstate(divide="ignore"):
        return Capacity(1 / lower, 1 / upper, min(item.n_tasks for item in carried), most[1])


def agents(carried: Sequence[Carrying]) -> pl.DataFrame:
    """Return ``frames.AGENTS``: one row a workload and arm, and one for arms with several workloads in equal shares of agents."""
    rows = [_row(item.workload, [item], capacity([item], {item.workload: 1.0})) for item in carried]
    for arm in dict.fromkeys(item.arm for item in carried):
        own = [item for item in carried if item.arm == arm]
        if len(own) > 1:
            rows.append(_row(None, own, capacity(own, {item.workload: 1 / len(own) for item in own})))
    return pl.DataFrame(rows, schema=AGENTS_SCHEMA, orient="row").select(AGENTS)


def _row(workload: str | None, own: Sequence[Carrying], found: Capacity) -> tuple[str | int | None, ...]:
    levels = list(dict.fromkeys(item.slo for item in own))
    slo = "; ".join(levels) if len(levels) == 1 else "; ".join(f"{item.workload}: {item.slo}" for item in own)
    ends = (own[0].loads[0], own[0].loads[-1]) if len(own) == 1 and own[0].loads else (None, None)
    if found.agents is None:
        return (workload, own[0].arm, slo, None, None, None, "none", "unknown", None, *ends, found.n_tasks)
    floor = [item.loads[0] for item in own]
    limits = found.limits()
    low, high = (None, None) if limits is None else (whole(limits[0], floor), whole(limits[1], floor))
    known = {(True, True): "both", (False, True): "open_low", (True, False): "open_high", (False, False): "open_both"}
    interval_ends = "none" if limits is None else known[low is not None, high is not None]
    state = "none" if found.agents == 0 else "at_least" if found.open_ended else "found"
    row = (whole(found.agents, floor), low, high, interval_ends, state, found.limited_by)
    return (workload, own[0].arm, slo, *row, *ends, found.n_tasks)


def whole(agents_per_server: float, lowest: Sequence[int]) -> int | None:
    """Return a capacity as whole agents; ``None`` beyond the measured range: infinite, or 0 where not even 1 at a time was tried."""
    if np.isinf(agents_per_server) or (agents_per_server == 0 and max(lowest) > 1):
        return None
    return int(agents_per_server + WHOLE)
