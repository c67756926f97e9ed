"""What the readers yield: one document or conversation, as it stands in its file and not yet masked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafters.training.conversations import LANGUAGES
from drafters.training.stage import StageError

__all__ = ["Given", "LeftOut", "Reading", "Source", "parse_given", "shown_path"]


TEXT_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Source:
    """One document (``text``) or conversation (``messages``). ``unit``: what may not be divided between train and
    held-out; ``file``: path shown in reports, within what was given.
    """

    file: str
    unit: str
    text: str | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    language: str | None = None
    text_type: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file or line that is not taken, and why. ``known_as``: the file's own name, for its owner's eyes alone."""

    file: str
    reason: str
    known_as: str = ""


Reading = Iterator[Source | LeftOut]


@dataclass(frozen=True, slots=True)
class Given:
    """A path as given on the command line, with the tags that were written after it."""

    path: Path
    language: str | None = None
    text_type: str | None = None


def shown_path(path: Path) -> str:
    """A path as text: where its bytes are not UTF-8, as of an archive from Windows, as Korean of CP949, or byte by byte."""
    name = path.as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raw = os.fsencode(name)
        try:
            return raw.decode("cp949")
        except UnicodeDecodeError:
            return raw.decode("utf-8", "backslashreplace")
    return name


def parse_given(value: str) -> Given:
    """Read ``PATH`` or ``PATH=language/text_type``; either tag may be empty. Raises StageError."""
    whole = Path(value)
    left, sign, right = value.rpartition("=")
    if sign and not whole.exists():
        language, _, text_type = right.partition("/")
        if language and language not in LANGUAGES:
            raise StageError(
                f"{value}: language {language!r}; allowed: {', '.join(LANGUAGES)}, as in FOLDER=ko/office or FOLDER=/office"
            )
        if text_type and not TEXT_TYPE.fullmatch(text_type):
            raise StageError(
                f"{value}: text type {text_type!r}; allowed: letters, digits, _ . -, at most 64, as in FOLDER=ko/office"
            )
        whole, tags = Path(left), (language or None, text_type or None)
    else:
        tags = (None, None)
    if not whole.exists():
        raise StageError(f"{whole} does not exist; give a file or a folder that does")
    return Given(whole, *tags)
