"""Speed-ups of decoding that the cost model predicts beside those that were measured, at every load: they exist where nothing breaks even.

Measured: decoding time a token (from a call's first chunk to its end) of the baseline / that of the arm, over the counted calls of a
load. Predicted: the same, where the arm's time is the model's at the batch that its passes met, plus what the baseline took more than
the model says: alone, the way to the client, which every round takes; at higher loads, what else every token waits for.
No drafter makes either shorter.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from harness.analysis.costmodel import CostModel
from harness.analysis.loading import Records
from harness.analysis.passes import NEEDED, batches, decode_passes
from harness.analysis.plan import baseline_arms
from harness.analysis.predicted import Predictions
from harness.analysis.prediction import Subject, point

HEADERS = (
    "engine",
    "method",
    "drafted tokens",
    "in the model",
    "tasks in progress",
    "batch",
    "measured",
    "predicted",
    "error",
)
YIELDS = ("engine", "method", "drafted tokens", "tokens a pass measured", "predicted", "error")
SUMMARY = (
    "engine",
    "method",
    "speed-ups compared",
    "median of |error|",
    "largest",
    "on the same side of 1, of those measured beyond 5 % of it",
)
CLEAR = 0.05  # so far from 1 that its side is no matter of chance
UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Gain:
    """One draft length at one load; ``None`` where the model does not reach."""

    engine: str
    method: str
    num_tokens: int
    used: bool  # the arm went into the model
    concurrency: int
    batch: float
    measured: float
    predicted: float | None

    @property
    def error(self) -> float | None:
        """Predicted ÷ measured − 1."""
        return None if self.predicted is None else self.predicted / self.measured - 1

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        predicted = UNKNOWN if self.predicted is None else f"{self.predicted:.2f}x"
        error = UNKNOWN if self.error is None else f"{self.error:+.0%}"
        used = "yes" if self.used else "no"
        load = (str(self.concurrency), f"{self.batch:.1f}", f"{self.measured:.2f}x", predicted, error)
        return (self.engine, self.method, str(self.num_tokens), used, *load)


def yields(
    engine: str, method: str, arms: Mapping[int, str], longest: str, found: Predictions
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each shorter draft length of a method: tokens a pass, measured and as follows from the longest."""
    seen = {arm: _widest([item for item in found.subjects if item.arm == arm]) for arm in arms.values()}
    whole = seen[longest]
    for num_tokens, arm in sorted(arms.items()):
        own = seen[arm]
        if arm != longest and own is not None and whole is not None:
            measured, predicted = own.profile.at(own.profile.longest)[1], whole.profile.at(num_tokens)[1]
            figures = (f"{measured:.3f}", f"{predicted:.3f}", f"{predicted / measured - 1:+.1%}")
            yield (engine, method, str(num_tokens), *figures)


def gains(
    engine: str, method: str, records: Records, arms: Mapping[int, str], longest: str, found: Predictions
) -> Iterator[Gain]:
    """Yield the arms of one method, by draft length and load; ``longest`` is the one that the model was fitted on."""
    assert found.model is not None
    steps = records.steps.select(NEEDED)
    seen = batches(decode_passes(steps))
    bare = baseline_arms(records.plans)
    own = _widest([item for item in found.subjects if item.arm == longest])
    plain = dict(_times(steps.join(bare, on=["workload", "arm"], how="semi")))
    plain_met = baseline_batches(records)
    if own is None:
        return
    over = {load: _over(found.model, own, plain_met[load], plain[load]) for load in plain if load in plain_met}
    each_round = over.get(1, 0.0)
    for num_tokens, arm in sorted(arms.items()):
        met = dict(_met(seen.filter(pl.col("arm") == arm)))
        for concurrency, time in _times(steps.filter(pl.col("arm") == arm)):
            if concurrency not in over or concurrency not in met:
                continue
            reading = max(0.0, over[concurrency] - each_round)
            modelled = time_ms(found.model, own, met[concurrency], num_tokens, each_round)
            predicted = None if modelled is None else plain[concurrency] / (modelled + reading)
            load = (concurrency, met[concurrency], plain[concurrency] / time, predicted)
            yield Gain(engine, method, num_tokens, arm == longest, *load)


def baseline_batches(records: Records) -> dict[int, float]:
    """Return how many requests decode at once without a drafter, by tasks in progress."""
    seen = batches(decode_passes(records.steps.select(NEEDED)))
    return dict(_met(seen.join(baseline_arms(records.plans), on=["workload", "arm"], how="semi")))


def summary(found: Sequence[Gain]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the last table: how far off the predictions of each method are, those of arms that the model saw included."""
    for engine, method in dict.fromkeys((item.engine, item.method) for item in found):
        own = [(item.measured, item.predicted) for item in found if (item.engine, item.method) == (engine, method)]
        known = [(measured, predicted) for measured, predicted in own if predicted is not None]
        errors = [abs(predicted / measured - 1) for measured, predicted in known]
        sides = [(predicted > 1) == (measured > 1) for measured, predicted in known if abs(measured - 1) > CLEAR]
        if errors:
            shares = (f"{statistics.median(errors):.0%}", f"{max(errors):.0%}")
            yield (engine, method, str(len(errors)), *shares, f"{sum(sides)} of {len(sides)}")


def _over(model: CostModel, subject: Subject, batch: float, measured_ms: float) -> float:
    """Return what the baseline took a token beyond the model, in ms; 0 where the model does not reach."""
    modelled = time_ms(model, subject, batch, 0)
    return 0.0 if modelled is None else max(0.0, measured_ms - modelled)


def time_ms(
    model: CostModel, subject: Subject, batch: float, num_tokens: int, each_round_ms: float = 0.0
) -> float | None:
    """Return the modelled time a token in ms at a mean batch, between two whole ones interpolated in logarithms."""
    low = max(1, math.floor(batch))
    ends = [point(model, subject, size, num_tokens) for size in (low, max(low, math.ceil(batch)))]
    if ends[0] is None or ends[1] is None:
        return None
    rounds = [(end.draft_ms + end.verify_ms + end.host_ms + each_round_ms, end.tokens_per_pass) for end in ends if end]
    first, last = (ms / tokens for ms, tokens in rounds)
    share = 0.0 if ends[0].batch == ends[1].batch else math.log(batch / low) / math.log(ends[1].batch / low)
    return float(first ** (1 - share) * last**share)


def _times(steps: pl.DataFrame) -> Iterator[tuple[int, float]]:
    """Yield load and decoding time a token in ms."""
    counted = pl.col("done") & (pl.col("phase") == "counted") & pl.col("error_kind").is_null()
    own = steps.filter(counted & (pl.col("output_tokens") > 1) & pl.col("first_token_ns").is_not_null())
    decoding = (pl.col("end_ns") - pl.col("first_token_ns")).sum() / (pl.col("output_tokens") - 1).sum() / 1e6
    yield from own.group_by("concurrency").agg(decoding).sort("concurrency").iter_rows()


def _met(seen: pl.DataFrame) -> Iterator[tuple[int, float]]:
    mean = (pl.col("batch") * pl.col("passes")).sum() / pl.col("passes").sum()
    yield from seen.group_by("concurrency").agg(mean).iter_rows()


def _widest(subjects: Sequence[Subject]) -> Subject | None:
    """Return the subject of all workloads, or the only one."""
    return next((item for item in subjects if item.workload is None), subjects[0] if subjects else None)
