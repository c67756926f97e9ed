"""How many more repeats, or how many tasks, a verdict needs.

The speed-up of one load is a ratio of sums over tasks and repeats. Its spread has three sources: tasks differ (more tasks help, more
repeats do not), repeats differ as a whole (blocks: what the machine did meanwhile, and pairing did not cancel), and single runs of a
task differ. They are told apart as in any two-way table of tasks and repeats.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from harness.analysis.bootstrap import MIN_TASKS, student
from harness.analysis.frames import REPEATS, REPEATS_SCHEMA

MOST_REPEATS = 1000  # that a workload file may ask for
MOST_TASKS = 100_000
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spread:
    """Variances of the logarithm of a speed-up: of one task, of one repeat as a whole, of one run; ``None``: one repeat tells none."""

    task: float
    repeat: float | None
    run: float | None

    def variance(self, tasks: int, repeats: int) -> float:
        """Return the variance of the mean over so many tasks and repeats; what one repeat cannot tell apart counts as tasks'."""
        return self.task / tasks + (self.repeat or 0.0) / repeats + (self.run or 0.0) / (tasks * repeats)


def spread(baseline: Matrix, arm: Matrix) -> tuple[float, Spread]:
    """Return log(Σ baseline ÷ Σ arm) and where its spread comes from.

    Args:
        baseline: task times. # [tasks, repeats]
        arm: those of the same runs. # [tasks, repeats]
    """
    gain = math.log(baseline.sum() / arm.sum())
    # to first order the log of the ratio is the mean of these, which is 0 by construction
    share = baseline / baseline.mean() - arm / arm.mean()
    tasks, repeats = share.shape
    of_task, of_repeat = share.mean(axis=1), share.mean(axis=0)
    square_task = repeats * float((of_task**2).sum()) / (tasks - 1)
    if repeats == 1:
        return gain, Spread(square_task, None, None)
    rest = share - of_task[:, None] - of_repeat[None, :]
    square_run = float((rest**2).sum()) / ((tasks - 1) * (repeats - 1))
    square_repeat = tasks * float((of_repeat**2).sum()) / (repeats - 1)
    return gain, Spread(
        max(0.0, (square_task - square_run) / repeats), max(0.0, (square_repeat - square_run) / tasks), square_run
    )


def more_repeats(gain: float, found: Spread, tasks: int, repeats: int) -> int | None:
    """Return how many repeats to add until a gain of this size is told from none, ``None`` if no number of them does.

    The sum is even: over an even number the arms alternate and a drift cancels.
    """
    if found.repeat is None or found.run is None:
        return None
    left = (gain / student(tasks - 1)) ** 2 - found.task / tasks
    if left <= 0:
        return None
    wanted = math.ceil((found.repeat + found.run / tasks) / left)
    even = max(wanted + wanted % 2, repeats)
    return even - repeats if even <= MOST_REPEATS else None


def tasks_needed(gain: float, found: Spread, repeats: int) -> int | None:
    """Return with how many distinct tasks, at these repeats, a gain of this size is told from none, ``None`` if with no number."""
    of_tasks, of_repeats = found.task + (found.run or 0.0) / repeats, (found.repeat or 0.0) / repeats

    def enough(tasks: int) -> bool:
        return (gain / student(tasks - 1)) ** 2 > of_tasks / tasks + of_repeats

    wanted = bisect_left(range(MOST_TASKS + 1), True, lo=MIN_TASKS, key=enough)
    return wanted if wanted <= MOST_TASKS else None


def repeats_needed(found: pl.DataFrame) -> pl.DataFrame:
    """Return ``frames.REPEATS`` from the pairs inside the steady window (of :func:`harness.analysis.speedup.pairs`).

    Tasks that every repeat has count; where fewer than ``MIN_TASKS`` do, nothing is decided and nothing said. The size seen is taken
    for the true one, so the numbers are what to plan with, not a promise.
    """
    rows = []
    for (workload, arm, load), part in found.filter("steady").group_by(REPEATS[:3], maintain_order=True):
        rows.append((workload, arm, load, *_row(part)))
    return pl.DataFrame(rows, schema=REPEATS_SCHEMA, orient="row").sort(REPEATS[:3])


def _row(part: pl.DataFrame) -> Sequence[int | bool | None]:
    repeats = part["repeat"].n_unique()
    times = ("baseline_task_time_s", "task_time_s")
    sums = part.group_by("task_id", "repeat").agg(pl.col(name).sum() for name in times)
    sums = sums.filter(pl.len().over("task_id") == repeats).sort("task_id", "repeat")
    tasks = sums["task_id"].n_unique()
    if tasks < MIN_TASKS:
        return tasks, repeats, None, None, None
    baseline, arm = (sums[name].to_numpy().reshape(tasks, repeats) for name in times)
    gain, known = spread(baseline, arm)
    decided = abs(gain) > student(tasks - 1) * math.sqrt(known.variance(tasks, repeats))
    more = 0 if decided else more_repeats(gain, known, tasks, repeats)
    return tasks, repeats, decided, more, tasks_needed(gain, known, repeats)
