"""Reads the records of a run into columns and picks the attempt of each cell that counts.

A cell can have been started more than once (the server died, the run was killed and resumed). Its last finished attempt counts; if
none finished, its latest attempt is kept to be seen, and counts nowhere. Rows of every other attempt are left out, so that a resumed
run has the rows of an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from harness.analysis.frames import CELL
from harness.analysis.numbering import numbered
from harness.analysis.plan import WorkloadPlan
from harness.analysis.step_lines import read_lines
from harness.errors import RunFolderError
from harness.records import ENGINE_DIED
from harness.store import RunFolder

Columns = dict[str, type[pl.DataType] | pl.DataType]
COUNTERS: Columns = {
    "num_drafts": pl.Int64,
    "num_draft_tokens": pl.Int64,
    "num_accepted_tokens": pl.Int64,
    "num_accepted_tokens_per_pos": pl.List(pl.Int64),
}
ALWAYS = (
    "workload", "arm", "concurrency", "repeat", "attempt", "phase", "instance", "task_id", "step_index", "kind", "language", "due_ns",
    "end_ns", "tool_wait_ns", "max_tokens", "chunks",
)  # fmt: skip
"""Of a step: what every row has. A row without one of them is no step."""
KEY: Columns = {
    "workload": pl.String,
    "arm": pl.String,
    "concurrency": pl.Int64,
    "repeat": pl.Int64,
    "attempt": pl.Int64,
}


def _whole(*names: str) -> Columns:
    return {name: pl.Int64() for name in names}


STEP_ROWS = pl.Schema(
    KEY
    | {"phase": pl.String, "instance": pl.Int64, "task_id": pl.String, "step_index": pl.Int64}
    | {"kind": pl.String, "language": pl.String}
    | _whole("due_ns", "sent_ns", "first_token_ns", "end_ns", "tool_wait_ns")
    | _whole("max_tokens", "prompt_tokens", "cached_tokens", "output_tokens")
    | {"output_sha256": pl.String, "decode_passes": pl.Int64}
    | COUNTERS
    | {"spec_source": pl.String, "finish_reason": pl.String, "chunks": pl.Int64}
    | {"error_kind": pl.String, "error_message": pl.String}
)
MOMENTS = ("due_ns", "sent_ns", "first_token_ns", "end_ns")
CELL_ROWS = pl.Schema(
    KEY
    | {"order": pl.Int64, "status": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64, "counted_tasks": pl.Int64}
    | {"cache_policy": pl.String, "error_message": pl.String, "started_at": pl.String, "drained": pl.Boolean}
    | _whole("counted_steps", "foreign_requests")
    | {"energy_j": pl.Float64}
    | {f"before_{name}": kind for name, kind in COUNTERS.items()}
    | {f"after_{name}": kind for name, kind in COUNTERS.items()}
)


def read_rows(folder: RunFolder, plans: Iterable[WorkloadPlan]) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the step rows of the chosen attempts, one row a cell, and the attempts in which the server died, counted later or not.

    Steps gain numbers in the place of names: ``same``, which a step has in common with the same step of other arms, ``task`` for its
    name, ``load`` for workload, arm and concurrency, and ``what`` for kind and language.
    Cells gain ``cell`` (a number that joins the two frames) and a ``status``: ``done``, ``failed``, ``unfinished`` (killed before it
    ended) or ``foreign`` (workload, arm or concurrency not in the manifest). Only done cells count in figures; the step rows carry
    that as ``done``. Attempts that died have the keys of their cells and ``order``.

    Raises:
        RunFolderError: if a line other than a half-written last one is damaged.
    """
    steps = _scan(folder.steps_file(), folder)
    begins = steps.select(
        pl.any_horizontal(pl.col(name) != pl.col(name).shift(1) for name in KEY).fill_null(True)
    ).to_series()
    keys = steps.select(*KEY).filter(
        begins
    )  # the steps of a cell stand together: what tells cells apart is looked at once
    attempts = _cell_rows(folder)
    cells = _choose(attempts, keys.unique())
    planned = pl.DataFrame(
        [(plan.name, arm, load) for plan in plans for arm in plan.methods for load in plan.concurrency],
        schema={name: KEY[name] for name in CELL[:3]},
        orient="row",
    )
    cells = cells.join(planned.with_columns(planned=pl.lit(True)), on=list(CELL[:3]), how="left").with_columns(
        status=pl.when(pl.col("planned")).then("status").otherwise(pl.lit("foreign"))
    )
    cells = cells.sort("order", *CELL, nulls_last=True).drop("planned").with_row_index("cell")
    chosen = cells.select("cell", *KEY, done=pl.col("status") == "done")
    of_run = keys.join(chosen, on=list(KEY), how="left", maintain_order="left")
    run = begins.cum_sum() - 1
    task = steps["task_id"].cast(pl.Categorical).to_physical()
    steps = steps.with_columns(of_run["cell"].gather(run), of_run["done"].gather(run), task.alias("task"))
    steps = steps.filter(pl.col("cell").is_not_null()) if of_run["cell"].null_count() else steps
    died = attempts.filter((pl.col("error_message") == ENGINE_DIED).fill_null(False)).select(*KEY, "order")
    load = numbered(cells, CELL[:3]).gather(steps["cell"]).alias("load")
    what = numbered(steps, ("kind", "language")).alias("what")
    return steps.with_columns(_same(steps, cells), load.cast(pl.UInt32), what.cast(pl.UInt32)), cells, died


def _same(steps: pl.DataFrame, cells: pl.DataFrame) -> pl.Series:
    """Return a number of each step that is the same in all arms and nowhere else: what is paired is paired by one number.

    It stands for workload, concurrency, repeat, task, instance and step index.
    """
    place = numbered(cells, ("workload", "concurrency", "repeat")).gather(steps["cell"])  # cells stand in their order
    rows = steps.select("task", "instance", "step_index", place=place)
    return numbered(rows, ("place", "task", "instance", "step_index")).alias("same")


def _scan(path: Path, folder: RunFolder) -> pl.DataFrame:
    if not path.exists() or path.stat().st_size == 0:
        return pl.DataFrame(schema=STEP_ROWS)
    try:
        rows = read_lines(path, STEP_ROWS, MOMENTS)
    except pl.exceptions.PolarsError as error:
        raise _damaged(folder, str(error)) from error
    lacking = rows.select(pl.any_horizontal(pl.col(ALWAYS).is_null()).arg_true()).to_series()
    if lacking.len():
        raise _damaged(folder, f"row {lacking[0] + 1} is no step")
    return rows


def _damaged(folder: RunFolder, why: str) -> RunFolderError:
    try:
        for _ in folder.steps():  # names the damaged line
            pass
    except RunFolderError as error:
        return error
    return RunFolderError(f"{folder.steps_file()}: damaged ({why}); restore it or run again")


def _cell_rows(folder: RunFolder) -> pl.DataFrame:
    rows: list[dict[str, Any]] = [cell.to_row() for cell in folder.cells()]
    return pl.DataFrame([{name: row[name] for name in CELL_ROWS} for row in rows], schema=CELL_ROWS)


def _choose(cells: pl.DataFrame, attempts: pl.DataFrame) -> pl.DataFrame:
    unfinished = attempts.join(cells, on=list(KEY), how="anti").with_columns(status=pl.lit("unfinished"))
    everything = pl.concat([cells, unfinished], how="diagonal")
    return (
        everything.with_columns(rank=pl.when(pl.col("status") == "done").then(1).otherwise(0))
        .sort("rank", "attempt")
        .group_by(CELL, maintain_order=True)
        .last()
        .drop("rank")
    )
