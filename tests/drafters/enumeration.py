"""Exact enumeration of chance: a `Draw`, and uniforms for a batch, that follow every branch."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from drafters.base import Draft, Verdict
from drafters.sampling import Draw

Outcome = TypeVar("Outcome", bound=Hashable)
BatchRule = Callable[[Tensor, Sequence[Draft], Sequence[Sequence[Any]]], list[Verdict]]
"""What `verify_sampled_batch` is: target rows of all, drafts, uniforms of each."""

# Sums of some ten thousand products of float64 numbers err by about 1e-15; a wrong rule errs by more than 1e-3.
EXACT = 1e-12


class Branch:
    """A Draw that takes a given branch at each question and notes the branches not taken in ``pending``."""

    def __init__(self, taken: list[int], pending: list[list[int]]) -> None:
        self.weight = 1.0
        self.taken = taken
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
        if self._asked == len(self.taken):
            self._pending.extend([*self.taken, other] for other in range(1, len(possible)))
            self.taken.append(0)
        value, probability = possible[self.taken[self._asked]]
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


class Coin:
    """Stands for a uniform: compared, it follows both answers with their weights; read as a number, it is ``value``.

    One uniform may answer one question: asked twice, its answers would depend on each other.
    """

    def __init__(self, branch: Branch, value: float) -> None:
        self._branch = branch
        self._value = value
        self._asked = False

    def __lt__(self, probability: float) -> bool:
        self._ask()
        return self._branch.accept(probability)

    def __float__(self) -> float:
        self._ask()
        return self._value

    def _ask(self) -> None:
        assert not self._asked
        self._asked = True


def batch_outcomes(rounds: Sequence[tuple[Tensor, Draft]], verify: BatchRule) -> list[dict[Verdict, float]]:
    """The exact distribution of each round's verdict, with all rounds in the same batches.

    ``rounds`` are target rows [len + 1, vocab] and draft. The comparisons are followed branch by branch. The added token
    is a step function of its uniform, whose steps are found by bisection to the precision of a float64.
    """

    def run(paths: Sequence[tuple[int, list[int]]], values: Sequence[float]) -> tuple[list[Verdict], list[Branch], Any]:
        pending: list[list[list[int]]] = [[] for _ in paths]
        branches = [Branch(list(taken), left) for (_, taken), left in zip(paths, pending, strict=True)]
        drafts = [rounds[index][1] for index, _ in paths]
        coins = [
            [Coin(branch, value) for _ in range(len(draft) + 1)]
            for branch, draft, value in zip(branches, drafts, values, strict=True)
        ]
        return verify(torch.cat([rounds[index][0] for index, _ in paths]), drafts, coins), branches, pending

    # Which way the comparisons can go, and how likely.
    ends: list[tuple[int, list[int]]] = []
    kept: list[tuple[int, ...]] = []
    weights: list[float] = []
    todo: list[tuple[int, list[int]]] = [(index, []) for index in range(len(rounds))]
    while todo:
        verdicts, branches, pending = run(todo, [0.5] * len(todo))
        further = []
        for (index, _), verdict, branch, left in zip(todo, verdicts, branches, pending, strict=True):
            ends.append((index, branch.taken))
            kept.append(verdict.path)
            weights.append(branch.weight)
            further += [(index, taken) for taken in left]
        todo = further
    # Below which uniform each token or a lower one is added.
    vocab = rounds[0][0].shape[1]
    probes = [end for end in ends for _ in range(vocab - 1)]
    low, high = [0.0] * len(probes), [1.0] * len(probes)
    for _ in range(52):
        middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
        verdicts, _, _ = run(probes, middle)
        for place, verdict in enumerate(verdicts):
            assert verdict.path == kept[place // (vocab - 1)]
            (low if verdict.next_token_id <= place % (vocab - 1) else high)[place] = middle[place]
    total: list[dict[Verdict, float]] = [defaultdict(float) for _ in rounds]
    for number, ((index, _), path, weight) in enumerate(zip(ends, kept, weights, strict=True)):
        steps = [0.0, *high[number * (vocab - 1) : (number + 1) * (vocab - 1)], 1.0]
        for token, (begin, end) in enumerate(itertools.pairwise(steps)):
            assert begin <= end
            if end - begin > EXACT:
                total[index][Verdict(path, token)] += weight * (end - begin)
    for verdicts_of_one in total:
        assert math.isclose(sum(verdicts_of_one.values()), 1.0, abs_tol=EXACT)
    return [dict(each) for each in total]
