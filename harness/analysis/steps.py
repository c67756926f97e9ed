"""Rows of single steps and tasks with their times, and which of them lie in the steady window."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from harness.analysis.frames import CELL
from harness.analysis.window import steady_window

_ROWS = 1 << 40  # more than a run has
TASK = ("cell", "phase", "instance", "task")
OK = pl.col("error_kind").is_null()
CUT_TAIL = (pl.col("phase") == "cool_down") & (pl.col("error_kind") == "cancelled")
"""The tail of a cell is cancelled once the last counted task has ended: that is no failure."""
FAILED = pl.col("error_kind").is_not_null() & ~CUT_TAIL
WINDOWS = {"cell": pl.UInt32, "window_start_ns": pl.Int64, "window_end_ns": pl.Int64}


def add_times(rows: pl.DataFrame, arms: pl.DataFrame) -> pl.DataFrame:
    """Add ratios and durations to step rows; ``arms`` has workload, arm and ``drafter`` (whether the arm has one).

    Per step: TTFT = first token − sent. TPOT = (end − first token) / (output tokens − 1), null below two tokens. Step latency =
    end − due, time spent queueing at the client included. Lateness = sent − due. Durations of failed steps are null. An arm
    without a drafter has null acceptance: it did not accept nothing, it never drafted.
    """
    origin = pl.col("due_ns").min().over("cell")
    drafts = pl.col("num_drafts") > 0
    roles = rows.select("cell", "workload", "arm").unique("cell").join(arms, on=["workload", "arm"], how="left")
    return rows.join(roles.select("cell", "drafter"), on="cell", how="left", maintain_order="left").with_columns(
        *(
            (pl.col(f"{name}_ns") - origin).truediv(1e9).alias(f"{name}_s")
            for name in ("due", "sent", "first_token", "end")
        ),
        late_ms=(pl.col("sent_ns") - pl.col("due_ns")) / 1e6,
        ttft_s=pl.when(OK).then((pl.col("first_token_ns") - pl.col("sent_ns")) / 1e9),
        tpot_ms=pl.when(OK & (pl.col("output_tokens") >= 2)).then(
            (pl.col("end_ns") - pl.col("first_token_ns")) / 1e6 / (pl.col("output_tokens") - 1)
        ),
        step_latency_s=pl.when(OK).then((pl.col("end_ns") - pl.col("due_ns")) / 1e9),
        tool_wait_s=pl.col("tool_wait_ns") / 1e9,
        acceptance_length=pl.when(drafts & pl.col("drafter")).then(
            1 + pl.col("num_accepted_tokens") / pl.col("num_drafts")
        ),
        acceptance_rate=pl.when((pl.col("num_draft_tokens") > 0) & pl.col("drafter")).then(
            pl.col("num_accepted_tokens") / pl.col("num_draft_tokens")
        ),
        tokens_per_pass=pl.when((pl.col("decode_passes") > 0) & pl.col("drafter")).then(
            1 + pl.col("num_accepted_tokens") / pl.col("decode_passes")
        ),
    )


def task_rows(steps: pl.DataFrame) -> pl.DataFrame:
    """Return one row a started task: its span, whether all its steps succeeded, and its times (null unless they did;
    ``slot_s``, the time that it kept its slot, also where it failed).

    Task time runs from the due time of the first step to the end of the last. Without waits it is the sum of the step latencies:
    that leaves out the waits as they really were (next due − previous end), not as they were recorded.
    """
    whole = pl.col("steps").max().over("workload", "task")
    # a task may mix languages; the one most of its steps have stands for it, the first in case of a tie
    languages = steps["language"].unique(maintain_order=True)
    scores = {name: _score(pl.col("language") == name).alias(f"score {name}") for name in languages}
    best = pl.max_horizontal(f"score {name}" for name in languages) if scores else pl.lit(None)
    language = pl.coalesce(
        pl.lit(None, pl.String),
        *(pl.when(pl.col(f"score {name}") == best).then(pl.lit(name)) for name in languages),
    )
    tasks = (
        steps.with_row_index("row")
        .group_by(TASK, maintain_order=True)
        .agg(
            *(pl.col(name).first() for name in (*CELL, "task_id", "done")),
            *scores.values(),
            steps=pl.len(),
            start_ns=pl.col("due_ns").min(),
            end_ns=pl.col("end_ns").max(),
            busy_ns=(pl.col("end_ns") - pl.col("due_ns")).sum(),
            failed=FAILED.any(),
            cut=CUT_TAIL.any(),
            output_tokens=pl.when(pl.col("output_tokens").is_not_null().all())
            .then(pl.col("output_tokens").sum())
            .first(),
        )
    )
    tasks = tasks.with_columns(language=language).drop(f"score {name}" for name in languages)
    short = (pl.col("steps") < whole) & (
        pl.col("phase") != "warm_up"
    )  # the warm-up sends only the first step of a task
    tasks = tasks.with_columns(ok=~pl.col("failed") & ~pl.col("cut") & ~short)
    # A cool-down task that was cancelled in a tool wait left no row for it, but it was in progress to the end of the cell.
    in_wait = (pl.col("phase") == "cool_down") & ~pl.col("failed") & ~pl.col("ok")
    return tasks.with_columns(
        end_ns=pl.when(in_wait).then(pl.col("end_ns").max().over("cell")).otherwise("end_ns"),
        task_time_no_wait_s=pl.when("ok").then(pl.col("busy_ns") / 1e9),
    ).with_columns(
        task_time_s=pl.when("ok").then((pl.col("end_ns") - pl.col("start_ns")) / 1e9),
        slot_s=(pl.col("end_ns") - pl.col("start_ns")) / 1e9,
    )


def _score(own: pl.Expr) -> pl.Expr:
    """Return a number that is higher the more rows there are, and among as many the earlier the first stands; null without any."""
    return own.sum().cast(pl.Int64) * _ROWS - pl.when(own).then("row").min().cast(pl.Int64)


def windows(tasks: pl.DataFrame) -> pl.DataFrame:
    """Return the steady window of every finished cell that has one; columns are ``WINDOWS``.

    The warm-up makes no load: at concurrency 1 it alone would fill the only slot, and its cold time would enter the rates.
    """
    found = []
    loading = tasks.filter(pl.col("done") & (pl.col("phase") != "warm_up"))
    for cell in loading.partition_by("cell", maintain_order=True):
        window = steady_window(cell["start_ns"].to_numpy(), cell["end_ns"].to_numpy(), cell["concurrency"][0])
        if window is not None:
            found.append((cell["cell"][0], *window))
    return pl.DataFrame(found, schema=WINDOWS, orient="row")


def add_steady(rows: pl.DataFrame, found: pl.DataFrame, start: str) -> pl.DataFrame:
    """Add the window and ``steady``: the row lies wholly inside it. Rows of cells that do not count are never steady."""
    inside = (pl.col(start) >= pl.col("window_start_ns")) & (pl.col("end_ns") <= pl.col("window_end_ns"))
    return rows.join(found, on="cell", how="left", maintain_order="left").with_columns(
        steady=(pl.col("done") & inside).fill_null(False)
    )


_COUNTED = pl.col("done") & (pl.col("phase") == "counted")


def counted(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that may enter figures: of finished cells, of counted tasks."""
    return rows.filter(_COUNTED)


def steady_ok(steps: pl.DataFrame, columns: Iterable[str], also: pl.Expr | None = None) -> pl.DataFrame:
    """Return these columns of the counted steps inside the steady window that succeeded, and of which ``also`` is true."""
    wanted = _COUNTED & pl.col("steady") & OK
    inside = steps.select(inside=wanted if also is None else wanted & also).to_series()
    return steps.select(columns).filter(inside)  # what a row is told by is not copied itself
