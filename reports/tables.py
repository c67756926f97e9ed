"""Frames as tables for people (console, HTML, Excel share them) and as CSV files for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from tabulate import tabulate

from harness.analysis.frames import Finding, RunAnalysis
from harness.columns import COLUMNS
from reports.verdict import leading, sentence
from reports.wording import Wording, interval, text_width, wording

CSV_FRAMES = (
    "steps", "tasks", "cells", "summary", "acceptance", "survival", "speed_up", "break_even", "lossless", "slo", "thresholds",
)  # fmt: skip
# What a spreadsheet takes for the start of a formula, full-width forms (which Korean input methods produce) included.
_FORMULA_STARTS = "[=+\\-@\t\r＝＋－＠]"
# Least needed last: columns are taken from the front of this list while the console is too narrow.
_DROP_FIRST = (
    "acceptance_rate", "ttft_p90_s", "tpot_p90_ms", "task_time_p50_s", "n_steps_failed", "output_tokens_per_s", "ttft_p50_s",
    "identical_share", "tokens_per_pass", "tpot_p50_ms", "n_tasks", "acceptance_length",
)  # fmt: skip
CONSOLE = (
    "workload", "arm", "concurrency", "n_tasks", "n_steps_failed", "task_time_mean_s", "ttft_p50_s", "tpot_p50_ms",
    "output_tokens_per_s", "acceptance_length", "tokens_per_pass", "speed_up", "identical_share",
)  # fmt: skip
MAX_FINDINGS = 12  # lines of findings on the console
SHORT_WIDTH = 14  # of a header on the console, in columns; longer ones break at spaces


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people: every cell is text already; ``numeric`` columns are set to the right."""

    caption: str
    headers: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]


def table(frame: pl.DataFrame, names: Sequence[str], words: Wording, caption: str) -> Table:
    """Return columns of a frame as a table; a column whose bounds stand beside it is shown with its interval."""
    bounded = {name for name in names if {f"{name}_low", f"{name}_high"} <= set(frame.columns)}

    def cell(name: str, row: dict[str, object]) -> str:
        if name in bounded:
            return interval(row[name], row[f"{name}_low"], row[f"{name}_high"], COLUMNS[name].unit)
        if name in ("workload", "arm") and row[name] is None:
            return words.text("all")
        return words.figure(name, row[name])

    headers = tuple(words.header(name) + (" [95\u00a0%]" if name in bounded else "") for name in names)
    rows = tuple(tuple(cell(name, row) for name in names) for row in frame.iter_rows(named=True))
    return Table(caption, headers, tuple(frame.schema[name].is_numeric() or name in bounded for name in names), rows)


def console(analysis: RunAnalysis, lang: str, width: int = 120) -> str:
    """Return the summary, the break-evens, what the arms beside the leading one do, and the findings.

    The verdict itself is :func:`reports.verdict.last_line`, which the caller prints last. Tables drop columns that do not fit
    ``width``; sentences are left to the terminal to wrap.
    """
    words = wording(lang)
    blocks = [_summary_text(analysis.summary, words, width)]
    if analysis.break_even["workload"].n_unique() > 1:
        blocks.append(_draw(table(analysis.break_even, ("workload", "arm", "break_even", "side"), words, "")))
    others = leading(analysis)[1:]
    if others:
        lines = [f"  {sentence(verdict, lang, analysis.findings)}" for verdict in others]
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
    for drop in (None, *_DROP_FIRST):
        names = [name for name in names if name != drop]
        text = _draw(table(frame, names, words, ""))
        if text_width(text) <= width:
            break
    return text


def _draw(content: Table) -> str:
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
    """Write one CSV file a frame: UTF-8 with byte order mark, CR LF, machine names as header, unknown as an empty field."""
    paths = []
    for name in CSV_FRAMES:
        path = folder / f"{name}.csv"
        frame: pl.DataFrame = getattr(analysis, name)
        guarded(frame).write_csv(path, include_bom=True, line_terminator="\r\n", null_value="")
        paths.append(path)
    return tuple(paths)


def guarded(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with an apostrophe before every text that a spreadsheet would run as a formula; NaN becomes null."""
    text, real = pl.col(pl.String), pl.col(pl.Float32, pl.Float64)
    formula = text.str.contains(f"^{_FORMULA_STARTS}")
    return frame.with_columns(pl.when(formula).then("'" + text).otherwise(text).name.keep()).with_columns(
        pl.when(real.is_finite()).then(real).name.keep()
    )


def unique_sorted(frame: pl.DataFrame, name: str) -> list[str]:
    """Return the known values of a text column, each once, in order."""
    values: Iterable[str] = frame[name].drop_nulls().unique().to_list()
    return sorted(values)
