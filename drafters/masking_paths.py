"""Names of files and folders: known words stay, every other word is hidden, for any word may be a person's name.

Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from functools import cache

from drafters.surrogates import words

__all__ = ["hide_words"]

TOKEN = re.compile(r"\d+(?:[-_. ]?\d+)*|[가-힣]+|[A-Za-z]+|[^\W\d_A-Za-z가-힣]+")
CASED = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
DATE = re.compile(r"20[1-3]\d[-_. ]?(?:0?[1-9]|1[0-2])(?:[-_. ]?(?:0?[1-9]|[12]\d|3[01]))?(?:[-_. ]\d{1,2})?")
"""A day or month of the years that files are from; an earlier one may be a day of birth."""
MAX_DIGITS = 4
"""Longer numbers may be telephone numbers or identities."""


def hide_words(path: str, hidden: Callable[[str], str]) -> str:
    """Return the path with ``hidden(word)`` in place of each word and each long number that is not known."""
    return TOKEN.sub(lambda token: token.group() if _is_known(token.group()) else hidden(token.group()), path)


def _is_known(token: str) -> bool:
    known = _known()
    if token[0].isdigit():
        return sum(map(str.isdigit, token)) <= MAX_DIGITS or DATE.fullmatch(token) is not None
    if token.isascii():
        parts = CASED.findall(token)
        return len(token) == 1 or token.casefold() in known or all(part.casefold() in known for part in parts)
    return token in known or _is_compound(token, known)


def _is_compound(token: str, known: Set[str]) -> bool:
    """Tell whether a word is made of known words of two syllables and more; with single syllables many a name would be."""
    reached = [True] + [False] * len(token)
    for end in range(2, len(token) + 1):
        reached[end] = any(reached[start] and token[start:end] in known for start in range(end - 1))
    return reached[-1]


@cache
def _known() -> Set[str]:
    return frozenset(" ".join(words()["path_words"]).split())
