"""Was the output really unchanged? The same step with and without a drafter, compared text by text at temperature 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import numpy as np
import polars as pl

from harness.analysis.frames import LOSSLESS
from harness.analysis.plan import WorkloadPlan, baseline_arms
from harness.analysis.steps import OK, counted
from harness.store import text_sha256

SAME_STEP = ("workload", "concurrency", "repeat", "task_id", "instance", "step_index")
SCHEMA = dict(
    zip(
        LOSSLESS,
        (pl.String, pl.String, *[pl.Int64] * 3, pl.Float64, pl.Int64, pl.Float64, pl.String),
        strict=True,
    )
)
NEEDED = ("cell", "workload", "arm", "same", "step_index", "phase", "done", "error_kind", "output_sha256")
Tokens = Mapping[str, tuple[int, ...] | None]
EMPTY = text_sha256("")
UNKNOWN = -1


def compare(steps: pl.DataFrame, plans: Sequence[WorkloadPlan], tokens: Tokens) -> pl.DataFrame:
    """Return one row a comparable pair of counted steps: ``cell``, ``row``, ``arm``, ``task``, ``SAME_STEP``, ``identical``,
    ``first_difference_token``; ``row`` is the place of the arm's step in ``steps``.

    Comparable are steps of arms with a real drafter and their baseline at temperature 0 that both succeeded. With live history only
    the first step of a task is: after it the prompts differ. A step that wrote nothing is compared as an empty text. The position of
    the first differing token is that of the texts as tokenised again after the run; it counts from 1 and is null where the engine's
    tokens of either output are unknown.
    """
    exact = [plan for plan in plans if plan.temperature == 0 and plan.baseline is not None]
    live = [plan.name for plan in exact if plan.history == "live"]
    # a step that succeeded without a text has no hash; an arm that falls silent must not drop out of the comparison
    good = counted(steps.select(NEEDED).with_row_index("row")).filter(OK)
    good = good.with_columns(pl.col("output_sha256").fill_null(pl.lit(EMPTY)))
    good = good.filter(~pl.col("workload").is_in(live) | (pl.col("step_index") == 0)) if live else good
    cells = good.group_by("cell").agg(pl.col("workload", "arm").first())
    baselines = baseline_arms(exact)
    drafting = pl.DataFrame(
        [(plan.name, arm) for plan in exact for arm in plan.drafting], schema=baselines.schema, orient="row"
    )
    sides = {
        role: good.join(cells.join(arms, on=["workload", "arm"], how="semi"), on="cell", how="semi")
        for role, arms in (("baseline", baselines), ("drafting", drafting))
    }
    found = (
        sides["drafting"]
        .select("cell", "row", "same", "output_sha256")
        .join(sides["baseline"].select("same", baseline_sha256="output_sha256"), on="same", how="inner")
        .with_columns(identical=pl.col("output_sha256") == pl.col("baseline_sha256"))
    )
    different = found.filter(~pl.col("identical")).select("output_sha256", "baseline_sha256").unique()
    known: Tokens = {**tokens, EMPTY: ()}
    places = [first_difference(known.get(a), known.get(b)) for a, b in different.iter_rows()]
    different = different.with_columns(first_difference_token=pl.Series(places, dtype=pl.Int64))
    apart = found.filter(~pl.col("identical")).join(different, on=["output_sha256", "baseline_sha256"], how="left")
    same = found.filter("identical").with_columns(first_difference_token=pl.lit(None, pl.Int64))
    pairs = pl.concat([same, apart.select(same.columns)]).drop("same", "output_sha256", "baseline_sha256")
    return pairs.hstack(steps.select("arm", "task", *SAME_STEP)[pairs["row"]])


def add_identical(steps: pl.DataFrame, compared: pl.DataFrame) -> pl.DataFrame:
    """Add ``identical`` to the steps that ``compared`` was made of: null where a step was not compared."""
    found = np.full(steps.height, UNKNOWN, dtype=np.int8)
    pairs = compared.select(
        "row", "identical"
    ).reverse()  # a step that is there more than once has a pair with each: the first
    found[pairs["row"].to_numpy()] = pairs["identical"].to_numpy()
    value = pl.Series("identical", found)
    return steps.with_columns(pl.when(value != UNKNOWN).then(value == 1).alias("identical"))


def first_difference(left: Sequence[int] | None, right: Sequence[int] | None) -> int | None:
    """Return the position (from 1) of the first token that differs, ``None`` if either is unknown or they are equal.

    An output that is the beginning of the other differs at the first token that it lacks.
    """
    if left is None or right is None:
        return None
    pairs = enumerate(zip_longest(left, right), start=1)
    return next((position for position, (a, b) in pairs if a != b), None)


def lossless(compared: pl.DataFrame) -> pl.DataFrame:
    """Return ``frames.LOSSLESS``; ``example_step`` names the first step that differs as task:step index (from 0)."""
    load = ["workload", "arm", "concurrency"]
    examples = compared.filter(~pl.col("identical")).sort(SAME_STEP).unique(load, keep="first", maintain_order=True)
    frame = compared.group_by(load).agg(
        n_steps=pl.len().cast(pl.Int64),
        n_identical=pl.col("identical").sum().cast(pl.Int64),
        identical_share=pl.col("identical").mean(),
        first_difference_token_min=pl.col("first_difference_token").min(),
        first_difference_token_p50=pl.col("first_difference_token").median(),
    )
    frame = frame.join(
        examples.select(*load, example_step=pl.format("{}:{}", "task_id", "step_index")), on=load, how="left"
    )
    return frame.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items()).sort("workload", "arm", "concurrency")
