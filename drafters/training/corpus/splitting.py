"""Train or held-out, decided for whole files by a hash of name and seed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from drafters.training.stage import StageError

__all__ = ["place", "split"]


def place(unit: str, seed: int) -> float:
    """Return where a unit stands between 0 and 1; the same in every corpus it is part of."""
    value = hashlib.sha256(f"{seed}\0{unit}".encode()).digest()
    return int.from_bytes(value[:7], "big") / 2**56


def split(units: Mapping[str, str], share: float, seed: int) -> frozenset[str]:
    """Return the held-out units. ``units`` maps each unit to its group, language and text type.

    Every group of four or more has both sides: where the hash puts all of a group on one side, the unit nearest to the
    bound changes over. Raises StageError when there is only one unit, which cannot be divided.
    """
    if share == 0:
        return frozenset()
    if len(units) < 2:
        raise StageError(
            f"the corpus has {len(units)} document; it cannot be split into training and held-out texts. "
            "Give at least two files or conversations, or --held-out 0 to train on all"
        )
    held: set[str] = set()
    groups: dict[str, list[str]] = {}
    for unit, group in units.items():
        groups.setdefault(group, []).append(unit)
    for members in groups.values():
        ranked = sorted(members, key=lambda unit: (place(unit, seed), unit))
        taken = [unit for unit in ranked if place(unit, seed) < share]
        if len(members) >= 4:
            taken = ranked[: min(len(members) - 1, max(1, len(taken)))]
        held.update(taken)
    if not held or len(held) == len(units):  # groups of one each
        ranked = sorted(units, key=lambda unit: (place(unit, seed), unit))
        held = set(ranked[: max(1, min(len(units) - 1, round(share * len(units))))])
    return frozenset(held)
