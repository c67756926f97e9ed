"""Keeps the page small whatever a run holds: long tables and rows of charts are cut, and a sentence says where all of it stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from reports.sections import Section
from reports.tables import Table
from reports.wording import Wording

MOST_BYTES = 1_500_000
GLOSSARY = "glossary"  # as long for every run
_FILES = {
    "offer": "offer", "pareto": "pareto", "verdicts": "verdicts", "speed_up": "speed_up", "break_even": "break_even",
    "task_time": "summary", "latency": "summary", "latency_by_step": "acceptance", "acceptance": "acceptance",
    "acceptance_by_load": "acceptance", "survival": "survival", "drafters": "drafters", "lossless": "lossless", "slo": "slo",
    "thresholds": "thresholds", "findings": "findings", "cells": "cells", "errors": "steps", "predicted": "predicted",
    "predicted_break_even": "predicted_break_even", "costs": "costs", "language_loss": "language_loss",
}  # fmt: skip
_CHARTS = {"task-time": "summary", "predicted": "predicted"}  # sections whose charts are of another file than their own


@dataclass(frozen=True, slots=True)
class _Limits:
    """How much of each table, row of charts and text is shown."""

    rows: int
    charts: int
    letters: int = 400


_STEPS = (_Limits(300, 12), _Limits(120, 8), _Limits(60, 6), _Limits(30, 4), _Limits(15, 2, 160), _Limits(6, 1, 80))


def fitted(parts: Sequence[Section], words: Wording, draw: Callable[[Sequence[Section]], str]) -> str:
    """Return the page of these parts, cut as little as makes it no larger than ``MOST_BYTES``.

    Args:
        parts: of the page.
        words: texts of one language.
        draw: makes the page of some parts.
    """
    page = draw(parts)
    for limits in _STEPS:
        if len(page.encode()) <= MOST_BYTES:
            return page
        page = draw([_cut(part, limits, words) for part in parts])
    if len(page.encode()) <= MOST_BYTES:
        return page
    # names alone fill it: what is left are the sentences, and where the figures are
    return draw([_without_figures(part, words) for part in parts])


def _cut(part: Section, limits: _Limits, words: Wording) -> Section:
    if part.id == GLOSSARY:
        return part
    notes = list(part.notes)
    if (rest := len(part.charts) - limits.charts) > 0:
        file = f"{_CHARTS.get(part.id, part.id.replace('-', '_'))}.csv"
        notes.append(words.text("table.charts_capped", n=rest, file=file))
    bullets = part.bullets[: limits.rows]
    if len(bullets) < len(part.bullets):
        bullets = (*bullets, words.text("table.capped", n=len(part.bullets) - len(bullets)))
    return replace(
        part,
        charts=part.charts[: limits.charts],
        tables=tuple(_shorter(item, limits, words) for item in part.tables),
        notes=tuple(notes[: limits.rows]),
        bullets=tuple(_text(item, limits.letters) for item in bullets),
        code=part.code[: limits.rows],
    )


def _shorter(shown: Table, limits: _Limits, words: Wording) -> Table:
    rest = len(shown.rows) - limits.rows
    rows = tuple(tuple(_text(cell, limits.letters) for cell in row) for row in shown.rows[: limits.rows])
    caption = shown.caption
    if rest > 0:
        caption += f" ({_where(shown.caption, rest, words)})"
    return replace(shown, caption=caption, rows=rows, counts=shown.counts[: limits.rows])


def _where(caption: str, n: int, words: Wording) -> str:
    """Return the sentence that names the file with all rows of a table; a caption may carry more behind its own words."""
    own = [(words.text(f"table.{key}"), file) for key, file in _FILES.items()]
    found = max((pair for pair in own if caption.startswith(pair[0])), key=lambda pair: len(pair[0]), default=None)
    if found is None:
        return words.text("table.capped", n=n)
    return words.text("table.capped_in", n=n, file=f"{found[1]}.csv")


def _without_figures(part: Section, words: Wording) -> Section:
    if part.id == GLOSSARY:
        return part
    n = sum(len(item.rows) for item in part.tables)
    note = (words.text("table.capped", n=n),) if n else ()
    return replace(part, charts=(), tables=(), notes=note, bullets=(), code=())


def _text(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
