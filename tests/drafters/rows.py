"""The drafters under test, one row each: name → how to build it for a family and a draft length. And lengths by dice."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch

from drafters.base import Commit, Draft, Drafter, DraftRequest
from drafters.dflash import DFlash
from drafters.dflash2 import DFlash2
from drafters.draft_model import DraftModel
from drafters.eagle3 import Eagle3
from drafters.engine.lengths import FullLength, Rest
from drafters.engine.sequence import RunningSequence
from drafters.medusa import Medusa
from drafters.mtp import Mtp
from drafters.ngram import Ngram
from drafters.prompt_lookup import PromptLookup
from drafters.specs import DFlash2Spec, DFlashSpec, Eagle3Spec, MedusaSpec, MtpSpec
from tests.drafters.models import VOCAB, lean, prompt

__all__ = ["ITSELF", "ROWS", "AnyLength", "Oracle"]

CACHE_TOKENS = 1024
ITSELF = "draft_model, the target itself"
"""The row whose greedy drafts are always right."""


class Oracle:
    """Knows the right text and errs on purpose, at random places: what a drafter of middling quality looks like.

    With ``tree`` each node gets the right token and up to two wrong ones in random order, and wrong nodes get children
    too.
    """

    feature_layers: tuple[int, ...] = ()

    def __init__(self, texts: Sequence[Sequence[int]], num_tokens: int, tree: bool, seed: int = 0) -> None:
        self.max_nodes = num_tokens
        self.tree = tree
        self._texts = [list(text) for text in texts]
        self._chance = random.Random(seed)

    def open(self, sequence_id: int, max_length: int) -> None:
        """Nothing to prepare."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Draft what really follows, with errors."""
        return [self._tree(request) if self.tree else self._chain(request) for request in requests]

    def commit(self, commits: Sequence[Commit]) -> None:
        """Nothing to learn."""

    def release(self, sequence_id: int) -> None:
        """Nothing to free."""

    def _following(self, request: DraftRequest) -> list[int]:
        known = list(request.token_ids)
        found = next((text[len(known) :] for text in self._texts if text[: len(known)] == known), [])
        return found + [0] * request.num_tokens

    def _chain(self, request: DraftRequest) -> Draft:
        right = self._following(request)[: self._chance.randint(0, request.num_tokens)]
        return Draft(tuple(t if self._chance.random() < 0.8 else self._chance.randrange(VOCAB) for t in right))

    def _tree(self, request: DraftRequest) -> Draft:
        right = self._following(request)
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        frontier = [-1]
        while frontier and len(tokens) < request.num_tokens:
            parent = frontier.pop(0)
            depth = depths[parent] if parent >= 0 else 0
            wrong = [self._chance.randrange(VOCAB) for _ in range(self._chance.randint(0, 2))]
            children = list(dict.fromkeys([right[depth], *wrong]))
            self._chance.shuffle(children)
            for child in children[: request.num_tokens - len(tokens)]:
                tokens.append(child)
                parents.append(parent)
                depths.append(depth + 1)
                frontier.append(len(tokens) - 1)
        return Draft(tuple(tokens), parents=tuple(parents))


class AnyLength(FullLength):
    """A length by the dice, 0 included."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int], rest: Rest) -> list[int]:
        """From 0 to the bound."""
        return [self._chance.randint(0, bound) for bound in bounds]


def bushy(depth: int) -> tuple[tuple[int, ...], ...]:
    """Paths of a tree for Medusa: six roots, two of them with children, and one branch down to ``depth``."""
    paths: list[tuple[int, ...]] = [(rank,) for rank in range(6)]
    if depth > 1:
        paths += [(0, 1), (5, 0)]
    return (*paths, *((0,) * length for length in range(2, depth + 1)))


Texts = Sequence[Sequence[int]]
Build = Callable[[str, int, Texts], Drafter]
"""Family, draft length, and the full right texts (for the oracles alone)."""

ROWS: Mapping[str, Build] = {
    "oracle chain": lambda family, k, texts: Oracle(texts, k, tree=False),
    "oracle tree": lambda family, k, texts: Oracle(texts, 4 * k, tree=True),
    "prompt_lookup": lambda family, k, texts: PromptLookup(k, min_ngram=1, max_ngram=3),
    "ngram": lambda family, k, texts: Ngram(k, order=3, corpus=[prompt(99, 200)]),
    ITSELF: lambda family, k, texts: DraftModel(lean(family), VOCAB, CACHE_TOKENS, k),
    "draft_model, another one": lambda family, k, texts: DraftModel(
        lean("llama", seed=1, dtype=torch.float64), VOCAB, CACHE_TOKENS, k
    ),
    "dflash, block of 8": lambda family, k, texts: DFlash.from_spec(
        DFlashSpec(num_tokens=k, block_size=8, num_layers=2), lean(family), CACHE_TOKENS
    ),
    "dflash2, block of 8": lambda family, k, texts: DFlash2.from_spec(
        DFlash2Spec(num_tokens=k, block_size=8, num_layers=2, selector_rank=8), lean(family), CACHE_TOKENS
    ),
    "medusa chain": lambda family, k, texts: Medusa.from_spec(MedusaSpec(num_tokens=k), lean(family), CACHE_TOKENS),
    "medusa tree": lambda family, k, texts: Medusa.from_spec(MedusaSpec(tree=bushy(k)), lean(family), CACHE_TOKENS),
    "mtp": lambda family, k, texts: Mtp.from_spec(MtpSpec(num_tokens=k), lean(family), CACHE_TOKENS),
    "eagle3 chain": lambda family, k, texts: Eagle3.from_spec(
        Eagle3Spec(num_tokens=k, draft_vocab_size=40), lean(family), CACHE_TOKENS
    ),
    "eagle3 tree": lambda family, k, texts: Eagle3.from_spec(
        Eagle3Spec(num_tokens=k, tree_nodes=4 * k), lean(family), CACHE_TOKENS
    ),
}
