"""Masked conversations, the corpus that the pipeline works on: one JSON object a line.

``{"id", "source", "language", "text_type", "split", "messages", "tools"}``; ``messages`` as in OpenAI's chat requests. An
assistant turn with content or tool calls is a recorded answer; one without either is an answer that the target is still
to give. A plain text to be continued has no messages but ``text``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from drafters.training.stage import StageError

__all__ = ["LANGUAGES", "Conversation", "read_conversations"]

LANGUAGES = ("ko", "en", "code", "ko+code", "en+code")
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation, or one text to be continued (``messages`` empty). ``text_type`` is free: office, essay, chat, …"""

    id: str
    source: str
    language: str
    text_type: str
    split: Literal["train", "heldout"]
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    text: str | None = None

    def to_json(self) -> str:
        """One line, without its end."""
        value = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({name: entry for name, entry in value.items() if entry not in (None, ())}, ensure_ascii=False)


def read_conversations(path: Path) -> Iterator[Conversation]:
    """Yield the conversations of a file. Raises StageError with file and line."""
    try:
        lines = path.open(encoding="utf-8")
    except OSError as error:
        raise StageError(
            f"{path} cannot be read: {error.strerror}; give the corpus that 'drafters corpus' wrote"
        ) from error
    with lines:
        for number, line in enumerate(lines, start=1):
            yield _conversation(f"{path}:{number}", line)


def _conversation(place: str, line: str) -> Conversation:
    try:
        value = json.loads(line)
        made = Conversation(
            **{**value, "messages": tuple(value.get("messages", ())), "tools": tuple(value.get("tools", ()))}
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise StageError(f"{place}: no conversation ({error}); run 'drafters corpus' again") from error
    if made.language not in LANGUAGES or made.split not in ("train", "heldout"):
        raise StageError(
            f"{place}: language {made.language!r}, split {made.split!r}; allowed: {LANGUAGES}, train or heldout"
        )
    if bool(made.messages) == (made.text is not None):
        raise StageError(f"{place}: a conversation has either messages or a text; run 'drafters corpus' again")
    for message in made.messages:
        if message.get("role") not in ROLES:
            raise StageError(f"{place}: role {message.get('role')!r}; allowed: {', '.join(ROLES)}")
    return made
