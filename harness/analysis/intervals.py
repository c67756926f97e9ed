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

from harness.analysis.bootstrap import MIN_TASKS, intervals, ratio_draws, seed_of

Matrix = NDArray[np.float64]
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
    limits: list[Ends] = [(None, None)] * len(groups)
    by_size: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        if bears(group, 1):
            by_size.setdefault(len(group.sums), []).append(index)
    for size, members in by_size.items():
        above, below = (np.stack([groups[index].sums[:, value] for index in members], axis=1) for value in (0, 1))
        found = intervals(ratio_draws(above, below, _seed(size)), size)
        for index, ends in zip(members, found, strict=True):
            limits[index] = ends or (None, None)
    return limits


def draws_of(group: Group, above: int, below: int) -> NDArray[np.float64]:
    """Return Σ above / Σ below of one group in every draw; two calls for one group draw the same tasks. # [draws]"""
    return ratio_draws(group.sums[:, [above]], group.sums[:, [below]], _seed(len(group.sums)))[:, 0]


def bears(group: Group, *values: int) -> bool:
    """Tell whether so many tasks as an interval needs have something of each of these values."""
    return all(int((group.sums[:, value] > 0).sum()) >= MIN_TASKS for value in values)


def _seed(n_tasks: int) -> int:
    return seed_of("ratio", n_tasks)


def add_ratio(
    frame: pl.DataFrame, rows: pl.DataFrame, by: Sequence[str], name: str, above: str, below: str, *, plus: float
) -> pl.DataFrame:
    """Add ``name`` (``plus`` + Σ above / Σ below over the rows of each group) with ``_low`` and ``_high`` to a frame keyed by ``by``."""
    groups = [group for group in grouped(rows, by, (above, below)) if group.sums[:, 1].sum() > 0]
    found = []
    for group, ends in zip(groups, ratio_limits(groups), strict=True):
        up, down = group.sums.sum(axis=0)
        found.append((*group.key, plus + up / down, *(None if end is None else plus + end for end in ends)))
    figures = (name, f"{name}_low", f"{name}_high")
    schema = {key: rows.schema[key] for key in by} | dict.fromkeys(figures, pl.Float64)
    added = pl.DataFrame(found, schema=schema, orient="row")
    return frame.join(added, on=list(by), how="left", nulls_equal=True, maintain_order="left")
