"""A page of a run with very many workloads, arms and cells stays small, and says where the rest is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import fields, replace

import polars as pl
import pytest

from harness.analysis.frames import RunAnalysis
from reports import charts
from reports.fitting import MOST_BYTES, fitted
from reports.page import render
from reports.sections import Section
from reports.tables import Table
from reports.wording import LANGUAGES, wording
from tests.reports import sample

COPIES = 40
DRAWING = "<svg><title>x</title>" + "<path d='M0 0'/>" * 1_000 + "</svg>"  # 16 kB, as much as a chart


def many() -> RunAnalysis:
    """Return the small run with its two workloads forty times over, under other names."""
    run = sample.small()
    frames = {
        item.name: pl.concat([value.with_columns(pl.col("workload") + pl.lit(f"-{copy:02}")) for copy in range(COPIES)])
        for item in fields(run)
        if isinstance(value := getattr(run, item.name), pl.DataFrame) and "workload" in value.columns
    }
    listed = {
        name: tuple(
            replace(item, workload=item.workload and f"{item.workload}-{copy:02}")
            for copy in range(COPIES)
            for item in getattr(run, name)
        )
        for name in ("findings", "verdicts")
    }
    return replace(run, **frames, **listed)  # type: ignore[arg-type]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_page_of_very_many_workloads_is_no_larger_than_any(lang: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eighty workloads have 9 MB of charts alone; the page keeps every part, and names the files that have what it left out."""
    drawing: Future[str] = Future()
    drawing.set_result(DRAWING)
    monkeypatch.setattr(charts, "chart", lambda layers, title, prefix, says: charts.Chart(title, drawing, says))
    page = render(many(), lang)
    assert len(page.encode()) <= MOST_BYTES
    assert set(re.findall(r'<section id="([a-z-]+)"', page)) >= {
        "verdict", "offer", "speed-up", "task-time", "acceptance", "lossless", "findings", "trust", "glossary"
    }  # fmt: skip
    assert all(f"{name}.csv" in page for name in ("speed_up", "summary", "acceptance", "verdicts", "cells"))
    assert "<svg" in page


def test_what_fits_is_left_as_it_is() -> None:
    """A table of 500 short rows is no reason to cut anything."""
    words = wording("en")
    part = Section("offer", "t", "l", tables=(Table("c", ("h",), (False,), (("x",),) * 500),))
    assert fitted([part], words, lambda parts: str(len(parts[0].tables[0].rows))) == "500"


def test_names_that_fill_a_page_alone_leave_the_sentences() -> None:
    """Five hundred tables with headers of 10,000 letters cannot be shown: the note says how many rows stand in the files."""
    words = wording("en")
    wide = Table("c", ("h" * 10_000,), (False,), (("x",),))
    part = Section("offer", "t", "l", tables=(wide,) * 500)

    def draw(parts: Sequence[Section]) -> str:
        return "".join(
            part.lead + "".join(item.headers[0] for item in part.tables) + "".join(part.notes) for part in parts
        )

    assert fitted([part], words, draw) == "l500 more rows in the CSV files."
