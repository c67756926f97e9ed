"""The figures of the drafter families as tables for people, in Korean or in English."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tabulate import tabulate

from bench.families_figures import CLASSES, FAMILY_KEYS, Figures, place_of
from reports.tables import Table, hint, table
from reports.wording import UNKNOWN, Wording, interval, percent

__all__ = ["markdown_table", "missing_classes", "signed", "tables"]


def tables(figures: Figures, words: Wording) -> dict[str, Table]:
    """Return the tables by name: ``families``, ``survival``, ``change``, ``lossless``."""
    return {
        "families": _families(figures, words),
        "survival": _survival(figures, words),
        "change": _change(figures, words),
        "lossless": _lossless(figures, words),
    }


def _place(row: dict[str, Any], words: Wording) -> tuple[str, ...]:
    language, text = row["language_group"], row["text_type"]
    whole = words.text("all")
    return (
        whole if language is None else words.label("language", language),
        whole if text is None else words.text(f"text.{text}"),
    )


def _drafter(row: dict[str, Any], words: Wording) -> tuple[str, ...]:
    return row["family"] or words.text("outside"), row["method"]


def _families(figures: Figures, words: Wording) -> Table:
    names = ("n_tasks", "n_steps", "acceptance_length", "tokens_per_pass")
    shown = table(figures.table, names, words, words.text("table.families"), distinct=True)
    rows = figures.table.to_dicts()
    headers: list[str] = []
    for load in figures.loads:
        headers += [f"{words.header('speed_up')} @ {load} [95\u00a0%]", words.text("table.tasks_at", load=load)]
    cells = []
    for row in rows:
        own: list[str] = []
        for load in figures.loads:
            estimate, low, high = (row[f"speed_up_{load}{end}"] for end in ("", "_low", "_high"))
            own += [interval(estimate, low, high, "x"), words.figure("n_tasks", row[f"n_tasks_{load}"])]
        cells.append((*own, words.cautions(row["cautions"])))
    numeric = [True] * len(headers) + [False]
    hints = [hint("speed_up", words), ""] * len(figures.loads) + [hint("cautions", words)]
    return _beside(shown.with_columns((*headers, words.header("cautions")), numeric, cells, hints), rows, words)


def _survival(figures: Figures, words: Wording) -> Table:
    rows = figures.table.to_dicts()
    places = range(1, figures.positions + 1)
    cells = tuple(
        tuple(UNKNOWN if row[f"survival_{place}"] is None else percent(row[f"survival_{place}"]) for place in places)
        for row in rows
    )
    hints = (hint("survival", words),) * figures.positions
    own = Table(words.text("table.survival_by"), tuple(map(str, places)), (True,) * figures.positions, cells, hints)
    return _beside(own, rows, words)


def _beside(content: Table, rows: Sequence[dict[str, Any]], words: Wording) -> Table:
    """Return the table with family, method, language and type of text at its left."""
    headers = (
        words.text("family"),
        words.text("method"),
        words.header("language_group"),
        words.text("text_type"),
        *content.headers,
    )
    cells = tuple(
        (*_drafter(row, words), *_place(row, words), *own) for row, own in zip(rows, content.rows, strict=True)
    )
    hints = ("", "", hint("language_group", words), "", *content.hints)
    return replace(content, headers=headers, numeric=(*[False] * 4, *content.numeric), rows=cells, hints=hints)


def _change(figures: Figures, words: Wording) -> Table:
    rows = figures.change.to_dicts()
    cells = tuple(
        (
            row["method"],
            *_place(row, words),
            words.figure("n_tasks", row["n_tasks"]),
            words.figure("acceptance_length", row["acceptance_length_before"]),
            words.figure("acceptance_length", row["acceptance_length_after"]),
            f"{signed(row['acceptance_length_change'])} "
            f"[{signed(row['acceptance_length_change_low'])}, {signed(row['acceptance_length_change_high'])}]",
        )
        for row in rows
    )
    length = words.header("acceptance_length")
    families = [
        str(name).removesuffix(f"-{row['method']}")
        for row in rows[:1]
        for name in (row["arm_before"], row["arm_after"])
    ]
    headers = (
        words.text("method"), words.header("language_group"), words.text("text_type"), words.text("table.distinct_tasks"),
        *(f"{length}, {family}" for family in families or ("", "")),
        f"{words.header('acceptance_length_change')} [95\u00a0%]",
    )  # fmt: skip
    hints = (
        "",
        hint("language_group", words),
        "",
        "",
        *[hint("acceptance_length", words)] * 2,
        hint("acceptance_length_change", words),
    )
    return Table(words.text("table.change"), headers, (*[False] * 3, *[True] * 4), cells, hints)


def _lossless(figures: Figures, words: Wording) -> Table:
    names = ("n_planned", "n_distinct", "n_steps", "n_identical")
    cells = tuple(
        (
            row["arm"],
            str(row["concurrency"]),
            *(words.figure("n_steps", row[name]) for name in names),
            words.figure("identical_share", row["identical_share"]),
            words.figure("n_steps", row["n_alone"]),
            words.figure("n_steps", row["n_identical_alone"]),
            row["example_step"] or "",
        )
        for row in figures.lossless.iter_rows(named=True)
    )
    headers = (
        words.header("arm"), words.header("concurrency"),
        *(words.text(f"table.{key}") for key in ("planned", "distinct", "compared")), words.header("n_identical"),
        words.header("identical_share"), *(words.text(f"table.{key}") for key in ("alone", "identical_alone")),
        words.header("example_step"),
    )  # fmt: skip
    return Table(words.text("table.lossless"), headers, (False, *[True] * 8, False), cells)


def markdown_table(content: Table) -> str:
    """Return a table in Markdown."""
    align = ["right" if numeric else "left" for numeric in content.numeric]
    rows = [[cell.replace("|", "\\|") for cell in row] for row in content.rows]
    return tabulate(rows, content.headers, tablefmt="github", colalign=align if rows else None, disable_numparse=True)


def missing_classes(figures: Figures, words: Wording) -> str | None:
    """Say which languages and types of text no step has, ``None`` where all are there."""
    there = {place_of(*row) for row in figures.table.select(FAMILY_KEYS[3:]).iter_rows()}
    absent = [name.split("/") for place, name in enumerate(CLASSES) if place not in there]
    items = ", ".join(f"{words.label('language', language)}/{words.text(f'text.{text}')}" for language, text in absent)
    return words.text("missing", items=items) if absent else None


def signed(value: float | None) -> str:
    """Return a change with its sign, a dash where it is unknown."""
    return UNKNOWN if value is None else f"{value:+.2f}"
