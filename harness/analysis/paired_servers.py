"""How many servers an arm saves against the baseline, with the certainty of the pair: in every draw both arms have the same tasks.

Two intervals that overlap say little of a difference: a hard task is hard for both arms. Here tasks are drawn with replacement, each
draw gives both arms their percentiles at every load, hence what a server carries, hence the servers, and their difference. Where an arm
keeps its level at the highest load, or misses it at a lowest load above 1, a draw bounds it from one side only, and counts so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from harness.analysis.agents import INSIDE, Carrying, Matrix, at_all_loads, gives_way, isotonic, judged
from harness.analysis.bootstrap import MIN_TASKS, draw_counts, interval, seed_of
from harness.analysis.capacity import WHOLE
from harness.analysis.fleet import Assumptions
from harness.analysis.latency import needed
from harness.analysis.percentiles import order_statistics
from harness.analysis.slo import Objective

BINS = 2048  # of the values of one load: more are told apart no further, which moves a percentile by less than 0.05 %
Ends = tuple[int | None, int | None]


def saved_limits(
    own: Sequence[Carrying], bare: Sequence[Carrying], steps: pl.DataFrame, tasks: pl.DataFrame, given: Assumptions
) -> Ends:
    """Return the ends of the 95 % interval of the servers that an arm saves; ``None``: too few tasks, or no draw bounds that side.

    Args:
        own: what the arm carries, one a workload of the mix.
        bare: what the baseline carries of the same workloads.
        steps: of the run.
        tasks: of the run.
        given: agents, mix and headroom.
    """
    steps, tasks = steps.filter(INSIDE), tasks.filter(INSIDE)
    taken = {"own": [np.zeros(1), np.zeros(1)], "bare": [np.zeros(1), np.zeros(1)]}  # of a server, at least and at most
    fewest = math.inf
    for mine, other in zip(own, bare, strict=True):
        names = _common(mine, other, tasks)
        fewest = min(fewest, len(names))
        # no draw reaches beyond the slowest task, so a percentile that nothing of so few bounds has no interval here either
        bounded = all(None not in order_statistics(len(names), objective.percent) for objective in mine.objectives)
        if len(names) < MIN_TASKS or not bounded or not (mine.loads and other.loads):
            return None, None
        share = given.mix[mine.workload]
        for side, item in (("own", mine), ("bare", other)):
            for end, reached in enumerate(_drawn(item, names, steps, tasks)):
                with np.errstate(divide="ignore"):
                    taken[side][end] = taken[side][end] + share / reached
    busy = given.busy / (1 - given.headroom)
    least, most = ([_servers(busy, taken[side][end]) for side in ("bare", "own")] for end in (0, 1))
    with np.errstate(invalid="ignore"):
        low = np.nan_to_num(least[0] - most[1], nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        high = np.nan_to_num(most[0] - least[1], nan=np.inf, posinf=np.inf, neginf=-np.inf)
    ends = [(interval(draws, int(fewest)) or (math.nan,) * 2)[end] for end, draws in enumerate((low, high))]
    first, last = (int(end) if math.isfinite(end) else None for end in ends)
    return first, last


def _common(own: Carrying, bare: Carrying, tasks: pl.DataFrame) -> list[str]:
    """Return the tasks that both arms did, at all loads where these are enough for the percentiles, in the order of their names."""
    done = tasks.filter(pl.col("workload") == own.workload)
    of_arm = [done.filter(pl.col("arm") == arm) for arm in (own.arm, bare.arm)]
    always, ever = (
        sorted(set(first) & set(second))
        for first, second in (map(at_all_loads, of_arm), (frame["task_id"] for frame in of_arm))
    )
    return always if len(always) >= max(needed(objective.percent) for objective in own.objectives) else ever


def _drawn(item: Carrying, names: Sequence[str], steps: pl.DataFrame, tasks: pl.DataFrame) -> tuple[Matrix, Matrix]:
    """Return at most and at least what a server carries in each draw; the seed is the workload's, so arms share draws. # [draws]"""
    own = (pl.col("workload") == item.workload) & (pl.col("arm") == item.arm)
    steps, tasks = steps.filter(own), tasks.filter(own)
    numbers = pl.DataFrame({"task_id": list(names), "task": range(len(names))})
    curves = [
        _Curve.of(objective, item.loads, judged(objective, steps, tasks).join(numbers, on="task_id"))
        for objective in item.objectives
    ]
    parts = []
    for counts in draw_counts(len(names), seed_of("servers", item.workload, len(names))):
        reached = np.array([curve.gives_way(counts) for curve in curves])  # [objectives, draws]
        parts.append(np.where(np.isnan(reached).any(axis=0), np.nan, reached.min(axis=0)))
    found = np.concatenate(parts)
    missed = 0.0 if item.loads[0] == 1 else float(item.loads[0])  # below a lowest load above 1 nothing was tried
    most = np.where(np.isnan(found), np.inf, np.where(found == -np.inf, missed, found))
    least = np.where(np.isnan(found) | (found == -np.inf), 0.0, np.minimum(found, item.loads[-1]))
    return most, least


@dataclass(frozen=True, slots=True)
class _Curve:
    """The values of one objective by load: how many of each task lie in each bin, and the bins' values, rising."""

    objective: Objective
    loads: tuple[int, ...]
    values: tuple[Matrix, ...]  # each [bins]
    of_task: tuple[Matrix, ...]  # each [tasks, bins]

    @classmethod
    def of(cls, objective: Objective, loads: tuple[int, ...], frame: pl.DataFrame) -> _Curve:
        n_tasks = int(frame["task"].max() or 0) + 1 if frame.height else 0  # type: ignore[arg-type]
        values, of_task = [], []
        for load in loads:
            part = frame.filter(pl.col("concurrency") == load).sort("value")
            ordered, task = part["value"].to_numpy(), part["task"].to_numpy()
            bins = np.arange(len(ordered)) * min(BINS, len(ordered)) // max(len(ordered), 1)
            last = np.flatnonzero(np.append(bins[1:] != bins[:-1], True)) if len(bins) else np.empty(0, np.int64)
            held = np.zeros((n_tasks, len(last)))
            np.add.at(held, (task, bins), 1.0)
            values.append(ordered[last])
            of_task.append(held)
        return cls(objective, loads, tuple(values), tuple(of_task))

    def gives_way(self, counts: Matrix) -> Matrix:
        """Return the load at which each draw gives way, NaN where a load has no value in it. # [draws]"""
        found = np.array([self._percentile(index, counts) for index in range(len(self.loads))]).T
        weights = np.array([held.sum() for held in self.of_task])
        with np.errstate(divide="ignore"):
            over = np.log(found / self.objective.limit)
        return gives_way(self.loads, isotonic(over, weights))

    def _percentile(self, index: int, counts: Matrix) -> Matrix:
        values, held = self.values[index], self.of_task[index]
        reach = np.cumsum(counts[:, : len(held)] @ held, axis=1)  # [draws, bins]
        if not reach.shape[1]:
            return np.full(len(counts), np.nan)
        total = reach[:, -1]
        place = (total - 1) * self.objective.percent / 100
        lower = np.floor(place)
        below, above = (
            values[np.minimum((reach <= at[:, None]).sum(axis=1), len(values) - 1)] for at in (lower, lower + 1)
        )
        part = place - lower
        with np.errstate(invalid="ignore"):
            between = np.where(part > 0, np.where(np.isinf(above), above, below * (1 - part) + above * part), below)
        return np.where(total > 0, between, np.nan)


def _servers(busy: float, taken: Matrix) -> Matrix:
    """Return whole servers in each draw: infinitely many where one carries none, minus as many where nothing bounds it. # [draws]"""
    whole = np.maximum(1.0, np.ceil(busy * taken - WHOLE))
    return np.where(taken == 0, -np.inf, np.where(taken * (1 - WHOLE) > 1, np.inf, whole))
