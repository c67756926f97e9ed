"""`harness predict` as console text, CSV files and one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from harness.analysis import frames
from harness.analysis.frames import RunAnalysis
from harness.analysis.roofline import Target, needed
from harness.columns import COLUMNS
from harness.errors import RunFolderError
from harness.hardware import Hardware
from reports import predictions
from reports.sections import Headline, Section, page
from reports.tables import Table, drawn, table, write_frame
from reports.wording import Wording, number, wording

PAGE = "predicted.html"
CROSSINGS = ("hardware", "arm", "num_tokens", "side", "batch_break_even", "highest_batch")
LIMITS = ("hardware", "bandwidth", "dense_flops", "memory", "single_tokens_per_s", "saturation_tokens")


@dataclass(frozen=True, slots=True)
class Carried:
    """A run carried over to other hardware: ``frames.PREDICTED`` and ``frames.HARDWARE_BREAK_EVEN`` there, ``frames.HARDWARE``, its rows
    and the target; else empty."""

    predicted: pl.DataFrame
    break_even: pl.DataFrame
    limits: pl.DataFrame | None
    rows: Sequence[Hardware]
    target: Target | None


def console(analysis: RunAnalysis, carried: Carried, lang: str) -> str:
    """Return tables and sentences; the first sentence is :func:`headline`."""
    words = wording(lang)
    blocks = [drawn(item) for item in _tables(analysis, carried, words) if item.rows]
    blocks.append("\n".join(_sentences(analysis, carried, words)))
    blocks += [f"{title}:\n  {text}" for title, text in predictions.hand_overs(analysis, words)]
    return "\n\n".join(blocks)


def headline(analysis: RunAnalysis, carried: Carried, lang: str) -> str:
    """Return the first sentence."""
    words = wording(lang)
    return words.text("predicted.headline", sentence=_first(analysis, carried, words))


def write_all(analysis: RunAnalysis, carried: Carried, folder: Path, lang: str) -> Path:
    """Write the page and the CSV files into a folder, over older ones of the same names; return the page's path.

    Raises:
        RunFolderError: if a file cannot be written.
        UsageError: if there are no texts in this language.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / PAGE
        path.write_text(render(analysis, carried, lang), encoding="utf-8", newline="\n")
        write_frame(analysis.costs, folder / "costs.csv", ("arm",))
        write_frame(analysis.predicted_break_even, folder / "predicted_break_even.csv", ("workload",))
        write_frame(pl.concat([analysis.predicted, carried.predicted]), folder / "predicted.csv", ("workload",))
        if carried.limits is not None:
            write_frame(carried.limits, folder / "hardware.csv", ())
            write_frame(carried.break_even, folder / "hardware_break_even.csv", ("workload",))
    except OSError as error:
        place = error.filename or folder
        raise RunFolderError(
            f"cannot write {place}: {error.strerror}; close it where it is open, or choose another folder with --out"
        ) from error
    return path


def render(analysis: RunAnalysis, carried: Carried, lang: str) -> str:
    """Return the page as text."""
    words = wording(lang)
    manifest = analysis.manifest
    said = words.text("predicted.certainty")
    doubts = predictions.doubts(analysis, words)
    parts = [predictions.section(analysis, words)]
    if carried.limits is not None:
        tables = [_limits(carried, words), *_there(carried, words)]
        parts.append(
            Section(
                "hardware", words.text("section.hardware"), words.text("lead.hardware"), (), tuple(item for item in tables if item.rows),
                tuple(_of_hardware(carried, words)),
            )
        )  # fmt: skip
    parts.append(
        Section(
            "glossary",
            words.text("section.glossary"),
            words.text("lead.glossary"),
            (),
            (_glossary(words),),
            detail=True,
        )
    )
    content = {
        "title": words.text("section.predicted"),
        "subtitle": ", ".join(str(item.get("name")) for item in manifest.get("workloads") or ()),
        "headlines": [Headline(_first(analysis, carried, words), "limited" if doubts is None else "unsure", said)],
        "nothing": None,
        "sections": parts,
    }
    return page(words, content)


def _sentences(analysis: RunAnalysis, carried: Carried, words: Wording) -> Iterator[str]:
    yield from predictions.sentences(analysis, words)
    yield from _of_hardware(carried, words)


def _first(analysis: RunAnalysis, carried: Carried, words: Wording) -> str:
    doubts = predictions.doubts(analysis, words)
    first = next(_sentences(analysis, carried, words))
    return first if doubts is None else f"{doubts} {first}"


def _of_hardware(carried: Carried, words: Wording) -> Iterator[str]:
    if carried.limits is None or carried.target is None:
        return
    for row, known in zip(carried.limits.iter_rows(named=True), carried.rows, strict=True):
        count = needed(known, carried.target)
        if count > 1:
            sizes = {"weights": f"{carried.target.weight_bytes / 1e9:.6g}", "memory": f"{known.memory_gb:.6g}"}
            yield words.text("predicted.no_room", title=known.title, **sizes, count=count)
            continue
        yield words.text(
            "predicted.limits",
            title=known.title,
            weights=number(carried.target.weight_bytes / 1e9),
            tokens=number(row["single_tokens_per_s"]),
            saturation=number(round(row["saturation_tokens"])),
            cited=row["cited"],
        )
    if carried.target.kv_bytes_per_token == 0:
        yield words.text("predicted.no_context")


def _tables(analysis: RunAnalysis, carried: Carried, words: Wording) -> Iterator[Table]:
    if analysis.predicted.height:
        yield predictions.costs(analysis, words)
        yield predictions.by_length(analysis.predicted, words)
    if carried.limits is not None:
        yield _limits(carried, words)
        yield from _there(carried, words)


def _there(carried: Carried, words: Wording) -> Iterator[Table]:
    if carried.predicted.height:
        yield predictions.by_length(carried.predicted, words)
    if carried.break_even.height:
        own = predictions.widest(carried.break_even)
        shown = {"side": predictions.labelled("side", "side", words)}
        yield table(own, CROSSINGS, words, words.text("table.hardware_break_even"), shown=shown)


def _limits(carried: Carried, words: Wording) -> Table:
    assert carried.limits is not None
    return table(carried.limits, LIMITS, words, words.text("table.hardware"))


def _glossary(words: Wording) -> Table:
    names = dict.fromkeys(
        (*frames.COSTS, *frames.PREDICTED, *frames.PREDICTED_BREAK_EVEN, *frames.HARDWARE, *frames.HARDWARE_BREAK_EVEN)
    )
    rows = tuple(
        (
            f"{COLUMNS[name].header[words.lang]} ({name})",
            COLUMNS[name].definition[words.lang],
            words.unit(COLUMNS[name].unit),
        )
        for name in names
    )
    headers = tuple(words.text(f"table.{key}") for key in ("column", "definition", "unit"))
    return Table(words.text("table.glossary"), headers, (False,) * 3, rows)
