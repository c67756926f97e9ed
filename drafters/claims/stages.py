"""A stage of work as a value: its command line with the outputs of other stages in it, and a key of all that decides it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from drafters import reference
from drafters.training.stage import StageError, digest

__all__ = ["Cost", "Place", "Stage", "in_order", "resolved"]

KEY_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stage does, in tokens: learnt from, written by the target, read by the target, measured by the engine."""

    trained: int = 0
    written: int = 0
    captured: int = 0
    measured: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder in an argument: of a stage, a path, or a shipped model by name (``ref-koen``, ``ref:public-mtp``)."""

    source: Stage | Path | str
    part: str = ""
    """Within what the stage wrote."""
    before: str = ""
    after: str = ""
    """Text around the path in its argument."""


@dataclass(frozen=True, slots=True)
class Stage:
    """``drafters WORDS --out FOLDER``. ``name`` begins the folder's name and decides nothing."""

    name: str
    words: tuple[str | Place, ...]
    cost: Cost = field(default=Cost(), compare=False)

    @property
    def needs(self) -> tuple[Stage, ...]:
        """The stages whose outputs are read, each once."""
        found = [word.source for word in self.words if isinstance(word, Place) and isinstance(word.source, Stage)]
        return tuple(dict.fromkeys(found))

    @property
    def kind(self) -> str:
        """As its manifest calls it: ``train``, ``evaluate`` …; of the claims' own tools the second word."""
        words = [word for word in self.words[:2] if isinstance(word, str)]
        return words[1] if words[0] == "claims" else words[0]

    @property
    def key(self) -> str:
        """Of the words, of the keys of the stages behind them, and of the content of every file outside.

        Raises StageError where a file or a shipped model is missing.
        """
        return _key(self)


@cache
def _key(stage: Stage) -> str:
    told: list[Any] = []
    for word in stage.words:
        if isinstance(word, str):
            told.append(word)
            continue
        of = word.source.key if isinstance(word.source, Stage) else _digest(resolved(word.source))
        told.append([of, word.part, word.before, word.after])
    return hashlib.sha256(json.dumps(told, ensure_ascii=False).encode()).hexdigest()[:KEY_CHARACTERS]


@cache
def _digest(path: Path) -> str:
    return digest(path)


def resolved(source: Path | str) -> Path:
    """Where a file outside the stages is. Raises StageError where it is not."""
    try:
        if isinstance(source, Path):
            return source.resolve()
        if source.startswith(reference.PREFIX):
            return reference.drafter(source)
        return reference.target() if source == reference.TARGET else Path(source).resolve()
    except reference.MissingReference as error:
        raise StageError(str(error)) from error


def in_order(wanted: Sequence[Stage]) -> Iterator[Stage]:
    """Yield the stages and all that they need, each once, what is needed first."""
    seen: set[Stage] = set()

    def walk(stage: Stage) -> Iterator[Stage]:
        if stage in seen:
            return
        for needed in stage.needs:
            yield from walk(needed)
        if stage not in seen:
            seen.add(stage)
            yield stage

    for stage in wanted:
        yield from walk(stage)
