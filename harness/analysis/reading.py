"""What is read beside decoding: how many prompts of others a request meets while it decodes, from the calls of a run.

A forward that feeds a prompt takes many times as long as one that decodes alone, and in it a drafted token costs what its products cost.
So drafting gains less, and breaks even sooner, the more prompts a request meets; and it meets more of them the faster the others decode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from harness.analysis.costmodel import PURE, Mixed


@dataclass(frozen=True, slots=True)
class Met:
    """What requests met while they decoded: at each of some ``batches`` (rising, above 1), how many ``forwards`` fed a prompt, and the
    ``prompt_tokens`` of each. # [loads] each"""

    batches: tuple[float, ...]
    forwards: tuple[float, ...]
    prompt_tokens: tuple[float, ...]

    def at(self, batch: float) -> tuple[float, float]:
        """Return both at a batch, interpolated: one request alone meets none, and beyond the largest each brings as many as there."""
        met = float(np.interp(batch, (1.0, *self.batches), (0.0, *self.forwards)))
        met *= max(1.0, (batch - 1) / (self.batches[-1] - 1))
        return met, float(np.interp(batch, self.batches, self.prompt_tokens))


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read beside an arm and its baseline: ``plain`` by requests without a drafter, which take ``passes`` passes each,
    ``drafted`` by those of the arm, which get ``tokens_per_pass`` tokens of each pass."""

    plain: Met
    drafted: Met
    passes: float
    tokens_per_pass: float

    def beside(self, batch: float, tokens_per_pass: float) -> Mixed:
        """Return what is read beside ``batch`` requests that get so many tokens of each pass.

        What other yields meet lies between the two that were measured. Prompts come at any time, so that several may meet in one round.
        """
        way = 0.0 if self.tokens_per_pass <= 1 else min(1.0, (tokens_per_pass - 1) / (self.tokens_per_pass - 1))
        (few, of_few), (many, of_many) = self.plain.at(batch), self.drafted.at(batch)
        each_round = (few + way * (many - few)) * tokens_per_pass / self.passes
        if each_round <= 0:
            return PURE
        share = 1 - math.exp(-each_round)
        return Mixed(share, (of_few + way * (of_many - of_few)) * each_round / share)


def reading(plain: pl.DataFrame, drafted: pl.DataFrame, chunk: float | None, tokens_per_pass: float) -> Reading | None:
    """Return what was read beside, ``None`` where requests without a drafter met nothing.

    Args:
        plain: ``passes.PASSES`` of calls without a drafter.
        drafted: those of the arm; where they met nothing, it is taken for what the others met.
        chunk: prompt tokens of one forward; where that is not known, a prompt is taken to be fed in one.
        tokens_per_pass: of the arm.
    """
    bare = _met(plain, chunk)
    if bare is None:
        return None
    return Reading(bare, _met(drafted, chunk) or bare, float(plain["passes"].to_numpy().mean()), tokens_per_pass)


def _met(calls: pl.DataFrame, chunk: float | None) -> Met | None:
    prompts, fed = (pl.col(name) * pl.col("passes") for name in ("prompts", "prefill"))
    weight = pl.col("decode_ms")
    mean = (pl.col("batch") * weight).sum() / weight.sum()
    loads = (
        calls.group_by("concurrency")
        .agg(batch=mean, met=prompts.mean(), tokens=fed.sum() / prompts.sum())
        .filter((pl.col("batch") > 1) & (pl.col("met") > 0))
        .sort("batch")
    )
    if loads.is_empty():
        return None
    batch, met, tokens = (loads[name].to_numpy() for name in ("batch", "met", "tokens"))
    forwards = np.ones(len(tokens)) if chunk is None else np.maximum(1.0, tokens / chunk)
    return Met(tuple(batch.tolist()), tuple((met * forwards).tolist()), tuple((tokens / forwards).tolist()))
