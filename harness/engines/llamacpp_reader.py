"""Reads drafted and accepted tokens, and where provable single rounds, out of llama.cpp's stream of one answer.

With ``timings_per_token`` every chunk tells the tokens predicted so far (``predicted_n``) and the running sums ``draft_n`` and
``draft_n_accepted``; both sums grow when a round is verified, before its tokens are sent (b11549). One chunk may carry several
tokens: an incomplete UTF-8 sequence is held back, so a Hangul syllable of three tokens is one chunk.

The answer's tokens are tiled by the target's forward passes: token 1 comes from the prompt, a pass without a draft yields one
token, a pass that accepts ``a`` drafted tokens yields ``a + 1``. Hence ``predicted_n = 1 + accepted + passes``, except that an
end-of-sequence or stop text inside an accepted run drops the rest of the run (``max_tokens`` never does: the engine caps a draft
at what remains). The engine re-verifies a draft on models whose cache cannot be rolled back (recurrent ones); there the identity
counts a replayed pass once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.engines.base import StreamFacts
from harness.records import Round, SpecCounters


class RoundTracker:
    """Finds the rounds behind the running sums of one answer.

    The next pass begins at a token between ``_first`` and ``_last`` (equal while everything is known). ``longest_draft`` bounds
    one round, ``None`` where the server's setting is unknown.
    """

    def __init__(self, longest_draft: int | None) -> None:
        self._longest = longest_draft
        self._predicted = self._drafted = self._accepted = 0
        self._first = self._last = 2  # token 1 comes from the prompt
        self.rounds: list[Round] | None = []

    def advance(self, t_ns: int, predicted: int, drafted: int, accepted: int) -> None:
        """Take the sums that a chunk carried; ``predicted`` is the number of the last token in it."""
        new_drafted, new_accepted = drafted - self._drafted, accepted - self._accepted
        self._predicted, self._drafted, self._accepted = predicted, drafted, accepted
        if new_drafted == 0:
            self._first, self._last = max(self._first, predicted + 1), max(self._last, predicted + 1)
            return
        begins = predicted - self._first + 1  # tokens at which a pass of this chunk can have begun
        if self._one_round(begins, new_drafted, new_accepted):
            if self.rounds is not None:
                self.rounds.append(Round(t_ns, new_drafted, new_accepted))
            earliest = self._first
        else:
            self.rounds = None
            earliest = predicted - new_accepted  # any one of the rounds in this chunk may be the last
        self._first = max(predicted + 1, earliest + new_accepted + 1)
        self._last = predicted + new_accepted + 1

    def tokens_dropped(self) -> int | None:
        """Return how many accepted tokens of the last round the answer does not hold, ``None`` if that cannot be told."""
        least, most = self._first - 1 - self._predicted, self._last - 1 - self._predicted
        return least if least == most else None

    def _one_round(self, begins: int, drafted: int, accepted: int) -> bool:
        """Tell whether the growth can only be one round.

        Two rounds need at least two drafted tokens and two tokens to begin at: the first of them accepts at most ``begins - 2``,
        so the rest must fit in the second, which drafts at most ``drafted - 1`` tokens and at most the longest draft.
        """
        if begins < 1:
            return False  # the sums grew without a token: not as understood
        if self._longest is not None and drafted > self._longest:
            return False
        if begins == 1 or drafted == 1:
            return True
        second = drafted - 1 if self._longest is None else min(self._longest, drafted - 1)
        return accepted > begins - 2 + second


class LlamaCppReader:
    """Collects the counts of one streamed answer; ``drafts`` tells whether the arm has a drafter."""

    def __init__(self, *, drafts: bool, longest_draft: int | None = None) -> None:
        self._drafts = drafts
        self._tracker = RoundTracker(longest_draft)
        self._timings: Mapping[str, Any] | None = None
        self._usage: Mapping[str, Any] | None = None
        self._finish: str | None = None

    def chunk(self, t_ns: int, value: Mapping[str, Any]) -> None:
        """Take one decoded chunk."""
        choices = value.get("choices")
        if choices:
            self._finish = choices[0].get("finish_reason") or self._finish
        timings = value.get("timings")
        if timings is not None and isinstance(timings.get("predicted_n"), int):
            self._timings = timings
            if self._drafts:
                drafted, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
                self._tracker.advance(t_ns, timings["predicted_n"], drafted, accepted)
        usage = value.get("usage")
        if usage is not None:
            self._usage = usage

    def facts(self) -> StreamFacts:
        """Return what the stream told; without the last chunk's usage nothing is known."""
        if self._usage is None:
            return StreamFacts()
        details = self._usage.get("prompt_tokens_details") or {}
        tokens = {
            "prompt_tokens": self._usage.get("prompt_tokens"),
            "cached_tokens": details.get("cached_tokens"),
            "output_tokens": self._usage.get("completion_tokens"),
        }
        if self._timings is None:
            return StreamFacts(**tokens)
        predicted = self._timings["predicted_n"]
        if not self._drafts:
            return StreamFacts(**tokens, decode_passes=predicted - 1 if predicted else None)
        # draft_n is absent, not 0, as long as nothing was drafted
        drafted, accepted = self._timings.get("draft_n", 0), self._timings.get("draft_n_accepted", 0)
        dropped = 0 if self._finish == "length" else self._tracker.tokens_dropped()
        passes = None if dropped is None or not predicted else predicted - 1 - accepted + dropped
        rounds = self._tracker.rounds
        if rounds is None:
            return StreamFacts(
                **tokens, decode_passes=passes, spec=SpecCounters(None, drafted, accepted), spec_source="request"
            )
        longest = max((item.num_draft_tokens for item in rounds), default=0)
        per_position = tuple(sum(item.num_accepted_tokens > index for item in rounds) for index in range(longest))
        spec = SpecCounters(len(rounds), drafted, accepted, per_position)
        return StreamFacts(**tokens, decode_passes=passes, spec=spec, spec_source="round", rounds=tuple(rounds))
