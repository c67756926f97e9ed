"""What a round costs on the engine that was measured: T(tokens in the round, context, batch), for target, drafter and the rest.

The target's forward is taken for a fixed time, a time that rises with the tokens of the round (piecewise linear between powers of two,
never falling: flat while weights are read, steep once products take longer), and times that are proportional to the context and to the
number of requests. Baseline and verification are the same forward with other numbers of tokens. All coefficients are ≥ 0.

A forward that feeds prompt tokens beside decoding multiplies large matrices whatever it verifies: there a drafted token costs what its
products cost, and rides on no reading of weights. Such forwards have costs of their own (``Beside``).

Everything that comes out of a model is *modelled*: it says what follows from the measured rounds, not what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
CostSource = Literal["rounds", "cells"]
APART = 1.4  # factor between two knots
BEYOND = 2.0
"""A model says nothing of rounds of more than this many times the tokens of the largest round that was measured: where costs begin to
rise cannot be seen from below."""


@dataclass(frozen=True, slots=True)
class Forward:
    """Time of one forward of the target in ms.

    ``knots`` are numbers of tokens, rising; ``ramps_ms[i]`` is what the tokens from ``knots[i]`` to ``knots[i + 1]`` add in all.
    ``context_ms`` is that of one token of context (of one request), ``batch_ms`` that of one more request at the same number of
    tokens.
    """

    fixed_ms: float
    knots: tuple[float, ...]
    ramps_ms: tuple[float, ...]
    context_ms: float
    batch_ms: float

    @property
    def most_tokens(self) -> float:
        """Tokens of the largest round that was measured."""
        return self.knots[-1]

    def at(self, batch: float, tokens: Vector, context: float) -> Vector:
        """Return the time of rounds of ``batch`` requests with ``context`` tokens of context in all, by their tokens. # [tokens]

        Beyond the last knot the slope of the last two stretches holds, or that of the last where it is steeper: costs that have begun to
        rise do not fall back.
        """
        last, before = self.ramps_ms[-1], sum(self.ramps_ms[-2:])
        slope = max(last / (self.knots[-1] - self.knots[-2]), before / (self.knots[-1] - self.knots[-3:][0]))
        beyond = np.maximum(0.0, tokens - self.knots[-1]) * slope
        heights = np.concatenate([[0.0], np.cumsum(self.ramps_ms)])
        rising: Vector = np.interp(tokens, self.knots, heights)
        return self.fixed_ms + rising + beyond + self.context_ms * context + self.batch_ms * batch


@dataclass(frozen=True, slots=True)
class Beside:
    """Time of one forward that feeds prompt tokens beside decoding in ms: fixed, of a prompt token, of a token of the requests that
    decode (drafted ones and one of each request's own), of a token of their context, of a request."""

    fixed_ms: float
    prompt_ms: float
    token_ms: float
    context_ms: float
    batch_ms: float

    def at(self, batch: float, tokens: Vector, context: float, prompt_tokens: float) -> Vector:
        """Return the time of forwards by the tokens of their ``batch`` requests, as :meth:`Forward.at` does. # [tokens]"""
        rest = self.fixed_ms + self.prompt_ms * prompt_tokens + self.context_ms * context + self.batch_ms * batch
        return rest + self.token_ms * tokens


@dataclass(frozen=True, slots=True)
class Mixed:
    """Which share of the rounds feeds prompt tokens beside decoding, and how many each of these does."""

    share: float
    prompt_tokens: float


PURE = Mixed(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class DraftCost:
    """Time of a drafter's work in one round in ms: fixed, for each request, for each position of the longest draft, for each token, and
    for each prompt token that is read beside: a drafter with a memory of its own reads prompts too."""

    fixed_ms: float
    batch_ms: float
    position_ms: float
    token_ms: float
    prompt_ms: float = 0.0

    def at(self, batch: float, longest: float, drafted: float) -> float:
        """Return the time of a round with drafts of up to ``longest`` tokens for ``batch`` requests, ``drafted`` in all."""
        return self.fixed_ms + self.batch_ms * batch + self.position_ms * longest + self.token_ms * drafted


class RoundCosts(Protocol):
    """What predictions need to know of an engine on some hardware; times in ms, ``context`` in tokens of each request."""

    @property
    def most_tokens(self) -> int:
        """Tokens of the largest round of which it says anything."""

    def plain_parts_ms(self, batch: int, context: float, mixed: Mixed = PURE) -> tuple[float, float]:
        """Return (forward, host) of a round of ``batch`` requests without drafting."""

    def parts_ms(
        self, arm: str, batch: int, context: float, lengths: Vector, mixed: Mixed = PURE
    ) -> tuple[float, float, float]:
        """Return (draft, verify, host) of a round with drafts; ``lengths`` are probabilities of 0, 1, … drafted tokens."""

    def fits(self, batch: int, context: float) -> bool:
        """Tell whether the memory holds so many requests."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """Costs of one engine on one machine.

    ``beside`` is ``None`` where no prompt was read beside decoding: rounds are then taken for rounds of decoding alone.
    ``host_ms`` and ``host_batch_ms`` are what a round takes beside drafter and target, fixed and for each request; in a fit from cells
    they are part of the forward. ``residual`` is the median of |modelled / measured − 1| over all observations, each weighed by how
    many rounds it stands for.
    """

    source: CostSource
    forward: Forward
    drafts: Mapping[str, DraftCost]
    host_ms: float
    host_batch_ms: float
    n_rounds: int
    residual: float
    beside: Beside | None = None

    @property
    def most_tokens(self) -> int:
        """Tokens of the largest round of which the model says anything."""
        return int(BEYOND * self.forward.most_tokens)

    def plain_parts_ms(self, batch: int, context: float, mixed: Mixed = PURE) -> tuple[float, float]:
        """Return (forward, host) of a round without drafting of ``batch`` requests that have ``context`` tokens each."""
        forward = self._forward_ms(batch, np.array([float(batch)]), batch * context, mixed)
        return float(forward[0]), self.host_ms + self.host_batch_ms * batch

    def fits(self, batch: int, context: float) -> bool:
        """Tell whether the machine has room for so many requests: nobody knows of more than were measured, and these fitted."""
        return True

    def parts_ms(
        self, arm: str, batch: int, context: float, lengths: Vector, mixed: Mixed = PURE
    ) -> tuple[float, float, float]:
        """Return the mean times (draft, verify, host) of a round in which each request drafts by itself.

        Args:
            arm: whose drafter.
            batch: requests in the round.
            context: tokens of context of each.
            lengths: probability that a request drafts 0, 1, … tokens. # [longest + 1]
            mixed: what is read beside.
        """
        size = batch * (len(lengths) - 1) + 1
        of_sum = np.fft.irfft(np.fft.rfft(lengths, 2 * size) ** batch, 2 * size)[:size].clip(min=0.0)  # of all drafts
        drafted = np.arange(size, dtype=np.float64)
        verify = float(self._forward_ms(batch, batch + drafted, batch * context, mixed) @ of_sum)
        longest = float((1.0 - np.cumsum(lengths) ** batch).sum())  # mean of the largest of ``batch`` draws
        cost = self.drafts[arm]
        draft = cost.at(batch, max(0.0, longest), float(drafted @ of_sum))
        draft += cost.prompt_ms * mixed.share * mixed.prompt_tokens
        return draft, verify, self.host_ms + self.host_batch_ms * batch

    def _forward_ms(self, batch: int, tokens: Vector, context: float, mixed: Mixed) -> Vector:
        alone = self.forward.at(batch, tokens, context)
        if self.beside is None or mixed.share == 0:
            return alone
        beside = np.maximum(alone, self.beside.at(batch, tokens, context, mixed.prompt_tokens))
        return (1 - mixed.share) * alone + mixed.share * beside


def ramps(tokens: Vector, knots: Sequence[float]) -> NDArray[np.float64]:
    """Return how much of each stretch between two knots lies below each number of tokens, from 0 to 1. # [observations, knots − 1]"""
    low, high = np.array(knots[:-1]), np.array(knots[1:])
    share: NDArray[np.float64] = np.clip((tokens[:, None] - low) / (high - low), 0.0, 1.0)
    return share


def knots_for(tokens: Vector, most: int) -> tuple[float, ...]:
    """Return knots for these numbers of tokens: the least, powers of two with observations between them, the largest.

    No two are closer than by ``APART``: over a short stretch the scatter of a few observations would make a slope of its own.

    Args:
        tokens: of the observations. # [observations]
        most: knots at most; where there are more powers of two, only some of them are used, evenly.
    """
    least, largest = float(tokens.min()), float(tokens.max())
    if largest <= least:
        return (least, least + 1.0)
    powers = 2.0 ** np.arange(np.floor(np.log2(least)), np.ceil(np.log2(largest)) + 1)
    chosen = [least]
    for power in powers[(powers > least) & (powers < largest)]:
        inside = (tokens > chosen[-1]) & (tokens <= power)
        if inside.any() and chosen[-1] * APART <= power <= largest / APART:
            chosen.append(float(power))
    if len(chosen) > most - 1:
        picks = np.unique(np.round(np.linspace(0, len(chosen) - 1, most - 1)).astype(int))
        chosen = [chosen[index] for index in picks]
    return (*chosen, largest)
