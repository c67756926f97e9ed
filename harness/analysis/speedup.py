"""How much faster a task is done with a drafter: the same tasks in both arms, Σ baseline time / Σ arm time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from harness.analysis.bootstrap import MIN_TASKS, interval, ratio_draws, seed_of
from harness.analysis.frames import SPEED_UP
from harness.analysis.plan import WorkloadPlan, baseline_arms
from harness.analysis.steps import counted

PAIR = ("workload", "concurrency", "repeat", "task_id", "instance")
SCHEMA = {
    "workload": pl.String, "arm": pl.String, "concurrency": pl.Int64, "window": pl.String, "n_tasks": pl.Int64,
} | dict.fromkeys(SPEED_UP[5:], pl.Float64)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Paired:
    """Times of the same tasks in baseline and arm, summed per task over instances, repeats and workloads; 0 where a task has no pair."""

    concurrency: tuple[int, ...]  # rising
    n_tasks: tuple[int, ...]  # distinct tasks with a pair, per concurrency
    baseline_s: NDArray[np.float64]  # [tasks, loads]
    arm_s: NDArray[np.float64]  # [tasks, loads]
    seed: int

    def estimates(self) -> NDArray[np.float64]:
        """Return the speed-up at each concurrency. # [loads]"""
        ratio: NDArray[np.float64] = self.baseline_s.sum(axis=0) / self.arm_s.sum(axis=0)
        return ratio

    def draws(self) -> NDArray[np.float64]:
        """Return the speed-up of every bootstrap draw; one draw takes the same tasks at all concurrencies. # [draws, loads]"""
        return ratio_draws(self.baseline_s, self.arm_s, self.seed)


def pairs(tasks: pl.DataFrame, plans: Iterable[WorkloadPlan]) -> pl.DataFrame:
    """Return the counted tasks that succeeded in both arms: ``arm``, ``PAIR``, both times with and without waits, ``steady``.

    Synthetic arms are among them; ``steady`` means inside the window in both arms.
    """
    times = ("task_time_s", "task_time_no_wait_s", "steady")
    baselines = baseline_arms(plans)
    good = counted(tasks).filter("ok").select(*PAIR, "arm", *times)
    on = ["workload", "arm"]
    baseline = good.join(baselines, on=on, how="semi").drop("arm").rename({name: f"baseline_{name}" for name in times})
    return (
        good.join(baselines, on=on, how="anti")
        .join(baseline, on=list(PAIR), how="inner")
        .with_columns(steady=pl.col("steady") & pl.col("baseline_steady"))
        .sort("arm", *PAIR)
    )


def matrices(found: pl.DataFrame, time: str, seed_key: tuple[object, ...]) -> Paired | None:
    """Return pairs of one arm as matrices, ``None`` if there are none.

    A task that several workloads hold is one task: its pairs are no independent looks at the world, so it is drawn as a whole.

    Args:
        found: rows of :func:`pairs`.
        time: ``task_time_s`` or ``task_time_no_wait_s``.
        seed_key: what the bootstrap's seed depends on.
    """
    if found.is_empty():
        return None
    loads = sorted(found["concurrency"].unique().to_list())
    tasks = found.select("task_id").unique(maintain_order=True).with_row_index("row")
    sums = (
        found.group_by("task_id", "concurrency")
        .agg(pl.col(f"baseline_{time}").sum(), pl.col(time).sum())
        .join(tasks, on="task_id")
    )
    rows = sums["row"].to_numpy()
    columns = np.searchsorted(loads, sums["concurrency"].to_numpy())
    baseline_s, arm_s = np.zeros((len(tasks), len(loads))), np.zeros((len(tasks), len(loads)))
    baseline_s[rows, columns] = sums[f"baseline_{time}"].to_numpy()
    arm_s[rows, columns] = sums[time].to_numpy()
    n_tasks = tuple(int(n) for n in np.bincount(columns, minlength=len(loads)))
    return Paired(tuple(loads), n_tasks, baseline_s, arm_s, seed_of(*seed_key))


def speed_up(found: pl.DataFrame) -> pl.DataFrame:
    """Return ``frames.SPEED_UP`` with its intervals; they are null below ``MIN_TASKS`` distinct tasks."""
    rows = []
    for (workload, arm), part in found.group_by("workload", "arm", maintain_order=True):
        for window, inside in (("steady", part.filter("steady")), ("whole", part)):
            # one seed for both times: the draws take the same tasks, so that the two intervals differ by the waits alone
            with_wait = matrices(inside, "task_time_s", (workload, arm, window))
            without = matrices(inside, "task_time_no_wait_s", (workload, arm, window))
            if with_wait is None or without is None:
                continue
            figures = zip(with_wait.concurrency, with_wait.n_tasks, _rows(with_wait), _rows(without), strict=True)
            rows += [(workload, arm, load, window, n, *first, *second) for load, n, first, second in figures]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("workload", "arm", "concurrency", "window")


def _rows(paired: Paired) -> list[tuple[float | None, float | None, float | None]]:
    draws = paired.draws()
    rows: list[tuple[float | None, float | None, float | None]] = []
    for index, (estimate, n_tasks) in enumerate(zip(paired.estimates(), paired.n_tasks, strict=True)):
        limits = interval(draws[:, index], n_tasks) if n_tasks >= MIN_TASKS else None
        rows.append((float(estimate), *(limits or (None, None))))
    return rows
