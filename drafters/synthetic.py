"""Acceptance given by the user, for cost experiments. What comes out is NOT the target's text.

Draft tokens cost what they cost in verification; how many are accepted is drawn from the given probabilities, whatever
the target says. Nothing measured with it says anything about quality or about a drafter. The engine refuses stop strings
with it: two copies of a line break are a blank line that nobody said.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from drafters.base import Commit, Draft, DraftRequest, Target
from drafters.specs import SyntheticSpec

__all__ = ["Synthetic"]


class Synthetic:
    """Chains in which token i is accepted with ``acceptance[i]`` when all before it were; the last entry holds
    beyond."""

    feature_layers: tuple[int, ...] = ()
    tree = False

    def __init__(self, num_tokens: int, acceptance: Sequence[float], seed: int = 0) -> None:
        self.max_nodes = num_tokens
        self._acceptance = tuple(acceptance)
        self._seed = seed
        self._chance: dict[int, random.Random] = {}

    @classmethod
    def from_spec(cls, spec: SyntheticSpec, target: Target, cache_tokens: int) -> Synthetic:
        """Build it; neither the target nor memory matters."""
        rates = spec.acceptance if isinstance(spec.acceptance, tuple) else (spec.acceptance,)
        return cls(spec.num_tokens, rates, spec.seed)

    def open(self, sequence_id: int, max_length: int) -> None:
        """Start the sequence's own source of chance, so that neighbours do not matter."""
        self._chance[sequence_id] = random.Random(f"{self._seed}/{sequence_id}")

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Repeat the last token and say how many of the copies count as accepted."""
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> Draft:
        chance = self._chance[request.sequence_id]
        accepted = 0
        for position in range(request.num_tokens):
            if chance.random() >= self._acceptance[min(position, len(self._acceptance) - 1)]:
                break
            accepted += 1
        # The last token was no end token, so its copies are none either.
        return Draft((request.token_ids[-1],) * request.num_tokens, forced=accepted)

    def commit(self, commits: Sequence[Commit]) -> None:
        """Nothing to do."""

    def release(self, sequence_id: int) -> None:
        """Forget the sequence."""
        self._chance.pop(sequence_id, None)
