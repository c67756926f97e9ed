"""Figures with intervals: sums over tasks and trainings, drawn again together for everything that rests on the same ones.

An `Estimate` holds a figure and its value in each of many draws of tasks (and, crossed with them, of trainings: a seed is a
block). Two figures over the same tasks are drawn alike, so their difference is paired by task; arithmetic keeps the draws.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from drafters.claims.counts import Row, Where

__all__ = ["Estimate", "Sample", "mean"]

DRAWS = 2000
LEAST_TASKS = 5
"""Fewer tasks give no interval."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """``values[0]`` is the figure, the others its draws; NaN where there is nothing to divide by."""

    values: Floats
    tasks: int
    seeds: int

    @property
    def value(self) -> float | None:
        """The figure."""
        return float(self.values[0]) if np.isfinite(self.values[0]) else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 %; ``None`` for too few tasks, or where more than a twentieth of the draws has no value."""
        drawn = self.values[1:]
        known = drawn[np.isfinite(drawn)]
        if self.tasks < LEAST_TASKS or len(known) < 0.95 * len(drawn):
            return None
        low, high = np.quantile(known, (0.025, 0.975))
        return float(low), float(high)

    def __add__(self, other: Estimate | float) -> Estimate:
        return self._with(other, np.add)

    def __sub__(self, other: Estimate | float) -> Estimate:
        return self._with(other, np.subtract)

    def __mul__(self, other: Estimate | float) -> Estimate:
        return self._with(other, np.multiply)

    def __truediv__(self, other: Estimate | float) -> Estimate:
        return self._with(other, np.divide)

    def _with(self, other: Estimate | float, how: Callable[[Floats, Floats], Floats]) -> Estimate:
        if not isinstance(other, Estimate):
            other = Estimate(np.full(DRAWS + 1, float(other)), self.tasks, self.seeds)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = how(self.values, other.values)
        values = np.where(np.isfinite(values), values, np.nan)
        return Estimate(values, min(self.tasks, other.tasks), max(self.seeds, other.seeds))


def mean(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of figures, draw by draw."""
    total = estimates[0]
    for each in estimates[1:]:
        total = total + each
    return total / float(len(estimates))


class Sample:
    """Rows of one or more runs, from which figures are made by label."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)

    def of(self, where: Where) -> Sample:
        """The rows that ``where`` lets through."""
        return Sample(row for row in self.rows if where(row))

    def labels(self) -> list[str]:
        """Labels with rows, in the order in which they come."""
        return list(dict.fromkeys(row.label for row in self.rows))

    def acceptance(self, label: str) -> Estimate:
        """1 + accepted / rounds, a ratio of sums; no value where nothing was drafted."""
        return self.ratio(label, lambda row: row.accepted, lambda row: row.rounds) + 1.0

    def seconds(self, label: str) -> Estimate:
        """Mean time of a step, tool waits left out: ratios of it are ratios of time over the same steps."""
        return self.ratio(label, lambda row: row.seconds, lambda row: 1)

    def ratio(self, label: str, over: Callable[[Row], float | None], under: Callable[[Row], float | None]) -> Estimate:
        """Σ over / Σ under, of the rows in which both are known."""
        tasks = sorted({(row.workload, row.task) for row in self.rows})
        own = [row for row in self.rows if row.label == label]
        seeds = sorted({row.seed for row in own}) or [1]
        place, block = {task: n for n, task in enumerate(tasks)}, {seed: n for n, seed in enumerate(seeds)}
        sums = np.zeros((2, len(seeds), max(1, len(tasks))))
        for row in own:
            above, below = over(row), under(row)
            if above is not None and below is not None:
                sums[:, block[row.seed], place[row.workload, row.task]] += (above, below)
        weighed = np.einsum("kst,ds,dt->kd", sums, _weights("seeds", len(seeds)), _weights(str(tasks), sums.shape[2]))
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.where(weighed[1] > 0, weighed[0] / weighed[1], np.nan)
        return Estimate(values, len(tasks), len(seeds))


@cache
def _weights(name: str, size: int) -> Floats:
    """How often each of ``size`` things is drawn, [DRAWS + 1, size]; the first row is the sample itself. One draw a name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    drawn = rng.multinomial(size, np.full(size, 1.0 / size), size=DRAWS).astype(np.float64)
    return np.concatenate((np.ones((1, size)), drawn))
