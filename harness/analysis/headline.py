"""Intervals of the figures that a reader looks at first: task time, tasks per hour and unchanged outputs. Tasks are drawn as wholes."""

from __future__ import annotations

import polars as pl

from harness.analysis.intervals import add_ratio
from harness.analysis.latency import LOAD
from harness.analysis.steps import counted


def headline_limits(tasks: pl.DataFrame, compared: pl.DataFrame) -> pl.DataFrame:
    """Return the interval columns of ``frames.SUMMARY`` per workload, arm and concurrency.

    Tasks per hour are concurrency × 3600 ÷ the time that a finished task takes of a slot, failed tasks included, so their limits are
    those of that time turned over.

    Args:
        tasks: task rows with ``steady``.
        compared: of :func:`harness.analysis.lossless.compare`.
    """
    steady = counted(tasks).filter("steady")
    good = steady.filter("ok").with_columns(n=1)
    frame = good.select(LOAD).unique(maintain_order=True)
    took = steady.with_columns(n=pl.col("ok").cast(pl.Int64))
    frame = add_ratio(frame, took, LOAD, "slot_mean_s", "slot_s", "n", plus=0.0)
    frame = add_ratio(frame, good, LOAD, "task_time_mean_s", "task_time_s", "n", plus=0.0)
    outputs = compared.group_by("cell", "task").agg(
        pl.col(*LOAD, "task_id").first(), pl.col("identical").cast(pl.Int64).sum(), n=pl.len().cast(pl.Int64)
    )
    frame = add_ratio(frame, outputs, LOAD, "identical_share", "identical", "n", plus=0.0, share=True)
    per_hour = pl.col("concurrency") * 3600
    ends = [f"{name}_{end}" for name in ("task_time_mean_s", "identical_share") for end in ("low", "high")]
    return frame.select(
        *LOAD,
        *ends,
        tasks_per_hour_low=per_hour / pl.col("slot_mean_s_high"),
        tasks_per_hour_high=per_hour / pl.col("slot_mean_s_low"),
    )
