"""What other tools take from a run, in their own forms: vLLM's table of draft lengths, aiconfigurator's accepted tokens.

vLLM (``num_speculative_tokens_per_batch_size`` of ``--speculative-config``): entries ``[first batch, last batch, K]``, the first from 1,
without overlap; K 0 drafts nothing; beyond the last entry its K holds. The table ends with the last batch size up to which the fastest
length is known. K never rises with the batch size, and where the modelled gain is no larger than what the model is off the measured
times, nothing is drafted: a gain like that is none to act on. aiconfigurator counts accepted drafted tokens a step, bonus token left
out: acceptance length − 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from harness.analysis.costmodel import CostModel
from harness.analysis.frames import HandOver
from harness.analysis.prediction import Point, Subject, best, fine_batch_sizes, limits, points

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


def hand_over(subject: Subject, model: CostModel | None) -> HandOver:
    """Return what is handed over of one arm."""
    table, profile = None, subject.profile
    if model is not None:
        sizes = fine_batch_sizes(model)
        found = list(points(model, subject, sizes, limits(profile)))
        known = best(found, profile)
        compared = list(takewhile(known.__contains__, sizes))  # a gap would be filled with what holds below it
        table = ranges(falling(found, compared, 1 + model.residual)) or None
    accepted = tuple(profile.at(limit)[1] - 1.0 for limit in range(1, profile.longest + 1))
    return HandOver(subject.arm, table, accepted, min(MOST_NEXTN, profile.longest))


def falling(found: Sequence[Point], sizes: Sequence[int], least: float) -> Iterator[tuple[int, int]]:
    """Yield each batch size with the fastest of the draft lengths that are no longer than those of smaller ones; 0 below ``least``.

    Args:
        found: predictions.
        sizes: batch sizes, rising.
        least: speed-up from which drafting is worth it.
    """
    longest = max((item.num_tokens for item in found), default=0)
    for size in sizes:
        own = [item for item in found if item.batch == size and item.num_tokens <= longest]
        fastest = max(own, key=lambda item: (item.speed_up, -item.num_tokens))
        longest = fastest.num_tokens if fastest.speed_up > least else 0
        yield size, longest


def ranges(chosen: Iterable[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Return entries ``(first, last, K)`` of batch sizes and their K, from 1 on; sizes between two given ones go with the smaller.

    Args:
        chosen: batch size and K, rising; the first batch size is 1.
    """
    found: list[tuple[int, int, int]] = []
    pairs = list(chosen)
    for index, (size, num_tokens) in enumerate(pairs):
        last = pairs[index + 1][0] - 1 if index + 1 < len(pairs) else size
        if found and found[-1][2] == num_tokens:
            found[-1] = (found[-1][0], last, num_tokens)
        else:
            found.append((size, last, num_tokens))
    return tuple(found)
