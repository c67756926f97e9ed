"""What MTP and EAGLE share: a decoder layer over pairs, and what it remembers of each sequence.

Pair i of a sequence is the target's hidden state at position i with the token at i + 1, which was predicted from it; so
n committed tokens make n - 1 pairs. Pair i stands at position i for the rotation and in slot i of the layer's own K/V.
The layer's output at the last pair speaks of the token that comes next. Drafts go on from there: a drafted token with
the layer's own output in the hidden state's place, in slots beyond the committed pairs.

That makes the rollback: a commit writes its pairs, made from the target's hidden states, over whatever was drafted, and
what lies beyond them is never looked at. vLLM sets the embedding at position 0 to zero for DeepSeek's MTP; here pair 0
is a pair as any other, which is how it is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drafters.base import Commit, Target
from drafters.engine.kv_cache import KvCache
from drafters.layers import CachedRows, DecoderLayer

__all__ = ["PairState", "Pairs"]

# Pairs in one pass, all sequences together: a pass's mask is its rows by everything before them, and a prefix copied from
# another sequence comes whole.
CHUNK = 512

Combine = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Embeddings [n, hidden] and hidden states [n, hidden] → what the attention reads [n, attention_size], normed, and the
residual [n, hidden]."""


@dataclass(slots=True)
class PairState:
    """One sequence: ``length`` committed pairs, whose K/V stands from slot 0 on, and ``output`` [hidden], the layer's
    at the last of them; ``None`` before the first."""

    cache: KvCache
    length: int = 0
    output: Tensor | None = None


class Pairs:
    """The layer and the sequences it works for. ``ahead`` slots are kept beyond a sequence's length for drafts.

    Each sequence has a cache of its own: a block shared by all could be too full or too broken up for the next one,
    and its hidden states do not come a second time. Together they stay within the engine's bound and what is ahead.
    """

    def __init__(self, layer: DecoderLayer, target: Target, combine: Combine, ahead: int) -> None:
        self._layer = layer
        self._target = target
        self._combine = combine
        self._ahead = ahead
        self._states: dict[int, PairState] = {}

    def open(self, sequence_id: int, max_length: int) -> None:
        """Take a sequence of at most ``max_length`` tokens."""
        self._states[sequence_id] = PairState(self._layer.new_cache(max_length + self._ahead))

    def state(self, sequence_id: int) -> PairState:
        """What is known of a sequence."""
        return self._states[sequence_id]

    def outputs(self, sequence_ids: Sequence[int]) -> Tensor:
        """The layer's outputs at the last committed pairs [sequences, hidden]. Raises ValueError before the first
        commit."""
        made: list[Tensor] = []
        for sequence_id in sequence_ids:
            output = self._states[sequence_id].output
            if output is None:
                raise ValueError(f"sequence {sequence_id} has no committed pair; commit its prompt first")
            made.append(output)
        return torch.stack(made)

    def commit(self, commits: Sequence[Commit], fuse: Callable[[Tensor], Tensor]) -> None:
        """Feed the new pairs of all sequences in one pass, or in several of bounded size.

        ``fuse`` makes features [n, layers, hidden] into hidden states [n, hidden]. Raises ValueError for a commit that
        brings no features or does not follow the one before.
        """
        waiting: list[tuple[PairState, tuple[int, ...], Tensor]] = []
        for commit in commits:
            state, taken = self._states[commit.sequence_id], commit.features
            if taken is None or not len(taken):
                raise ValueError(f"the commit of sequence {commit.sequence_id} has no features; give its layers'")
            count = len(taken)
            first = commit.position + len(commit.token_ids) - count - 1
            if first != state.length:
                raise ValueError(
                    f"features from position {first} on given for sequence {commit.sequence_id}; next is {state.length}"
                )
            waiting.append((state, commit.token_ids[len(commit.token_ids) - count :], taken))
        while waiting:
            share = max(1, CHUNK // len(waiting))
            self._feed([(state, tokens[:share], taken[:share]) for state, tokens, taken in waiting], fuse)
            waiting = [
                (state, tokens[share:], taken[share:]) for state, tokens, taken in waiting if len(tokens) > share
            ]

    def _feed(self, parts: Sequence[tuple[PairState, Sequence[int], Tensor]], fuse: Callable[[Tensor], Tensor]) -> None:
        rows = [CachedRows.chain(state.cache, state.length, len(tokens)) for state, tokens, _ in parts]
        hidden = fuse(torch.cat([taken for _, _, taken in parts]))
        output = self.run([token for _, tokens, _ in parts for token in tokens], hidden, rows)
        end = 0
        for state, tokens, _ in parts:
            end += len(tokens)
            state.length += len(tokens)
            state.output = output[end - 1].clone()  # a copy, so that the rest of the pass is freed

    def run(self, token_ids: Sequence[int], hidden: Tensor, rows: Sequence[CachedRows]) -> Tensor:
        """One pass over pairs of tokens and hidden states [n, hidden] → the layer's output [n, hidden]."""
        embedded = self._target.embed(torch.tensor(token_ids, device=hidden.device))
        normed, residual = self._combine(embedded, hidden)
        return self._layer(normed, residual, rows)

    def release(self, sequence_id: int) -> None:
        """Forget a sequence; unknown ids are ignored."""
        self._states.pop(sequence_id, None)
