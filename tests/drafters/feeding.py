"""Feeding drafters that read hidden states as the engine does, and what must hold for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from drafters.base import Commit, Draft, Drafter, DraftRequest
from drafters.engine.target import Span
from tests.drafters.models import VOCAB, lean, prompt

__all__ = [
    "CLOSE",
    "OneHot",
    "Scored",
    "assert_chunks_do_not_matter",
    "assert_rejected_drafts_leave_no_trace",
    "assert_together_is_as_alone",
    "commit_of",
    "draft_of",
    "one_hot",
    "opened",
    "target_features",
]

# float64 keeps 15 digits; a few hundred sums of numbers near 1 lose three of them at most.
CLOSE = 1e-11


class Scored(Drafter, Protocol):
    """A drafter that tells what its next draft begins from."""

    def logits(self, sequence_id: int) -> Tensor:
        """Scores of the first drafted token."""
        ...


Some = TypeVar("Some", bound=Drafter)


class OneHot:
    """A target whose embedding and head are the identity: a hidden state stands for the token of its largest entry."""

    dtype = torch.float64
    device = torch.device("cpu")

    def __init__(self, size: int = 8, num_layers: int = 6) -> None:
        self.vocab_size = self.hidden_size = size
        self.num_layers = num_layers

    def embed(self, token_ids: Tensor) -> Tensor:
        """[n] → [n, size]."""
        return torch.eye(self.vocab_size, dtype=self.dtype)[token_ids]

    def head(self, hidden: Tensor) -> Tensor:
        """[n, size], unchanged."""
        return hidden


def one_hot(rows: Sequence[Sequence[int]], size: int = 8) -> Tensor:
    """Features [rows, layers, size] that stand for these tokens, a row a position."""
    return torch.eye(size, dtype=torch.float64)[torch.tensor(rows)]


def target_features(family: str, tokens: Sequence[int], layers: Sequence[int]) -> Tensor:
    """[tokens, layers, hidden]: the family's hidden states over ``tokens``."""
    model = lean(family)
    features = model.forward([Span(0, 0, tokens, 1)], model.new_cache(len(tokens)), layers).features
    assert features is not None
    return features


def commit_of(drafter: Drafter, family: str, tokens: Sequence[int], known: int = 0, sequence_id: int = 0) -> Commit:
    """The commit of ``tokens`` from ``known`` on, with the features that the engine would give."""
    features = target_features(family, tokens[:-1], drafter.feature_layers)
    return Commit(sequence_id, known, tuple(tokens[known:]), features[max(known - 1, 0) :])


def opened(drafter: Some, family: str, tokens: Sequence[int], sequence_id: int = 0) -> Some:
    """The drafter with a sequence that has these tokens."""
    drafter.open(sequence_id, 100)
    drafter.commit([commit_of(drafter, family, tokens, 0, sequence_id)])
    return drafter


def draft_of(drafter: Drafter, tokens: Sequence[int], num_tokens: int = 256, sequence_id: int = 0) -> Draft:
    """The drafter's draft after ``tokens``, as long as it wants by default."""
    return drafter.propose([DraftRequest(sequence_id, tokens, num_tokens)])[0]


def assert_together_is_as_alone(make: Callable[[], Scored]) -> None:
    """Three sequences of different lengths that ask for 1, 5 and 3 tokens, committed and drafted in one call, twice."""
    texts = [prompt(seed, 7 + 3 * seed) for seed in range(3)]
    together = make()
    alone = [make() for _ in texts]
    for number in range(3):
        together.open(number, 60)
        alone[number].open(0, 60)
    known = [0, 0, 0]
    for _ in range(2):
        for number, text in enumerate(texts):
            alone[number].commit([commit_of(together, "llama", text, known[number])])
        together.commit([commit_of(together, "llama", text, known[n], n) for n, text in enumerate(texts)])
        counts = (1, 5, 3)
        drafts = together.propose([DraftRequest(n, text, counts[n]) for n, text in enumerate(texts)])
        for number, text in enumerate(texts):
            assert 1 <= len(drafts[number]) <= counts[number]
            assert drafts[number] == draft_of(alone[number], text, counts[number])
            torch.testing.assert_close(together.logits(number), alone[number].logits(0), rtol=0, atol=CLOSE)
        known = [len(text) for text in texts]
        texts = [[*text, *prompt(9 + number, number + 1)] for number, text in enumerate(texts)]


def assert_rejected_drafts_leave_no_trace(make: Callable[[], Scored]) -> None:
    """After a draft of which the first token was kept, everything is as if nothing had been drafted, bit for bit."""
    tokens = prompt(2, 9)
    tried, never = opened(make(), "llama", tokens), opened(make(), "llama", tokens)
    draft = draft_of(tried, tokens)
    longer = [*tokens, draft.token_ids[0], (draft.token_ids[-1] + 1) % VOCAB]
    commit = commit_of(tried, "llama", longer, len(tokens))
    for drafter in (tried, never):
        drafter.commit([commit])
    assert torch.equal(tried.logits(0), never.logits(0))
    assert draft_of(tried, longer) == draft_of(never, longer)


def assert_chunks_do_not_matter(make: Callable[[], Scored]) -> None:
    """A prompt of 20 committed in one piece, and in pieces of 6, 1 and 13 tokens."""
    tokens = prompt(3, 20)
    whole, parts = opened(make(), "llama", tokens), make()
    parts.open(0, 100)
    for known, end in ((0, 6), (6, 7), (7, 20)):
        parts.commit([commit_of(parts, "llama", tokens[:end], known)])
    torch.testing.assert_close(parts.logits(0), whole.logits(0), rtol=0, atol=CLOSE)
    assert draft_of(parts, tokens) == draft_of(whole, tokens)
