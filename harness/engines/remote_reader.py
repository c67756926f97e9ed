"""Reads tokens and acceptance out of one streamed answer of any OpenAI-compatible server.

Tokens are the server's usage, acceptance is what the answer itself tells (:mod:`harness.engines.told`); nothing is made up from
chunks. Where the server tells each round's accepted tokens and, with every chunk, how many tokens have come (vLLM), the rounds are
placed on the chunks that brought them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from harness.engines.base import StreamFacts
from harness.engines.told import Told, cached_in, told_in
from harness.records import Round

Progress = Sequence[tuple[int, int]]
"""Arrival in nanoseconds and tokens so far, of each chunk that brought tokens."""


class RemoteReader:
    """Collects the counts of one answer; ``drafts`` tells whether the server may draft for this arm."""

    def __init__(self, *, drafts: bool) -> None:
        self._drafts = drafts
        self._usage: Mapping[str, Any] | None = None
        self._cached: int | None = None
        self._told: Told | None = None
        self._progress: list[tuple[int, int]] = []

    def chunk(self, t_ns: int, value: Mapping[str, Any]) -> None:
        """Take one decoded chunk."""
        usage = value.get("usage")
        if usage is not None:
            self._usage = usage
        tokens = _tokens_so_far(value, self._so_far)
        if tokens > self._so_far:
            self._progress.append((t_ns, tokens))
        told = told_in(value)
        if told is not None:
            self._told = told
        cached = cached_in(value)
        if cached is not None:
            self._cached = cached

    @property
    def _so_far(self) -> int:
        return self._progress[-1][1] if self._progress else 0

    def facts(self) -> StreamFacts:
        """Return what the stream told; without a usage nothing is known, a stream that was cut short has none of its last tokens."""
        if self._usage is None:
            return StreamFacts()
        counted = self._usage.get("completion_tokens")
        output = counted if isinstance(counted, int) else None
        known = StreamFacts(self._usage.get("prompt_tokens"), self._cached, output)
        told = self._told
        if told is None:
            return replace(known, decode_passes=output - 1) if output and not self._drafts else known
        known = replace(known, spec=told.spec, spec_source="request")
        if told.every_pass:
            return replace(known, decode_passes=told.spec.num_drafts)
        placed = None if told.steps is None or self._so_far != output else place(told.steps, self._progress)
        if placed is None:
            return replace(known, decode_passes=_passes(output, told))
        return replace(known, decode_passes=placed[0], spec_source="round", rounds=placed[1])


def _tokens_so_far(chunk: Mapping[str, Any], before: int) -> int:
    """Return how many tokens have come with this chunk, by its usage or the ids that it brings; ``before`` where it says neither."""
    choices = chunk.get("choices")
    if not choices:
        return before
    told = (chunk.get("usage") or {}).get("completion_tokens")
    if isinstance(told, int):
        return told
    ids = choices[0].get("token_ids")
    return before + len(ids) if isinstance(ids, list) else before


def _passes(output: int | None, told: Told) -> int | None:
    """Return the decode passes of an answer where they can be told from its sums.

    tokens = first + passes + accepted − those that the last round accepted beyond the end of the answer. How many those are nobody
    tells, so the passes are known only where the last round cannot have had any.
    """
    last = told.steps[-1][1] if told.steps else told.spec.num_accepted_tokens
    return output - 1 - told.spec.num_accepted_tokens if output and last == 0 else None


def place(steps: Sequence[tuple[int, int]], progress: Progress) -> tuple[int, tuple[Round, ...]] | None:
    """Return decode passes and rounds, each at the arrival of the chunk that brought its tokens; ``None`` where they do not fit.

    A pass brings one chunk, unless the server joined several under load; then nothing fits and ``None`` is the answer. The first
    chunk is the prompt's own token. A chunk of a + 1 tokens is a round that accepted a; the last one may be cut short by the end of
    the answer. Rounds that accepted nothing bring one token, as passes without a draft do: where there are both between two longer
    chunks, the earliest of them are taken for the rounds, which changes no count.

    Args:
        steps: (drafted, accepted) of every round that drafted, in order.
        progress: arrival and tokens so far, of each chunk that brought tokens.
    """
    if not progress or progress[0][1] != 1:
        return None
    sizes = [after - before for (_, before), (_, after) in pairwise(progress)]
    at = -1  # the pass of the round before
    found: list[int] = []
    for drafted_accepted in steps:
        accepted = drafted_accepted[1]
        at += 1
        if accepted > 0:
            while at < len(sizes) - 1 and sizes[at] == 1:
                at += 1
        if at >= len(sizes) or not _brought(sizes[at], accepted, last=at == len(sizes) - 1):
            return None
        found.append(at)
    if any(size > 1 for index, size in enumerate(sizes) if index not in set(found)):
        return None
    rounds = tuple(
        Round(progress[index + 1][0], drafted, accepted)
        for index, (drafted, accepted) in zip(found, steps, strict=True)
    )
    return len(sizes), rounds


def _brought(size: int, accepted: int, *, last: bool) -> bool:
    return size == accepted + 1 or (last and size <= accepted)
