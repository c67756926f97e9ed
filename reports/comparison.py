"""A comparison as console text, CSV files and one HTML page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from harness.analysis import frames
from harness.analysis.compare import Comparison, Side
from harness.columns import COLUMNS
from harness.errors import RunFolderError
from reports import comparison_charts as charts
from reports import languages
from reports.charts import Chart
from reports.comparison_sentences import by, certainty, headline, level, of_pair, preamble, setting, subject
from reports.sections import Headline, Section, page
from reports.tables import Table, drawn, table, write_frame
from reports.trust import started
from reports.wording import UNKNOWN, Wording, percent, wording

__all__ = ["console", "headline", "write_all"]

ARMS = ("arm_before", "arm_after")
CSV_FRAMES = {  # file: attribute, columns that say "(all)" where a row pools
    "compared_times": ("times", ("workload",)),
    "compared_acceptance": ("acceptance", ("workload", "concurrency", "kind", "language", "language_group", "genre")),
    "compared_survival": ("survival", ("workload", "language")),
    "compared_outputs": ("outputs", ()),
    "compared_steps": ("steps", ()),
    "compared_language_loss": ("language_loss", ("workload", "concurrency")),
    "differences": ("differences", ("workload",)),
}
PAGE = "comparison.html"
FILES = frozenset({PAGE, *(f"{name}.csv" for name in CSV_FRAMES)})
"""The names of all files that a comparison writes."""
_ACCEPTANCE = ("n_tasks", "n_steps", "window", "acceptance_length_before", "acceptance_length_after", "acceptance_length_change",
               "tokens_per_pass_before", "tokens_per_pass_after", "tokens_per_pass_change",
               "cautions_before", "cautions_after")  # fmt: skip
_TIMES = ("workload", *ARMS, "concurrency", "n_tasks", "window", "task_time_mean_before", "task_time_mean_after", "task_time_ratio",
          "speed_up_before", "speed_up_after", "speed_up_ratio")  # fmt: skip


def console(comparison: Comparison, lang: str) -> str:
    """Return what differs, the sentences on every pair, and acceptance by language; the verdict itself is :func:`headline`."""
    words = wording(lang)
    blocks = ["\n".join(preamble(comparison, words))]
    serious = comparison.differences.filter(pl.col("severity") != "note")
    if serious.height:
        blocks.append(drawn(_differences(serious, words)))
    for pair in _in_order(comparison):
        lines = of_pair(comparison, pair, words)
        if pair[0] == pair[1] and pair not in comparison.drafting:
            lines.insert(0, f"{subject(pair, words)}:")
        blocks.append("\n".join([lines[0], *(f"  {line}" for line in lines[1:])]))
    languages = by(comparison.acceptance, "language")
    if languages.height:
        blocks.append(drawn(_changes(languages, (*ARMS, "language", *_ACCEPTANCE[:6]), words, "")))
    lost = _language_loss(comparison, words)
    if lost:
        blocks.append("\n".join(lost))
    return "\n\n".join(blocks)


def write_all(comparison: Comparison, folder: Path, lang: str) -> Path:
    """Write :data:`PAGE` and the CSV files into a folder, over older ones of the same names; return the page's path.

    Raises:
        RunFolderError: if a file cannot be written.
        UsageError: if there are no texts in this language.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / PAGE
        path.write_text(render(comparison, lang), encoding="utf-8", newline="\n")
        for name, (attribute, pooled) in CSV_FRAMES.items():
            write_frame(getattr(comparison, attribute), folder / f"{name}.csv", pooled)
    except OSError as error:
        place = error.filename or folder
        raise RunFolderError(
            f"cannot write {place}: {error.strerror}; close it where it is open, or choose another folder with --out"
        ) from error
    return path


def render(comparison: Comparison, lang: str) -> str:
    """Return the page as text."""
    words = wording(lang)
    places = [_place(side) for side in (comparison.before, comparison.after)]
    if comparison.within:
        places = [
            f"{places[0]}, {arm}" for arm in (", ".join(pair[side] for pair in comparison.arms) for side in (0, 1))
        ]
    trusted = level(comparison)
    lead = preamble(comparison, words)
    said = certainty(comparison, words)
    pairs = [" ".join(of_pair(comparison, pair, words)) for pair in _in_order(comparison)]
    content = {
        "title": words.text("comparison.title"),
        "subtitle": words.text("comparison.subtitle", before=places[0], after=places[1]),
        "headlines": [Headline(text, trusted, said) for text in [" ".join(lead), *pairs]],
        "nothing": None,
        "sections": _sections(comparison, words),
    }
    return page(words, content)


def _in_order(comparison: Comparison) -> list[tuple[str, str]]:
    return [*comparison.drafting, *(pair for pair in comparison.arms if pair not in comparison.drafting)]


def _place(side: Side) -> str:
    when = started(side.manifest)
    return f"{side.path} ({when})" if when else side.path


def _sections(comparison: Comparison, words: Wording) -> list[Section]:
    frame = comparison.acceptance
    shown = {
        "overall": (pl.concat([by(frame), by(frame, "concurrency")]), ("concurrency",)),
        "language": (by(frame, "language"), ("language",)),
        "language_group": (by(frame, "language_group"), ("language_group",)),
        "kind": (by(frame, "kind"), ("kind",)),
        "genre": (by(frame, "genre"), ("genre",)),
        "workload": (by(frame, "workload"), ("workload",)),
        "language_genre": (by(frame, "language", "genre"), ("language", "genre")),
    }
    acceptance = [
        _changes(rows, (*ARMS, *names, *_ACCEPTANCE), words, words.text(f"comparison.table.{key}"))
        for key, (rows, names) in shown.items()
    ]
    differences = _differences(comparison.differences, words)
    key = "soundness" if differences.rows else "soundness_none"
    load = ("workload", *ARMS, "concurrency")
    return [
        _section("soundness", words, [differences], lead=key),
        _section("acceptance", words, acceptance, charts.acceptance(comparison, words)),
        _section("survival", words, [_survival(comparison, words)], charts.survival(comparison, words)),
        _section("times", words, [table(comparison.times, _TIMES, words, words.text("comparison.section.times"), distinct=True)]),
        _languages(comparison, words),
        _section("outputs", words, [
            table(comparison.outputs, frames.COMPARED_OUTPUTS, words, words.text("comparison.section.outputs"))]),
        _section("steps", words, [
            table(comparison.steps, (*load, *frames.COMPARED_STEPS[4:]), words, words.text("comparison.section.steps"))]),
        _section("glossary", words, [_glossary(words)], detail=True),
    ]  # fmt: skip


def _section(
    key: str, words: Wording, tables: Sequence[Table], drawings: tuple[Chart, ...] = (), *, lead: str = "", detail: bool = False
) -> Section:  # fmt: skip
    kept = tuple(item for item in tables if item.rows)
    missing = words.optional(f"comparison.missing.{key}") if not kept else None
    return Section(
        key,
        words.text(f"comparison.section.{key}"),
        words.text(f"comparison.lead.{lead or key}"),
        drawings,
        kept,
        (missing,) if missing else (),
        detail=detail,
    )


def _changes(rows: pl.DataFrame, names: Sequence[str], words: Wording, caption: str) -> Table:
    """Return a table whose changes carry their sign: an interval from a loss to a gain must not be misread."""

    def signed(name: str) -> Callable[[Mapping[str, Any]], str]:
        def cell(row: Mapping[str, Any]) -> str:
            value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
            if value is None:
                return UNKNOWN
            return f"{value:+.2f} [{UNKNOWN}]" if low is None else f"{value:+.2f} [{low:+.2f}, {high:+.2f}]"

        return cell

    shown = {name: signed(name) for name in names if name.endswith("_change")}
    return table(rows, names, words, caption, shown=shown, distinct=True)


def _language_loss(comparison: Comparison, words: Wording) -> list[str]:
    """Say what Korean loses before and after; nothing where neither side has two languages to compare."""
    frame = comparison.language_loss
    found = []
    for when in ("before", "after"):
        own = frame.filter(pl.col("when") == when)
        if own.height:
            said = " ".join(languages.sentences(own, words))
            found.append(words.text(f"comparison.loss_{when}", said=said))
    return found


def _languages(comparison: Comparison, words: Wording) -> Section:
    made = _section("language_loss", words, [_losses(comparison, words)])
    return replace(made, notes=tuple(_language_loss(comparison, words)) or made.notes)


def _losses(comparison: Comparison, words: Wording) -> Table:
    whole = comparison.language_loss
    frame = pl.concat([languages.widest(whole.filter(pl.col("when") == when)) for when in ("before", "after")])
    shown = languages.losses(frame, words)
    sides = tuple(words.text(f"comparison.{when}") for when in frame["when"])
    rows = tuple((side, *row) for side, row in zip(sides, shown.rows, strict=True))
    return Table(shown.caption, (words.header("when"), *shown.headers), (False, *shown.numeric), rows)


def _differences(frame: pl.DataFrame, words: Wording) -> Table:
    shown = table(frame, frames.DIFFERENCES, words, words.text("comparison.table.differences"))
    rows = tuple(
        (
            words.text(f"severity.{cells[0]}"),
            cells[1],
            setting(cells[2], words),
            *(cell or UNKNOWN for cell in cells[3:]),
        )
        for cells in shown.rows
    )
    return Table(shown.caption, shown.headers, shown.numeric, rows)


def _survival(comparison: Comparison, words: Wording) -> Table:
    """Return a row a language and side, a column a position."""
    frame = comparison.survival.filter(pl.col("workload").is_null())
    positions = sorted(frame["position"].unique().to_list())
    found: dict[tuple[str, str, str | None, str], dict[int, float | None]] = {}
    cautions: dict[tuple[str, str, str | None, str], str] = {}
    for row in frame.iter_rows(named=True):
        for side in ("before", "after"):
            place = (row["arm_before"], row["arm_after"], row["language"], side)
            found.setdefault(place, {})[row["position"]] = row[f"survival_{side}"]
            cautions[place] = words.cautions(row[f"cautions_{side}"])
    rows = tuple(
        (
            before, after, words.figure("language", language), words.text(f"comparison.{side}"),
            *(UNKNOWN if values.get(position) is None else percent(values[position] or 0.0) for position in positions),
            cautions[before, after, language, side],
        )
        for (before, after, language, side), values in found.items()
    )  # fmt: skip
    headers = (*(words.header(name) for name in (*ARMS, "language")), words.text("comparison.table.side"))
    numeric = (*[False] * 4, *[True] * len(positions), False)
    headers = (*headers, *map(str, positions), words.header("cautions"))
    return Table(words.text("comparison.table.survival"), headers, numeric, rows)


def _glossary(words: Wording) -> Table:
    """Return the columns of a comparison's files with unit and definition."""
    files = (frames.COMPARED_TIMES, frames.COMPARED_ACCEPTANCE, frames.COMPARED_SURVIVAL, frames.COMPARED_OUTPUTS,
             frames.COMPARED_STEPS, frames.COMPARED_LANGUAGE_LOSS, frames.DIFFERENCES)  # fmt: skip
    names = dict.fromkeys(name for columns in files for name in columns)
    rows = tuple(
        (
            f"{COLUMNS[name].header[words.lang]} ({name})",
            COLUMNS[name].definition[words.lang],
            words.unit(COLUMNS[name].unit),
        )
        for name in names
    )
    headers = tuple(words.text(f"table.{key}") for key in ("column", "definition", "unit"))
    return Table(words.text("comparison.section.glossary"), headers, (False,) * 3, rows)
