"""Which findings bear on which figures of acceptance: the codes that stand in a row beside the figure, in every output."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from harness.analysis.frames import Finding

BEARING = (
    "counters_mismatch", "counts_cumulative", "counts_impossible", "counters_went_back", "foreign_traffic", "baseline_drafted",
    "random_output", "repetitive_output", "prompt_echo", "output_language_mismatch", "end_ignored", "chat_template_missing",
    "prompts_truncated", "prompts_differ", "cache_contaminated", "tool_calls_one_sided", "never_ended", "cut_by_max_tokens",
    "rounds_unknown",
)  # fmt: skip
"""Codes of findings that make a figure of acceptance mean less, the most serious first."""
FIGURES = ("acceptance_length", "acceptance_rate", "tokens_per_pass", "survival")
"""A row without any of these has no figure to warn of."""
NAME = "cautions"


def of_place(findings: Iterable[Finding], workload: str | None, arm: str, language: str | None) -> str | None:
    """Return the codes that bear on a figure of acceptance, separated by blanks, ``None`` where none does.

    ``None`` for workload or language is a figure over all of them: it carries what any of them carries.
    """
    found = {
        item.code
        for item in findings
        if item.arm in (None, arm)
        and (workload is None or item.workload in (None, workload))
        and (language is None or item.values.get("language") in (None, language))
    }
    return " ".join(code for code in BEARING if code in found) or None


def add_sides(frame: pl.DataFrame, before: Iterable[Finding], after: Iterable[Finding]) -> pl.DataFrame:
    """Return a frame of a comparison with ``cautions_before`` and ``cautions_after``, each from the findings of its side and arm."""
    sides = (("before", tuple(before)), ("after", tuple(after)))
    codes = {
        f"{NAME}_{side}": [
            of_place(found, row["workload"], row[f"arm_{side}"], row["language"]) for row in frame.iter_rows(named=True)
        ]
        for side, found in sides
    }
    return frame.with_columns(pl.Series(name, values, dtype=pl.String) for name, values in codes.items())


def add(frame: pl.DataFrame, findings: Iterable[Finding]) -> pl.DataFrame:
    """Return the frame with ``cautions`` as its last column; ``workload`` and ``language`` tell apart where the frame has them."""
    bearing = [item for item in findings if item.code in BEARING]
    keys = [name for name in ("workload", "arm", "language") if name in frame.columns]
    places = frame.select(keys).unique(maintain_order=True)
    codes = [
        of_place(bearing, row.get("workload"), row["arm"], row.get("language")) for row in places.iter_rows(named=True)
    ]
    places = places.with_columns(pl.Series(NAME, codes, dtype=pl.String))
    marked = frame.drop(NAME, strict=False).join(places, on=keys, how="left", nulls_equal=True, maintain_order="left")
    known = pl.any_horizontal(pl.col(name).is_not_null() for name in FIGURES if name in frame.columns)
    return marked.with_columns(pl.when(known).then(NAME))
