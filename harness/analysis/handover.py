"""What other tools take from a run, in their own forms: vLLM's table of draft lengths, aiconfigurator's accepted tokens.

vLLM (``num_speculative_tokens_per_batch_size`` of ``--speculative-config``): entries ``[first batch, last batch, K]``, the first from 1,
without overlap; K 0 drafts nothing; beyond the last entry its K holds. The table ends with the last batch size up to which the fastest
length is known. aiconfigurator counts accepted drafted tokens a step, bonus token left out: acceptance length − 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from harness.analysis.costmodel import RoundCosts
from harness.analysis.frames import HandOver
from harness.analysis.prediction import Subject, best, fine_batch_sizes, limits, points

MOST_NEXTN = 5  # aiconfigurator's estimator takes no longer drafts


def vllm(item: HandOver) -> dict[str, Any] | None:
    """Return the part of vLLM's speculative config; ``None`` where drafting pays at no batch size or nothing is known."""
    longest = max((entry[2] for entry in item.vllm_table or ()), default=0)
    if longest == 0 or item.vllm_table is None:
        return None
    return {
        "num_speculative_tokens": longest,
        "num_speculative_tokens_per_batch_size": [list(entry) for entry in item.vllm_table],
    }


def aiconfigurator(item: HandOver) -> dict[str, Any]:
    """Return its two settings: drafted tokens a step, and how many of them are accepted."""
    return {"nextn": item.nextn, "nextn_accepted": round(item.accepted_tokens[item.nextn - 1], 4)}


def hand_over(subject: Subject, model: RoundCosts | None) -> HandOver:
    """Return what is handed over of one arm."""
    table, profile = None, subject.profile
    if model is not None:
        sizes = fine_batch_sizes(model)
        chosen = best(list(points(model, subject, sizes, limits(profile))), profile)
        compared = takewhile(chosen.__contains__, sizes)  # a gap would be filled with what holds below it
        table = ranges([(size, chosen[size].num_tokens) for size in compared]) or None
    accepted = tuple(profile.at(limit)[1] - 1.0 for limit in range(1, profile.longest + 1))
    return HandOver(subject.arm, table, accepted, min(MOST_NEXTN, profile.longest))


def ranges(chosen: Sequence[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Return entries ``(first, last, K)`` of batch sizes and their K, from 1 on; sizes between two given ones go with the smaller.

    Args:
        chosen: batch size and K, rising; the first batch size is 1.
    """
    found: list[tuple[int, int, int]] = []
    for index, (size, num_tokens) in enumerate(chosen):
        last = chosen[index + 1][0] - 1 if index + 1 < len(chosen) else size
        if found and found[-1][2] == num_tokens:
            found[-1] = (found[-1][0], last, num_tokens)
        else:
            found.append((size, last, num_tokens))
    return tuple(found)
