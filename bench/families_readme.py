"""The plain words beside a published run of the drafter families: every figure is taken from the run."""

from __future__ import annotations

import shutil
import tempfile
from itertools import pairwise
from pathlib import Path

import polars as pl

from bench.families_figures import Figures
from bench.families_input import command
from bench.families_page import draft_lengths, headlines, run_lines, subtitle, words_of
from bench.families_tables import markdown_table, missing_classes, tables
from harness.analysis.run import analyse
from harness.store import MANIFEST, RunFolder
from reports.files import write_all as write_report
from reports.wording import LANGUAGES, Wording

__all__ = ["publish", "readme"]

PUBLISHED = ("acceptance", "break_even", "cells", "findings", "lossless", "speed_up", "summary", "verdicts")
"""The CSV files of the run; survival and what each drafter does are in those of the families."""


def publish(figures: Figures, tables_at: Path, run: Path, folder: Path) -> Path:
    """Fill a folder to be published: report in both languages, CSV files, manifest, tables of the families and the page of plain words.

    Args:
        figures: of the run.
        tables_at: folder into which the tables were written.
        run: run folder.
        folder: made if it is not there; older files of the same names are overwritten.

    Returns the page of plain words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    opened = RunFolder.open(run)
    try:
        analysis = analyse(opened)
    finally:
        opened.close()
    with tempfile.TemporaryDirectory() as place:
        for lang in LANGUAGES:
            written = write_report(analysis, Path(place), lang)
            shutil.copyfile(written.html, folder / f"report.{lang}.html")
        for name in PUBLISHED:
            shutil.copyfile(Path(place) / f"{name}.csv", folder / f"{name}.csv")
    shutil.copyfile(run / MANIFEST, folder / MANIFEST)
    for path in sorted(tables_at.glob("families*")):
        if path.suffix in (".csv", ".html"):
            shutil.copyfile(path, folder / path.name)
    page = folder / "README.md"
    page.write_text(readme(figures), "utf-8", newline="\n")
    return page


def readme(figures: Figures) -> str:
    """Return the page of plain words as Markdown, in English."""
    words = words_of("en")
    found = tables(figures, words)
    loads = " and ".join(map(str, figures.loads))
    missing = missing_classes(figures, words)
    parts = [
        f"# The reference drafters on `ref-koen`, {loads} tasks in progress",
        f"```\n{command(figures.manifest)}\n```",
        f"{subtitle(figures, words)}.",
        "`report.en.html` and `report.ko.html` are the report of the run, `families.en.html` and `families.ko.html` the tables of both "
        "families, the CSV files their figures, `manifest.json` what was run on what. Texts of the outputs are not published.",
        "## What it shows",
        *(f"- {line.text}" for line in headlines(figures, words)),
        *(f"- {line}" for line in [*_by_text(figures, words), *_gains(figures, words), *_losses(figures)]),
        f"## {words.text('section.families')}",
        words.text("lead.families", num_tokens=words.text("lengths", items=draft_lengths(figures))),
        markdown_table(found["families"]),
        *([missing] if missing else []),
        f"## {words.text('section.survival')}",
        words.text("lead.survival"),
        markdown_table(found["survival"]),
        f"## {words.text('section.change')}",
        words.text("lead.change"),
        markdown_table(found["change"]),
        f"## {words.text('section.lossless')}",
        words.text("lead.lossless"),
        markdown_table(found["lossless"]),
        "## How far to trust it",
        *(f"- {line}" for line in run_lines(figures, words)),
        f"- The target{_size(figures)} knows nothing and writes the language of its training texts: acceptance and speed-ups are those of "
        "this model on this machine, no capacity figures for real models.",
        "- Draft lengths are fixed, so that the acceptance of two arms can be compared; `--lengths goodput` lets a controller choose them "
        "for speed.",
    ]
    return _joined(parts)


def _joined(parts: list[str]) -> str:
    text = parts[0]
    for before, after in pairwise(parts):
        listed = before.startswith("- ") and after.startswith("- ")
        text += ("\n" if listed else "\n\n") + after
    return text + "\n"


def _size(figures: Figures) -> str:
    model = (figures.manifest.get("engine") or {}).get("model") or {}
    count = model.get("parameters")
    return f" of {count / 1e6:.1f} million parameters" if isinstance(count, int) else ""


def _by_text(figures: Figures, words: Wording) -> list[str]:
    """Say for each language and type of text which arm is accepted most."""
    told = figures.table.filter(pl.col("language_group").is_not_null() & pl.col("acceptance_length").is_not_null())
    lines = []
    for (language, text), rows in told.group_by("language_group", "text_type", maintain_order=True):
        best = rows.sort("acceptance_length", descending=True).row(0, named=True)
        worst = rows.sort("acceptance_length").row(0, named=True)
        place = f"{words.label('language', str(language))}, {words.text(f'text.{text}')}"
        lines.append(
            f"{place}: {best['arm']} yields most tokens a round, {_figure(words, best)}; {worst['arm']} fewest, {_figure(words, worst)}."
        )
    return lines


def _figure(words: Wording, row: dict[str, object]) -> str:
    values = {end: row[f"acceptance_length{end}"] for end in ("", "_low", "_high")}
    shown = [words.figure("acceptance_length", value) for value in values.values()]
    return f"{shown[0]} [{shown[1]}–{shown[2]}]"


def _gains(figures: Figures, words: Wording) -> list[str]:
    """Count the methods whose later family is accepted more, or less, than the first, by language and type of text."""
    frame = figures.change.filter(pl.col("language_group").is_not_null())
    lines = []
    for (language, text), rows in frame.group_by("language_group", "text_type", maintain_order=True):
        more = rows.filter(pl.col("acceptance_length_change_low") > 0)["method"].to_list()
        less = rows.filter(pl.col("acceptance_length_change_high") < 0)["method"].to_list()
        open_ = [name for name in rows["method"].to_list() if name not in (*more, *less)]
        told = [
            f"{what}: {', '.join(names)}"
            for what, names in (
                ("accepted more than the first", more),
                ("accepted less", less),
                ("no difference shown", open_),
            )
            if names
        ]
        place = f"{words.label('language', str(language))}, {words.text(f'text.{text}')}"
        lines.append(f"{place}, the later family is {'; '.join(told)}.")
    return lines


def _losses(figures: Figures) -> list[str]:
    """Say at each load which arms are shown to be faster, and which slower, than the baseline."""
    whole = figures.table.filter(pl.col("language_group").is_null())
    lines = []
    for load in figures.loads:
        faster = whole.filter(pl.col(f"speed_up_{load}_low") > 1)["arm"].to_list()
        slower = whole.filter(pl.col(f"speed_up_{load}_high") < 1)["arm"].to_list()
        known = whole.filter(pl.col(f"speed_up_{load}").is_not_null()).height
        lines.append(
            f"At {load} in progress, of {known} arms: shown faster than the baseline {len(faster)} ({_names(faster)}), "
            f"shown slower {len(slower)} ({_names(slower)})."
        )
    return lines


def _names(names: list[str]) -> str:
    return ", ".join(names) or "none"
