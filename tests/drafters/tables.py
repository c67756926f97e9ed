"""Random tables small enough to sum over, and drafters that draft from such a table in every way there is."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from drafters.base import Draft, Verdict
from drafters.sampling import Draw, distribution, draw_siblings

Prefix = tuple[int, ...]


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


def target_rows(target: Language, prefix: Prefix, draft: Draft) -> Tensor:
    """[len + 1, vocab]: the target's distributions after ``prefix`` and after each node of the draft."""
    paths: list[Prefix] = [prefix]
    for token, parent in zip(draft.token_ids, draft.parents or range(-1, len(draft) - 1), strict=True):
        paths.append((*paths[parent + 1], token))
    return torch.stack([target.after(path) for path in paths])


def committed(draft: Draft, verdict: Verdict) -> Prefix:
    """The tokens of a round."""
    return (*(draft.token_ids[i] for i in verdict.path), verdict.next_token_id)


def completed(target: Language, rounds: Iterable[tuple[Prefix, float]], length: int) -> dict[Prefix, float]:
    """The joint distribution of ``length`` tokens: a round's tokens with their weights, and the target goes on alone.

    If this is the target's own joint for every beginning, then by induction so is what rounds after rounds give.
    """
    total: dict[Prefix, float] = defaultdict(float)
    for tokens, weight in rounds:
        for rest in itertools.product(range(target.vocab), repeat=length - len(tokens)):
            sequence, probability = (*tokens, *rest), weight
            for i in range(len(tokens), length):
                probability *= target.after(sequence[:i]).tolist()[sequence[i]] if probability else 0.0
            total[sequence] += probability
    return dict(total)


def gap(target: Language, got: Mapping[Prefix, float], length: int) -> float:
    """The largest difference between a joint distribution of ``length`` tokens and the target's."""
    wanted = target.joint(length)
    assert set(got) <= set(wanted)
    return max(abs(weight - got.get(sequence, 0.0)) for sequence, weight in wanted.items())


SUPPORTS = ("zeros", "filtered", "narrow-target")


def languages(vocab: int, supports: str, seed: int) -> tuple[Language, Language]:
    """The target's table and the drafter's, whose zero-probability tokens differ in every case."""
    if supports == "zeros":
        return Language(vocab, seed), Language(vocab, seed + 1)
    if supports == "filtered":
        return (
            Language(vocab, seed, temperature=0.8, top_p=0.85),
            Language(vocab, seed + 1, temperature=1.6, top_k=max(2, vocab // 2)),
        )
    return (  # the target keeps less than the drafter
        Language(vocab, seed, temperature=1.2, top_k=2),
        Language(vocab, seed + 1, temperature=2.0, top_p=0.95),
    )


Drafter = Callable[[Prefix, Draw], Draft]
"""Drafts after a prefix; what is left to chance goes through the draw."""


def drawn_chain(source: Language, k: int) -> Drafter:
    """K tokens, each drawn from the drafter's distribution."""

    def draft(prefix: Prefix, draw: Draw) -> Draft:
        tokens: Prefix = ()
        for _ in range(k):
            tokens = (*tokens, draw.choose(source.after(prefix + tokens)))
        return Draft(tokens, torch.stack([source.after(prefix + tokens[:i]) for i in range(k)]))

    return draft


def likeliest_chain(source: Language, k: int) -> Drafter:
    """K tokens without chance, verified as one-hot."""

    def draft(prefix: Prefix, draw: Draw) -> Draft:
        tokens: Prefix = ()
        for _ in range(k):
            tokens = (*tokens, int(source.after(prefix + tokens).argmax()))
        return Draft(tokens)

    return draft


def tree(children: Callable[[Tensor, int, Draw], tuple[Sequence[int], Tensor | None]], source: Language) -> Drafter:
    """A root with two children, of which the first has two and the second one child."""

    def draft(prefix: Prefix, draw: Draw) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        rows: list[Tensor] = []
        paths: list[Prefix] = [prefix]
        for node, width in ((-1, 2), (0, 2), (1, 1)):
            if node >= len(tokens):
                continue
            ids, probs = children(source.after(paths[node + 1]), width, draw)
            for i, token in enumerate(ids):
                tokens.append(token)
                parents.append(node)
                paths.append((*paths[node + 1], token))
                if probs is not None:
                    rows.append(probs[i])
        return Draft(tuple(tokens), torch.stack(rows) if rows else None, tuple(parents))

    return draft


def without_replacement(source: Language) -> Drafter:
    """Distinct drawn siblings, each with the distribution it was drawn from."""
    return tree(draw_siblings, source)


def with_replacement(source: Language) -> Drafter:
    """Siblings drawn independently, possibly equal."""

    def children(row: Tensor, width: int, draw: Draw) -> tuple[Sequence[int], Tensor]:
        return [draw.choose(row) for _ in range(width)], torch.stack([row] * width)

    return tree(children, source)


def likeliest_tree(source: Language) -> Drafter:
    """The most probable tokens as siblings, without chance."""
    return tree(lambda row, width, draw: (row.topk(width).indices.tolist(), None), source)


def siblings_with_a_stale_row(source: Language) -> Drafter:
    """Distinct drawn siblings, but each with the distribution of the first."""

    def children(row: Tensor, width: int, draw: Draw) -> tuple[Sequence[int], Tensor]:
        ids, _ = draw_siblings(row, width, draw)
        return ids, torch.stack([row] * len(ids))

    return tree(children, source)


def cut_chain(source: Language, k: int, keep: Callable[[Tensor, int], bool], keep_probs: bool = True) -> Drafter:
    """A drawn chain that ends before the first token for which ``keep(row, token)`` is false."""

    def draft(prefix: Prefix, draw: Draw) -> Draft:
        tokens: Prefix = ()
        rows: list[Tensor] = []
        while len(tokens) < k:
            row = source.after(prefix + tokens)
            token = draw.choose(row)
            if not keep(row, token):
                break
            tokens = (*tokens, token)
            rows.append(row)
        return Draft(tokens, torch.stack(rows) if rows and keep_probs else None)

    return draft
