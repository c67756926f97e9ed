"""From figures to a verdict, by rules that were written down before anything was measured.

A claim is a list of parts; each asks whether a figure lies above, below or within a limit, with all of its interval. All parts
answered yes: it holds. One answered no: it does not hold here. Otherwise it cannot be said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from drafters.claims.bootstrap import Estimate

__all__ = ["Part", "Verdict", "above", "below", "exactly", "verdict_of", "within"]

Verdict = Literal["holds", "does_not_hold", "cannot_be_said"]


@dataclass(frozen=True, slots=True)
class Part:
    """One question of a claim. ``key`` and ``names`` select its words, ``passed`` is ``None`` where the interval decides nothing."""

    key: str
    rule: str
    """``above``, ``below``, ``within`` or ``exactly``."""
    limits: tuple[float, ...]
    value: float | None
    low: float | None
    high: float | None
    tasks: int | None
    seeds: int | None
    passed: bool | None
    names: tuple[tuple[str, str], ...] = ()


def above(key: str, estimate: Estimate, limit: float, **names: str) -> Part:
    """Whether all of the interval lies above the limit; no where all of it lies below."""
    ends = estimate.interval
    passed = None if ends is None else True if ends[0] > limit else False if ends[1] < limit else None
    return _part(key, "above", (limit,), estimate, passed, names)


def below(key: str, estimate: Estimate, limit: float, **names: str) -> Part:
    """Whether all of the interval lies below the limit; no where all of it lies above."""
    ends = estimate.interval
    passed = None if ends is None else True if ends[1] < limit else False if ends[0] > limit else None
    return _part(key, "below", (limit,), estimate, passed, names)


def within(key: str, estimate: Estimate, low: float, high: float, **names: str) -> Part:
    """Whether all of the interval lies between the limits; no where all of it lies beyond one of them."""
    ends = estimate.interval
    if ends is None:
        passed = None
    elif ends[0] > low and ends[1] < high:
        passed = True
    else:
        passed = False if ends[1] < low or ends[0] > high else None
    return _part(key, "within", (low, high), estimate, passed, names)


def exactly(key: str, found: int, wanted: int, **names: str) -> Part:
    """Whether a count is what it must be: no sample, so no interval."""
    return Part(
        key, "exactly", (float(wanted),), float(found), None, None, None, None, found == wanted if wanted else None,
        tuple(names.items()),
    )  # fmt: skip


def verdict_of(parts: Sequence[Part]) -> Verdict:
    """The verdict of all parts together; none at all says nothing."""
    if parts and all(part.passed for part in parts):
        return "holds"
    return "does_not_hold" if any(part.passed is False for part in parts) else "cannot_be_said"


def _part(
    key: str, rule: str, limits: tuple[float, ...], estimate: Estimate, passed: bool | None, names: dict[str, str]
) -> Part:
    low, high = estimate.interval or (None, None)
    return Part(
        key, rule, limits, estimate.value, low, high, estimate.tasks, estimate.seeds, passed, tuple(names.items())
    )  # fmt: skip
