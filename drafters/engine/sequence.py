"""One request's life: its tokens, how much of them is computed, and the rules that end it. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from drafters.base import Sampling
from drafters.engine.records import SequenceRound

__all__ = ["FinishReason", "Request", "RequestError", "RunningSequence", "Status"]

FinishReason = Literal["stop", "length", "abort"]
Decode = Callable[[Sequence[int]], str]
REPLACEMENT = "\ufffd"


class RequestError(ValueError):
    """A request that this engine cannot serve; the message says what was given, what is allowed and what to do."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the engine.

    ``stop_token_ids`` end the text (the model's end-of-text tokens as a rule) and are part of the output, as in
    transformers. ``stop`` are strings; the token that completes one is the last. ``drafter`` names one of the engine's
    drafters, ``None`` drafts nothing; ``num_draft_tokens`` bounds a draft, ``None`` leaves it to drafter and
    controller. ``logprobs`` asks for so many alternatives a token, 0 for the chosen token's alone.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    seed: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    drafter: str | None = None
    num_draft_tokens: int | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        if not self.prompt:
            raise RequestError("the prompt has no tokens; give at least one")
        if self.max_tokens < 1:
            raise RequestError(f"max_tokens is {self.max_tokens}; allowed: 1 or more")
        if self.num_draft_tokens is not None and self.num_draft_tokens < 0:
            raise RequestError(f"num_draft_tokens is {self.num_draft_tokens}; allowed: 0 or more, or none")
        if self.seed is not None and not -(2**63) <= self.seed < 2**64:
            raise RequestError(f"seed is {self.seed}; allowed: -2**63 to 2**64 - 1, or none")
        if any(not text for text in self.stop):
            raise RequestError("a stop string is empty; give at least one character")
        if self.logprobs is not None and not 0 <= self.logprobs <= 20:
            raise RequestError(f"logprobs is {self.logprobs}; allowed: 0 to 20, or none")


class Status(Enum):
    """Where a sequence stands."""

    WAITING = "waiting"
    PREFILLING = "prefilling"
    RUNNING = "running"
    FINISHED = "finished"


class RunningSequence:
    """A request in the engine.

    ``token_ids`` are prompt and output; the K/V of the first ``computed`` of them stands from ``slot`` on. While it
    runs, exactly the last token is not computed. ``reserved`` slots are its own. The features of its first ``featured``
    tokens stand beside their K/V; ``needs_features`` tells whether its drafter asks for them.

    ``decode`` gives the text of tokens, in which stop strings are looked for, without a part of a character at its end.
    """

    __slots__ = (
        "_decode",
        "_reach",
        "_start",
        "cached_tokens",
        "computed",
        "featured",
        "finish_reason",
        "matched_stop",
        "needs_features",
        "num_cut_tokens",
        "request",
        "reserved",
        "rounds",
        "sequence_id",
        "slot",
        "status",
        "token_ids",
    )

    def __init__(
        self,
        sequence_id: int,
        request: Request,
        reserved: int,
        decode: Decode | None = None,
        needs_features: bool = False,
    ) -> None:
        if request.stop and decode is None:
            raise RequestError("stop strings given, but this engine has no tokenizer; use stop_token_ids")
        self.sequence_id = sequence_id
        self.request = request
        self.reserved = reserved
        self.needs_features = needs_features
        self.token_ids = list(request.prompt)
        self.computed = 0
        self.featured = 0
        self.cached_tokens = 0
        self.slot = -1
        self.status = Status.WAITING
        self.finish_reason: FinishReason | None = None
        self.matched_stop: str | None = None
        self.num_cut_tokens = 0
        self.rounds: list[SequenceRound] = []
        self._decode = decode
        # A stop string that a new token completes lies within the text of the tokens from `_start` on, which is never cut to
        # fewer characters than the longest needs and a few for a first token that reads otherwise without those before it.
        self._reach = max((len(text) for text in request.stop), default=0) + 4
        self._start = len(request.prompt)

    @property
    def output(self) -> list[int]:
        """The tokens after the prompt."""
        return self.token_ids[len(self.request.prompt) :]

    @property
    def num_output_tokens(self) -> int:
        """How many tokens follow the prompt."""
        return len(self.token_ids) - len(self.request.prompt)

    @property
    def remaining(self) -> int:
        """Tokens that may still follow."""
        return self.request.max_tokens - self.num_output_tokens

    @property
    def max_length(self) -> int:
        """Longest that the sequence can become, prompt included."""
        return len(self.request.prompt) + self.request.max_tokens

    def compute(self, start: int, end: int, featured: bool) -> None:
        """Note that the K/V of tokens ``start`` to ``end`` (excluded) now stand, and whether their features do too."""
        self.computed = end
        # Features that skip a token are of no use to anybody: a prefix is copied from its beginning.
        self.featured = end if featured and self.featured >= start else min(self.featured, start)

    def extend(self, token_ids: Sequence[int]) -> int:
        """Append tokens until one ends the text; return how many were kept. The rest is dropped and counted as cut."""
        for kept, token_id in enumerate(token_ids, start=1):
            self.token_ids.append(token_id)
            reason = self._end(token_id)
            if reason is not None:
                self.finish(reason)
                self.num_cut_tokens += len(token_ids) - kept
                return kept
        return len(token_ids)

    def finish(self, reason: FinishReason) -> None:
        """End the sequence."""
        self.status = Status.FINISHED
        self.finish_reason = reason

    def _end(self, token_id: int) -> FinishReason | None:
        if token_id in self.request.stop_token_ids:
            return "stop"
        if self.request.stop and self._decode is not None:
            text = self._decode(self.token_ids[self._start :])
            found = [(text.index(stop), stop) for stop in self.request.stop if stop in text]
            if found:
                self.matched_stop = min(found)[1]
                return "stop"
            if _whole(text) >= 2 * self._reach:
                middle = (self._start + len(self.token_ids)) // 2
                rest = self._decode(self.token_ids[middle:])
                # Cut within a character it begins with a sign that nobody said, and that could be taken for a stop string.
                if _whole(rest) >= self._reach and not rest.startswith(REPLACEMENT):
                    self._start = middle
        return "length" if self.remaining <= 0 else None


def _whole(text: str) -> int:
    """Characters that are all there: a cut through one, or through a run of bytes, leaves replacement characters."""
    return len(text) - text.count(REPLACEMENT)
