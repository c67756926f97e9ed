"""What is said of claims, in Korean and English: ``texts.<lang>.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from drafters.claims.claim import Figure
from drafters.claims.verdicts import Part

__all__ = ["LANGUAGES", "Words", "words"]

LANGUAGES = ("ko", "en")
UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Words:
    """The texts of one language."""

    lang: str
    texts: Mapping[str, Any]

    def claim(self, number: int) -> Mapping[str, Any]:
        """Title, statement, advice by verdict, what was run instead of what was asked for."""
        own: Mapping[str, Any] = self.texts["claims"][number]
        return own

    def verdict(self, verdict: str) -> str:
        """A verdict's words."""
        return str(self.texts["verdicts"][verdict])

    def label(self, number: int, one: Figure | Part) -> str:
        """What a figure, or the question of a part, is of, its names in this language."""
        own = self.claim(number).get("labels", {})
        text = own.get(one.key, self.texts["labels"].get(one.key, one.key))
        named = {name: self._named(value) for name, value in one.names}
        used = {name for name in named if f"{{{name}}}" in text}
        rest = [value for name, value in named.items() if name not in used]
        return " · ".join([text.format(**named), *rest])

    def figure(self, value: float | None, unit: str) -> str:
        """A value as people read it; unknown is a dash."""
        if value is None:
            return UNKNOWN
        if unit == "share":
            return f"{100 * value:.1f} %"
        if unit in ("x", "tokens/round") or abs(value) >= 0.1 or value == 0:
            return f"{value:.0f}" if unit == "count" else f"{value:.2f}{'×' if unit == 'x' else ''}"
        return f"{value:.3g}"

    def interval(self, one: Figure | Part, unit: str) -> str:
        """A value with its 95 % interval."""
        if one.low is None or one.high is None:
            return self.figure(one.value, unit)
        ends = " … ".join(self.figure(end, unit) for end in (one.low, one.high))
        return f"{self.figure(one.value, unit)} ({ends})"

    def part(self, number: int, part: Part) -> str:
        """One question, its figure, what was needed, and the answer."""
        limits = [self.figure(limit, _unit(part)) for limit in part.limits]
        needed = self.texts["rules"][part.rule].format(*limits)
        answer = {True: "yes", False: "no", None: "open"}[part.passed]
        said: str = self.texts["part"].format(
            label=self.label(number, part),
            figure=self.interval(part, _unit(part)),
            needed=needed,
            answer=self.texts["answers"][answer],
        )
        return said

    def _named(self, value: str) -> str:
        return str(self.texts["names"].get(value, value))


def _unit(part: Part) -> str:
    return "count" if part.rule == "exactly" else "tokens/round"


@cache
def words(lang: str) -> Words:
    """Read one language's texts."""
    path = Path(__file__).with_name(f"texts.{lang}.yaml")
    return Words(lang, yaml.safe_load(path.read_text("utf-8")))
