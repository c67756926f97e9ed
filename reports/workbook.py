"""The report as an Excel workbook: real numbers with formats, one sheet a frame, the speed-up as a native chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import xlsxwriter
from xlsxwriter.exceptions import FileCreateError

from harness.analysis.frames import RunAnalysis
from harness.analysis.offer import pareto
from harness.columns import COLUMNS
from reports.charts import BASELINE_COLOUR, COLOURS, Pen, primary_window
from reports.page import glossary
from reports.synthetic import marked
from reports.tables import DISTINCT_TASKS, header, offer_of
from reports.verdict import last_line
from reports.wording import Wording, is_unknown, text_width, wording

MAX_ROWS = 3_000  # of a sheet: a cell takes some 6 µs to write, and whoever wants more takes the CSV files
MAX_STEPS = 500  # rows of tasks or steps, which nobody reads one by one
WIDEST = 60  # of a column, in characters
_FORMATS = {"share": "0.0%", "x": "0.00", "tokens/round": "0.00", "tokens/pass": "0.00", "ms": "0.0", "s": "0.000"}
_NUMBERS = frozenset({*_FORMATS.values(), "#,##0", "0.00"})
LONGEST_TEXT = 32_767  # letters that a cell of Excel can hold
_SHEETS = (
    "summary", "offer", "speed_up", "break_even", "repeats", "pareto", "acceptance", "language_loss", "survival", "drafters", "lossless",
    "agents", "slo", "percentiles", "thresholds", "predicted", "predicted_break_even", "costs", "cells", "tasks", "steps",
)  # fmt: skip
FIRST_ROW = 2  # of the data: a title line and the headers stand above


@dataclass(frozen=True, slots=True)
class _Book:
    book: Any
    words: Wording
    bold: Any
    head: Any
    wrapped: Any
    numbers: dict[str, Any]

    def sheet(self, key: str, title: str, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
        """Write one sheet: a title line, frozen headers, the rows below; what is unknown leaves its cell empty."""
        sheet = self.book.add_worksheet(self.words.text(f"workbook.{key}"))
        for place, row in enumerate(rows, start=FIRST_ROW):
            for column, value in enumerate(row):
                if is_unknown(value):
                    continue
                if isinstance(value, bool):
                    sheet.write_boolean(place, column, value)
                elif isinstance(value, int | float):
                    sheet.write_number(place, column, value)
                else:  # as text, whatever it looks like: it comes from engines and task files
                    sheet.write_string(place, column, str(value)[:LONGEST_TEXT])
        sheet.write_string(0, 0, title, self.bold)
        for column, heading in enumerate(headers):
            sheet.write_string(1, column, heading, self.head)
        sheet.set_row(1, 32)
        sheet.freeze_panes(FIRST_ROW, 0)
        if rows:
            sheet.autofilter(1, 0, len(rows) + 1, len(headers) - 1)
        return sheet


def write_workbook(analysis: RunAnalysis, path: Path, lang: str) -> Path:
    """Write the workbook and return its path.

    Raises:
        OSError: if the file cannot be written, for one because Excel has it open.
    """
    words = wording(lang)
    analysis = marked(analysis, words.text("synthetic"))
    try:
        with xlsxwriter.Workbook(path) as book:
            pages = _Book(
                book,
                words,
                book.add_format({"bold": True}),
                book.add_format({"bold": True, "text_wrap": True, "valign": "top", "bottom": 1}),
                book.add_format({"text_wrap": True, "valign": "top"}),
                {code: book.add_format({"num_format": code}) for code in _NUMBERS},
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
    made = {
        "speed_up": lambda: _by_window(analysis.speed_up),
        "offer": lambda: offer_of(analysis),
        "pareto": lambda: pareto(analysis.summary),
    }
    frame: pl.DataFrame = made[key]() if key in made else getattr(analysis, key)
    title = last_line(analysis, words.lang) if key == "summary" else words.text(f"workbook.{key}")
    most = MAX_STEPS if key in ("tasks", "steps") else MAX_ROWS
    if frame.height > most:
        title = words.text("workbook.capped", shown=most, n=frame.height, file=f"{key}.csv")
        frame = frame.head(most)
    if "cautions" in frame.columns:
        said = [words.cautions(codes) or None for codes in frame["cautions"]]
        frame = frame.with_columns(pl.Series("cautions", said, dtype=pl.String))
    headers = [header(name, words, key in DISTINCT_TASKS) for name in frame.columns]
    sheet = pages.sheet(key, title, headers, frame.rows())
    for column, (name, heading) in enumerate(zip(frame.columns, headers, strict=True)):
        unit = COLUMNS[name].unit
        code = _FORMATS.get(unit or "") or (
            "0.00" if frame.schema[name].is_float() else "#,##0" if frame.schema[name].is_integer() else None
        )
        sheet.set_column(column, column, _width(frame[name], heading), pages.numbers[code] if code else None)


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
    sheet, book = pages.book.get_worksheet_by_name(name), pages.book
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
    sheet = pages.sheet("findings", lead, headers, rows)
    for column, width in enumerate((12, 22, 22, 110)):
        sheet.set_column(column, column, width, pages.wrapped)


def _glossary_sheet(pages: _Book) -> None:
    content = glossary(pages.words)
    sheet = pages.sheet("glossary", content.caption, content.headers, content.rows)
    for column, width in enumerate((48, 100, 14, 18)):
        sheet.set_column(column, column, width, pages.wrapped)
