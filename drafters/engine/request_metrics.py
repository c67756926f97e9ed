"""What a response says of how its tokens came: times and acceptance of one request. Imports no torch.

Field names and meanings of ``speculative_decoding`` are vLLM's, so that rounds which drafted nothing are left out of it;
``rounds`` is this engine's own and has them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drafters.engine.records import RoundRecord, SequenceRound

__all__ = ["milliseconds", "rounds", "speculative_decoding"]


def milliseconds(start_ns: int | None, end_ns: int | None) -> float | None:
    """Time between two moments; ``None`` when one of them never came."""
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / 1e6


def speculative_decoding(own: Sequence[SequenceRound], num_spec_tokens: int) -> dict[str, Any]:
    """Acceptance over the rounds of one request that drafted.

    ``num_spec_tokens`` is the most that a round could draft; ``acceptance_histogram[j]`` counts the rounds in which j
    tokens were accepted, from 0 to that many. ``acceptance_histogram_by_draft_length[d]`` does so for the rounds that
    drafted d tokens, from 0 to d.
    """
    drafted = [(step.num_draft_tokens, step.num_accepted_tokens) for step in own if step.num_draft_tokens]
    num_drafted, num_accepted = sum(d for d, _ in drafted), sum(a for _, a in drafted)
    histogram = [0] * (num_spec_tokens + 1)
    by_length: dict[str, list[int]] = {}
    for length, accepted in sorted(drafted):
        histogram[accepted] += 1
        by_length.setdefault(str(length), [0] * (length + 1))[accepted] += 1
    return {
        "mean_acceptance_length": 1 + num_accepted / len(drafted) if drafted else None,
        "draft_acceptance_rate": num_accepted / num_drafted if num_drafted else None,
        "acceptance_histogram": histogram,
        "acceptance_histogram_by_draft_length": by_length,
        "num_spec_steps": len(drafted),
        "num_accepted_draft_tokens": num_accepted,
        "num_draft_tokens": num_drafted,
        "num_spec_tokens": num_spec_tokens,
        "per_step_accepted": [accepted for _, accepted in drafted],
        "per_step_drafted": [length for length, _ in drafted],
    }


def rounds(own: Sequence[SequenceRound], records: Sequence[RoundRecord]) -> list[Mapping[str, int]]:
    """All decode rounds of one request in order; ``records`` are the same rounds as the engine as a whole saw them.

    ``t_ns`` is `time.monotonic_ns` of the server, at the end of verification; the other times are the whole round's,
    and so are ``prefill_tokens`` and ``context_tokens``.
    """
    return [
        {
            "round_index": step.round_index,
            "t_ns": step.t_ns,
            "batch_size": step.batch_size,
            "num_draft_tokens": step.num_draft_tokens,
            "num_accepted_tokens": step.num_accepted_tokens,
            "num_tokens": step.num_tokens,
            "draft_ns": record.draft_ns,
            "verify_ns": record.verify_ns,
            "host_ns": record.host_ns,
            "prefill_tokens": record.prefill_tokens,
            "context_tokens": record.context_tokens,
        }
        for step, record in zip(own, records, strict=True)
    ]
