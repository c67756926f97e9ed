"""What a chunk tells of the speculative decoding of its request, in every spelling that servers have for it. Pure.

vLLM 0.32            metrics.speculative_decoding, on the chunk with the usage
SGLang, newer        sglext.spec_tokens_details, on a chunk of its own before it; spec_num_correct_drafts, …
SGLang, older        choices[0].meta_info or meta_info; spec_accepted_drafts, …, before that spec_accept_token_num, …
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.records import SpecCounters

_ACCEPTED = ("num_accepted_draft_tokens", "spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_DRAFTED = ("num_draft_tokens", "spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_ROUNDS = ("num_spec_steps", "spec_verify_ct")
_HISTOGRAM = ("acceptance_histogram", "spec_correct_drafts_histogram", "spec_accept_histogram")


@dataclass(frozen=True, slots=True)
class Told:
    """Counts of one request. ``steps`` are (drafted, accepted) of its drafting rounds in order, ``None`` where they are not told.

    ``every_pass`` tells whether the engine drafts in every pass after the prompt's, so that its rounds are its decode passes.
    """

    spec: SpecCounters
    steps: tuple[tuple[int, int], ...] | None = None
    every_pass: bool = False


def told_in(chunk: Mapping[str, Any]) -> Told | None:
    """Return what a chunk tells, ``None`` if nothing, or nothing that adds up: releases have told wrong counts before.

    What has to add up: accepted ≤ drafted; a histogram (place i: rounds that accepted i tokens) has as many rounds and accepted
    tokens as the totals; rounds in order have their sums.
    """
    metrics = chunk.get("metrics")
    vllm = metrics.get("speculative_decoding") if isinstance(metrics, Mapping) else None
    if isinstance(vllm, Mapping):
        return _told(vllm, steps=_steps(vllm), every_pass=False)
    details = _sglang(chunk)
    return None if details is None else _told(details, steps=None, every_pass=True)


def cached_in(chunk: Mapping[str, Any]) -> int | None:
    """Return how many prompt tokens came from a cache, as a chunk's usage or SGLang's own details tell; ``None`` where neither does."""
    usage = chunk.get("usage")
    if isinstance(usage, Mapping):
        found = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        if isinstance(found, int):
            return found
    sglext = chunk.get("sglext")
    tiers = sglext.get("cached_tokens_details") if isinstance(sglext, Mapping) else None
    if isinstance(tiers, Mapping):
        # a release that has no storage tier leaves it out; what is no number is a name
        counts = [tiers.get(tier) for tier in ("device", "host", "storage")]
        return sum(count for count in counts if isinstance(count, int))
    return None


def _sglang(chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
    sglext = chunk.get("sglext")
    details = sglext.get("spec_tokens_details") if isinstance(sglext, Mapping) else None
    choices = chunk.get("choices")
    first = choices[0] if isinstance(choices, Sequence) and choices else {}
    for found in (details, first.get("meta_info") if isinstance(first, Mapping) else None, chunk.get("meta_info")):
        if isinstance(found, Mapping) and "spec_verify_ct" in found:
            return found
    return None


def _told(told: Mapping[str, Any], *, steps: tuple[tuple[int, int], ...] | None, every_pass: bool) -> Told | None:
    drafted, accepted, rounds = (_count(told, names) for names in (_DRAFTED, _ACCEPTED, _ROUNDS))
    if drafted is None or accepted is None or accepted > drafted:
        return None
    histogram = _histogram(told)
    positions: tuple[int, ...] | None = () if accepted == 0 else None
    if histogram is not None:
        if sum(histogram) != rounds or sum(place * count for place, count in enumerate(histogram)) != accepted:
            return None
        positions = tuple(sum(histogram[place:]) for place in range(1, len(histogram)))
    if steps is not None and (
        len(steps) != rounds or sum(item[0] for item in steps) != drafted or sum(item[1] for item in steps) != accepted
    ):
        return None
    return Told(SpecCounters(rounds, drafted, accepted, positions), steps, every_pass)


def _histogram(told: Mapping[str, Any]) -> list[int] | None:
    """Return at place i how many rounds accepted i tokens; some releases write ``{"0": 20}``, and none where there are no rounds."""
    given = next((told[name] for name in _HISTOGRAM if told.get(name)), None)
    if isinstance(given, Mapping):
        counts = {int(place): count for place, count in given.items()}
        given = [counts.get(place, 0) for place in range(max(counts) + 1)]
    return given if isinstance(given, list) else None


def _steps(told: Mapping[str, Any]) -> tuple[tuple[int, int], ...] | None:
    drafted, accepted = told.get("per_step_drafted"), told.get("per_step_accepted")
    if not isinstance(drafted, list) or not isinstance(accepted, list) or len(drafted) != len(accepted):
        return None
    return tuple(zip(drafted, accepted, strict=True))


def _count(told: Mapping[str, Any], names: Sequence[str]) -> int | None:
    return next((told[name] for name in names if isinstance(told.get(name), int)), None)
