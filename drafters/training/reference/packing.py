"""Tokenized training data: cached on disk as 16-bit ids, cut into rows of one length, with positions that can be resumed.

An id of a vocabulary of 8,192 leaves the upper bits free: ``CONTEXT`` marks tokens that the model reads but does not
write (system prompts, users, tool results), so that their loss can count less.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from drafters.training.reference.sources import Document
from drafters.training.reference.tokenizer import END_OF_TEXT, render_chat

CONTEXT = 0x8000
IDS = 0x7FFF
BATCH = 512  # documents tokenized at once: enough to keep the tokenizer's threads busy


class DataError(ValueError):
    """A data folder that is missing, incomplete or of another tokenizer."""


def encode(tokenizer: Tokenizer, documents: Iterable[Document]) -> Iterable[NDArray[np.uint16]]:
    """Yield the ids of each document, ended by the end-of-text token."""
    batch: list[Document] = []
    for document in documents:
        batch.append(document)
        if len(batch) == BATCH:
            yield from _encode_batch(tokenizer, batch)
            batch = []
    yield from _encode_batch(tokenizer, batch)


def _encode_batch(tokenizer: Tokenizer, batch: list[Document]) -> Iterable[NDArray[np.uint16]]:
    pieces: list[tuple[str, bool]] = []
    lengths = []
    for document in batch:
        own = [(document.text, True)] if document.text is not None else render_chat(document.turns or ())
        pieces += [*own, (END_OF_TEXT, True)]
        lengths.append(len(own) + 1)
    encoded = tokenizer.encode_batch([text for text, _ in pieces], add_special_tokens=False)
    arrays = [
        np.asarray(item.ids, dtype=np.uint16) | np.uint16(0 if own else CONTEXT)
        for item, (_, own) in zip(encoded, pieces, strict=True)
    ]
    start = 0
    for length in lengths:
        yield np.concatenate(arrays[start : start + length])
        start += length


def write_part(folder: Path, name: str, documents: Iterable[NDArray[np.uint16]], seed: int) -> int:
    """Write one part, its documents in an order drawn from ``seed``, and return its tokens."""
    arrays = list(documents)
    order = np.random.default_rng(seed).permutation(len(arrays))
    arrays = [arrays[index] for index in order]
    ends = np.cumsum([len(array) for array in arrays], dtype=np.int64) if arrays else np.zeros(0, np.int64)
    folder.mkdir(parents=True, exist_ok=True)
    (np.concatenate(arrays) if arrays else np.zeros(0, np.uint16)).tofile(folder / f"{name}.ids")
    np.save(folder / f"{name}.ends.npy", ends)
    return int(ends[-1]) if len(ends) else 0


@dataclass
class Part:
    """One part of the data and the next document to be read from it."""

    name: str
    ids: NDArray[np.uint16]
    ends: NDArray[np.int64]
    whole: bool
    """Rows begin at the begin of a document (conversations), instead of running on through long ones."""
    document: int = 0
    offset: int = 0
    epoch: int = 0

    @classmethod
    def open(cls, folder: Path, name: str, whole: bool) -> Part:
        """Map a part's files into memory.

        Raises:
            DataError: if a file is missing or shorter than the index says.
        """
        try:
            ends = np.load(folder / f"{name}.ends.npy")
            ids = np.memmap(folder / f"{name}.ids", dtype=np.uint16, mode="r")
        except (OSError, ValueError) as error:
            raise DataError(f"part {name} in {folder}: {error}; build the folder again") from error
        if not len(ends) or len(ids) != ends[-1]:
            raise DataError(f"part {name} in {folder}: {len(ids)} tokens, but its index ends elsewhere; build it again")
        return cls(name, ids, ends, whole)

    def next_row(self, length: int) -> NDArray[np.uint16]:
        """Return the next ``length`` ids, documents one after the other."""
        pieces: list[NDArray[np.uint16]] = []
        room = length
        while room:
            begin = int(self.ends[self.document - 1]) if self.document else 0
            end = int(self.ends[self.document])
            piece = self.ids[begin + self.offset : min(end, begin + self.offset + room)]
            pieces.append(piece)
            room -= len(piece)
            self.offset += len(piece)
            if begin + self.offset == end:
                self._advance()
            elif self.whole:
                # the row is full: a conversation cut short starts the next row anew, one that fills a row is left
                if end - begin > length and len(pieces) == 1:
                    self._advance()
                self.offset = 0
        return np.concatenate(pieces)

    def _advance(self) -> None:
        self.document, self.offset = self.document + 1, 0
        if self.document == len(self.ends):
            self.document, self.epoch = 0, self.epoch + 1

    def position(self) -> tuple[int, int, int]:
        """Return where the next row begins, for :meth:`seek`."""
        return self.document, self.offset, self.epoch

    def seek(self, position: tuple[int, int, int]) -> None:
        """Go to a position returned by :meth:`position`."""
        self.document, self.offset, self.epoch = position


@dataclass
class Mixture:
    """Rows of several parts, drawn by weight (shares of tokens); what is drawn depends on the seed and the row alone."""

    parts: Mapping[str, Part]
    weights: Mapping[str, float]
    seed: int
    rows_drawn: int = 0
    _names: list[str] = field(init=False)
    _shares: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self._names = sorted(self.weights)
        unknown = set(self._names) - set(self.parts)
        if unknown:
            raise DataError(f"weights name {sorted(unknown)}, the data has {sorted(self.parts)}")
        values = np.array([self.weights[name] for name in self._names])
        self._shares = np.cumsum(values / values.sum())

    def next_batch(self, rows: int, length: int) -> NDArray[np.uint16]:
        """Return ids of shape [rows, length]."""
        return np.stack([self._next_row(length) for _ in range(rows)])

    def _next_row(self, length: int) -> NDArray[np.uint16]:
        draw = np.random.default_rng((self.seed, self.rows_drawn)).random()
        self.rows_drawn += 1
        index = min(int(np.searchsorted(self._shares, draw, side="right")), len(self._names) - 1)
        return self.parts[self._names[index]].next_row(length)

    def state(self) -> dict[str, object]:
        """Return what :meth:`restore` needs to go on exactly here."""
        return {"rows_drawn": self.rows_drawn, "parts": {name: part.position() for name, part in self.parts.items()}}

    def restore(self, state: Mapping[str, object]) -> None:
        """Go on where :meth:`state` was called."""
        rows, positions = state["rows_drawn"], state["parts"]
        if not isinstance(rows, int) or not isinstance(positions, dict):
            raise DataError("the checkpoint's data position cannot be read; start from another checkpoint")
        self.rows_drawn = rows
        for name, position in positions.items():
            self.parts[name].seek(tuple(position))


def read_manifest(folder: Path) -> dict[str, object]:
    """Read what a data folder says of itself.

    Raises:
        DataError: if it is missing: the folder was not built to the end.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        raise DataError(f"{path} is missing; build the data with python -m drafters.training.reference.data first")
    value: dict[str, object] = json.loads(path.read_text("utf-8"))
    return value
