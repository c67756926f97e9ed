"""Fits the cost model to a run: to rounds where the engine tells their times, to the decoding of single calls elsewhere.

Errors are relative: a round of 5 ms that is 1 ms off weighs as much as one of 50 ms that is 10 ms off. Rounds of one kind are first
taken together by their median, since whatever disturbs a round makes it longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from harness.analysis.costmodel import Beside, CostModel, CostSource, DraftCost, Forward, knots_for, ramps
from harness.analysis.frames import COSTS_SCHEMA
from harness.analysis.nonnegative import nonnegative

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
KNOTS = {"rounds": 10, "cells": 5}
"""At most; cells are few and noisy."""
MOST_CALLS = 50_000  # of a fit from cells, taken evenly
LEAST_BESIDE = 10  # rounds with prompt tokens, before anything is said of them
HEAVY = 100.0  # rounds: a kind with more of them weighs no more
LEAST_VARIETY = (
    0.05  # share of the rounds that must be of another length before a cost by length can be told from a fixed one
)
CHAINED = frozenset(
    {"draft_model", "eagle3", "mtp", "draft-simple", "draft-eagle3", "draft-mtp", "eagle", "medusa-chain"}
)
"""Methods that draft one token after another. Where all drafts of a run are of one length, their time is taken to be proportional to
it; that of other methods (a block in one pass, a look-up) to be the same for all lengths."""
Row = tuple[str, str | None, float, float, float, int, float, float, float, str]


@dataclass(frozen=True, slots=True)
class Fit:
    """A model and how it fits: ``costs`` is ``frames.COSTS``."""

    model: CostModel
    costs: pl.DataFrame


def fit_rounds(rounds: pl.DataFrame, methods: Mapping[str, str]) -> Fit | None:
    """Fit to rounds with times; ``None`` where there are none without prompt tokens beside them.

    Rounds with prompt tokens are fitted by themselves.

    Args:
        rounds: ``rounds.ENGINE_ROUNDS`` with ``arm`` and ``context`` (tokens of context of all requests).
        methods: method of each arm.
    """
    pure = rounds.filter((pl.col("prefill_tokens").fill_null(0) == 0) & (pl.col("batch_size") > 0))
    if pure.is_empty():
        return None
    tokens = pl.col("batch_size") + pl.col("num_draft_tokens")
    near = (pl.col("context").clip(lower_bound=1).log(2) * 2).round()  # contexts within a factor of 1.4 are one kind
    kinds = _kinds(pure.with_columns(tokens=tokens, near=near), ("batch_size", "tokens", "near"), "verify_ns")
    batch, size, context, weight, ms = _arrays(kinds, "batch_size", "tokens", "context", "weight", "ms")
    knots = knots_for(size, KNOTS["rounds"])
    design = np.column_stack([np.ones_like(ms), ramps(size, knots), context, batch])
    found = _relative(design, ms, weight)
    forward = Forward(float(found[0]), knots, tuple(map(float, found[1:-2])), float(found[-2]), float(found[-1]))
    parts = [_Part("verify", None, kinds, design @ found)]
    beside = _beside(rounds, parts)
    hosts = _kinds(pure, ("batch_size",), "host_ns")
    drafts: dict[str, DraftCost] = {}
    for arm in sorted(pure.filter(pl.col("num_draft_tokens") > 0)["arm"].unique().to_list()):
        # a request with one token to go drafts nothing, which takes a drafter with weights no time at all: against so little the
        # relative errors of all its drafts would not count
        drafted = (pl.col("arm") == arm) & (pl.col("num_draft_tokens") > 0)
        own = _kinds(
            pure.filter(drafted).with_columns(tokens="num_draft_tokens"),
            ("batch_size", "longest", "tokens"),
            "draft_ns",
        )
        if own.is_empty():
            continue
        cost, modelled = _draft(own, methods.get(arm, ""))
        drafts[arm] = replace(cost, prompt_ms=_prompt_ms(cost, rounds.filter(pl.col("arm") == arm)))
        parts.append(_Part("draft", arm, own, modelled))
    host_ms = host_batch_ms = 0.0
    if hosts.height:
        batch, weight, ms = _arrays(hosts, "batch_size", "weight", "ms")
        own_design = np.column_stack([np.ones_like(ms), batch])
        host_ms, host_batch_ms = map(float, _relative(own_design, ms, weight))
        parts.append(
            _Part("host", None, hosts.with_columns(tokens=pl.col("batch_size")), own_design @ [host_ms, host_batch_ms])
        )
    return _fit("rounds", forward, drafts, (host_ms, host_batch_ms), parts, beside)


def _prompt_ms(cost: DraftCost, rounds: pl.DataFrame) -> float:
    """Return what an arm's drafter takes more for a prompt token in rounds that feed some, 0 where there are too few of them."""
    mixed = rounds.filter(
        (pl.col("prefill_tokens") > 0) & (pl.col("batch_size") > 0) & pl.col("draft_ns").is_not_null()
    )
    if mixed.height < LEAST_BESIDE:
        return 0.0
    batch, longest, drafted, prompt, took = _arrays(
        mixed, "batch_size", "longest", "num_draft_tokens", "prefill_tokens", "draft_ns"
    )
    usual = cost.fixed_ms + cost.batch_ms * batch + cost.position_ms * longest + cost.token_ms * drafted
    return max(0.0, float((took / 1e6 - np.where(longest > 0, usual, 0.0)).sum() / prompt.sum()))


def _beside(rounds: pl.DataFrame, parts: list[_Part]) -> Beside | None:
    """Fit rounds that fed prompt tokens, and add them to the parts."""
    mixed = rounds.filter((pl.col("prefill_tokens") > 0) & (pl.col("batch_size") > 0))
    if mixed.height < LEAST_BESIDE:
        return None
    near = [
        (pl.col(name).clip(lower_bound=1).log(2) * 2).round().alias(f"{name}_near")
        for name in ("context", "prefill_tokens")
    ]
    tokens = pl.col("batch_size") + pl.col("num_draft_tokens")
    kinds = _kinds(
        mixed.with_columns(*near, tokens=tokens),
        ("batch_size", "tokens", "context_near", "prefill_tokens_near"),
        "verify_ns",
    )
    batch, size, context, prompt, weight, ms = _arrays(
        kinds, "batch_size", "tokens", "context", "prefill_tokens", "weight", "ms"
    )
    design = np.column_stack([np.ones_like(ms), prompt, size, context, batch])
    found = _relative(design, ms, weight)
    parts.append(_Part("beside", None, kinds, design @ found))
    return Beside(*map(float, found))


def fit_passes(passes: pl.DataFrame, drafting: Mapping[str, str]) -> Fit | None:
    """Fit to the decoding of single calls (``passes.PASSES``); ``None`` where nothing is known of any arm without a drafter.

    Args:
        passes: calls of all arms with real drafters and of the baselines.
        drafting: method of each arm with a drafter.
    """
    plain = passes.filter(~pl.col("arm").is_in(list(drafting)))
    if plain.is_empty():
        return None
    rows = passes.gather_every(1 + passes.height // MOST_CALLS).with_columns(
        ms=pl.col("decode_ms") / pl.col("passes"), weight=pl.col("passes").cast(pl.Float64), n=pl.col("passes")
    )
    batch, tokens, context, prefill, prompts, drafted, weight, ms = _arrays(
        rows, "batch", "tokens", "context", "prefill", "prompts", "drafted", "weight", "ms"
    )
    knots = knots_for(tokens, KNOTS["cells"])
    mixed = 1 - np.exp(-prompts)  # share of its passes
    alone = np.column_stack([np.ones_like(ms), ramps(tokens, knots)]) * (1 - mixed)[:, None]
    blocks = [np.column_stack([alone, context, batch, prefill, mixed, mixed * tokens])]
    arms = [arm for arm in drafting if (rows["arm"] == arm).any()]
    of_arm = {arm: (rows["arm"] == arm).to_numpy().astype(float) for arm in arms}
    # its own drafts stand for those of all: the arms of a cell are the same
    blocks += [np.column_stack([own * (drafted if drafting[arm] in CHAINED else 1.0)]) for arm, own in of_arm.items()]
    design = np.column_stack(blocks)
    found = _relative(design, ms, np.minimum(weight, HEAVY))
    n_ramps = len(knots) - 1
    context_ms, batch_ms, prompt_ms, fixed_ms, token_ms, *of_arms = map(float, found[1 + n_ramps :])
    forward = Forward(float(found[0]), knots, tuple(map(float, found[1 : 1 + n_ramps])), context_ms, batch_ms)
    beside = Beside(fixed_ms, prompt_ms, token_ms, context_ms, batch_ms) if (prompts > 0).any() else None
    drafts = {
        arm: DraftCost(0.0, 0.0, cost, 0.0) if drafting[arm] in CHAINED else DraftCost(cost, 0.0, 0.0, 0.0)
        for arm, cost in zip(arms, of_arms, strict=True)
    }
    modelled = pl.Series(design @ found)
    parts = []
    rows = rows.with_columns(batch_size="batch", modelled=modelled)
    for arm in sorted(rows["arm"].unique().to_list()):
        own_rows = rows.filter(pl.col("arm") == arm)
        parts.append(_Part("pass", arm, own_rows, own_rows["modelled"].to_numpy()))
    return _fit("cells", forward, drafts, (0.0, 0.0), parts, beside)


@dataclass(frozen=True, slots=True)
class _Part:
    """Observations of one part of a round beside what the model says: batch_size, tokens, context, n, weight, ms."""

    name: str
    arm: str | None
    kinds: pl.DataFrame
    modelled: Vector


def _kinds(rounds: pl.DataFrame, by: Sequence[str], time: str) -> pl.DataFrame:
    return (
        rounds.filter(pl.col(time).is_not_null())
        .group_by(by, maintain_order=True)
        .agg(
            pl.col("prefill_tokens").mean(),
            ms=pl.col(time).median() / 1e6,
            n=pl.len().cast(pl.Int64),
            context=pl.col("context").mean(),
        )
        .filter(pl.col("ms") > 0)
        .with_columns(weight=pl.col("n").cast(pl.Float64).clip(upper_bound=HEAVY))
        .sort(by)
    )


def _arrays(frame: pl.DataFrame, *names: str) -> tuple[Vector, ...]:
    return tuple(frame[name].cast(pl.Float64).to_numpy() for name in names)


def _relative(design: Matrix, ms: Vector, weight: Vector) -> Vector:
    scale = np.sqrt(weight) / ms
    return nonnegative(design * scale[:, None], ms * scale)


def _draft(kinds: pl.DataFrame, method: str) -> tuple[DraftCost, Vector]:
    batch, longest, drafted, weight, ms = _arrays(kinds, "batch_size", "longest", "tokens", "weight", "ms")
    some = longest > 0
    rounds = kinds["n"].to_numpy()
    usual = np.bincount(longest[some].astype(int), weights=rounds[some]).argmax() if some.any() else 0
    other = rounds[some & (longest != usual)].sum()
    one = np.ones_like(ms)
    if other >= LEAST_VARIETY * rounds[some].sum():
        design = np.column_stack([one, batch, longest, drafted])
    elif method in CHAINED:
        design = np.column_stack([0 * one, 0 * one, longest, drafted])
    else:
        design = np.column_stack([one, batch, 0 * one, 0 * one])
    found = _relative(design, ms, weight)
    return DraftCost(*map(float, found)), design @ found


def _fit(
    source: CostSource,
    forward: Forward,
    drafts: Mapping[str, DraftCost],
    host: tuple[float, float],
    parts: Sequence[_Part],
    beside: Beside | None,
) -> Fit:
    rows = [row for part in parts for row in _rows(part, forward.knots, source)]
    errors = [(abs(m / o - 1), w) for part in parts for m, o, w in _pairs(part) if part.name in ("verify", "pass")]
    main = sum(part.kinds["n"].sum() for part in parts if part.name in ("verify", "pass"))
    model = CostModel(source, forward, drafts, *host, int(main), _weighted_median(errors), beside)
    return Fit(model, pl.DataFrame(rows, schema=COSTS_SCHEMA, orient="row"))


def _pairs(part: _Part) -> Iterable[tuple[float, float, float]]:
    return zip(part.modelled.tolist(), part.kinds["ms"].to_list(), part.kinds["n"].to_list(), strict=True)


def _weighted_median(errors: Sequence[tuple[float, float]]) -> float:
    ordered = sorted(errors)
    half, total = sum(weight for _, weight in ordered) / 2, 0.0
    for error, weight in ordered:
        total += weight
        if total >= half:
            return error
    return 0.0


def _rows(part: _Part, knots: Sequence[float], source: CostSource) -> Iterable[Row]:
    """Yield one row for requests within a factor of two and tokens between two knots: sums, so that errors of both signs cancel."""
    edges = np.array(knots[1:-1])
    grouped = part.kinds.with_columns(
        modelled=pl.Series(part.modelled),
        group_batch=pl.col("batch_size").cast(pl.Float64).log(2).floor(),
        group_tokens=pl.Series(np.searchsorted(edges, part.kinds["tokens"].cast(pl.Float64).to_numpy())),
    ).group_by("group_batch", "group_tokens", maintain_order=True)
    share = pl.col("n") / pl.col("n").sum()
    found = grouped.agg(
        *((pl.col(name) * share).sum().alias(name) for name in ("batch_size", "tokens", "context", "ms", "modelled")),
        total=pl.col("n").sum(),
    ).sort("batch_size", "tokens")
    for row in found.iter_rows(named=True):
        measured, modelled = row["ms"], row["modelled"]
        place = (row["batch_size"], row["tokens"], row["context"])
        yield (part.name, part.arm, *place, row["total"], measured, modelled, modelled / measured - 1, source)
