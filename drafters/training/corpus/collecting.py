"""Everything that was given → masked records in one work file, with what the split and the duplicates need in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from drafters.masking import Masker
from drafters.training.corpus.dialogues import read_dialogues, read_tasks
from drafters.training.corpus.documents import read_documents
from drafters.training.corpus.duplicates import Signature, Sketch, signature, sketch
from drafters.training.corpus.languages import language_of, text_type_of
from drafters.training.corpus.pieces import cut
from drafters.training.corpus.sources import Given, LeftOut, Source
from drafters.training.corpus.splitting import place
from drafters.training.progress import Pace
from drafters.training.stage import StageError

__all__ = ["Inputs", "Progress", "Record", "collect", "learn", "texts_of"]

READERS = {"documents": read_documents, "conversations": read_dialogues, "tasks": read_tasks}
SAY_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was given, by kind of reader."""

    documents: Sequence[Given]
    conversations: Sequence[Given]
    tasks: Sequence[Given]

    def named(self) -> Iterator[tuple[str, str, Given]]:
        """Yield name, reader and path of each input; the name holds nothing of the path."""
        for kind in READERS:
            for number, given in enumerate(getattr(self, kind), start=1):
                yield f"{kind} {number}", kind, given

    def read(self) -> Iterator[tuple[str, Source | LeftOut]]:
        """Yield each source with its scope, the file it is from; in the same order each time."""
        for name, kind, given in self.named():
            for one in READERS[kind](given):
                yield f"{name}: {one.file}", one

    def bytes(self) -> int:
        """Bytes in all files that were given."""
        paths = [given.path for _, _, given in self.named()]
        files = (file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
        return sum(file.stat().st_size for file in files)


@dataclass(frozen=True, slots=True)
class Record:
    """What is kept in memory of a masked source. ``chain``: a running hash after each turn of a conversation. ``pieces``:
    a sketch of each piece that a document is cut into, one of a whole conversation.
    """

    unit: str
    language: str
    text_type: str
    signature: Signature
    chain: tuple[bytes, ...]
    pieces: tuple[Sketch, ...]


class Progress:
    """Says now and then how far a pass is and how long it will take."""

    def __init__(self, what: str, total: int, say: Callable[[str], None]) -> None:
        self._what, self._total, self._say = what, max(1, total), say
        self._done, self._pace = 0, Pace(SAY_EVERY_S)

    def add(self, count: int) -> None:
        """Count work done, in the unit of ``total``."""
        self._done += count
        if self._pace.due():
            share = min(1.0, self._done / self._total)
            self._say(f"{self._what}: {share:.0%}, {self._pace.left(share, 1 - share)}")


def texts_of(source: Source) -> Iterator[str]:
    """Yield every text of a source in which a personal value may stand."""
    if source.text is not None:
        yield source.text
    for message in source.messages:
        yield message["content"]
        for call in message.get("tool_calls", ()):
            yield call["function"]["name"]
            yield call["function"]["arguments"]
    if source.tools:
        yield json.dumps(source.tools, ensure_ascii=False)


def learn(
    inputs: Inputs, masker: Masker, limit: int | None, seed: int, say: Callable[[str], None]
) -> frozenset[int] | None:
    """Show every text to the masker. Returns the numbers of the sources to keep, None for all of them."""
    progress = Progress("looking for personal data", inputs.bytes(), say)
    places: list[tuple[float, int]] = []
    count = 0
    for scope, source in inputs.read():
        if isinstance(source, LeftOut):
            continue
        for text in texts_of(source):
            if masker.holds_key(text):
                raise StageError(f"{scope}: the secret key of --key-file stands in it; take it out of what is read")
            masker.learn(text, scope)
            progress.add(len(text.encode("utf-8", "replace")))
        if limit is not None:
            places.append((place(source.unit, seed), count))
        count += 1
    masker.settle()
    return None if limit is None else frozenset(number for _, number in sorted(places)[:limit])


def collect(
    inputs: Inputs, masker: Masker, keep: frozenset[int] | None, limit: int, work: Path, say: Callable[[str], None]
) -> tuple[list[Record], list[LeftOut]]:
    """Write every source masked to ``work``, one JSON object a line; returns what belongs to each line, and what was left
    out. ``limit``: characters of a piece of a document.
    """
    progress = Progress("masking", inputs.bytes(), say)
    records: list[Record] = []
    left_out: list[LeftOut] = []
    with work.open("w", encoding="utf-8") as file:
        number = -1
        for scope, source in inputs.read():
            if isinstance(source, LeftOut):
                left_out.append(LeftOut(masker.mask_path(source.file, scope), source.reason, source.file))
                continue
            number += 1
            if keep is None or number in keep:
                record = _masked(source, scope, masker, limit, file)
                if isinstance(record, LeftOut):
                    left_out.append(replace(record, known_as=source.file))
                else:
                    records.append(record)
            progress.add(sum(len(text.encode("utf-8", "replace")) for text in texts_of(source)))
    return records, left_out


def _masked(source: Source, scope: str, masker: Masker, limit: int, file: TextIO) -> Record | LeftOut:
    shown = masker.mask_path(source.file, scope)
    text = None if source.text is None else masker.mask(source.text, scope)
    messages = [_masked_message(message, scope, masker) for message in source.messages]
    try:
        tools = json.loads(masker.mask(json.dumps(source.tools, ensure_ascii=False), scope)) if source.tools else []
    except ValueError:  # a find across strings; nothing unmasked may take its place
        return LeftOut(shown, "its tools are no JSON any more when masked")
    said = (
        text if text is not None else "\n".join(_said(message) for message in messages if message["role"] != "system")
    )
    language = source.language or language_of(said)
    if language is None:
        return LeftOut(
            shown, "neither Korean nor English, by its letters; give =language/text_type to take it all the same"
        )
    text_type = source.text_type or (text_type_of(said, language) if text is not None else "dialogue")
    line = {
        "id": masker.identity(f"{source.file}\0{source.unit}\0{said}"),  # keyed, for file and unit are not masked
        "source": shown,
        "language": language,
        "text_type": text_type,
        "text": text,
        "messages": messages,
        "tools": tools,
    }
    file.write(json.dumps(line, ensure_ascii=False) + "\n")
    pieces = tuple(sketch(piece) for piece in (cut(said, limit) if text is not None else (said,)))
    return Record(source.unit, language, text_type, signature(said), _chain(messages), pieces)


def _masked_message(message: Mapping[str, Any], scope: str, masker: Masker) -> dict[str, Any]:
    masked = {**message, "content": masker.mask(message["content"], scope)}
    if "tool_calls" in message:
        masked["tool_calls"] = [
            {
                **call,
                "id": masker.mask(call["id"], scope),
                "function": {
                    "name": masker.mask(call["function"]["name"], scope),
                    "arguments": masker.mask(call["function"]["arguments"], scope),
                },
            }
            for call in message["tool_calls"]
        ]
    if "tool_call_id" in message:
        masked["tool_call_id"] = masker.mask(message["tool_call_id"], scope)
    return masked


def _said(message: Mapping[str, Any]) -> str:
    calls = (f"{call['function']['name']} {call['function']['arguments']}" for call in message.get("tool_calls", ()))
    return "\n".join((message["content"], *calls))


def _chain(messages: Sequence[Mapping[str, Any]]) -> tuple[bytes, ...]:
    """A hash of each beginning of a conversation; an answer that is still to be given does not count."""
    running, chain = hashlib.sha256(), []
    for message in messages:
        if message["role"] == "assistant" and not _said(message).strip():
            continue
        running.update(f"{message['role']}\0{_said(message)}\1".encode("utf-8", "replace"))
        chain.append(running.digest()[:8])
    return tuple(chain)
