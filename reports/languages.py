"""What Korean loses against English and code: a table, and sentences that a reader can repeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from harness.analysis.frames import RunAnalysis
from reports.predictions import labelled
from reports.sections import Section
from reports.tables import Table, table
from reports.wording import Wording, is_unknown, number, percent

SHOWN = (
    "workload", "arm", "language_group", "reference_group", "concurrency", "n_tasks", "n_tasks_reference", "n_kinds", "acceptance_length",
    "acceptance_length_reference", "acceptance_length_loss", "decode_s", "time_loss_s", "time_loss_share", "win_back",
)  # fmt: skip
Row = Mapping[str, Any]


def section(analysis: RunAnalysis, words: Wording) -> Section:
    """Return the part of the page about the language loss; a run without Korean beside another language says so."""
    shown = losses(widest(analysis.language_loss), words)
    return Section(
        "language-loss",
        words.text("section.language_loss"),
        words.text("lead.language_loss"),
        (),
        (shown,) if shown.rows else (),
        tuple(sentences(analysis.language_loss, words)),
    )


def losses(frame: pl.DataFrame, words: Wording) -> Table:
    """Return rows of :func:`widest` as a table."""
    shown = {name: labelled(name, "language_group", words) for name in ("language_group", "reference_group")}
    return table(frame, SHOWN, words, words.text("table.language_loss"), shown=shown, distinct=True)


def widest(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of each pair of languages over all workloads, or those of the only workload."""
    single = pl.col("workload").is_not_null().all().over("arm", "language_group", "reference_group")
    return frame.filter(pl.col("workload").is_null() | single)


def sentences(frame: pl.DataFrame, words: Wording) -> Iterator[str]:
    """Yield for each arm and pair of languages what is lost in tokens, then in time at the highest load, then what retraining is worth."""
    own = widest(frame)
    if own.is_empty():
        yield words.text("loss.none")
        return
    for _, rows in own.group_by("workload", "arm", "language_group", "reference_group", maintain_order=True):
        pooled = rows.filter(pl.col("concurrency").is_null()).row(0, named=True)
        said = [_tokens(pooled, words)]
        if pooled["n_kinds"] == 0:
            said.append(words.text("loss.unmatched"))
        loads = rows.filter(pl.col("concurrency").is_not_null() & pl.col("time_loss_s").is_not_null()).sort(
            "concurrency"
        )
        if loads.height and not is_unknown(pooled["acceptance_length_loss"]):
            said += _times(loads.row(-1, named=True), words)
        yield " ".join(said)


def _tokens(row: Row, words: Wording) -> str:
    low, high = row["acceptance_length_loss_low"], row["acceptance_length_loss_high"]
    if is_unknown(low) or is_unknown(high):
        key = "too_few"
    elif low > 0:
        key = "shown"
    else:
        key = "gained" if high < 0 else "unshown"
    lengths = {
        "loss": row["acceptance_length_loss"], "own": row["acceptance_length"], "other": row["acceptance_length_reference"],
        "low": low, "high": high,
    }  # fmt: skip
    return words.text(
        f"loss.{key}",
        **_names(row, words),
        **{name: number(value, "tokens/round") for name, value in lengths.items()},
        n=row["n_tasks"],
        m=row["n_tasks_reference"],
    )


def _times(row: Row, words: Wording) -> Iterator[str]:
    low, high = row["time_loss_share_low"], row["time_loss_share_high"]
    if row["time_loss_s"] > 0:
        limits = (
            ""
            if is_unknown(low) or is_unknown(high)
            else words.text("loss.interval", low=percent(low), high=percent(high))
        )
        yield words.text(
            "loss.time", concurrency=row["concurrency"], seconds=number(row["time_loss_s"], "s"), share=percent(row["time_loss_share"]),
            interval=limits,
        )  # fmt: skip
    if is_unknown(row["win_back"]):
        yield words.text("loss.not_worth", **_names(row, words))
    else:
        yield words.text("loss.worth", hours=number(row["win_back"]))


def _names(row: Row, words: Wording) -> dict[str, str]:
    group, reference = (words.label("language_group", row[name]) for name in ("language_group", "reference_group"))
    return {"arm": row["arm"], "group": group, "reference": reference}
