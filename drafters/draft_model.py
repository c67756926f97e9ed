"""A smaller model with the target's tokenizer drafts token by token, all sequences together (arXiv 2211.17192)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from drafters.base import Commit, Draft, DraftRequest, Target
from drafters.engine.slots import Slots, common_length
from drafters.engine.target import DecoderModel, Span, TargetError
from drafters.sampling import distribution, pick
from drafters.specs import DraftModelSpec, SpecError

__all__ = ["DraftModel"]

# Vocabularies of one family are padded differently; beyond this the tokenizers are hardly the same.
PADDING = 1024
# Committed tokens are fed with the next draft's first pass; only more than this many (prompts) get passes of their own, so
# that a long prompt is digested chunk by chunk as the target digests it.
LAZY_TOKENS = 32
# Rows of such a pass, all sequences together: a pass's mask is its rows by everything before them.
CHUNK = 512


class _State:
    """A sequence as the draft model knows it: ``committed`` tokens, and the ``fed`` ones, whose K/V stands from
    ``slot`` on."""

    __slots__ = ("committed", "fed", "size", "slot")

    def __init__(self, size: int) -> None:
        self.size = size
        self.slot: int | None = None
        self.committed: list[int] = []
        self.fed: list[int] = []

    def take(self, token_ids: Sequence[int]) -> None:
        """Commit tokens and drop what was fed and is not among them."""
        known = len(self.committed)
        self.committed.extend(token_ids)
        agreed = min(known, len(self.fed))
        while agreed < min(len(self.fed), len(self.committed)) and self.fed[agreed] == self.committed[agreed]:
            agreed += 1
        del self.fed[agreed:]

    def rewind(self) -> None:
        """Drop the K/V of the last committed token, if it was fed: the next draft needs that token's logits."""
        del self.fed[len(self.committed) - 1 :]


class DraftModel:
    """Drafts chains: sampled with the request's own temperature, top-k and top-p, or greedily (``greedy``, one-hot)."""

    feature_layers: tuple[int, ...] = ()
    tree = False

    def __init__(
        self, model: DecoderModel, target_vocab_size: int, cache_tokens: int, num_tokens: int = 4, greedy: bool = False
    ) -> None:
        if abs(model.vocab_size - target_vocab_size) > PADDING:
            raise SpecError(
                f"draft_model: its vocabulary has {model.vocab_size} entries, the target's {target_vocab_size}; "
                "give a model with the target's tokenizer"
            )
        self.max_nodes = num_tokens
        self._model = model
        self._target_vocab = target_vocab_size
        self._shared_vocab = min(model.vocab_size, target_vocab_size)
        self._greedy = greedy
        self._slots = Slots(cache_tokens)
        self._cache = model.new_cache(cache_tokens)
        self._states: dict[int, _State] = {}

    @classmethod
    def from_spec(cls, spec: DraftModelSpec, target: Target, cache_tokens: int) -> DraftModel:
        """Load the model in the target's type, onto its device.

        Raises SpecError for a folder that holds no model, or one whose tokens are not the target's; that is seen where
        both folders have a tokenizer.json.
        """
        folder: Path | None = getattr(target, "folder", None)
        if folder is not None:
            _compare(spec.model, folder)
        try:
            model = DecoderModel.load(spec.model, target.dtype, str(target.device))
        except TargetError as error:
            raise SpecError(f"draft_model: {error}") from error
        return cls(model, target.vocab_size, cache_tokens, spec.num_tokens, spec.greedy)

    def open(self, sequence_id: int, max_length: int) -> None:
        """Note the sequence; its slots are taken when they are first needed."""
        self._states[sequence_id] = _State(min(max_length, self._model.max_positions))

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One pass over what is not fed yet (several over a backlog), then one a further token, over all that want it.

        A sequence beyond the model's positions, or one for which there is no room yet, gets an empty draft.
        """
        lengths = [self._length(request) for request in requests]
        for request in requests:
            self._states[request.sequence_id].rewind()
        self._digest([self._states[request.sequence_id] for request, n in zip(requests, lengths, strict=True) if n > 0])
        drafts: list[list[int]] = [[] for _ in requests]
        rows: list[list[Tensor]] = [[] for _ in requests]
        for depth in range(max(lengths, default=0)):
            going = [index for index, length in enumerate(lengths) if length > depth]
            states = [self._states[requests[index].sequence_id] for index in going]
            ahead = [
                (state.committed + drafts[index])[len(state.fed) :] for index, state in zip(going, states, strict=True)
            ]
            logits = self._feed(states, ahead, 1)[:, : self._shared_vocab]
            chosen, probs = self._choose(logits, [requests[index] for index in going])
            for place, index in enumerate(going):
                drafts[index].append(chosen[place])
                if probs is not None:
                    rows[index].append(probs[place])
        return [
            Draft(tuple(tokens), torch.stack(row) if row and self._samples(request) else None)
            for request, tokens, row in zip(requests, drafts, rows, strict=True)
        ]

    def commit(self, commits: Sequence[Commit]) -> None:
        """Take the tokens, forget rejected ones, and digest prompts."""
        long: list[_State] = []
        for commit in commits:
            state = self._states[commit.sequence_id]
            state.take(commit.token_ids)
            if commit.cached:
                self._adopt(state)
            fits = len(state.committed) <= state.size
            if len(state.committed) - len(state.fed) > LAZY_TOKENS and fits and self._has_room(state):
                long.append(state)
        self._digest(long)

    def release(self, sequence_id: int) -> None:
        """Free the sequence's slots; what was fed stays for reuse while there is room."""
        state = self._states.pop(sequence_id, None)
        if state is not None and state.slot is not None:
            self._slots.keep(state.slot, state.size, state.fed)

    def _length(self, request: DraftRequest) -> int:
        state = self._states[request.sequence_id]
        # The last draft token is never fed, so one more than the slots left can be drafted.
        length = min(request.num_tokens, state.size - len(state.committed) + 1)
        return length if length > 0 and self._has_room(state) else 0

    def _has_room(self, state: _State) -> bool:
        if state.slot is None:
            state.slot = self._slots.reserve(state.size)
        return state.slot is not None

    def _adopt(self, state: _State) -> None:
        """Copy the longest beginning that a finished sequence left."""
        known = tuple(state.committed)
        shared, entry = max(
            ((common_length(known, kept.token_ids), kept) for kept in self._slots.kept),
            key=lambda found: found[0],
            default=(0, None),
        )
        if entry is None or shared == 0:
            return
        state.slot = self._slots.reserve(state.size, sparing=entry)
        if state.slot is not None:
            self._cache.copy(entry.slot, state.slot, shared)
            state.fed = state.committed[:shared]
            self._slots.touch(entry)

    def _digest(self, states: Sequence[_State]) -> None:
        """Feed what is committed, in passes of bounded size, until no more is left than a draft's first pass takes."""
        while behind := [state for state in states if len(state.committed) - len(state.fed) > LAZY_TOKENS]:
            share = max(LAZY_TOKENS, CHUNK // len(behind))
            # The last token waits for the draft, whose first pass needs its logits.
            self._feed(behind, [state.committed[len(state.fed) : -1][:share] for state in behind], 0)

    def _feed(self, states: Sequence[_State], token_ids: Sequence[Sequence[int]], logit_rows: int) -> Tensor:
        spans = []
        for state, tokens in zip(states, token_ids, strict=True):
            known = [token if token < self._model.vocab_size else 0 for token in tokens]
            assert state.slot is not None
            spans.append(Span(state.slot, len(state.fed), known, logit_rows))
        logits = self._model.forward(spans, self._cache).logits
        for state, tokens in zip(states, token_ids, strict=True):
            state.fed.extend(tokens)
        return logits

    def _samples(self, request: DraftRequest) -> bool:
        return not (self._greedy or request.sampling.greedy)

    def _choose(self, logits: Tensor, requests: Sequence[DraftRequest]) -> tuple[list[int], Tensor | None]:
        """One token a request, and the distributions [n, vocab of the target] if any of them was drawn."""
        best: list[int] = logits.argmax(dim=-1).tolist()
        if not any(self._samples(request) for request in requests):
            return best, None
        sampling = [request.sampling for request in requests]
        probs = distribution(
            logits, [s.temperature for s in sampling], [s.top_k for s in sampling], [s.top_p for s in sampling]
        )
        uniforms = torch.tensor(
            [
                float(torch.rand(1, generator=request.generator, dtype=torch.float64))
                if self._samples(request)
                else 0.0
                for request in requests
            ],
            dtype=torch.float64,
            device=probs.device,
        )
        drawn: list[int] = pick(probs, uniforms).tolist()
        spread = probs.new_zeros((len(requests), self._target_vocab))
        spread[:, : probs.shape[1]] = probs
        tokens = [drawn[i] if self._samples(request) else best[i] for i, request in enumerate(requests)]
        return tokens, spread


def _compare(own: Path, target: Path) -> None:
    """Raise SpecError where a token id means another text to the draft model than to the target."""
    mine, theirs = _texts(own), _texts(target)
    for index in sorted(mine.keys() & theirs.keys()):
        if mine[index] != theirs[index]:
            raise SpecError(
                f"draft_model: token {index} is {mine[index]!r} in {own} and {theirs[index]!r} in {target}; "
                "give a model with the target's tokenizer"
            )


def _texts(folder: Path) -> dict[int, str]:
    """Token id → text, of the vocabulary in ``tokenizer.json``; empty where there is none to be read.

    Tokens added beside the vocabulary are left out: members of a family name some of them differently.
    """
    try:
        read = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        vocabulary = read["model"]["vocab"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    if isinstance(vocabulary, dict):
        return {index: text for text, index in vocabulary.items()}
    return {index: text for index, (text, _) in enumerate(vocabulary)}
