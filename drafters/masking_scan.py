"""Personal values in plain text: what a scanner finds, and a little that scanners of Korean text pass by.

The scanner is `maskingtape`'s rules as a rule; any function from a text to its finds will do. Imports no torch.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Sequence

from drafters.masking_fields import Found, looks_like_name
from drafters.masking_spellings import MARK, iban_spans, mails
from drafters.surrogates import KINDS, words

__all__ = ["TITLE", "MaskingUnavailable", "Scanner", "disjoint", "tape_scanner", "text_spans"]

Scanner = Callable[[str], Sequence[Found]]
SCAN_CHARACTERS = 8_000
FOREIGN_PHONE = re.compile(
    r"(?<![\w+])(?:\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{1,4}(?:[ .-]?\d{2,4}){2,4}"
    r"|\(\d{3}\) ?\d{3}-\d{4}|[2-9]\d{2}[-.][2-9]\d{2}[-.]\d{4})(?![\w-])"
)
MOBILE = re.compile(rf"(?<![\d.])01[016789]{MARK}{{1,3}}\d{{3,4}}{MARK}{{1,3}}\d{{4}}(?!\d)")
"""A number of this country with whatever marks."""
LOCAL_PHONE = re.compile(
    r"\b(?:tel|phone|telephone|call|fax|mobile|extension|ext|reach (?:me|us)|contact (?:me|us))\b"
    r"[^\d\n]{1,12}([2-9]\d{2}[-. ]\d{4})(?![\w-])",
    re.I,
)
"""A number without its area, known by the word before it."""
TIMESTAMP = re.compile(r"20[0-3]\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{4,9}")
"""Digits without marks that are a date and a time or a serial number: scanners take them for cards and licences."""
TITLED = re.compile(
    r"(?<![가-힣])([가-힣]{3,4})(?= ?(?:" + "|".join(title for title in words()["titles"] if len(title) > 1) + r")"
    r"님?(?:입니다|이|은|는|가|을|를|의|과|와|께서|께|에게|도|으로|로)?(?![가-힣]))"
)
"""A name before a title; scanners know fewer surnames."""
TITLE = re.compile(
    r" ?(?:" + "|".join(words()["titles"]) + r")"
    r"님?(?:입니다|이|은|는|가|을|를|의|과|와|께서|께|에게|도|으로|로)?(?![가-힣])"
)
"""What follows a name that is certain to be one."""
CUED_NAMES = re.compile(
    r"(?<![가-힣])(?:결재선|합의|대상자?|담당자?|문의처?|작성자?|발신|수신|참조|승인자?|검토자?|기안자?|보고자?|요청자?|신청자?)"
    r"(?:은|는|이|가)?\s*[::]?[ \t]+((?:[가-힣]{3}, ?)*[가-힣]{3})(?=(?:님|씨|입니다|이며|이고|께|으로|로|에게|은|는|이|가)?(?![가-힣]))"
    r"|\b[Bb]y:? ([가-힣]{3})(?![가-힣])|(?<![가-힣])([가-힣]{3})(?= 쪽(?:에서|이|은))"
)
"""Names that stand alone after the word for a role."""
WITHIN = re.compile(r"[^\"{}\[\]\n\\]*\w[^\"{}\[\]\n\\]*")
"""Parts of a scanner's find that hold no marks of JSON: a find that runs over them would break it."""
ENDS_AS_PARTICLE = tuple("은는이가을를의도로과와에")
HANGUL_RUN = re.compile(r"[가-힣]+")
MARKS = " ,.:;()[]\"'\n\t"


class MaskingUnavailable(ImportError):
    """The scanner's package is not installed; the message says what to do."""


def tape_scanner() -> Scanner:
    """Return a scanner of plain text by the rules of `maskingtape`. Raises MaskingUnavailable without the package."""
    try:
        from maskingtape import Pipeline
    except ImportError as error:
        raise MaskingUnavailable(
            "masking needs the package maskingtape; install it with: pip install 'spec-harness[pii]', or give --mask none"
        ) from error
    pipeline = Pipeline()

    def scan(text: str) -> list[Found]:
        return [
            Found(one.start, one.end, one.kind)
            for one in pipeline.scan(text)
            if one.kind in KINDS
            and not (one.kind == "name" and _is_word(one.text))
            and not TIMESTAMP.fullmatch(one.text)
        ]

    return scan


def text_spans(text: str, scanner: Scanner | None) -> list[Found]:
    """Find the personal values of a text by their looks and by the words beside them."""
    found = [Found(*match.span(), "phone") for match in FOREIGN_PHONE.finditer(text)]
    found += [Found(*match.span(1), "phone") for match in LOCAL_PHONE.finditer(text)]
    found += [Found(*match.span(1), "name", cued=True) for match in TITLED.finditer(text) if _is_titled(match[1])]
    found += [Found(*match.span(), "phone") for match in MOBILE.finditer(text)]
    found += [Found(*span, "account", True) for span in iban_spans(text)]
    found += [Found(start, end, "email") for start, end in mails(text) if "@" not in text[start:end]]
    found += _cued_names(text)
    for start, part in _parts(text):
        found += [
            Found(
                start + scan.start + piece.start(),
                start + scan.start + piece.end(),
                scan.kind,
                scan.certain,
                cued=scan.kind == "name" and TITLE.match(part, scan.end) is not None,
            )
            for scan in (scanner(part) if scanner else ())
            for piece in WITHIN.finditer(part[scan.start : scan.end])
        ]
    return found


def disjoint(text: str, found: Sequence[Found], *, ranked: bool = False) -> list[Found]:
    """Resolve overlaps: a value that comes first in rank keeps its bounds, of others the rest beside it is kept.

    ``ranked``: the order given is the rank; else keys come before looks, and longer before shorter.
    """
    order = found if ranked else sorted(found, key=lambda f: (not f.certain, f.start - f.end, f.start))
    starts, chosen = list[int](), list[Found]()  # both in order of place
    for one in order:
        for piece in _beside(one, starts, chosen):
            kept = piece if piece is one else _trimmed(text, piece)
            if kept is not None:
                at = bisect.bisect_left(starts, kept.start)
                starts.insert(at, kept.start)
                chosen.insert(at, kept)
    return chosen


def _beside(one: Found, starts: Sequence[int], chosen: Sequence[Found]) -> list[Found]:
    """Return the parts of a find that nothing chosen covers."""
    first = max(0, bisect.bisect_right(starts, one.start) - 1)
    pieces, at = list[Found](), one.start
    for index in range(first, len(chosen)):
        other = chosen[index]
        if other.start >= one.end:
            break
        if other.end <= at:
            continue
        if other.start > at:
            pieces.append(Found(at, other.start, one.kind))
        at = other.end
    if at == one.start:
        return [one]
    if at < one.end:
        pieces.append(Found(at, one.end, one.kind))
    return pieces


def _trimmed(text: str, piece: Found) -> Found | None:
    value = text[piece.start : piece.end]
    if not re.search(r"\w{2}", value):
        return None
    start = piece.start + len(value) - len(value.lstrip(MARKS))
    return Found(start, piece.end - len(value) + len(value.rstrip(MARKS)), piece.kind)


def _cued_names(text: str) -> Iterator[Found]:
    for cued in CUED_NAMES.finditer(text):
        group = next(number for number in (1, 2, 3) if cued[number])
        for name in HANGUL_RUN.finditer(text, *cued.span(group)):
            # a word with its particle looks like a name too: such a one is taken only beside others or before a mark
            is_clear = not name.group().endswith(ENDS_AS_PARTICLE) or text[name.end() : name.end() + 1] in {
                ",",
                "님",
                "씨",
            }
            if is_clear and _is_titled(name.group()):
                yield Found(*name.span(), "name", cued=True)


def _is_titled(name: str) -> bool:
    return looks_like_name(name) and not _is_word(name)


def _is_word(name: str) -> bool:
    """Tell whether what a scanner took for a name is the name of a post, a group, or a word of the list."""
    plain = "".join(name.split())
    return plain in words()["not_names"] or plain in words()["titles"] or plain.endswith(tuple(words()["groups"]))


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """Cut a long text at line ends for the scanner, whose time grows faster than the text."""
    at = 0
    while at < len(text):
        end = min(len(text), at + SCAN_CHARACTERS)
        if end < len(text):
            cut = text.rfind("\n", at + 1, end)
            end = cut + 1 if cut > at else end
        yield at, text[at:end]
        at = end
