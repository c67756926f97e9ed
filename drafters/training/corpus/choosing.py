"""Which records stay: the longest state of a conversation, one of near-duplicates, and none that repeats a held-out one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from drafters.training.corpus.collecting import Record
from drafters.training.corpus.duplicates import Duplicates, HeldOut
from drafters.training.corpus.splitting import split
from drafters.training.stage import StageError

__all__ = ["Choice", "choose"]

Side = Literal["train", "heldout"]


@dataclass(slots=True)
class Choice:
    """Side of each record that stays, by its number, and how many went for which reason. ``without``: numbers of the
    pieces of a training document that repeat held-out ones and are left out of it.
    """

    sides: dict[int, Side] = field(default_factory=dict)
    contained: int = 0
    repeated_in_train: int = 0
    repeated_in_heldout: int = 0
    repeats_of_heldout: int = 0
    without: dict[int, frozenset[int]] = field(default_factory=dict)


def choose(records: Sequence[Record], share: float, seed: int) -> Choice:
    """Divide the records by their units and remove repetition. Raises StageError when a side would be empty."""
    groups = {record.unit: f"{record.language}/{record.text_type}" for record in records}
    held = split(groups, share, seed)
    choice = Choice()
    inner = _contained(records)
    choice.contained = len(inner)
    seen = Duplicates()
    owner: list[Side] = []
    sides: tuple[Side, ...] = ("heldout", "train")
    for side in sides:  # held-out first: what repeats it is taken from training, never the other way
        for number, record in enumerate(records):
            if number in inner or (record.unit in held) != (side == "heldout"):
                continue
            twin = seen.find(record.signature)
            if twin is None:
                seen.add(record.signature)
                owner.append(side)
                choice.sides[number] = side
            elif side == "heldout":
                choice.repeated_in_heldout += 1
            elif owner[twin] == "heldout":
                choice.repeats_of_heldout += 1
            else:
                choice.repeated_in_train += 1
    _without_heldout(records, choice)
    if "train" not in choice.sides.values():
        raise StageError(
            f"of {len(records)} texts none is left for training: all are held out or nearly repeat a held-out one. "
            "Give more texts that differ, or a smaller --held-out"
        )
    return choice


def _without_heldout(records: Sequence[Record], choice: Choice) -> None:
    """Take from training what stands in a held-out text, or holds one: pieces of documents, whole conversations."""
    held = HeldOut(
        [piece for number, side in choice.sides.items() if side == "heldout" for piece in records[number].pieces]
    )
    for number in [number for number, side in choice.sides.items() if side == "train"]:
        repeated = held.repeated(records[number].pieces)
        if len(repeated) == len(records[number].pieces):
            del choice.sides[number]
            choice.repeats_of_heldout += 1
        elif repeated:
            choice.without[number] = repeated


def _contained(records: Sequence[Record]) -> frozenset[int]:
    """Numbers of the conversations that are the beginning of another one."""
    beginnings: set[bytes] = set()  # of all units: one conversation may be logged under two names
    inner: set[int] = set()
    for number in sorted(range(len(records)), key=lambda number: (-len(records[number].chain), number)):
        record = records[number]
        if not record.chain:
            continue
        if record.chain[-1] in beginnings:
            inner.add(number)
        beginnings.update(record.chain)
    return frozenset(inner)
