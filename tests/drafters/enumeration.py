"""Exact enumeration of chance: a `Draw` that follows every branch, and random tables small enough to sum over."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from drafters.sampling import Draw, distribution

Outcome = TypeVar("Outcome", bound=Hashable)
Prefix = tuple[int, ...]

# Sums of some ten thousand products of float64 numbers err by about 1e-15; a wrong rule errs by more than 1e-3.
EXACT = 1e-12


class Branch:
    """A Draw that takes a given branch at each question and notes the branches not taken in ``pending``."""

    def __init__(self, taken: list[int], pending: list[list[int]]) -> None:
        self.weight = 1.0
        self._taken = taken
        self._pending = pending
        self._asked = 0

    def accept(self, probability: float) -> bool:
        """Branch into yes and no, where both are possible."""
        probability = min(1.0, max(0.0, probability))
        return self._follow([(1, probability), (0, 1.0 - probability)]) == 1

    def choose(self, probs: Tensor) -> int:
        """Branch into every token with mass."""
        weights: list[float] = probs.tolist()
        total = sum(weights)
        return self._follow([(token, weight / total) for token, weight in enumerate(weights)])

    def _follow(self, options: list[tuple[int, float]]) -> int:
        possible = [option for option in options if option[1] > 0]
        if self._asked == len(self._taken):
            self._pending.extend([*self._taken, other] for other in range(1, len(possible)))
            self._taken.append(0)
        value, probability = possible[self._taken[self._asked]]
        self._asked += 1
        self.weight *= probability
        return value


def outcomes(process: Callable[[Draw], Outcome]) -> dict[Outcome, float]:
    """The exact distribution of what ``process`` returns."""
    total: dict[Outcome, float] = defaultdict(float)
    pending: list[list[int]] = [[]]
    while pending:
        branch = Branch(pending.pop(), pending)
        total[process(branch)] += branch.weight
    assert math.isclose(sum(total.values()), 1.0, abs_tol=EXACT)
    return dict(total)


@dataclass
class Language:
    """A random conditional table: for each prefix a distribution over ``vocab`` tokens, about a quarter of them 0."""

    vocab: int
    seed: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    rows: dict[Prefix, Tensor] = field(default_factory=dict)

    def after(self, prefix: Prefix) -> Tensor:
        """The distribution [vocab] of the token that follows ``prefix``."""
        if prefix not in self.rows:
            code = self.seed
            for token in prefix:
                code = code * (self.vocab + 1) + token + 1
            generator = torch.Generator().manual_seed(code)
            logits = 2.0 * torch.randn(self.vocab, generator=generator, dtype=torch.float64)
            absent = torch.rand(self.vocab, generator=generator) < 0.25
            absent[logits.argmax()] = False
            logits = logits.masked_fill(absent, float("-inf"))
            self.rows[prefix] = distribution(logits.unsqueeze(0), self.temperature, self.top_k, self.top_p)[0]
        return self.rows[prefix]

    def joint(self, length: int) -> dict[Prefix, float]:
        """The probability of every sequence of ``length`` tokens."""
        total: dict[Prefix, float] = {}
        for sequence in itertools.product(range(self.vocab), repeat=length):
            weight = 1.0
            for i, token in enumerate(sequence):
                weight *= float(self.after(sequence[:i])[token])
            total[sequence] = weight
        return total
