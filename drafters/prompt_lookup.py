"""Drafts by copying: the longest suffix that occurred earlier in prompt or output, and what followed it there.

The idea of prompt lookup and of n-gram matching in today's engines; here the latest occurrence counts, and it is found
in a table that grows with the sequence instead of by a search over it.
"""

from __future__ import annotations

from collections.abc import Sequence

from drafters.base import Commit, Draft, DraftRequest, Target
from drafters.specs import PromptLookupSpec

__all__ = ["PromptLookup"]


class _Table:
    """Where each run of ``tokens`` was last followed by something: run → position of the follower."""

    __slots__ = ("followers", "tokens")

    def __init__(self) -> None:
        self.followers: dict[tuple[int, ...], int] = {}
        self.tokens: list[int] = []

    def grow(self, token_ids: Sequence[int], position: int, min_ngram: int, max_ngram: int) -> None:
        """Take ``token_ids``, which stand at ``position`` of the sequence; those known already are passed over."""
        tokens, known = self.tokens, len(self.tokens)
        tokens.extend(token_ids[known - position :])
        for follower in range(max(known, min_ngram), len(tokens)):
            for length in range(min_ngram, min(max_ngram, follower) + 1):
                self.followers[tuple(tokens[follower - length : follower])] = follower


class PromptLookup:
    """Copies up to ``num_tokens`` tokens after a matching suffix of ``max_ngram`` down to ``min_ngram`` tokens."""

    feature_layers: tuple[int, ...] = ()
    tree = False

    def __init__(self, num_tokens: int = 8, min_ngram: int = 2, max_ngram: int = 4) -> None:
        self.max_nodes = num_tokens
        self._min, self._max = min_ngram, max_ngram
        self._tables: dict[int, _Table] = {}

    @classmethod
    def from_spec(cls, spec: PromptLookupSpec, target: Target, cache_tokens: int) -> PromptLookup:
        """Build it; neither the target nor memory matters."""
        return cls(spec.num_tokens, spec.min_ngram, spec.max_ngram)

    def open(self, sequence_id: int, max_length: int) -> None:
        """Start an empty table."""
        self._tables[sequence_id] = _Table()

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Look up each sequence's suffix; an empty draft where it is new."""
        return [self._look_up(request) for request in requests]

    def _look_up(self, request: DraftRequest) -> Draft:
        tokens, table = request.token_ids, self._tables[request.sequence_id]
        table.grow(tokens, 0, self._min, self._max)
        for length in range(min(self._max, len(tokens) - 1), self._min - 1, -1):
            position = table.followers.get(tuple(tokens[-length:]))
            if position is not None:
                made = list(tokens[position : position + request.num_tokens])
                # A copy that reaches the end goes on with what it has copied: the text is repeating itself.
                period = len(tokens) - position
                while len(made) < request.num_tokens:
                    made.append(made[len(made) - period])
                return Draft(tuple(made))
        return Draft(())

    def commit(self, commits: Sequence[Commit]) -> None:
        """Grow the tables, so that a long prompt is entered chunk by chunk. They never run ahead."""
        for commit in commits:
            self._tables[commit.sequence_id].grow(commit.token_ids, commit.position, self._min, self._max)

    def release(self, sequence_id: int) -> None:
        """Drop the sequence's table."""
        self._tables.pop(sequence_id, None)
