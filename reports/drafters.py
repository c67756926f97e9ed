"""The table of drafters: what each does on which language and genre, with acceptance by position and speed-up by load."""

from __future__ import annotations

import polars as pl

from harness.analysis.frames import RunAnalysis
from reports.sections import Section
from reports.tables import Table, hint, table
from reports.wording import UNKNOWN, Wording, interval, percent

MAX_ROWS = 300  # on the page; drafters.csv has all of them
PLACE = ("workload", "arm", "language", "genre")


def section(analysis: RunAnalysis, words: Wording) -> Section:
    """Return the section of the page."""
    content = drafter_table(analysis, words)
    notes = () if content.rows else (words.text("missing.table"),)
    return Section(
        "drafters",
        words.text("section.drafters"),
        words.text("lead.drafters"),
        tables=(content,) if content.rows else (),
        notes=notes,
        detail=True,
    )


def drafter_table(analysis: RunAnalysis, words: Wording) -> Table:
    """Return a row for each workload, arm, language and genre, with the speed-up of steps at each concurrency.

    A row that pools over all workloads is left out where there is one workload only.
    """
    frame = analysis.drafters
    if frame["workload"].drop_nulls().n_unique() < 2:
        frame = frame.filter(pl.col("workload").is_not_null())
    pooled = frame.filter(pl.col("concurrency").is_null())
    caption = words.text("table.drafters")
    if pooled.height > MAX_ROWS:
        caption += f" ({words.text('table.capped', n=pooled.height - MAX_ROWS)})"
    pooled = pooled.head(MAX_ROWS)
    names = (*PLACE, "n_tasks", "n_steps", "acceptance_length", "tokens_per_pass")
    shown = table(pooled, names, words, caption, distinct=True)
    loads = sorted(frame["concurrency"].drop_nulls().unique().to_list())
    kept = _survival(analysis.survival)
    speed_ups = {
        (*(row[name] for name in PLACE), row["concurrency"]): interval(
            row["step_speed_up"], row["step_speed_up_low"], row["step_speed_up_high"], "x"
        )
        for row in frame.filter(pl.col("concurrency").is_not_null()).iter_rows(named=True)
    }
    cells = [
        (
            kept.get(place, UNKNOWN),
            *(speed_ups.get((*place, load), UNKNOWN) for load in loads),
            words.cautions(bearing),
        )
        for *place_of, bearing in pooled.select(*PLACE, "cautions").iter_rows()
        for place in (tuple(place_of),)
    ]
    headers = (
        words.text("table.survival_positions"),
        *(f"{words.header('step_speed_up')} @ {load} [95\u00a0%]" for load in loads),
        words.header("cautions"),
    )
    hints = (hint("survival", words), *[hint("step_speed_up", words)] * len(loads), hint("cautions", words))
    return shown.with_columns(headers, [*[True] * (len(headers) - 1), False], cells, hints)


def _survival(frame: pl.DataFrame) -> dict[tuple[str | None, ...], str]:
    """Return the survival by position of each place, pooled over kinds of step, as one text of shares in per cent."""
    found: dict[tuple[str | None, ...], list[str]] = {}
    for row in frame.filter(pl.col("kind").is_null()).sort("position").iter_rows(named=True):
        found.setdefault(tuple(row[name] for name in PLACE), []).append(percent(row["survival"]).removesuffix(".0"))
    return {place: " ".join(shares) for place, shares in found.items()}
