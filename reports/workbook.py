"""The report as an Excel workbook: real numbers with formats, one sheet a frame, the speed-up as a native chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
from xlsxwriter.exceptions import FileCreateError

from harness.analysis.frames import RunAnalysis
from harness.columns import COLUMNS
from reports.charts import BASELINE_COLOUR, COLOURS, Pen, primary_window
from reports.page import glossary
from reports.synthetic import marked
from reports.tables import DISTINCT_TASKS, header
from reports.verdict import last_line
from reports.wording import Wording, text_width, wording

MAX_STEPS = 5_000  # rows of tasks or steps: a cell takes about 6 µs to write, and whoever wants more takes the CSV files
WIDEST = 60  # of a column, in characters
_FORMATS = {"share": "0.0%", "x": "0.00", "tokens/round": "0.00", "tokens/pass": "0.00", "ms": "0.0", "s": "0.000"}
# Text that looks like a formula, an address or a number stays text: it comes from engines and task files.
_OPTIONS = {
    "options": {
        "strings_to_formulas": False,
        "strings_to_urls": False,
        "strings_to_numbers": False,
        "nan_inf_to_errors": True,
    }
}
_SHEETS = (
    "summary", "speed_up", "break_even", "acceptance", "survival", "drafters", "lossless", "slo", "thresholds", "cells", "tasks", "steps",
)  # fmt: skip
FIRST_ROW = 2  # of the data: a title line and the headers stand above


@dataclass(frozen=True, slots=True)
class _Book:
    writer: Any
    words: Wording
    bold: Any
    head: Any
    wrapped: Any

    def sheet(self, key: str, title: str, headers: Sequence[str], data: pd.DataFrame) -> Any:
        """Write one sheet: a title line, frozen headers, the data below."""
        name = self.words.text(f"workbook.{key}")
        data.to_excel(self.writer, sheet_name=name, startrow=FIRST_ROW, header=False, index=False)
        sheet = self.writer.sheets[name]
        sheet.write_string(0, 0, title, self.bold)
        for column, heading in enumerate(headers):
            sheet.write_string(1, column, heading, self.head)
        sheet.set_row(1, 32)
        sheet.freeze_panes(FIRST_ROW, 0)
        if len(data):
            sheet.autofilter(1, 0, len(data) + 1, len(headers) - 1)
        return sheet


def write_workbook(analysis: RunAnalysis, path: Path, lang: str) -> Path:
    """Write the workbook and return its path.

    Raises:
        OSError: if the file cannot be written, for one because Excel has it open.
    """
    words = wording(lang)
    analysis = marked(analysis, words.text("synthetic"))
    try:
        with pd.ExcelWriter(path, engine="xlsxwriter", engine_kwargs=_OPTIONS) as writer:
            book: Any = writer.book
            head = book.add_format({"bold": True, "text_wrap": True, "valign": "top", "bottom": 1})
            pages = _Book(
                writer,
                words,
                book.add_format({"bold": True}),
                head,
                book.add_format({"text_wrap": True, "valign": "top"}),
            )
            for key in _SHEETS:
                _frame_sheet(pages, analysis, key)
            _speed_up_chart(pages, analysis)
            _findings_sheet(pages, analysis)
            _glossary_sheet(pages)
    except FileCreateError as error:
        cause = error.args[0] if error.args else error
        raise cause if isinstance(cause, OSError) else OSError(None, str(cause), str(path)) from error
    return path


def _frame_sheet(pages: _Book, analysis: RunAnalysis, key: str) -> None:
    words = pages.words
    frame: pl.DataFrame = getattr(analysis, key)
    if key == "speed_up":
        frame = _by_window(frame)
    title = last_line(analysis, words.lang) if key == "summary" else words.text(f"workbook.{key}")
    if key in ("tasks", "steps") and frame.height > MAX_STEPS:
        title = words.text("workbook.capped", shown=MAX_STEPS, n=frame.height, file=f"{key}.csv")
        frame = frame.head(MAX_STEPS)
    headers = [header(name, words, key in DISTINCT_TASKS) for name in frame.columns]
    sheet = pages.sheet(key, title, headers, as_pandas(frame))
    book = pages.writer.book
    formats = {code: book.add_format({"num_format": code}) for code in {*_FORMATS.values(), "#,##0", "0.00"}}
    for column, (name, heading) in enumerate(zip(frame.columns, headers, strict=True)):
        unit = COLUMNS[name].unit
        code = _FORMATS.get(unit or "") or (
            "0.00" if frame.schema[name].is_float() else "#,##0" if frame.schema[name].is_integer() else None
        )
        sheet.set_column(column, column, _width(frame[name], heading), formats[code] if code else None)


def as_pandas(frame: pl.DataFrame) -> pd.DataFrame:
    """Return a polars frame as pandas with ``None`` for everything unknown, so that Excel shows an empty cell."""
    columns = {}
    for name in frame.columns:
        values = [
            None if isinstance(value, float) and not math.isfinite(value) else value for value in frame[name].to_list()
        ]
        columns[name] = pd.Series(values, dtype=object)
    return pd.DataFrame(columns)


def _width(values: pl.Series, header: str) -> int:
    longest = max(text_width(word) for word in header.split(" "))
    if values.dtype == pl.String:
        longest = max([longest, *(text_width(str(value)) for value in values.drop_nulls().unique().head(200))])
    return min(max(longest + 2, 9), WIDEST)


def _speed_up_chart(pages: _Book, analysis: RunAnalysis) -> None:
    """Put a line chart an workload beside the speed-ups; it reads the sheet's own cells, so it follows when they are edited."""
    words, frame = pages.words, _by_window(analysis.speed_up)
    if frame.is_empty():
        return
    name = words.text("workbook.speed_up")
    sheet, book = pages.writer.sheets[name], pages.writer.book
    main = primary_window(frame.with_row_index("row"))
    pen = Pen.of(analysis)
    drafting = [arm for arm in pen.names if arm not in pen.baseline]
    columns = [frame.columns.index("concurrency"), frame.columns.index("speed_up")]
    for place, workload in enumerate(main["workload"].unique(maintain_order=True)):
        chart = book.add_chart({"type": "scatter", "subtype": "straight_with_markers"})
        for arm in main.filter(pl.col("workload") == workload)["arm"].unique(maintain_order=True):
            own = main.filter((pl.col("workload") == workload) & (pl.col("arm") == arm))["row"].to_list()
            colour = COLOURS[drafting.index(arm) % len(COLOURS)] if arm in drafting else BASELINE_COLOUR
            x, y = ([name, own[0] + FIRST_ROW, column, own[-1] + FIRST_ROW, column] for column in columns)
            marker = {"type": "automatic", "size": 6, "fill": {"color": colour}, "border": {"color": colour}}
            chart.add_series(
                {"name": arm, "categories": x, "values": y, "line": {"color": colour, "width": 2}, "marker": marker}
            )
        chart.set_title(
            {"name": words.text("chart.speed_up", workload=workload), "name_font": {"size": 11}, "overlay": False}
        )
        chart.set_x_axis({"name": words.text("chart.concurrency_axis"), "log_base": 2, "min": 1, "crossing": 1})
        chart.set_y_axis(
            {
                "name": words.header("speed_up"),
                "num_format": "0.0",
                "major_gridlines": {"visible": True, "line": {"color": "#DDDDDD"}},
            }
        )
        chart.set_legend({"position": "bottom"})
        chart.set_size({"width": 560, "height": 340})
        sheet.insert_chart(
            1 + 18 * place,
            len(frame.columns) + 1,
            chart,
            {"description": words.text("chart.speed_up", workload=workload)},
        )


def _by_window(frame: pl.DataFrame) -> pl.DataFrame:
    """Bring the rows of one line of the chart together: a series over scattered cells is not read by every spreadsheet."""
    return frame.sort("window", "workload", "arm", "concurrency", maintain_order=True)


def _findings_sheet(pages: _Book, analysis: RunAnalysis) -> None:
    words = pages.words
    headers = [words.text("table.severity"), words.header("workload"), words.header("arm"), words.text("table.finding")]
    rows = [
        (words.text(f"severity.{item.severity}"), item.workload, item.arm, words.finding(item))
        for item in analysis.findings
    ]
    lead = words.text("lead.findings" if rows else "lead.findings_none")
    sheet = pages.sheet("findings", lead, headers, pd.DataFrame(rows, columns=headers, dtype=object))
    for column, width in enumerate((12, 22, 22, 110)):
        sheet.set_column(column, column, width, pages.wrapped)


def _glossary_sheet(pages: _Book) -> None:
    content = glossary(pages.words)
    data = pd.DataFrame(list(content.rows), columns=list(content.headers), dtype=object)
    sheet = pages.sheet("glossary", content.caption, content.headers, data)
    for column, width in enumerate((48, 100, 14, 18)):
        sheet.set_column(column, column, width, pages.wrapped)
