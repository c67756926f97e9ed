"""Speed-up of decoding at other draft lengths and other batch sizes, and where it ends: modelled from costs and acceptance.

speed-up(B, k) = tokens a pass yields(k) · T_plain(B) / (T_draft(B, k) + T_verify(B, k) + T_host(B)), each T the mean over rounds that
decode alone and rounds that read prompts of others beside. At its break-even drafting makes no difference to decoding, and it makes none
to anything else, so there the time of a whole task breaks even too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.analysis.costmodel import PURE, Mixed, RoundCosts
from harness.analysis.draftprofile import DraftProfile
from harness.analysis.reading import Reading

Vector = NDArray[np.float64]
MOST_BATCH = 256
MODELLED = "modelled"
_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Point:
    """One batch size and limit of drafted tokens; times in ms. ``num_tokens`` 0 is decoding without drafts."""

    batch: int
    num_tokens: int
    tokens_per_pass: float
    plain_ms: float
    draft_ms: float
    verify_ms: float
    host_ms: float

    @property
    def speed_up(self) -> float:
        """Tokens a second with drafting over tokens a second without."""
        return self.tokens_per_pass * self.plain_ms / (self.draft_ms + self.verify_ms + self.host_ms)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is predicted: an arm on a workload (``None``: all), its acceptance, the context of a request in tokens, and what is read
    beside (``None``: nothing, or nobody knows)."""

    workload: str | None
    arm: str
    profile: DraftProfile
    context: float
    reading: Reading | None = None

    def beside(self, batch: float, tokens_per_pass: float) -> Mixed:
        """Return what is read beside ``batch`` requests."""
        return PURE if self.reading is None else self.reading.beside(batch, tokens_per_pass)


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where the modelled speed-up of one draft length reaches 1 on its way down.

    ``batch`` is a number of requests that decode at once, ``None`` unless crossed; ``highest`` the largest that was modelled.
    """

    num_tokens: int
    side: str  # crossed | above | below
    batch: float | None
    highest: int


def point(model: RoundCosts, subject: Subject, batch: int, num_tokens: int) -> Point | None:
    """Return one prediction, ``None`` for rounds of which the model says nothing."""
    if batch * (1 + num_tokens) > model.most_tokens or num_tokens not in subject.profile.limits:
        return None
    if not model.fits(batch, subject.context):
        return None
    forward, host = model.plain_parts_ms(batch, subject.context, subject.beside(batch, 1.0))
    if num_tokens == 0:
        return Point(batch, 0, 1.0, forward + host, 0.0, forward, host)
    lengths, tokens = subject.profile.at(num_tokens)
    parts = model.parts_ms(subject.arm, batch, subject.context, lengths, subject.beside(batch, tokens))
    return Point(batch, num_tokens, tokens, forward + host, *parts)


def points(model: RoundCosts, subject: Subject, batches: Sequence[int], limits: Sequence[int]) -> Iterator[Point]:
    """Yield the predictions for some batch sizes and draft lengths, as far as the model reaches."""
    for batch in batches:
        for limit in limits:
            found = point(model, subject, batch, limit)
            if found is not None:
                yield found


def best(found: Sequence[Point], profile: DraftProfile) -> dict[int, Point]:
    """Return the fastest draft length of each batch size, of equals the shortest; no batch size where that cannot be told.

    The model says nothing of the longest drafts of large batches. What such a draft yields is known, and its round takes no less time
    than that of the longest draft that is modelled, since costs never fall with tokens: so its speed-up has an upper limit. Where that
    limit lies above the fastest of the modelled lengths, nobody knows which one is the fastest.
    """
    longest = limits(profile)[-1]
    most_tokens = profile.at(longest)[1]
    chosen: dict[int, Point] = {}
    last: dict[int, Point] = {}
    for item in sorted(found, key=lambda each: (each.batch, each.num_tokens)):
        last[item.batch] = item
        if item.batch not in chosen or item.speed_up > chosen[item.batch].speed_up + _SAME:
            chosen[item.batch] = item
    return {
        batch: item
        for batch, item in chosen.items()
        if last[batch].num_tokens == longest
        or last[batch].speed_up * most_tokens / last[batch].tokens_per_pass <= item.speed_up + _SAME
    }


def batch_sizes(model: RoundCosts) -> list[int]:
    """Return the powers of two of which the model says anything without drafts."""
    return [2**power for power in range(MOST_BATCH.bit_length()) if 2**power <= min(MOST_BATCH, model.most_tokens)]


def fine_batch_sizes(model: RoundCosts) -> list[int]:
    """Return all batch sizes up to 16, then four to each doubling, as far as the model reaches."""
    coarse = [step * 2**power // 4 for power in range(4, MOST_BATCH.bit_length()) for step in (4, 5, 6, 7)]
    return [size for size in (*range(1, 16), *coarse) if size <= min(MOST_BATCH, model.most_tokens)]


def limits(profile: DraftProfile) -> list[int]:
    """Return draft lengths to look at: 0, all up to 8, then those half as long again, and the longest draft that was seen."""
    longer = [size for power in range(4) for size in (12 * 2**power, 16 * 2**power)]
    wanted = {*range(9), *longer, profile.longest}
    return [size for size in profile.limits if size in wanted]


def crossing(model: RoundCosts, subject: Subject, num_tokens: int) -> Crossing | None:
    """Return where one draft length stops paying, ``None`` if not even one request can be modelled.

    Between two batch sizes the crossing is interpolated in log2(batch) and log(speed-up), as the measured break-even is.
    """
    largest = min(MOST_BATCH, model.most_tokens // (1 + num_tokens))
    looked_at = sorted({*batch_sizes(model), largest})
    sizes = [size for size in looked_at if size and point(model, subject, size, num_tokens) is not None]
    if not sizes:
        return None
    heights = [_height(model, subject, size, num_tokens) for size in sizes]
    first = next((index for index, height in enumerate(heights) if height < 0), None)
    if first is None:
        return Crossing(num_tokens, "above", None, sizes[-1])
    if first == 0:
        return Crossing(num_tokens, "below", None, sizes[-1])
    low, high = sizes[first - 1], sizes[first]
    above, below = heights[first - 1], heights[first]
    while high - low > 1:
        middle = (low + high) // 2
        height = _height(model, subject, middle, num_tokens)
        if height < 0:
            high, below = middle, height
        else:
            low, above = middle, height
    share = above / (above - below)
    return Crossing(num_tokens, "crossed", float(low * (high / low) ** share), sizes[-1])


def _height(model: RoundCosts, subject: Subject, batch: int, num_tokens: int) -> float:
    found = point(model, subject, batch, num_tokens)
    return -np.inf if found is None else float(np.log(found.speed_up))


def as_concurrency(batch: float, loads: Sequence[tuple[int, float]]) -> float | None:
    """Return how many tasks in progress make a batch of this size, ``None`` outside what was measured.

    Tasks wait for tools and read prompts, so fewer requests decode than tasks are in progress. Between two measured loads it is
    interpolated in logarithms.

    Args:
        batch: requests that decode at once.
        loads: measured concurrency and batch, rising.
    """
    if not loads:
        return None
    concurrency, sizes = (np.array(values, dtype=np.float64) for values in zip(*loads, strict=True))
    sizes = np.maximum.accumulate(sizes)
    if not sizes[0] * (1 - _SAME) <= batch <= sizes[-1] * (1 + _SAME):
        return None
    return float(np.exp(np.interp(np.log(batch), np.log(sizes), np.log(concurrency))))
