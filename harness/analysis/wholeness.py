"""Whether a run folder holds what it says itself: the steps of every finished cell, each once, their texts and their rounds.

A file that was cut or written to twice reads like any other. What is wrong with the steps makes every figure of the workload one of
something else than was measured; texts and rounds that are gone only leave questions open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from harness.analysis.frames import CELL, Finding, Severity
from harness.analysis.numbering import numbered
from harness.analysis.validity import finding

if TYPE_CHECKING:
    from harness.analysis.loading import Records

Row = tuple[Severity, str | None, str, str | None, str | None]
_STEP = ("cell", "phase", "instance", "task", "step_index")
NEEDED = (*_STEP, "done", "output", "output_sha256", "spec_source")
SETTINGS = ("steps_missing", "steps_doubled", "cells_missing", "outputs_missing", "rounds_missing", "one_run")
"""What can stand as ``setting`` in a comparison; the texts stand in ``reports/texts``."""


@dataclass(frozen=True, slots=True)
class Wholeness:
    """What a run folder lacks.

    ``missing`` are the finished cells whose steps are not those that ``cells.jsonl`` says, ``doubled`` those with steps that are there
    more than once, and how many times too often (``n_steps``); both have the keys of the cell. ``n_done`` are the finished cells of each
    workload. ``n_outputs`` counts the distinct outputs of the steps, ``n_rounds`` the steps whose engine told their rounds, the others
    which of those are not in their files.
    """

    missing: pl.DataFrame
    doubled: pl.DataFrame
    n_done: dict[str, int]
    n_outputs: int
    n_outputs_missing: int
    n_rounds: int
    n_rounds_missing: int


def wholeness(steps: pl.DataFrame, cells: pl.DataFrame, lines: pl.DataFrame) -> Wholeness:
    """Compare the steps and cells that ``rows.read_rows`` returned with each other and with the texts and rounds of the folder.

    Args:
        steps: rows of steps, with ``output``, which is null where their text is not stored.
        cells: rows of cells.
        lines: of ``round_lines.round_lines``.
    """
    done = cells.filter(pl.col("status") == "done")
    own = steps.select(NEEDED).filter("done")
    once = _once(own)
    twice = own.group_by("cell").len("rows").join(once.group_by("cell").len("once"), on="cell")
    twice = twice.select("cell", n_steps=pl.col("rows").cast(pl.Int64) - pl.col("once").cast(pl.Int64))
    counts = done.join(_counts(once, done), on="cell", how="left", maintain_order="left")
    whole = pl.col("n_whole").fill_null(0) == pl.col("counted_tasks")
    all_there = (pl.col("n_counted").fill_null(0) == pl.col("counted_steps")).fill_null(True)
    n_missing = own.filter(pl.col("output").is_null())["output_sha256"].drop_nulls().n_unique()
    n_rounds, n_gone = _rounds(steps, cells, once.height < own.height, lines)
    return Wholeness(
        missing=counts.filter(~(whole & all_there)).select(CELL),
        doubled=done.join(twice.filter(pl.col("n_steps") > 0), on="cell", maintain_order="left").select(
            *CELL, "n_steps"
        ),
        n_done={row[0]: row[1] for row in done.group_by("workload").len().iter_rows()},
        n_outputs=own["output"].drop_nulls().n_unique() + n_missing,
        n_outputs_missing=n_missing,
        n_rounds=n_rounds,
        n_rounds_missing=n_gone,
    )


def _once(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps without those that are there again."""
    if numbered(steps, _STEP).n_unique() == steps.height:
        return steps
    return steps.unique(_STEP, keep="first", maintain_order=True)


def _counts(once: pl.DataFrame, done: pl.DataFrame) -> pl.DataFrame:
    """Return for each cell its counted steps, and the counted tasks of which no step is missing.

    A task has as many steps as the last one that any cell holds of it tells; the warm-up sends its first step alone.
    """
    last = once.group_by("cell", "task").agg(of=pl.col("step_index").max() + 1)
    last = last.join(done.select("cell", "workload"), on="cell").with_columns(
        pl.col("of").max().over("workload", "task")
    )
    counted = once.filter(pl.col("phase") == "counted")
    tasks = counted.group_by("cell", "instance", "task").agg(n=pl.len()).join(last, on=["cell", "task"])
    return tasks.group_by("cell").agg(n_whole=(pl.col("n") == pl.col("of")).sum(), n_counted=pl.col("n").sum())


def _rounds(steps: pl.DataFrame, cells: pl.DataFrame, doubled: bool, lines: pl.DataFrame) -> tuple[int, int]:
    """Return how many steps told their rounds, and of how many of those there is no line."""
    told = pl.col("done") & (pl.col("spec_source") == "round").fill_null(False)
    of_cell = cells.select(pl.format('["{}","{}",{},{},{}', *CELL, "attempt")).to_series().gather(steps["cell"])
    places = steps.select("done", "spec_source", "instance", "step_index", of_cell.alias("of_cell"))
    places = places.with_columns(place=pl.format("{},{},{}]", "of_cell", "instance", "step_index"))
    if not doubled and places.height == lines.height and (places["place"] == lines["place"]).all():
        return places.filter(told).height, 0  # a run writes both files in one order
    own = places.filter(told).select("place")
    own = own.unique() if doubled else own
    return own.height, own.join(lines.select("place"), on="place", how="anti").height


def findings(found: Wholeness) -> Iterator[Finding]:
    """Yield what a reader of the report must know of it."""
    for name, part in _by_workload(found.missing):
        yield finding("steps_missing", "invalid", name, None, part.height, found.n_done[name], _cells(part))
    for name, part in _by_workload(found.doubled):
        yield finding("steps_doubled", "invalid", name, None, int(part["n_steps"].sum()), part.height, _cells(part))
    if found.n_outputs_missing:
        yield finding("outputs_missing", "warning", None, None, found.n_outputs_missing, found.n_outputs)
    if found.n_rounds_missing:
        yield finding("rounds_missing", "warning", None, None, found.n_rounds_missing, found.n_rounds)


def differences(before: Records, after: Records, workloads: Collection[str]) -> list[Row]:
    """Return what a reader of a comparison must know of its two folders, as rows of ``frames.DIFFERENCES``."""
    rows: list[Row] = []
    sides = (before, after)
    for name in workloads:
        missing = [side.whole.missing.filter(pl.col("workload") == name).height for side in sides]
        doubled = [int(side.whole.doubled.filter(pl.col("workload") == name)["n_steps"].sum()) for side in sides]
        rows += _row("invalid", name, "steps_missing", missing)
        rows += _row("invalid", name, "steps_doubled", doubled)
        rows += _row("warning", name, "cells_missing", [_cells_gone(side, name) for side in sides])
    rows += _row("warning", None, "outputs_missing", [side.whole.n_outputs_missing for side in sides])
    rows += _row("warning", None, "rounds_missing", [side.whole.n_rounds_missing for side in sides])
    if before is not after:
        same = [*CELL, "start_ns", "end_ns"]  # nanoseconds of a machine's clock: no two measurements share both
        done = [side.cells.filter(pl.col("status") == "done").select(same) for side in sides]
        rows += _row("invalid", None, "one_run", [done[0].join(done[1], on=same, how="semi").height] * 2)
    return rows


def _row(severity: Severity, workload: str | None, setting: str, counts: list[int]) -> list[Row]:
    before, after = (str(count) if count else None for count in counts)
    return [(severity, workload, setting, before, after)] if before or after else []


def _cells_gone(side: Records, workload: str) -> int:
    """Return how many planned cells a run has no record of although it says that it is complete."""
    if side.status != "complete":
        return 0  # the status itself is told
    plan = next(plan for plan in side.plans if plan.name == workload)
    return len(plan.methods) * len(plan.concurrency) * plan.repeats - side.whole.n_done.get(workload, 0)


def _by_workload(cells: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    for part in cells.partition_by("workload", maintain_order=True):
        yield part["workload"][0], part


def _cells(cells: pl.DataFrame) -> str:
    """Return the arms and loads of some cells, in the form of the findings: "arm at load"."""
    return ", ".join(f"{arm} at {load}" for arm, load in dict.fromkeys(cells.select("arm", "concurrency").iter_rows()))
