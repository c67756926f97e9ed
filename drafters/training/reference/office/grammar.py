"""Expands templates: ``$name`` is a word of a list or a made-up value, ``$name1`` the same one throughout a document;
``${name1}`` where letters follow.

``[은/는]`` after a Korean word becomes the particle that fits its last sound.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
NAME = re.compile(r"\$(?:\{([a-z_]+)(\d*)\}|([a-z_]+)(\d*))")
PARTICLE = re.compile(r"(.)(['’\"”)`」]*)\[(\w+)/(\w+)\]")
CLOSED_DIGITS = "013678"
"""Digits whose Korean reading ends in a consonant."""
CLOSED_LETTERS = "LMNRlmnr"


@cache
def load_lists(name: str) -> Mapping[str, Any]:
    """Read one of the package's lists."""
    value: Mapping[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
    return value


class Document:
    """The words of one document: what was drawn once stays the same wherever its name comes again."""

    def __init__(self, rng: random.Random, makers: Mapping[str, Callable[[Document], str]]) -> None:
        self.rng = rng
        self.bound: dict[str, str] = {}
        self._makers = makers
        self._lists: Mapping[str, Any] = load_lists("lists")

    def add_lists(self, lists: Mapping[str, Any]) -> None:
        """Let templates of this document use further lists."""
        self._lists = {**self._lists, **lists}

    def expand(self, template: str) -> str:
        """Return the text of a template."""
        return particles(NAME.sub(self._replace, template))

    def pick(self, templates: Sequence[str] | str) -> str:
        """Return the text of one of several templates."""
        return self.expand(templates if isinstance(templates, str) else self.rng.choice(templates))

    def _replace(self, match: re.Match[str]) -> str:
        braced, braced_number, plain, plain_number = match.groups()
        name, number = (braced, braced_number) if braced else (plain, plain_number)
        key = name + number
        if key in self.bound:
            return self.bound[key]
        if name in self._makers:
            value = self._makers[name](self)
        elif name in self._lists:
            value = self.expand(str(self.rng.choice(self._lists[name])))
            if number:  # two numbers of one list are two different words
                others = {word for other, word in self.bound.items() if other.rstrip("0123456789") == name}
                for _ in range(8):
                    if value not in others:
                        break
                    value = self.expand(str(self.rng.choice(self._lists[name])))
        else:
            raise KeyError(f"template names ${key}; known: lists {sorted(self._lists)}, makers {sorted(self._makers)}")
        if number:
            self.bound[key] = value
        return value


def particles(text: str) -> str:
    """Choose between the forms of Korean particles written ``[은/는]``: the first after a closed syllable."""

    def choose(match: re.Match[str]) -> str:
        last, marks, closed, opened = match.groups()
        if "가" <= last <= "힣":
            final = (ord(last) - ord("가")) % 28
            is_closed = final != 0 and not (closed == "으로" and final == 8)  # 로 after ㄹ
        else:
            is_closed = last in CLOSED_DIGITS or last in CLOSED_LETTERS
        return last + marks + (closed if is_closed else opened)

    return PARTICLE.sub(choose, text)
