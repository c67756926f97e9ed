"""The form of a column: header, unit, definition, and which way is better, in both languages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Better = Literal["higher", "lower"]
Pair = tuple[str, str]  # English, Korean


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``header`` and ``definition`` by language (``ko``, ``en``), ``better`` ``None`` where neither is."""

    name: str
    header: Mapping[str, str]
    unit: str | None
    definition: Mapping[str, str]
    better: Better | None


def column(name: str, header: Pair, unit: str | None, better: Better | None, about: Pair) -> Column:
    """Return a column; header and definition are given in English and Korean."""
    by_language = [MappingProxyType(dict(zip(("en", "ko"), pair, strict=True))) for pair in (header, about)]
    return Column(name, by_language[0], unit, by_language[1], better)


def percentiles(stem: str, unit: str, header: Pair, about: Pair) -> Iterator[Column]:
    """Yield the columns of p50 and p90 of a figure."""
    for p in (50, 90):
        sentence = (
            f"{p} % of the {about[0]} are at or below this; empty where there are too few to say.",
            f"{about[1]}의 {p} %가 이 값 이하입니다. 관측이 부족하면 비어 있습니다.",
        )
        yield column(f"{stem}_p{p}_{unit}", (f"{header[0]} p{p}", f"{header[1]} p{p}"), unit, "lower", sentence)


def bounds(
    stem: str, header: Pair, unit: str | None, better: Better | None, beyond: Pair = ("", "")
) -> Iterator[Column]:
    """Yield the columns of the two ends of a figure's interval."""
    for end, en, ko in (("low", "lower", "하한"), ("high", "upper", "상한")):
        sentence = (
            f"The {en} end of the 95 % bootstrap interval over tasks; empty where there is none{beyond[0]}.",
            f"작업을 다시 뽑는 부트스트랩 95 % 구간의 {ko}. 구할 수 없으면 비어 있습니다{beyond[1]}.",
        )
        yield column(f"{stem}_{end}", (f"{header[0]}, {en} 95 %", f"{header[1]} 95 % {ko}"), unit, better, sentence)


def order_bounds(stem: str, header: Pair, unit: str | None, better: Better | None, about: Pair) -> Iterator[Column]:
    """Yield the columns of the ends of an interval that rests on the order of values, not on draws."""
    for end, en, ko in (("low", "lower", "하한"), ("high", "upper", "상한")):
        sentence = (f"The {en} end of the 95 % interval, {about[0]}.", f"95 % 구간의 {ko}. {about[1]}.")
        yield column(f"{stem}_{end}", (f"{header[0]}, {en} 95 %", f"{header[1]} 95 % {ko}"), unit, better, sentence)
