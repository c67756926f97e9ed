"""Intervals of many ratios of sums at once: each group draws its own tasks, groups of as many tasks share the draws.

So a figure has the same interval in whichever table it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from harness.analysis.bootstrap import LOW, MIN_TASKS, intervals, ratio_draws, seed_of

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Ends = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Group:
    """One row of a table to be: its key, and per task, in the order of their names, the sums of each value. # [tasks, values]"""

    key: tuple[Any, ...]
    sums: Matrix


def grouped(rows: pl.DataFrame, by: Sequence[str], values: Sequence[str]) -> list[Group]:
    """Return the groups of some rows in the order in which they appear; unknown values count as 0.

    Args:
        rows: with ``task_id``, the columns of ``by`` and those of ``values``.
        by: what tells groups apart; none makes a single group.
        values: columns to sum over the rows of a task.
    """
    sums = rows.group_by([*by, "task_id"], maintain_order=True).agg(pl.col(name).sum() for name in values)
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in sums.select(*by, "task_id", *values).iter_rows():
        found.setdefault(row[: len(by)], []).append(row[len(by) :])
    return [
        Group(key, np.array([row[1:] for row in sorted(tasks, key=lambda row: str(row[0]))], dtype=np.float64))
        for key, tasks in found.items()
    ]


def ratio_limits(groups: Sequence[Group]) -> list[Ends]:
    """Return the interval of Σ first value / Σ second value of each group, ``(None, None)`` where too few tasks bear it."""
    if not groups:
        return []
    sums = np.concatenate([group.sums[:, :2] for group in groups])
    low, high = _limits(sums[:, 0], sums[:, 1], np.array([len(group.sums) for group in groups]))
    return [
        (None, None) if np.isnan(least) else (float(least), float(most)) for least, most in zip(low, high, strict=True)
    ]


def _limits(above: Vector, below: Vector, sizes: NDArray[np.int64]) -> tuple[Vector, Vector]:
    """Return both ends of the interval of Σ above / Σ below of groups of tasks that stand one after another, NaN without one. # [groups]

    Args:
        above: of each task. # [tasks of all groups]
        below: of each task. # [tasks of all groups]
        sizes: how many tasks each group has. # [groups]
    """
    starts = np.cumsum(sizes) - sizes
    bearing = np.add.reduceat((below > 0).astype(np.int64), starts) >= MIN_TASKS
    low, high = np.full((2, len(sizes)), np.nan)
    for size in np.unique(sizes[bearing]).tolist():
        members = np.flatnonzero(bearing & (sizes == size))
        tasks = starts[members] + np.arange(size)[:, None]  # [tasks, groups]
        found = intervals(ratio_draws(above[tasks], below[tasks], _seed(size)), size)
        low[members], high[members] = np.array([(np.nan, np.nan) if ends is None else ends for ends in found]).T
    return low, high


def draws_of(group: Group, above: int, below: int) -> NDArray[np.float64]:
    """Return Σ above / Σ below of one group in every draw; two calls for one group draw the same tasks. # [draws]"""
    return ratio_draws(group.sums[:, [above]], group.sums[:, [below]], _seed(len(group.sums)))[:, 0]


def bears(group: Group, *values: int) -> bool:
    """Tell whether so many tasks as an interval needs have something of each of these values."""
    return all(int((group.sums[:, value] > 0).sum()) >= MIN_TASKS for value in values)


def _seed(n_tasks: int) -> int:
    return seed_of("ratio", n_tasks)


def add_ratio(
    frame: pl.DataFrame, rows: pl.DataFrame, by: Sequence[str], name: str, above: str, below: str, *, plus: float,
    share: bool = False,
) -> pl.DataFrame:  # fmt: skip
    """Add ``name`` (``plus`` + Σ above / Σ below over the rows of each group) with ``_low`` and ``_high`` to a frame keyed by ``by``.

    ``share`` says that the ratio is a share of 1. Where it is 0 or 1 in every task, no draw differs from another, which is no certainty:
    the open end is then that of as many tasks, all alike (Clopper and Pearson 1934), 69 % with ten and 93 % with fifty.
    """
    by = list(by)
    of_tasks = rows.group_by([*by, "task_id"], maintain_order=True).agg(
        above=pl.col(above).sum().cast(pl.Float64), below=pl.col(below).sum().cast(pl.Float64)
    )
    # the tasks of a group in the order of their names, as in :func:`grouped`
    groups = of_tasks.group_by(by, maintain_order=True).agg(
        pl.col("above", "below").sort_by("task_id"), ratio=pl.col("above").sum() / pl.col("below").sum(), n=pl.len()
    )
    groups = groups.filter(pl.col("below").list.sum() > 0)
    low = high = np.empty(0)
    if groups.height:
        low, high = _limits(
            groups["above"].explode().to_numpy(),
            groups["below"].explode().to_numpy(),
            groups["n"].cast(pl.Int64).to_numpy(),
        )
    if share and groups.height:
        ratio, alike = groups["ratio"].to_numpy(), LOW ** (1 / groups["n"].to_numpy())
        low = np.where((ratio == 1) & ~np.isnan(low), alike, low)
        high = np.where((ratio == 0) & ~np.isnan(high), 1 - alike, high)
    figures = {"": groups["ratio"], "_low": pl.Series(low), "_high": pl.Series(high)}
    added = groups.select(by).with_columns(
        (plus + value).fill_nan(None).alias(f"{name}{end}") for end, value in figures.items()
    )
    return frame.join(added, on=by, how="left", nulls_equal=True, maintain_order="left")
