"""Which findings bear on which figures of acceptance: the codes that stand in a row beside the figure, in every output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any

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
_BESIDE = ("kind", "genre", "concurrency")  # keys of rows that no finding tells apart
_Place = tuple[str | None, str | None]  # workload and language
_Group = tuple[Any, ...]


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
    """Return the frame with ``cautions`` as its last column; ``workload`` and ``language`` tell apart where the frame has them.

    A row that pools workloads or languages carries what those carry that are in it: a workload without any meeting notes says nothing of
    a row of meeting notes. Which are in it is told by the rows of the same arm, load, kind and genre that tell workloads and languages
    apart.
    """
    bearing = [item for item in findings if item.code in BEARING]
    of = cache(partial(of_place, bearing))
    keys = [name for name in ("workload", "arm", "language", *_BESIDE) if name in frame.columns]
    places = frame.select(keys).unique(maintain_order=True)
    inside = _inside(places) if "language" in keys else {}
    codes = [_of_row(of, row, inside) for row in places.iter_rows(named=True)]
    places = places.with_columns(pl.Series(NAME, codes, dtype=pl.String))
    marked = frame.drop(NAME, strict=False).join(places, on=keys, how="left", nulls_equal=True, maintain_order="left")
    known = pl.any_horizontal(pl.col(name).is_not_null() for name in FIGURES if name in frame.columns)
    return marked.with_columns(pl.when(known).then(NAME))


def _inside(places: pl.DataFrame) -> dict[_Group, list[_Place]]:
    """Return the workloads and languages that there are for each arm, load, kind and genre.

    A workload of which no language is known is in it with none: whatever is found of any of its languages may bear on it.
    """
    found: dict[_Group, list[_Place]] = {}
    for row in places.filter(pl.col("workload").is_not_null()).iter_rows(named=True):
        found.setdefault(_group(row), []).append((row["workload"], row["language"]))
    for group, pairs in found.items():
        told = {workload for workload, language in pairs if language is not None}
        found[group] = [pair for pair in pairs if pair[1] is not None or pair[0] not in told]
    return found


def _group(row: Mapping[str, Any]) -> _Group:
    return (row["arm"], *(row.get(name) for name in _BESIDE))


def _of_row(
    of: Callable[[str | None, str, str | None], str | None],
    row: Mapping[str, Any],
    inside: Mapping[_Group, list[_Place]],
) -> str | None:
    workload, language = row.get("workload"), row.get("language")
    own = [
        (where, said)
        for where, said in inside.get(_group(row), ())
        if workload in (None, where) and (language is None or said in (None, language))
    ]
    found = {
        code
        for where, said in own or [(workload, language)]
        for code in (of(where, row["arm"], said if language is None else language) or "").split()
    }
    return " ".join(code for code in BEARING if code in found) or None
