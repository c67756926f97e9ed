"""What each model call saw of the engine while it decoded, from the times of all calls: for engines that tell no times of rounds.

The engine is looked at through its requests: between its first token and its end a call took ``decode_passes`` passes, and what else was
in progress meanwhile follows from the times of the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

Vector = NDArray[np.float64]
LEAST_PASSES = 4  # of a call that counts: below, what happens at its ends weighs more than its passes
NEEDED = (
    "cell", "workload", "arm", "concurrency", "phase", "done", "steady", "error_kind", "due_ns", "sent_ns", "first_token_ns", "end_ns",
    "prompt_tokens", "cached_tokens", "output_tokens", "decode_passes", "num_draft_tokens",
)  # fmt: skip
"""Columns of steps that are looked at."""
PASSES = pl.Schema(
    {"cell": pl.UInt32, "workload": pl.String, "arm": pl.String, "concurrency": pl.Int64}
    | dict.fromkeys(("batch", "tokens", "context", "prefill", "drafted", "decode_ms"), pl.Float64)
    | {"passes": pl.Int64}
)
"""One row a call that decoded: means over its passes of the requests that decoded (``batch``), the tokens of all of them in a pass, the
context of all, prompt tokens fed meanwhile a pass, and its own drafted tokens a pass; ``decode_ms`` in all."""


@dataclass(frozen=True, slots=True)
class _Load:
    """How much of something was in progress, summed over time: ``at`` gives the integral up to a moment."""

    times: Vector
    sums: Vector

    @classmethod
    def of(cls, begin: Vector, end: Vector, height: Vector) -> _Load:
        times = np.concatenate([begin, end])
        order = np.argsort(times, kind="stable")
        times = times[order]
        level = np.cumsum(np.concatenate([height, -height])[order])
        return cls(times, np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))]))

    def mean(self, begin: Vector, end: Vector) -> Vector:
        """Return the mean over each stretch of time."""
        whole: Vector = np.interp(end, self.times, self.sums) - np.interp(begin, self.times, self.sums)
        return whole / (end - begin)


def decode_passes(steps: pl.DataFrame) -> pl.DataFrame:
    """Return ``PASSES`` of the calls of finished cells that succeeded, lie inside the steady window and took ``LEAST_PASSES`` or more.

    Args:
        steps: rows of ``loading.read_records``; calls of all phases make the load, those that were cut off too.
    """
    own = steps.filter(
        pl.col("done") & pl.col("first_token_ns").is_not_null() & (pl.col("end_ns") > pl.col("first_token_ns"))
    )
    frames = [pl.DataFrame(schema=PASSES)]
    frames += [_of_cell(cell) for cell in own.partition_by("cell", maintain_order=True)]
    return pl.concat(frames)


def _of_cell(cell: pl.DataFrame) -> pl.DataFrame:
    passes = pl.when(pl.col("decode_passes") > 0).then(pl.col("decode_passes"))
    cell = cell.with_columns(
        drafted=(pl.col("num_draft_tokens").fill_null(0) / passes).fill_null(strategy="mean").fill_null(0.0),
        asked=(pl.col("prompt_tokens") - pl.col("cached_tokens").fill_null(0)).clip(lower_bound=0).fill_null(0),
        held=pl.col("prompt_tokens").fill_null(0) + pl.col("output_tokens").fill_null(0) / 2,
    )
    origin: int = cell["due_ns"].to_numpy().min().item()  # nanoseconds since start-up lose digits as floats
    sent, first, end = (_since(cell[f"{name}_ns"], origin) for name in ("sent", "first_token", "end"))
    drafted, asked, held = (cell[name].cast(pl.Float64).to_numpy() for name in ("drafted", "asked", "held"))
    reading = np.maximum(first - sent, 1.0)
    loads = {
        "batch": _Load.of(first, end, np.ones(len(first))),
        "tokens": _Load.of(first, end, 1.0 + drafted),
        "context": _Load.of(first, end, held),
    }
    means = {name: load.mean(first, end) for name, load in loads.items()}
    fed = _Load.of(first - reading, first, asked / reading).mean(first, end) * (end - first)
    counted = (pl.col("phase") == "counted") & pl.col("steady") & pl.col("error_kind").is_null()
    return (
        cell.with_columns(
            **{name: pl.Series(values) for name, values in means.items()},
            prefill=pl.Series(fed) / pl.col("decode_passes"),
            decode_ms=(pl.col("end_ns") - pl.col("first_token_ns")) / 1e6,
            passes="decode_passes",
        )
        .filter(counted & (pl.col("passes") >= LEAST_PASSES))
        .select(pl.col(name).cast(kind) for name, kind in PASSES.items())
    )


def _since(times: pl.Series, origin: int) -> Vector:
    since: Vector = (times.fill_null(origin) - origin).cast(pl.Float64).to_numpy()
    return since


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
