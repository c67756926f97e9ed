"""Reads the rounds of one answer, and the counts that follow from them, out of the builtin server's stream.

The chunk with the usage carries ``metrics.rounds``: every decode round of the request in order, those without a draft too. Nothing
is inferred: the counts are sums over these rounds, and they must tile the answer: tokens = first + Σ ``num_tokens``, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.engines.base import StreamFacts
from harness.errors import EngineProtocolError
from harness.records import Round, SpecCounters


class BuiltinReader:
    """Collects the counts of one streamed answer.

    A round's time is the server's own monotonic clock, in which it was verified. On one machine that is also the client's clock
    (CLOCK_MONOTONIC belongs to the system, not to a process). For a server elsewhere (``same_clock`` false) the times are
    shifted together, so that the last round falls on the arrival of the chunk that told of it: the distances between rounds are the
    server's, their place is late by the way over the network.
    """

    def __init__(self, *, same_clock: bool) -> None:
        self._same_clock = same_clock
        self._usage: Mapping[str, Any] | None = None
        self._rounds: tuple[Round, ...] | None = None

    def chunk(self, t_ns: int, value: Mapping[str, Any]) -> None:
        """Take one decoded chunk.

        Raises:
            EngineProtocolError: if rounds are missing although asked for, are not as agreed, or do not tile the answer.
        """
        usage = value.get("usage")
        if usage is None:
            return
        told = (value.get("metrics") or {}).get("rounds")
        if told is None:
            raise EngineProtocolError("the server told the usage but no metrics.rounds; is it a builtin server?")
        _check_tiling(usage["completion_tokens"], told)
        self._usage = usage
        shift = 0 if self._same_clock or not told else t_ns - told[-1]["t_ns"]
        self._rounds = tuple(_round(item, shift) for item in told)

    def facts(self) -> StreamFacts:
        """Return what the stream told; without the chunk with the usage nothing is known."""
        if self._usage is None or self._rounds is None:
            return StreamFacts()
        details = self._usage.get("prompt_tokens_details") or {}
        return StreamFacts(
            prompt_tokens=self._usage.get("prompt_tokens"),
            cached_tokens=details.get("cached_tokens"),
            output_tokens=self._usage.get("completion_tokens"),
            decode_passes=len(self._rounds),
            spec=counted(self._rounds),
            spec_source="round",
            rounds=self._rounds,
        )


def counted(rounds: Sequence[Round]) -> SpecCounters:
    """Return the sums over some rounds; those that drafted nothing are no drafts."""
    drafts = [item for item in rounds if item.num_draft_tokens > 0]
    longest = max((item.num_accepted_tokens for item in drafts), default=0)
    return SpecCounters(
        len(drafts),
        sum(item.num_draft_tokens for item in drafts),
        sum(item.num_accepted_tokens for item in drafts),
        tuple(sum(item.num_accepted_tokens > index for item in drafts) for index in range(longest)),
    )


def _check_tiling(completion_tokens: int, told: Sequence[Mapping[str, Any]]) -> None:
    tokens = sum(item["num_tokens"] for item in told) + (1 if completion_tokens else 0)
    if tokens != completion_tokens:
        raise EngineProtocolError(
            f"the answer has {completion_tokens} tokens, but the first one and {len(told)} rounds make {tokens}"
        )


def _round(item: Mapping[str, Any], shift_ns: int) -> Round:
    return Round(
        t_ns=item["t_ns"] + shift_ns,
        num_draft_tokens=item["num_draft_tokens"],
        num_accepted_tokens=item["num_accepted_tokens"],
        batch_size=item["batch_size"],
        round_index=item["round_index"],
        draft_ns=item.get("draft_ns"),
        verify_ns=item.get("verify_ns"),
        host_ns=item.get("host_ns"),
        prefill_tokens=item.get("prefill_tokens"),
        context_tokens=item.get("context_tokens"),
    )
