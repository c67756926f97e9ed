"""Chains of drafts over known text, as they would be drafted: what MTP and EAGLE-3 share in training.

A chain begins at a pair: the target's state at t with the token at t + 1 (`drafters.pairs`). Its step 0 predicts the
token at t + 2 and sees the pairs of the text up to t; step j takes the text's own token at t + 1 + j with the layer's
output of the step before, stands at position t + j, sees the same pairs and the chain's steps from 1 to j, and predicts
the token at t + 2 + j. That is what the engine does when everything drafted is right, so a chain that goes wrong tells
exactly how many of its tokens would have been accepted.

Chains begin where they do in the engine: the token at t + 1 was written by the target, and so is the one predicted (the
first token of an answer comes with the prompt's own pass). They end with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from drafters.training.chain_counts import chain_counts
from drafters.training.frozen import FrozenTarget
from drafters.training.method import Batch, Losses
from drafters.training.methods.blocks import KeysValues, PairBlock, wide
from drafters.training.methods.teaching import fitting, taught

__all__ = ["Chains", "Tally", "Teacher", "chains_of", "choose_chains", "teacher", "unroll"]

Combine = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Embeddings and hidden states [..., hidden] → what the attention reads, normed, and the residual."""


@dataclass(frozen=True, slots=True)
class Chains:
    """``anchors`` [rows, chains]: the pairs t that chains begin at, 0 where a row has fewer; ``told`` [steps, rows,
    chains]: whether the step predicts a token of the answer that its chain began in."""

    anchors: Tensor
    told: Tensor


def choose_chains(batch: Batch, steps: int, most: int | None, generator: torch.Generator) -> Chains:
    """All chains of a batch, or ``most`` a row, drawn by chance."""
    rows, length = batch.token_ids.shape
    answers = batch.answers & batch.present
    begins = answers.new_zeros((rows, length))
    begins[:, : max(length - 2, 0)] = answers[:, 1:-1] & answers[:, 2:]
    if most is not None and int(begins.sum(1).max()) > most:
        chance = torch.rand((rows, length), generator=generator).to(begins.device).masked_fill_(~begins, -1.0)
        drawn = torch.zeros_like(begins).scatter_(1, chance.topk(most, dim=1).indices, True)
        begins &= drawn
    count = int(begins.sum(1).max())
    order = begins.int().sort(dim=1, descending=True, stable=True)
    valid = order.values[:, :count].bool()
    anchors = order.indices[:, :count].where(valid, 0)
    told = [valid]
    for step in range(1, steps):
        position = anchors + 2 + step
        within = answers.gather(1, position.clamp(max=length - 1)) & (position < length)
        told.append(told[-1] & within)
    return Chains(anchors, torch.stack(told))


def chains_of(
    batch: Batch, steps: int, most: int | None, vocabulary: int, generator: torch.Generator
) -> Iterator[Chains]:
    """What one call of ``losses`` goes through: with gradients `choose_chains` once, of no more than fit into memory
    (`teaching.LOGITS`, ``vocabulary`` for each step and chain); without, all chains, as many at once as fit."""
    fit = fitting(len(batch.token_ids) * steps * vocabulary)
    if torch.is_grad_enabled():
        yield choose_chains(batch, steps, fit if most is None else min(most, fit), generator)
        return
    whole = choose_chains(batch, steps, None, generator)
    for begin in range(0, max(whole.anchors.shape[1], 1), fit):
        yield Chains(whole.anchors[:, begin : begin + fit], whole.told[:, :, begin : begin + fit])


def unroll(
    block: PairBlock,
    combine: Combine,
    feed: Callable[[Tensor], Tensor],
    embed: Callable[[Tensor], Tensor],
    batch: Batch,
    hidden: Tensor,
    chains: Chains,
) -> Iterator[Tensor]:
    """Yield the layer's output [rows, chains, hidden] of each step.

    ``hidden`` [rows, length, hidden] are the states of the text's pairs; ``feed`` makes a step's output into the state
    of the next one. Keys are made of all pairs; queries and what follows of those alone that chains begin at.
    """
    length = batch.token_ids.shape[1]
    places = torch.arange(length - 1, device=hidden.device)
    anchors = chains.anchors
    normed, _ = combine(embed(batch.token_ids[:, 1:]).to(hidden.dtype), hidden[:, :-1])
    context = block.keys_values(normed, places.expand(normed.shape[:2]))
    seen = places <= anchors.unsqueeze(-1)
    state = hidden.gather(1, anchors.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))
    own: list[KeysValues] = []
    for step in range(len(chains.told)):
        positions = anchors + step
        tokens = batch.token_ids.gather(1, (positions + 1).clamp(max=length - 1))
        normed, residual = combine(embed(tokens).to(hidden.dtype), state)
        if step:
            own.append(block.keys_values(normed, positions))
        output = block(normed, residual, positions, context, seen, own)
        yield output
        state = feed(output)


@dataclass(frozen=True, slots=True)
class Teacher:
    """The target's logits [n, vocab] at the states from which chains' tokens are predicted; ``index`` [rows, length]:
    which of them predicts the token at a position."""

    logits: Tensor
    index: Tensor

    def rows(self, chains: Chains, step: int) -> Tensor:
        """[told]: of the chains told at a step, in order."""
        return _of_told(self.index, chains, step)


@torch.no_grad()
def teacher(batch: Batch, chains: Chains, target: FrozenTarget) -> Teacher:
    """What the target itself says, once for every position that some chain predicts."""
    wanted = torch.zeros_like(batch.answers)
    for step, told in enumerate(chains.told):
        row, place = told.nonzero(as_tuple=True)
        wanted[row, chains.anchors[row, place] + 2 + step] = True
    row, position = wanted.nonzero(as_tuple=True)
    index = (wanted.flatten().cumsum(0) - 1).view_as(wanted)
    return Teacher(taught(target, batch.hidden[row, position - 1]), index)


def _of_told(values: Tensor, chains: Chains, step: int) -> Tensor:
    row, place = chains.told[step].nonzero(as_tuple=True)
    return values[row, chains.anchors[row, place] + 2 + step]


class Tally:
    """Adds up the losses of a batch step by step."""

    def __init__(self, batch: Batch, chains: Chains, num_tokens: int) -> None:
        self._batch, self._chains, self._num_tokens = batch, chains, num_tokens
        self._right: list[Tensor] = []  # by step, each [rows, chains]
        self._total = batch.hidden.new_zeros((), dtype=wide(batch.hidden).dtype)
        self._weights = self._total.new_zeros(len(batch.token_ids))
        self._parts: dict[str, Tensor] = {}

    def text(self, step: int) -> Tensor:
        """[told]: the text's tokens that the step is to predict."""
        return _of_told(self._batch.token_ids, self._chains, step)

    def score(self, step: int, best: Tensor) -> None:
        """Take the drafter's best tokens [told] at a step; steps come in order."""
        told = self._chains.told[step]
        same = torch.zeros_like(told)
        same[told] = best == self.text(step)
        self._right.append(same)

    def learn(self, step: int, weight: float, logits: Tensor, wanted: Tensor, known: Tensor | None = None) -> None:
        """Add a step's cross-entropy. ``wanted`` are probabilities [n, vocab], or tokens [n]; ``known`` [told] says which
        of the chains told at the step they are, all by default."""
        loss = weight * cross_entropy(wide(logits), wanted, reduction="sum")
        self._total = self._total + loss
        row = self._chains.told[step].nonzero(as_tuple=True)[0]
        counts = (row if known is None else row[known]).bincount(minlength=len(self._weights))
        self._weights = self._weights + weight * counts
        self._parts[f"step_{step}"] = loss.detach()

    def losses(self) -> Losses:
        """What the batch gave; ``parts`` are the shares of each step in the total."""
        told = self._chains.told[: len(self._right)].movedim(0, -1)
        drafted, accepted = chain_counts(torch.stack(self._right, dim=-1), told, self._num_tokens)
        return Losses(self._total, self._weights, drafted, accepted, self._parts)
