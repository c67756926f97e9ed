"""A document → work for the target: pieces of it, each with a request, and beginnings to be continued."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from drafters.training.corpus.languages import genre_of

__all__ = ["beginning", "cut", "request_for"]

SENTENCE_END = re.compile(r"(?:[.!?。…]|다|요|음|함|임|됨|것)[\"'”’)\]]*(?=\s)|\n")
MIN_BEGINNING = 40
MIN_REST = 60
"""Characters that must follow a beginning: a text that has nothing more to say is no text to be continued."""


@cache
def requests() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Read the list of requests: language → kind of document → templates."""
    value: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("requests.yaml").read_text("utf-8"))
    return value


def cut(text: str, limit: int) -> Iterator[str]:
    """Cut a text at paragraphs into pieces of at most ``limit`` characters; a longer paragraph at a line or sentence."""
    rest = text.strip()
    while len(rest) > limit:
        head = rest[:limit]
        at = head.rfind("\n\n")
        if at < limit // 3:
            at = head.rfind("\n")
        if at < limit // 3:
            at = max((match.end() for match in SENTENCE_END.finditer(head)), default=-1)
        if at < limit // 3:
            at = head.rfind(" ")
        if at < limit // 3:
            at = limit
        yield rest[:at].strip()
        rest = rest[at:].strip()
    if rest:
        yield rest


def beginning(text: str, subject: str) -> str | None:
    """Return the text's beginning up to the end of a sentence between a quarter and two thirds of it, chosen by a hash."""
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    low, high = max(MIN_BEGINNING, len(text) // 4), min(len(text) * 2 // 3, len(text) - MIN_REST)
    inside = [end for end in ends if low <= end <= high]
    if not inside:
        return None
    return text[: inside[_number(subject) % len(inside)]].rstrip()


def request_for(text: str, language: str, text_type: str, subject: str) -> str:
    """Return a user's turn that asks for work on the text; which one is decided by a hash of ``subject``."""
    lists = requests()["code" if language == "code" else language.partition("+")[0]]
    genre = text_type if text_type in ("essay", "chat") else genre_of(text, language)
    own = list(lists.get(genre, ()))
    # a kind's own requests come three times as often as those that fit any document
    templates = own * 3 + list(lists["any"] if "code" not in language or language == "code" else ())
    head = beginning(text, subject + "head")
    usable = [template for template in templates if "{head}" not in template or head]
    template = usable[_number(subject + "request") % len(usable)]
    before, mark, after = re.split(r"(\{head\}|\{text\})", template)
    return before + (head or "" if mark == "{head}" else text) + after


def _number(subject: str) -> int:
    return int.from_bytes(hashlib.sha256(subject.encode("utf-8", "replace")).digest()[:8], "big")
