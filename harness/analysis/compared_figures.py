"""The figures of a comparison from pairs of steps and tasks; values of the side after have the suffix ``_after``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import polars as pl

from harness.analysis.bootstrap import interval
from harness.analysis.frames import (
    COMPARED_ACCEPTANCE,
    COMPARED_OUTPUTS,
    COMPARED_STEPS,
    COMPARED_SURVIVAL,
    COMPARED_TIMES,
)
from harness.analysis.intervals import Ends, Group, bears, draws_of, grouped
from harness.analysis.lossless import EMPTY, Tokens, first_difference

ARMS = ("arm_before", "arm_after")
LOAD = ("workload", *ARMS, "concurrency")
_KEYS: Mapping[str, type[pl.DataType]] = {
    "workload": pl.String, "arm_before": pl.String, "arm_after": pl.String, "concurrency": pl.Int64,
    "kind": pl.String, "language": pl.String, "language_group": pl.String, "genre": pl.String,
    "window": pl.String, "position": pl.Int64, "example_step": pl.String,
}  # fmt: skip
_TOLD_APART: tuple[tuple[str, ...], ...] = (
    (), ("concurrency",), ("language",), ("language_group",), ("kind",), ("genre",), ("language", "kind"), ("language", "genre"),
)  # fmt: skip
GROUPS = {"ko": "ko", "ko+code": "ko", "en": "en", "en+code": "en", "code": "code"}
"""Language groups: those that a training's mix has too."""


def in_window(pairs: pl.DataFrame) -> pl.DataFrame:
    """Keep the pairs inside both sides' steady windows; of a load without any all are kept. Adds ``window``."""
    inside = pl.col("steady") & pl.col("steady_after")
    frame = pairs.with_columns(
        window=pl.when(inside.any().over(LOAD)).then(pl.lit("steady")).otherwise(pl.lit("whole"))
    )
    return frame.filter(inside | (pl.col("window") == "whole"))


def times(tasks: pl.DataFrame) -> pl.DataFrame:
    """Return ``frames.COMPARED_TIMES``: per workload and, where there are several, pooled over those that all have a load.

    ratio = Σ time before / Σ time after over the same tasks. The speed-ups are Σ baseline / Σ arm within each run, over the pairs whose
    baselines are known on both sides, and inside their steady windows where the pairs are.
    """
    tasks = tasks.with_columns(n=1)
    n = pl.col("workload").n_unique()
    pooled = tasks.filter((n.over(*ARMS, "concurrency") == n.over(*ARMS)) & (n.over(*ARMS) > 1))
    # whole cells of one workload must not be told as the steady window of all
    pooled = pooled.with_columns(
        workload=pl.lit(None, pl.String),
        window=pl.when((pl.col("window") == "steady").all().over(*ARMS, "concurrency"))
        .then(pl.lit("steady"))
        .otherwise(pl.lit("whole")),
    )
    rows = []
    both = pl.concat([tasks, pooled])
    by = [*LOAD, "window"]
    steady = pl.col("baseline_steady") & pl.col("baseline_steady_after")
    known = both.filter(
        pl.col("baseline_s").is_not_null() & pl.col("baseline_s_after").is_not_null(),
        steady | (pl.col("window") == "whole"),
    )
    relative = {
        group.key: group
        for group in grouped(known, by, ("baseline_s", "task_time_s", "baseline_s_after", "task_time_s_after"))
    }
    for group in grouped(both, by, ("task_time_s", "task_time_s_after", "n")):
        before, after, runs = group.sums.sum(axis=0)
        ends = _ends(draws_of(group, 0, 1), group) if bears(group, 0, 1) else (None, None)
        key, n_tasks = group.key, len(group.sums)
        rows.append((*key, n_tasks, before / runs, after / runs, before / after, *ends, *_relative(relative.get(key))))
    return _frame(rows, COMPARED_TIMES).sort(LOAD, nulls_last=False)


def _relative(group: Group | None) -> tuple[float | None, ...]:
    """Return speed-up before and after, their ratio and its interval."""
    if group is None:
        return (None,) * 5
    base, arm, base_after, arm_after = group.sums.sum(axis=0)
    before, after = base / arm, base_after / arm_after
    ends = _ends(draws_of(group, 2, 3) / draws_of(group, 0, 1), group) if bears(group, 0, 1, 2, 3) else (None, None)
    return before, after, after / before, *ends


def acceptance(steps: pl.DataFrame) -> pl.DataFrame:
    """Return ``frames.COMPARED_ACCEPTANCE`` (cautions aside): pooled, by concurrency, language, group of languages, kind and genre, per
    workload and over all. ``window`` is whole where any of the steps lies outside the steady windows.

    Each side's figure is a ratio of sums over the steps whose counts both sides know; the interval of the change draws tasks, and each
    draw takes the same tasks on both sides.
    """
    told = _all_known(steps.filter(pl.col("drafter") & pl.col("drafter_after")), "num_drafts", "num_accepted_tokens")
    told = told.with_columns(
        language_group=pl.col("language").replace_strict(GROUPS, default=None, return_dtype=pl.String)
    )
    passes = _all_known(told, "decode_passes")
    rows = []
    everything = told, passes
    for whole in (("workload", *ARMS), ARMS):
        for apart in _TOLD_APART:
            by = (*whole, *apart)
            # a step of unknown genre or group makes no row that looks like those that pool them
            unknown = [name for name in ("genre", "language_group") if name in by]
            told, passes = (frame.drop_nulls(unknown) if unknown else frame for frame in everything)
            per_pass = {
                group.key: group
                for group in grouped(
                    passes,
                    by,
                    ("num_accepted_tokens", "decode_passes", "num_accepted_tokens_after", "decode_passes_after"),
                )
            }
            counts = dict(_counts(told, by))
            for group in grouped(
                told, by, ("num_accepted_tokens", "num_drafts", "num_accepted_tokens_after", "num_drafts_after")
            ):
                place = dict(zip(by, group.key, strict=True))
                key = [place.get(name) for name in COMPARED_ACCEPTANCE[:8]]
                n_steps, window = counts[group.key]
                changes = *_change(group), *_change(per_pass.get(group.key))
                rows.append((*key, window, len(group.sums), n_steps, *changes))
    return _frame(rows, COMPARED_ACCEPTANCE[:-2]).sort(COMPARED_ACCEPTANCE[:8], nulls_last=False)


def _change(group: Group | None) -> tuple[float | None, ...]:
    """Return 1 + the ratio before and after, their difference and its interval; null where a side has nothing to divide by."""
    if group is None:
        return (None,) * 5
    up, down, up_after, down_after = group.sums.sum(axis=0)
    before = 1 + up / down if down else None
    after = 1 + up_after / down_after if down_after else None
    if before is None or after is None:
        return before, after, None, None, None
    ends = _ends(draws_of(group, 2, 3) - draws_of(group, 0, 1), group) if bears(group, 1, 3) else (None, None)
    return before, after, after - before, *ends


def survival(steps: pl.DataFrame) -> pl.DataFrame:
    """Return ``frames.COMPARED_SURVIVAL`` (cautions aside): the share of rounds that accept so many tokens, over the same steps."""
    names = ("num_drafts", "num_accepted_tokens_per_pos")
    told = _all_known(steps.filter(pl.col("drafter") & pl.col("drafter_after")), *names)
    longest = max((int(told[name].list.len().max() or 0) for name in (names[1], f"{names[1]}_after")), default=0)  # type: ignore[arg-type]
    rows = []
    for by in (("workload", *ARMS), ("workload", *ARMS, "language"), ARMS, (*ARMS, "language")):
        sums = told.group_by(by, maintain_order=True).agg(
            pl.len().alias("n_steps"),
            pl.col("num_drafts", "num_drafts_after").sum(),
            *(
                pl.col(f"{names[1]}{side}").list.get(index, null_on_oob=True).sum().alias(f"{index}{side}")
                for index in range(longest)
                for side in ("", "_after")
            ),
        )
        for row in sums.iter_rows(named=True):
            for index in range(longest):
                shares = [
                    row[f"{index}{side}"] / row[f"num_drafts{side}"] if row[f"num_drafts{side}"] else None
                    for side in ("", "_after")
                ]
                rows.append((*(row.get(name) for name in COMPARED_SURVIVAL[:4]), index + 1, row["n_steps"], *shares))
    return _frame(rows, COMPARED_SURVIVAL[:-2]).sort(COMPARED_SURVIVAL[:5], nulls_last=False)


def outputs(steps: pl.DataFrame, texts: Sequence[Mapping[str, str]], tokens: Sequence[Tokens]) -> pl.DataFrame:
    """Return ``frames.COMPARED_OUTPUTS``: the same step before and after, text by text; a step that wrote nothing is an empty text.

    ``example_step`` is the one that differs earliest, where no text is there any that differs.
    """
    hashes = ("output_sha256", "output_sha256_after")
    steps = steps.with_columns(pl.col(name).fill_null(pl.lit(EMPTY)) for name in hashes)
    steps = steps.with_columns(identical=pl.col(hashes[0]) == pl.col(hashes[1]))
    different = steps.filter(~pl.col("identical")).select(hashes).unique(maintain_order=True)
    ids: list[Tokens] = [{**side, EMPTY: ()} for side in tokens]
    written = [{**side, EMPTY: ""} for side in texts]
    places = [
        (first_difference(ids[0].get(a), ids[1].get(b)), _first_letter(written[0].get(a), written[1].get(b)))
        for a, b in different.iter_rows()
    ]
    schema = {"token": pl.Int64, "character": pl.Int64}
    found = pl.concat([different, pl.DataFrame(places, schema=schema, orient="row")], how="horizontal")
    steps = steps.join(found, on=list(hashes), how="left", maintain_order="left")
    frame = steps.group_by(LOAD, maintain_order=True).agg(
        n_steps=pl.len(),
        n_identical=pl.col("identical").sum(),
        identical_share=pl.col("identical").mean(),
        first_difference_token_min=pl.col("token").min(),
        first_difference_token_p50=pl.col("token").median(),
        first_difference_character_min=pl.col("character").min(),
        example_step=pl.format("{}:{}", "task_id", "step_index")
        .filter(~pl.col("identical"))
        .sort_by(pl.col("character").filter(~pl.col("identical")), nulls_last=True, maintain_order=True)
        .first(),
    )
    counts = ("n_steps", "n_identical", "first_difference_token_min", "first_difference_character_min")
    return frame.with_columns(pl.col(counts).cast(pl.Int64)).select(COMPARED_OUTPUTS).sort(LOAD)


def steps(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """Return ``frames.COMPARED_STEPS``: steps that both have, that one alone has, and failures; ``example_step`` is of those that one
    alone has."""
    key = [*ARMS, "workload", "concurrency", "repeat", "turn", "task_id", "step_index"]
    whole = left.select(*key, "ok").join(right.select(*key, ok_after="ok"), on=key, how="full", coalesce=True)
    here, there = pl.col("ok").is_not_null(), pl.col("ok_after").is_not_null()
    frame = whole.sort(key).group_by(LOAD, maintain_order=True).agg(
        n_steps=(pl.col("ok") & pl.col("ok_after")).fill_null(False).sum(),
        n_steps_only_before=(here & ~there).sum(),
        n_steps_only_after=(~here & there).sum(),
        n_steps_failed_before=(~pl.col("ok")).fill_null(False).sum(),
        n_steps_failed_after=(~pl.col("ok_after")).fill_null(False).sum(),
        example_step=pl.format("{}:{}", "task_id", "step_index").filter(~(here & there)).first(),
    )  # fmt: skip
    return frame.with_columns(pl.col(COMPARED_STEPS[4:9]).cast(pl.Int64)).select(COMPARED_STEPS).sort(LOAD)


def _first_letter(left: str | None, right: str | None) -> int | None:
    if left is None or right is None:
        return None
    return next((place for place, (a, b) in enumerate(zip_longest(left, right), start=1) if a != b), None)


def _all_known(steps: pl.DataFrame, *names: str) -> pl.DataFrame:
    both = [f"{name}{side}" for name in names for side in ("", "_after")]
    return steps.filter(pl.all_horizontal(pl.col(name).is_not_null() for name in both))


def _counts(steps: pl.DataFrame, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], tuple[int, str]]]:
    """Yield the key of each group, its number of steps and its window."""
    inside = (pl.col("window") == "steady").all()
    found = steps.group_by(by).agg(pl.len(), inside=inside)
    for row in found.select(*by, "len", "inside").iter_rows():
        yield row[:-2], (row[-2], "steady" if row[-1] else "whole")


def _ends(draws: np.ndarray[Any, np.dtype[np.float64]], group: Group) -> Ends:
    return interval(draws, len(group.sums)) or (None, None)


def _frame(rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> pl.DataFrame:
    schema = {name: _KEYS.get(name, pl.Int64 if name.startswith("n_") else pl.Float64) for name in columns}
    return pl.DataFrame(rows, schema=schema, orient="row")
