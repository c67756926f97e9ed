"""What each model call saw of the engine while it decoded, from the times of all calls: for engines that tell no times of rounds.

The engine is looked at through its requests: between its first token and its end a call took ``decode_passes`` passes, and what else was
in progress meanwhile follows from the times of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

Vector = NDArray[np.float64]
LEAST_PASSES = 4  # of a call that counts: below, what happens at its ends weighs more than its passes
NOTHING = 1e-3  # of a prompt: two calls that follow one another overlap by what the sums of floats lose
NEEDED = (
    "cell", "workload", "arm", "concurrency", "phase", "done", "steady", "error_kind", "due_ns", "sent_ns", "first_token_ns", "end_ns",
    "prompt_tokens", "cached_tokens", "output_tokens", "decode_passes", "num_draft_tokens",
)  # fmt: skip
"""Columns of steps that are looked at."""
PASSES = pl.Schema(
    {"cell": pl.UInt32, "workload": pl.String, "arm": pl.String, "concurrency": pl.Int64}
    | dict.fromkeys(("batch", "tokens", "context", "prefill", "prompts", "drafted", "decode_ms"), pl.Float64)
    | {"passes": pl.Int64}
)
"""One row a call that decoded: means over its passes of the requests that decoded (``batch``), the tokens of all of them in a pass, the
context of all, prompt tokens fed meanwhile a pass and prompts that they were of, and its own drafted tokens a pass; ``decode_ms`` in
all."""


@dataclass(frozen=True, slots=True)
class _Line:
    """Stretches of time in the order of their begins and ends, to say how much of something was in progress meanwhile."""

    begin: Vector
    end: Vector
    order: NDArray[np.intp]  # [2 · stretches]
    apart: Vector  # from one begin or end to the next. # [2 · stretches - 1]

    @classmethod
    def of(cls, begin: Vector, end: Vector) -> _Line:
        times = np.concatenate([begin, end])
        order = np.argsort(times, kind="stable")
        return cls(begin, end, order, np.diff(times[order]))

    def sums(self, height: Vector) -> Vector:
        """Return the heights of all stretches in progress, summed over time up to each begin and end in order. # [2 · stretches]"""
        level = np.cumsum(np.concatenate([height, -height])[self.order])
        return np.concatenate([[0.0], np.cumsum(level[:-1] * self.apart)])

    def means(self, height: Vector) -> Vector:
        """Return the mean, over each stretch, of the heights of all stretches that are in progress."""
        until = np.empty(len(self.order))
        until[self.order] = self.sums(height)
        begins, ends = np.split(until, 2)
        means: Vector = (ends - begins) / (self.end - self.begin)
        return means

    def over(self, height: Vector, begin: Vector, end: Vector) -> Vector:
        """Return the same over other stretches."""
        times = np.concatenate([self.begin, self.end])[self.order]
        sums = self.sums(height)
        whole: Vector = np.interp(end, times, sums) - np.interp(begin, times, sums)
        return whole / (end - begin)


def decode_passes(steps: pl.DataFrame) -> pl.DataFrame:
    """Return ``PASSES`` of the calls of finished cells that succeeded, lie inside the steady window and took ``LEAST_PASSES`` or more.

    Args:
        steps: rows of ``loading.read_records``; calls of all phases make the load, those that were cut off too.
    """
    own = steps.filter(
        pl.col("done") & pl.col("first_token_ns").is_not_null() & (pl.col("end_ns") > pl.col("first_token_ns"))
    ).sort("cell", maintain_order=True)
    if own.is_empty():
        return pl.DataFrame(schema=PASSES)
    passes = pl.when(pl.col("decode_passes") > 0).then(pl.col("decode_passes"))
    drafted = pl.col("num_draft_tokens").fill_null(0) / passes
    own = own.with_columns(
        drafted=drafted.fill_null(drafted.mean().over("cell")).fill_null(0.0),
        asked=(pl.col("prompt_tokens") - pl.col("cached_tokens").fill_null(0)).clip(lower_bound=0).fill_null(0),
        held=pl.col("prompt_tokens").fill_null(0) + pl.col("output_tokens").fill_null(0) / 2,
        origin=pl.col("due_ns").min().over("cell"),  # nanoseconds since start-up lose digits as floats
    )
    calls = _Calls(
        *((own[f"{name}_ns"].fill_null(own["origin"]) - own["origin"]).cast(pl.Float64).to_numpy()
          for name in ("sent", "first_token", "end")),
        *(own[name].cast(pl.Float64).to_numpy() for name in ("drafted", "asked", "held")),
    )  # fmt: skip
    ends = [*np.flatnonzero(np.diff(own["cell"].to_numpy())) + 1, own.height]
    parts = [calls.of_cell(slice(begin, end)) for begin, end in pairwise([0, *ends])]
    means = {name: pl.Series(np.concatenate([part[name] for part in parts])) for name in parts[0]}
    counted = (pl.col("phase") == "counted") & pl.col("steady") & pl.col("error_kind").is_null()
    return (
        own.with_columns(
            **means,
            decode_ms=(pl.col("end_ns") - pl.col("first_token_ns")) / 1e6,
            passes="decode_passes",
        )
        .with_columns(pl.col("prefill", "prompts") / pl.col("decode_passes"))
        .filter(counted & (pl.col("passes") >= LEAST_PASSES))
        .select(pl.col(name).cast(kind) for name, kind in PASSES.items())
    )


@dataclass(frozen=True, slots=True)
class _Calls:
    """Calls in the order of their cells: times since the first was due, and what each weighs while it decodes. # [calls] each"""

    sent: Vector
    first: Vector
    end: Vector
    drafted: Vector
    asked: Vector
    held: Vector

    def of_cell(self, own: slice) -> dict[str, Vector]:
        """Return the means over each call of what was in progress meanwhile, and the prompt tokens fed; of the calls of one cell."""
        sent, first, end = self.sent[own], self.first[own], self.end[own]
        reading = np.maximum(first - sent, 1.0)
        line = _Line.of(first, end)
        read, took = _Line.of(first - reading, first), end - first
        prompts = read.over((self.asked[own] > 0) / reading, first, end) * took
        some = prompts > NOTHING
        return {
            "batch": line.means(np.ones(len(first))),
            "tokens": line.means(1.0 + self.drafted[own]),
            "context": line.means(self.held[own]),
            "prefill": np.where(some, read.over(self.asked[own] / reading, first, end) * took, 0.0),
            "prompts": np.where(some, prompts, 0.0),
        }


def batches(found: pl.DataFrame) -> pl.DataFrame:
    """Return the mean batch that a pass met, its context a request, and the passes behind it, per workload, arm and concurrency."""
    weight = pl.col("decode_ms")
    return (
        found.group_by("workload", "arm", "concurrency")
        .agg(
            batch=(pl.col("batch") * weight).sum() / weight.sum(),
            context=(pl.col("context") / pl.col("batch") * weight).sum() / weight.sum(),
            passes=pl.col("passes").sum(),
        )
        .sort("workload", "arm", "concurrency")
    )
