"""Frames as tables for people (console, HTML, Excel share them) and as CSV files for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from tabulate import tabulate

from harness.analysis.cautions import FIGURES, of_place
from harness.analysis.frames import Finding, RunAnalysis
from harness.analysis.offer import baselines, offer, pareto
from harness.columns import COLUMNS
from reports.synthetic import marked
from reports.verdict import Context, certainty, leading, sentence, side_text
from reports.wording import Wording, crossing, interval, is_unknown, text_width, wording

CSV_FRAMES = (
    "steps", "tasks", "cells", "summary", "acceptance", "survival", "drafters", "speed_up", "break_even", "lossless", "slo", "thresholds",
    "percentiles", "agents", "repeats", "language_loss", "costs", "predicted", "predicted_break_even",
)  # fmt: skip
FINDINGS = ("severity", "code", "workload", "arm", "values")
VERDICTS = (
    "workload", "arm", "side", "certainty", "break_even", "break_even_low", "break_even_high", "lowest_concurrency",
    "highest_concurrency", "speed_up_first", "speed_up_first_low", "speed_up_first_high", "speed_up_last", "speed_up_last_low",
    "speed_up_last_high", "identical_share", "acceptance_length", "n_tasks", "unmeasured", "consistent", "cautions",
)  # fmt: skip
# Columns that are empty where a row pools over them: in a file they say so, since an empty field elsewhere means unknown.
_POOLED = {
    "acceptance": ("concurrency", "kind", "language"), "survival": ("workload", "kind", "language", "genre"),
    "drafters": ("workload", "language", "genre", "concurrency"), "break_even": ("workload",),
    "findings": ("workload", "arm"), "verdicts": ("workload",), "agents": ("workload",), "offer": ("workload",),
    "language_loss": ("workload", "concurrency"), "costs": ("arm",), "predicted": ("workload",), "predicted_break_even": ("workload",),
}  # fmt: skip
POOLED_FIELD = "(all)"
DISTINCT_TASKS = (
    "speed_up",
    "break_even",
    "drafters",
)  # frames whose n_tasks counts each task once; elsewhere it counts runs of tasks
# What a spreadsheet takes for the start of a formula, full-width forms (which Korean input methods produce) included.
_FORMULA_STARTS = "[=+\\-@\t\r＝＋－＠]"  # all of them before "A", or at or behind "＋"
# Least needed last: columns are taken from the front of this list while the console is too narrow.
_DROP_FIRST = (
    "acceptance_rate", "ttft_p90_s", "tpot_p90_ms", "task_time_p50_s", "n_steps_failed", "output_tokens_per_s", "ttft_p50_s",
    "identical_share", "tokens_per_pass", "tpot_p50_ms", "n_tasks", "acceptance_length",
)  # fmt: skip
CONSOLE = (
    "workload", "arm", "concurrency", "n_tasks", "n_steps_failed", "task_time_mean_s", "ttft_p50_s", "tpot_p50_ms",
    "output_tokens_per_s", "acceptance_length", "tokens_per_pass", "speed_up", "identical_share",
)  # fmt: skip
SIGN = "⚠"  # in the words of a caution that is more than a note
MAX_FINDINGS = 12  # lines of findings on the console
SHORT_WIDTH = 14  # of a header on the console, in columns; longer ones break at spaces

_COUNTED = ("n", "n_tasks", "n_steps", "num_drafts", "n_rounds")  # of what a figure can rest on

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people: every cell is text already; ``numeric`` columns are set to the right.

    ``hints`` say what a column is, ``counts`` on how much a row rests; both are shown on hover, and may be shorter than the table.
    """

    caption: str
    headers: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    hints: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()

    def with_columns(
        self, headers: Sequence[str], numeric: Sequence[bool], cells: Sequence[Sequence[str]], hints: Sequence[str] = ()
    ) -> Table:
        """Return the table with more columns at its right; ``cells`` has one sequence a row."""
        known = (*self.hints, *[""] * (len(self.headers) - len(self.hints)), *hints)
        rows = tuple((*row, *more) for row, more in zip(self.rows, cells, strict=True))
        return Table(self.caption, (*self.headers, *headers), (*self.numeric, *numeric), rows, known, self.counts)


def table(
    frame: pl.DataFrame,
    names: Sequence[str],
    words: Wording,
    caption: str,
    *,
    shown: Mapping[str, Callable[[Row], str]] | None = None,
    distinct: bool = False,
) -> Table:
    """Return columns of a frame as a table; a column whose bounds stand beside it is shown with its interval.

    Args:
        frame: one of ``harness.analysis.frames``.
        names: columns to show, in order.
        words: texts of one language.
        caption: heading of the table.
        shown: for columns whose text depends on more than their value.
        distinct: whether ``n_tasks`` counts distinct tasks (``DISTINCT_TASKS``) and not runs of tasks.
    """
    bounded = {name for name in names if {f"{name}_low", f"{name}_high"} <= set(frame.columns)}
    special = shown or {}

    def cell(name: str, row: Row) -> str:
        if name in special:
            return special[name](row)
        if name == "break_even" and "interval" in row:
            return crossing(row[name], row[f"{name}_low"], row[f"{name}_high"], row["interval"])
        if name in bounded:
            return interval(row[name], row[f"{name}_low"], row[f"{name}_high"], COLUMNS[name].unit)
        if name in ("workload", "arm", "concurrency") and row[name] is None:
            return words.text("all")
        return words.figure(name, row[name])

    headers = tuple(header(name, words, distinct) + (" [95\u00a0%]" if name in bounded else "") for name in names)
    rows = tuple(tuple(cell(name, row) for name in names) for row in frame.iter_rows(named=True))
    numeric = tuple(frame.schema[name].is_numeric() or name in bounded for name in names)
    counts = tuple(count(row, words, distinct) for row in frame.iter_rows(named=True))
    return Table(caption, headers, numeric, rows, tuple(hint(name, words) for name in names), counts)


def hint(name: str, words: Wording) -> str:
    """Return what a column is, with its unit, for whoever stops at its header."""
    column = COLUMNS[name]
    unit = f" [{words.unit(column.unit)}]" if column.unit else ""
    return f"{column.header[words.lang]}{unit}: {column.definition[words.lang]}"


def count(row: Row, words: Wording, distinct: bool = False) -> str:
    """Return on how many tasks, steps, rounds or values a row of a frame rests, empty where it does not tell."""
    known = [name for name in _COUNTED if not is_unknown(row.get(name))]
    return ", ".join(f"{header(name, words, distinct)}: {words.figure(name, row[name])}" for name in known)


def header(name: str, words: Wording, distinct: bool = False) -> str:
    """Return a column's header; that of ``n_tasks`` says what it counts."""
    return words.text("table.distinct_tasks") if distinct and name == "n_tasks" else words.header(name)


def break_even(analysis: RunAnalysis, names: Sequence[str], words: Wording, caption: str) -> Table:
    """Return the break-evens; their side is stated only where the intervals of the verdict bear it out."""
    sides = {(verdict.workload, verdict.arm): side_text(verdict, words) for verdict in analysis.verdicts}

    def side(row: Row) -> str:
        known = sides.get((row["workload"], row["arm"])) or words.optional(f"side_unsure.{row['side']}")
        return known or words.figure("side", row["side"])

    return table(analysis.break_even, names, words, caption, shown={"side": side}, distinct=True)


def console(analysis: RunAnalysis, lang: str, width: int = 120) -> str:
    """Return the summary, the break-evens, what the arms beside the leading one do, and the findings.

    The verdict itself is :func:`reports.verdict.last_line`, which the caller prints last. Tables drop columns that do not fit
    ``width``; sentences are left to the terminal to wrap.
    """
    words = wording(lang)
    analysis = marked(analysis, words.text("synthetic"))
    blocks = [_summary_text(analysis.summary, words, width)]
    if analysis.break_even["workload"].n_unique() > 1:
        blocks.append(drawn(break_even(analysis, ("workload", "arm", "break_even", "side"), words, "")))
    others = leading(analysis)[1:]
    if others:
        lines = [f"  {sentence(verdict, lang, Context.of(analysis))}" for verdict in others]
        blocks.append("\n".join([words.text("console.others"), *lines]))
    found = _findings_text(analysis.findings, words)
    if found:
        blocks.append(found)
    return "\n\n".join(blocks)


def _findings_text(findings: Iterable[Finding], words: Wording) -> str:
    """Say each serious finding once a workload; the page has them for every arm."""
    groups: dict[tuple[str, str | None], list[Finding]] = {}
    for finding in findings:
        if finding.severity != "note":
            groups.setdefault((finding.code, finding.workload), []).append(finding)
    lines = []
    for first, *others in list(groups.values())[:MAX_FINDINGS]:
        place = " · ".join(name for name in (first.workload, first.arm) if name)
        more = words.text("console.alike", n=len(others)) if others else ""
        severity = words.text(f"severity.{first.severity}")
        lines.append(f"  [{severity}] {place + ': ' if place else ''}{words.finding(first)}{more}")
    if len(groups) > MAX_FINDINGS:
        lines.append(f"  {words.text('console.more', n=len(groups) - MAX_FINDINGS)}")
    return "\n".join([words.text("console.findings"), *lines]) if lines else ""


def _summary_text(frame: pl.DataFrame, words: Wording, width: int) -> str:
    if frame.is_empty():
        return words.text("console.empty")
    names = [name for name in CONSOLE if frame[name].null_count() < frame.height]
    shown = {name: partial(_with_sign, words, name) for name in FIGURES}
    for drop in (None, *_DROP_FIRST):
        names = [name for name in names if name != drop]
        text = drawn(table(frame, names, words, "", shown=shown))
        if text_width(text) <= width:
            break
    signs = _signs_text(frame, words) if set(names) & set(FIGURES) else ""
    return f"{text}\n\n{signs}" if signs else text


def _with_sign(words: Wording, name: str, row: Row) -> str:
    """Return a figure of acceptance, with a sign behind it where something speaks against it."""
    figure = words.figure(name, row[name])
    return f"{figure} {SIGN}" if row[name] is not None and SIGN in words.cautions(row["cautions"]) else figure


def _signs_text(frame: pl.DataFrame, words: Wording) -> str:
    """Say what speaks against the figures with a sign, once for all arms that share it."""
    places: dict[str, list[str]] = {}
    for workload, arm, codes in frame.select("workload", "arm", "cautions").unique(maintain_order=True).iter_rows():
        said = words.cautions(codes)
        if SIGN in said:
            places.setdefault(said, []).append(f"{workload} · {arm}")
    return "\n".join(
        words.text("console.cautions", places=", ".join(found), cautions=said) for said, found in places.items()
    )


def drawn(content: Table) -> str:
    """Return a table as text for a terminal; a workload and an arm are named in the first of their rows."""
    rows = []
    for index, row in enumerate(content.rows):
        previous = content.rows[index - 1] if index else ()
        same_workload = bool(previous) and previous[0] == row[0]
        same_arm = same_workload and previous[1] == row[1]
        rows.append(["" if same_workload else row[0], "" if same_arm else row[1], *row[2:]])
    align = ["right" if numeric else "left" for numeric in content.numeric]
    headers = [_fold(header) for header in content.headers]
    return tabulate(rows, headers, tablefmt="simple", colalign=align, disable_numparse=True)


def _fold(header: str) -> str:
    lines = [""]
    for word in header.split(" "):
        joined = f"{lines[-1]} {word}".strip()
        lines[-1:] = [joined] if text_width(joined) <= SHORT_WIDTH or not lines[-1] else [lines[-1], word]
    return "\n".join(lines)


def write_csv(analysis: RunAnalysis, folder: Path) -> tuple[Path, ...]:
    """Write one CSV file a frame, and one each of what a buyer compares, findings and verdicts.

    UTF-8 with byte order mark, CR LF, machine names as header, unknown as an empty field, "(all)" where a row pools.
    """
    analysis = marked(analysis, "synthetic")
    frames: dict[str, pl.DataFrame] = {name: getattr(analysis, name) for name in CSV_FRAMES}
    frames |= {"offer": offer_of(analysis), "pareto": pareto(analysis.summary)}
    frames |= {"findings": findings_frame(analysis), "verdicts": verdicts_frame(analysis)}
    paths = []
    for name, frame in frames.items():
        paths.append(write_frame(frame, folder / f"{name}.csv", _POOLED.get(name, ())))
    return tuple(paths)


def offer_of(analysis: RunAnalysis) -> pl.DataFrame:
    """Return ``offer.OFFER`` of a run."""
    return offer(analysis.agents, analysis.summary, dict(baselines(analysis.manifest)))


def write_frame(frame: pl.DataFrame, path: Path, pooled: Sequence[str]) -> Path:
    """Write one frame as CSV; the columns in ``pooled`` say "(all)" where they are null."""
    named = frame.with_columns(pl.col(column).cast(pl.String).fill_null(POOLED_FIELD) for column in pooled)
    guarded(named).write_csv(path, include_bom=True, line_terminator="\r\n", null_value="")
    return path


def findings_frame(analysis: RunAnalysis) -> pl.DataFrame:
    """Return the findings as a frame with the columns ``FINDINGS``; their values are one JSON object a row."""
    rows = [
        (
            item.severity,
            item.code,
            item.workload,
            item.arm,
            json.dumps(dict(item.values), ensure_ascii=False, default=str),
        )
        for item in analysis.findings
    ]
    return pl.DataFrame(rows, schema=dict.fromkeys(FINDINGS, pl.String), orient="row")


def verdicts_frame(analysis: RunAnalysis) -> pl.DataFrame:
    """Return the verdicts as a frame with the columns ``VERDICTS``."""
    context = Context.of(analysis)
    rows = []
    for item in analysis.verdicts:
        row: dict[str, Any] = {name: getattr(item, name, None) for name in VERDICTS}
        for name in ("speed_up_first", "speed_up_last"):
            row[name], row[f"{name}_low"], row[f"{name}_high"] = getattr(item, name) or (None, None, None)
        unmeasured = " ".join(map(str, item.unmeasured)) or None
        known = item.acceptance_length is not None
        bearing = of_place(analysis.findings, item.workload, item.arm, None) if known else None
        rows.append(row | {"certainty": certainty(item, context), "unmeasured": unmeasured, "cautions": bearing})
    integers = ("lowest_concurrency", "highest_concurrency", "n_tasks")
    texts = ("workload", "arm", "side", "certainty", "unmeasured", "cautions")
    kinds: dict[str, type[pl.DataType]] = {
        **dict.fromkeys(integers, pl.Int64),
        **dict.fromkeys(texts, pl.String),
        "consistent": pl.Boolean,
    }
    return pl.DataFrame(rows, schema={name: kinds.get(name, pl.Float64) for name in VERDICTS})


def guarded(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with an apostrophe before every text that a spreadsheet would run as a formula; NaN becomes null."""
    text, real = pl.col(pl.String), pl.col(pl.Float32, pl.Float64)
    # most frames have no such value, and a million rows are looked at faster than they are written anew; texts are ordered by their
    # first letter, so that the least and the last of a column tell whether any can be a formula
    near = frame.select(((text.min() < "A") | (text.max() >= "＋")).fill_null(False))
    names = [name for name in near.columns if near[name].item()]
    found = frame.select(pl.col(names).str.contains(f"^{_FORMULA_STARTS}").any(), (~real.is_finite()).any())
    return frame.with_columns(
        _guarded(frame.schema[name], pl.col(name)) for name in found.columns if found[name].item()
    )


def _guarded(kind: pl.DataType, value: pl.Expr) -> pl.Expr:
    if kind == pl.String:
        return pl.when(value.str.contains(f"^{_FORMULA_STARTS}")).then("'" + value).otherwise(value).name.keep()
    return pl.when(value.is_finite()).then(value).name.keep()


def unique_sorted(frame: pl.DataFrame, name: str) -> list[str]:
    """Return the known values of a text column, each once, in order."""
    values: Iterable[str] = frame[name].drop_nulls().unique().to_list()
    return sorted(values)
