"""Everything a report says, in one language: the texts of ``reports/texts`` and how figures are written for people."""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from harness.analysis.frames import Finding
from harness.columns import COLUMNS
from harness.errors import UsageError

LANGUAGES = ("ko", "en")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # some ten times as fast, where it was built
UNKNOWN = "–"
_SHOWN_UNITS = {
    "s": "s",
    "ms": "ms",
    "share": "%",
    "x": "x",
}  # other units stand in the header itself or in the glossary
_TWO_DECIMALS = frozenset({"x", "tokens/round", "tokens/pass"})
_MEASURED = frozenset({"s", "ms", "tokens/s", "tasks/h"})  # three figures even when they end in 0
_LONGEST_TEXT = 160  # of a value from outside (an error message, a path) inside a sentence
# columns whose values are words of this program, not of the user
_CODED = frozenset(
    {"side", "window", "status", "cache_policy", "error_kind", "reason", "sign", "capacity", "power_source", "source", "assumption"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wording:
    """The texts of one language by dotted key, and the forms of figures."""

    lang: str
    texts: Mapping[str, str]

    def text(self, key: str, /, **values: Any) -> str:
        """Return a text with its places filled; a place without a value reads as unknown.

        Raises:
            KeyError: if no text has this key (a mistake in this package; a test holds both languages to the same keys).
        """
        return _TolerantFormatter().vformat(self.texts[key], (), values)

    def optional(self, key: str, /, **values: Any) -> str | None:
        """Return a text that need not exist, ``None`` where it does not."""
        return self.text(key, **values) if key in self.texts else None

    def finding(self, finding: Finding) -> str:
        """Return what a finding means; a code without a text of its own is shown with its values."""
        values = {name: self._brief(name, value) for name, value in finding.values.items()}
        known = self.optional(f"finding.{finding.code}", **values)
        if known is not None:
            return known
        details = ", ".join(f"{key}={_plain(value)}" for key, value in values.items())
        return self.text("finding_unknown", code=finding.code, details=details or UNKNOWN)

    def header(self, name: str) -> str:
        """Return a column's header with its unit where the unit is one of measure."""
        column = COLUMNS[name]
        unit = _SHOWN_UNITS.get(column.unit or "")
        return f"{column.header[self.lang]} ({unit})" if unit else column.header[self.lang]

    def figure(self, name: str, value: Any) -> str:
        """Return a column's value as people read it; unknown is a dash."""
        if name in ("kind", "language", "genre"):
            return self.text("all") if value is None else self.label(name, str(value))
        if isinstance(value, bool):
            return self.text("yes" if value else "no")
        if name.startswith("cautions"):
            return self.cautions(value)
        if name in _CODED and value is not None:
            return self.label(name, str(value))
        return number(value, COLUMNS[name].unit)

    def cautions(self, codes: str | None) -> str:
        """Return the short words for the codes of a row's ``cautions``; nothing where there are none."""
        return ", ".join(self.optional(f"mark.{code}") or code for code in (codes or "").split())

    def label(self, what: str, value: str) -> str:
        """Return the word for a value of a column (a step kind, a language, a status), the value itself where there is none."""
        return self.optional(f"{what}.{value}") or value

    def unit(self, unit: str | None) -> str:
        """Return the word for a unit, the unit itself where there is none."""
        return self.optional(f"unit.{unit}") or unit or ""

    def quantity(self, value: Any, unit: str | None) -> str:
        """Return a value with its unit behind it, where the header cannot say it: "2.00 s", "1.52x", "97.9 %"."""
        if is_unknown(value) or unit is None:
            return number(value, unit)
        shown = _SHOWN_UNITS.get(unit) or self.unit(unit)
        return f"{number(value, unit)}{'' if unit == 'x' else ' '}{shown}"

    def _brief(self, name: str, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if name == "missing":  # "arm at load" of the findings, in a form that both languages share
            value = re.sub(r" at (\d+)", r" @ \1", value)
        word = self.optional(f"{name}.{value}") if name in (*_CODED, "kind", "language") else None
        flat = word or " ".join(value.split())
        return flat if len(flat) <= _LONGEST_TEXT else flat[: _LONGEST_TEXT - 1] + "…"


@cache
def wording(lang: str) -> Wording:
    """Return the wording of a language.

    Raises:
        UsageError: if there is none.
    """
    if lang not in LANGUAGES:
        raise UsageError(f"unknown report language {lang!r}; known: {', '.join(LANGUAGES)}")
    texts = resources.files("reports").joinpath("texts")
    files = (
        texts.joinpath(f"{name}.yaml").read_text(encoding="utf-8")
        for name in (lang, *(f"{part}.{lang}" for part in ("comparison", "doctor", "sizing", "predicted", "claims")))
    )
    return Wording(lang, {key: text for raw in files for key, text in _flatten(yaml.load(raw, _LOADER), "")})


def is_unknown(value: Any) -> bool:
    """Tell whether a value of a frame carries nothing."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def number(value: Any, unit: str | None = None) -> str:
    """Return a value in the form of its unit: shares in per cent, ratios with two decimals, others with three figures."""
    if is_unknown(value):
        return UNKNOWN
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if unit == "share":
        return percent(value)
    if unit in _TWO_DECIMALS:
        return f"{value:.2f}"
    if unit == "tasks" and isinstance(value, float):
        return f"{value:,.{int(value < 10)}f}".removesuffix(
            ".0"
        )  # a concurrency between two measured ones is not known finer
    measured = unit in _MEASURED and isinstance(value, float) and value != 0
    whole = abs(value) >= 1000 or (float(value).is_integer() and not measured)
    decimals = 0 if whole else min(max(0, 2 - math.floor(math.log10(abs(value)))), 6)
    return f"{value:,.{decimals}f}"


def percent(share: float) -> str:
    """Return a share in per cent; only exactly all reads as 100, only exactly none as 0."""
    if share in (0, 1):
        return f"{share * 100:.0f}"
    inside = 0 < share < 1
    return f"{min(max(share * 100, 0.1), 99.9) if inside else share * 100:.1f}"


def interval(estimate: Any, low: Any, high: Any, unit: str | None = None) -> str:
    """Return an estimate with its interval in brackets: "9 [6–14]".

    An end that is beyond what was measured is open ("[6–…]"); where there is no interval a dash says so ("9 [–]").
    """
    if is_unknown(low) and is_unknown(high):
        return UNKNOWN if is_unknown(estimate) else f"{number(estimate, unit)} [{UNKNOWN}]"
    ends = ["…" if is_unknown(end) else number(end, unit) for end in (low, high)]
    return f"{number(estimate, unit)} [{'–'.join(ends)}]"


def crossing(estimate: Any, low: Any, high: Any, ends: str | None) -> str:
    """Return a break-even with its interval; ``ends`` is that of ``frames.BREAK_EVEN``, open at both ends it reads "4.2 […–…]"."""
    if ends == "open_both" and not is_unknown(estimate):
        return f"{number(estimate, 'tasks')} […–…]"
    return interval(estimate, low, high, "tasks")


def text_width(text: str) -> int:
    """Return how many columns of a terminal the widest line takes; Hangul takes two a letter."""
    return max(
        (sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line) for line in text.split("\n")),
        default=0,
    )


def _flatten(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _flatten(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", re.sub(r"\s+", " ", str(item))


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_plain(item)}" for key, item in value.items())
    if isinstance(value, Sequence):
        return ", ".join(_plain(item) for item in value)
    return number(value)


class _TolerantFormatter(string.Formatter):
    """Fills places with figures for people; ``{x:share}`` gives a unit, a missing or unknown value is a dash."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(key) if isinstance(key, str) else None

    def format_field(self, value: Any, format_spec: str) -> str:
        return number(value, format_spec) if format_spec and not isinstance(value, str) else _plain(value)
