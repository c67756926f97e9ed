"""Percentiles that know how many values they need, and the figures of time per workload, arm and concurrency."""

from __future__ import annotations

import polars as pl

from harness.analysis.frames import SUMMARY
from harness.analysis.steps import FAILED, counted

LOAD = ("workload", "arm", "concurrency")
NEEDED = (*LOAD, "task_id", "phase", "done", "steady", "error_kind", "ttft_s", "tpot_ms", "step_latency_s")


def quantile(column: pl.Expr, percent: int) -> pl.Expr:
    """Return the linearly interpolated percentile of the known values, null below :func:`needed` distinct tasks (``task_id``)."""
    value = column.quantile(percent / 100, "linear")
    if needed(percent) <= 1:  # null without a value anyway, and tasks take longer to count than values to order
        return value
    tasks = pl.col("task_id").filter(column.is_not_null()).n_unique()
    return pl.when(tasks >= needed(percent)).then(value)


def needed(percent: int) -> int:
    """Return how many distinct tasks a percentile needs: at least one must be expected beyond it (p90: 10, p99: 100).

    Fewer, and it is only the largest value under another name; repeats and instances of a task are not new looks at the world. The
    median of one value is that value.
    """
    return 1 if percent <= 50 else -(-100 // (100 - percent))


def times(steps: pl.DataFrame, tasks: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of ``frames.SUMMARY`` that are times, counts and rates, one row a workload, arm and concurrency.

    Times come from counted steps and tasks inside the steady window; counts of failures from all counted steps. ``n_tasks`` counts
    runs of tasks, each instance and repeat by itself (the speed-up counts distinct tasks). Rates pool the repeats: Σ tokens / Σ
    seconds, over the repeats whose tokens are known.
    """
    steps, tasks = counted(steps.select(NEEDED)), counted(tasks)
    loads = steps.group_by(LOAD, maintain_order=True).agg(n_steps_failed=FAILED.sum())
    of_steps = (
        steps.filter("steady")
        .group_by(LOAD)
        .agg(
            n_steps=pl.col("step_latency_s").count(),
            ttft_p50_s=quantile(pl.col("ttft_s"), 50),
            ttft_p90_s=quantile(pl.col("ttft_s"), 90),
            tpot_p50_ms=quantile(pl.col("tpot_ms"), 50),
            tpot_p90_ms=quantile(pl.col("tpot_ms"), 90),
            step_latency_p50_s=quantile(pl.col("step_latency_s"), 50),
            step_latency_p90_s=quantile(pl.col("step_latency_s"), 90),
        )
    )
    task_time = pl.col("task_time_s")
    of_tasks = (
        tasks.filter("steady")
        .group_by(LOAD)
        .agg(
            n_tasks=task_time.count(),
            task_time_mean_s=task_time.mean(),
            task_time_p50_s=quantile(task_time, 50),
            task_time_p90_s=quantile(task_time, 90),
            task_time_no_wait_mean_s=pl.col("task_time_no_wait_s").mean(),
        )
    )
    tokens, hours = ("window_tokens", "window_tokens_s"), ("window_tasks", "window_tasks_s")
    known = pl.col(tokens[0])
    rates = (
        cells.filter(pl.col("status") == "done")
        .group_by(LOAD)
        .agg(
            output_tokens_per_s=(known.sum() / pl.col(tokens[1]).filter(known.is_not_null()).sum()).fill_nan(None),
            tasks_per_hour=(pl.col(hours[0]).sum() / pl.col(hours[1]).sum() * 3600).fill_nan(None),
        )
    )
    for part in (of_steps, of_tasks, rates):
        loads = loads.join(part, on=list(LOAD), how="left", maintain_order="left")
    return loads.with_columns(pl.col("n_steps", "n_tasks").fill_null(0)).sort(LOAD)


def summary(times_frame: pl.DataFrame, *parts: pl.DataFrame) -> pl.DataFrame:
    """Return ``frames.SUMMARY`` without cautions: the times, joined with other figures per workload, arm and concurrency."""
    for part in parts:
        times_frame = times_frame.join(part, on=list(LOAD), how="left", maintain_order="left")
    return times_frame.select(SUMMARY[:-1])
