"""The corpus of the reference target: which files, under which licence, for what, and the documents in them."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

LIST = Path(__file__).with_name("sources.yaml")
HELD_OUT = 0.02
"""Share of the documents that no training sees; both languages of a pair fall on the same side."""


class SourceError(ValueError):
    """A list of sources or a corpus folder that cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file of the corpus. ``use`` is ``train``, ``evaluate`` (an evaluation set) or ``exclude``."""

    file: str
    language: str
    use: Literal["train", "evaluate", "exclude"]
    sha256: str
    licence: str
    origin: str
    reason: str | None = None

    @property
    def is_chat(self) -> bool:
        """Whether its documents are conversations."""
        return ".chat." in self.file


@dataclass(frozen=True, slots=True)
class Document:
    """One document: running text, or the (role, content) turns of a conversation; exactly one of both."""

    id: str
    text: str | None = None
    turns: tuple[tuple[str, str], ...] | None = None


def load_sources(path: Path = LIST) -> list[Source]:
    """Read a list of sources.

    Raises:
        SourceError: if an entry lacks a field or has one that is not known.
    """
    value = yaml.safe_load(path.read_text("utf-8"))
    sources = []
    for entry in value["sources"]:
        try:
            source = Source(**entry)
        except TypeError as error:
            raise SourceError(f"{path}: entry {entry.get('file')!r}: {error}; fields as in {LIST.name}") from None
        if source.use not in ("train", "evaluate", "exclude"):
            raise SourceError(f"{path}: {source.file}: use is {source.use!r}; allowed: train, evaluate, exclude")
        if source.use != "train" and not source.reason:
            raise SourceError(f"{path}: {source.file} is not trained on and gives no reason; add reason")
        sources.append(source)
    return sources


def read_documents(folder: Path, source: Source) -> Iterator[Document]:
    """Yield the documents of one file, after its hash was found to be that of the list.

    Raises:
        SourceError: if the file is missing or has other content than the list says.
    """
    path = folder / source.file
    if not path.is_file():
        raise SourceError(f"{path} is missing; {LIST.name} says where the texts of {source.file} come from")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != source.sha256:
        raise SourceError(f"{path} has sha256 {digest}, the list has {source.sha256}; take that file or a new list")
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            value = json.loads(line)
            if source.is_chat:
                yield Document(value["id"], turns=tuple((turn["role"], _content(turn)) for turn in value["messages"]))
            else:
                yield Document(value["id"], text=value["text"])


def is_held_out(document_id: str) -> bool:
    """Tell whether a document belongs to the held-out share: by a hash of its id, the same on every machine."""
    first = hashlib.sha256(document_id.encode()).digest()[:4]
    return int.from_bytes(first, "big") < HELD_OUT * 2**32


def _content(turn: Mapping[str, Any]) -> str:
    if turn.get("tool_calls"):
        raise SourceError("conversations with tool calls are evaluation sets; this reader takes plain turns only")
    return str(turn["content"])
