"""Other ways of writing a value: encoded or spelled-out mail addresses, numbers with odd marks, names pulled apart.

Imports no torch.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Set
from urllib.parse import unquote_to_bytes

__all__ = ["CHAIN", "MAIL", "apart", "dates", "iban_spans", "literals", "mails", "plain_mail", "prepared", "respelled"]

ESCAPED = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2}){3,}")
ENTITIES = re.compile(r"(?:&#(?:\d{4,6}|[xX][0-9a-fA-F]{3,5});)+")
UNSEEN = re.compile(r"(?<=\w)[\u00ad\u200b\u2060\ufeff]+(?=\w)")
"""Marks of no width within a word."""
MARK = r"[-. ·)(_/~\u2010-\u2015\u2212ㅡ]"
CHAIN = re.compile(rf"\d+(?:{MARK}{{1,3}}\d+)*")
"""Digits, with whatever people write between those of one number."""
AT = r"(?:[@＠]|%40|&#64;| ?[\[({] ?(?:at|AT|골뱅이) ?[\])}] ?)"
DOT = r"(?:\.| ?[\[({] ?(?:dot|DOT|점) ?[\])}] ?)"
MAIL = re.compile(rf"(?<![A-Za-z0-9._+-])[A-Za-z0-9._+-]+{AT}[A-Za-z0-9-]+(?:{DOT}[A-Za-z0-9-]+)*{DOT}[A-Za-z]{{2,}}")
AT_MARK, DOT_MARK = re.compile(AT), re.compile(rf"(?!\.){DOT}")
DATE = re.compile(r"(?<!\d)(?:19|20)\d\d ?(?:[-./]|년) ?\d{1,2} ?(?:[-./]|월) ?\d{1,2}(?: ?일)?(?!\d)")
IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])")
HANGUL_RUN = re.compile(r"[가-힣]+")
GAP = re.compile(r"[ \u3000*_`~]{1,5}")
STANDS_ALONE = frozenset("김박최강윤임황권홍송류허심곽엄채염추")
"""Surnames that are hardly ever a word by themselves: behind them a blank may stand within a name."""
STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
NUMBER = re.compile(r"-?\d[\d.eE+-]*")


def prepared(text: str) -> str:
    """Composed characters, and these instead of their escapes, so that no value hides behind its spelling."""
    text = UNSEEN.sub("", ESCAPED.sub(_unescaped, unicodedata.normalize("NFC", text)))
    return ENTITIES.sub(lambda m: _if_hangul(html.unescape(m.group()), m.group()), PERCENT.sub(_decoded, text))


def plain_mail(value: str) -> str:
    """A mail address as it is sent: with the mark and the full stops themselves."""
    return DOT_MARK.sub(".", AT_MARK.sub("@", value, count=1))


def respelled(value: str, made: str) -> str:
    """Write a plain mail address with the marks of ``value``."""
    at, dot = AT_MARK.search(value), DOT_MARK.search(value)
    local, _, domain = made.partition("@")
    return local + (at.group() if at else "@") + (domain.replace(".", dot.group()) if dot else domain)


def mails(text: str) -> Iterator[tuple[int, int]]:
    """Bounds of mail addresses in whatever spelling."""
    return (match.span() for match in MAIL.finditer(text))


def dates(text: str) -> Iterator[tuple[int, int]]:
    """Bounds of whole dates with a year of four digits."""
    return (match.span() for match in DATE.finditer(text))


def iban_spans(text: str) -> Iterator[tuple[int, int]]:
    """Bounds of international account numbers whose check digits are right."""
    for match in IBAN.finditer(text):
        plain = match.group().replace(" ", "")
        if int("".join(str(int(character, 36)) for character in plain[4:] + plain[:4])) % 97 == 1:
            yield match.span()


def apart(
    text: str, names: Set[str], local: Set[str], titled: Callable[[str, int], bool], ends: Callable[[str, int], bool]
) -> Iterator[tuple[int, int]]:
    """Bounds of known Korean names with blanks or marks of emphasis within.

    With nothing but blanks between, syllables must stand singly, or the surname be no word, or a title follow.
    ``titled`` and ``ends`` look at what stands behind a name.
    """
    runs = [match.span() for match in HANGUL_RUN.finditer(text)]
    for index, (start, end) in enumerate(runs):
        if end - start > 3:
            continue
        joined, last, gaps = text[start:end], end, list[str]()
        for low, high in runs[index + 1 : index + 4]:
            gap = text[last:low]
            if not GAP.fullmatch(gap) or len(joined) > 3:
                break
            gaps.append(gap)
            for size in range(min(5 - len(joined), high - low), 0, -1):
                name, stop = joined + text[low : low + size], low + size
                if (name in names or name in local) and ends(text, stop):
                    is_spaced = not "".join(gaps).strip(" \u3000")
                    single = all(len(part) == 1 for part in re.split(GAP, text[start:stop])) and len(gaps) > 1
                    stands = name[0] in STANDS_ALONE and end - start == 1
                    if not is_spaced or single or stands or titled(text, stop):
                        yield start, stop
            joined, last = joined + text[low:high], high


def literals(text: str) -> list[tuple[int, int]]:
    """Bounds of the numbers of a text that is JSON as a whole, none of one that is not."""
    if text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return []
    blank = STRING.sub(lambda match: " " * len(match.group()), text)
    return [match.span() for match in NUMBER.finditer(blank)]


def _unescaped(match: re.Match[str]) -> str:
    units = [int(unit, 16) for unit in re.findall(r"\\u([0-9a-fA-F]{4})", match.group())]
    text = b"".join(unit.to_bytes(2, "little") for unit in units).decode("utf-16-le", "replace")
    is_plain = all(character.isalnum() or character in "·—–’“”… " for character in text)
    return text if is_plain and "\ufffd" not in text else match.group()


def _decoded(match: re.Match[str]) -> str:
    try:
        return _if_hangul(unicodedata.normalize("NFC", unquote_to_bytes(match.group()).decode()), match.group())
    except UnicodeDecodeError:
        return match.group()


def _if_hangul(text: str, otherwise: str) -> str:
    """Only letters: a mark that was written as its code may have been so for a reason."""
    return text if text.isalpha() and HANGUL_RUN.search(text) else otherwise
