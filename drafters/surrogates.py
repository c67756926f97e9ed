"""Invented values in place of personal ones: same kind, same shape, and the same one for the same value under one key.

Every draw comes from HMAC-SHA256 of the value's canonical form, so without the key a surrogate says nothing about the
value, and with it the same value has the same surrogate in every document. Numbers with a check digit get one that is
wrong: they look right and belong to nobody. A Korean name ends in the same class of final sound, so the particle after
it stays right. Public mail domains are kept, for they say nothing about a person. Imports no torch.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from drafters.masking_spellings import plain_mail

__all__ = ["DIGIT_KINDS", "KINDS", "canonical", "final_class", "invent", "pour", "words"]

KINDS: Mapping[str, str] = {
    "name": "이름",
    "phone": "전화번호",
    "email": "이메일",
    "address": "주소",
    "account": "계좌번호",
    "card": "카드번호",
    "rrn": "주민등록번호",
    "corp_reg": "법인등록번호",
    "biz_reg": "사업자등록번호",
    "passport": "여권번호",
    "driver_license": "운전면허번호",
    "birth_date": "생년월일",
}
"""Kind of value → the word that its label shows."""
DIGIT_KINDS = frozenset({"phone", "account", "card", "rrn", "corp_reg", "biz_reg", "driver_license"})
AREA = re.compile(r"02|050\d|0\d\d")
HANGUL = re.compile(r"[가-힣]")
ADDRESS_TOKEN = re.compile(r"[가-힣]+|[A-Za-z]+|\d+|[^가-힣A-Za-z\d]+")
SYLLABLES = ord("힣") - ord("가") + 1


@cache
def words() -> Mapping[str, Any]:
    """Read the lists that values are made of."""
    value: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    return value


def canonical(kind: str, value: str) -> str:
    """One form for all ways of writing a value: separators, spaces, width and case do not matter."""
    plain = unicodedata.normalize("NFKC", value).strip()
    digits = "".join(character for character in plain if character.isdigit())
    if kind == "phone":
        if digits.startswith("82") and len(digits) >= 10:
            return "0" + digits[2:].removeprefix("0")
        if plain.startswith("+1") and len(digits) == 11:
            return digits[1:]
        digits = "0" + digits if re.fullmatch(r"10\d{8}", digits) else digits
    if kind in DIGIT_KINDS and digits:
        return digits
    if kind == "birth_date":
        return "-".join(str(int(part)) for part in re.findall(r"\d+", plain)) or plain
    if kind == "passport":
        plain = "".join(character for character in plain if character.isalnum())
        return plain.upper()
    if kind == "name" and HANGUL.search(plain):
        plain = re.sub(r"[\s*_`~]", "", plain)
    if kind == "email":
        plain = plain_mail(plain)
    return " ".join(plain.casefold().split())


def invent(key: bytes, kind: str, value: str, attempt: int = 0) -> str:
    """Return an invented canonical value for a canonical value; another ``attempt`` gives another one."""
    draw = _Draw(key, f"{kind}\0{value}\0{attempt}")
    if kind in DIGIT_KINDS and value.isdigit():
        return NUMBERS.get(kind, _plain_number)(draw, value)
    if kind == "name":
        return _name(draw, value, lambda part: _Draw(key, f"part\0{part}\0{attempt}"))
    if kind == "email" and "@" in value:
        local, _, domain = value.rpartition("@")
        return f"{_letters(draw, local)}@{_domain(key, domain)}"
    if kind == "address":
        return "".join(_address_part(draw, part) for part in ADDRESS_TOKEN.findall(value))
    if kind == "birth_date" and re.fullmatch(r"[\d-]+", value):
        return _date(draw, value)
    return _shape(draw, value)


def pour(kind: str, value: str, surrogate: str) -> str:
    """Write a canonical surrogate in the form of ``value``: its separators, its spaces, its case."""
    plain = unicodedata.normalize("NFKC", value)
    if kind == "birth_date" and surrogate.count("-") == 2:
        parts = iter(surrogate.split("-"))
        return re.sub(r"\d+", lambda group: _date_part(group.group(), next(parts, "")), plain)
    if surrogate.isdigit() and (kind in DIGIT_KINDS or kind == "birth_date"):
        places = [index for index, character in enumerate(plain) if character.isdigit()]
        digits = "".join(plain[index] for index in places)
        if kind == "phone" and digits.startswith("82") and len(digits) >= 10:
            places = places[2:]
            surrogate = surrogate if digits[2] == "0" else surrogate[1:]
        written = list(plain)
        for index, digit in zip(reversed(places), reversed(surrogate), strict=False):
            written[index] = digit
        return "".join(written)
    if kind == "name" and HANGUL.search(surrogate):
        return _spaced(plain, surrogate)
    if kind == "passport":
        fresh_characters = iter(surrogate)
        return "".join(next(fresh_characters, c) if c.isalnum() else c for c in plain)
    return _cased(plain, surrogate)


def final_class(syllable: str) -> int:
    """0 without a final consonant, 1 with ㄹ, 2 with another: what decides the form of a particle."""
    offset = ord(syllable) - ord("가")
    if not 0 <= offset < SYLLABLES:
        return 0
    final = offset % 28
    return 0 if final == 0 else 1 if final == 8 else 2


class _Draw:
    """Numbers from a keyed hash, the same on every Python."""

    def __init__(self, key: bytes, subject: str) -> None:
        self._key = key
        self._block = hmac.new(key, subject.encode(), hashlib.sha256).digest()
        self._at = 0

    def below(self, count: int) -> int:
        """Draw from 0 to ``count`` − 1; ``count`` far below 2³²."""
        if self._at + 4 > len(self._block):
            self._block, self._at = hmac.new(self._key, self._block, hashlib.sha256).digest(), 0
        number = int.from_bytes(self._block[self._at : self._at + 4], "big")
        self._at += 4
        return number % count

    def pick(self, choices: Any) -> str:
        """Draw one of a list, or one character of a string."""
        return str(choices[self.below(len(choices))])

    def digits(self, count: int) -> str:
        """Draw digits."""
        return "".join(str(self.below(10)) for _ in range(max(0, count)))


def _plain_number(draw: _Draw, value: str) -> str:
    first = "0" if value.startswith("0") else str(1 + draw.below(9))
    return first + draw.digits(len(value) - 1)


def _phone(draw: _Draw, value: str) -> str:
    found = AREA.match(value) if len(value) >= 9 else None
    kept = found.group() if found else value[: max(0, min(3, len(value) - 10))]
    rest = len(value) - len(kept)
    return kept + (str(2 + draw.below(8)) + draw.digits(rest - 1) if rest else "")


def _rrn(draw: _Draw, value: str) -> str:
    date = f"{draw.below(100):02}{1 + draw.below(12):02}{1 + draw.below(28):02}"
    made = (date + value[6:7] + draw.digits(len(value) - 7))[: len(value)]
    return _bumped(made) if len(made) == 13 and _rrn_check(made) else made


def _card(draw: _Draw, value: str) -> str:
    made = value[:1] + draw.digits(len(value) - 1)
    return _bumped(made) if _luhn(made) else made


def _biz_reg(draw: _Draw, value: str) -> str:
    made = _plain_number(draw, value)
    return _bumped(made) if len(made) == 10 and _biz_check(made) else made


def _driver_license(draw: _Draw, value: str) -> str:
    return value[:2] + draw.digits(len(value) - 2)


NUMBERS: Mapping[str, Callable[[_Draw, str], str]] = {
    "phone": _phone,
    "rrn": _rrn,
    "card": _card,
    "biz_reg": _biz_reg,
    "driver_license": _driver_license,
}


def _bumped(number: str) -> str:
    return number[:-1] + str((int(number[-1]) + 1) % 10)


def _rrn_check(number: str) -> bool:
    total = sum(
        int(digit) * weight for digit, weight in zip(number, (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5), strict=False)
    )
    return (11 - total % 11) % 10 == int(number[12])


def _luhn(number: str) -> bool:
    total = 0
    for index, digit in enumerate(reversed(number)):
        doubled = int(digit) * (1 + index % 2)
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0


def _biz_check(number: str) -> bool:
    total = sum(int(digit) * weight for digit, weight in zip(number, (1, 3, 7, 1, 3, 7, 1, 3, 5), strict=False))
    return (10 - (total + int(number[8]) * 5 // 10) % 10) % 10 == int(number[9])


def _name(draw: _Draw, value: str, of_part: Callable[[str], _Draw]) -> str:
    if HANGUL.search(value):
        return _korean_name(draw, value)
    if any("一" <= character <= "鿿" for character in value):
        return "".join(draw.pick(words()["hanja"]) if "一" <= c <= "鿿" else c for c in value)
    parts = value.split(" ")
    lists = ["latin_first"] * max(1, len(parts) - 1) + ["latin_last"]
    return " ".join(
        _initial(draw, part) if len(part.rstrip(".")) <= 1 else of_part(part).pick(words()[name]).casefold()
        for part, name in zip(parts, lists, strict=False)
    )


def _initial(draw: _Draw, part: str) -> str:
    return (draw.pick("abcdefghklmnprst") if part[:1].isalpha() else part[:1]) + part[1:]


def _korean_name(draw: _Draw, value: str) -> str:
    count = len(value)
    if not re.fullmatch(r"[가-힣]+", value):
        return _shape(draw, value)
    last = draw.pick(words()[("given_open", "given_rieul", "given_closed")[final_class(value[-1])]])
    if count == 1:
        return last
    surname = draw.pick(words()["compound_surnames"]) if count >= 4 else draw.pick(words()["surnames"])
    between = "".join(draw.pick(words()["given"]) for _ in range(count - len(surname) - 1))
    return surname + between + last


def _spaced(form: str, made: str) -> str:
    """Put the spaces and marks of ``form`` where they were, counted in characters."""
    fresh = iter(made)
    return "".join(next(fresh, "") if character.isalnum() else character for character in form) + "".join(fresh)


def _cased(form: str, made: str) -> str:
    letters = [character for character in form if character.isalpha()]
    if letters and all(character.isupper() for character in letters if character.lower() != character.upper()):
        return made.upper()
    if any(character.isupper() for character in letters):
        return re.sub(r"[A-Za-z]+", lambda word: word.group()[:1].upper() + word.group()[1:], made)
    return made


def _letters(draw: _Draw, value: str) -> str:
    """Pronounceable letters for letters, digits for digits, the rest as it is."""
    made, is_vowel = "", False
    for character in value:
        if character.isdigit():
            made += str(draw.below(10))
        elif character.isalpha():
            made += draw.pick("aeiou" if is_vowel else "bdghjkmnprst")
            is_vowel = not is_vowel
        else:
            made, is_vowel = made + character, False
    return made


def _domain(key: bytes, domain: str) -> str:
    if domain in words()["public_mail"]:
        return domain
    labels = domain.split(".")
    kept = 2 if len(labels) > 2 and len(labels[-1]) == 2 and len(labels[-2]) <= 3 else 1
    draw = _Draw(key, f"domain\0{domain}")
    return ".".join([*(_letters(draw, label) for label in labels[:-kept]), *labels[-kept:]])


def _address_part(draw: _Draw, part: str) -> str:
    return _korean_place(draw, part) if HANGUL.match(part) else _latin_place(draw, part)


def _latin_place(draw: _Draw, part: str) -> str:
    if part.isdigit():
        return _plain_number(draw, part)
    if part.isascii() and part.isalpha():
        return part if part in words()["address_words"] else draw.pick(words()["latin_places"]).casefold()
    return part


def _korean_place(draw: _Draw, part: str) -> str:
    lists = words()
    for name in ("provinces", "provinces_short"):
        if part in lists[name]:
            return draw.pick(lists[name])
    if len(part) <= 2 and part in ("동", "호", "층", "번지", "길", "로", "가", "지하", "층의"):
        return part
    for ending in ("특별자치시", "아파트", "오피스텔", "빌딩", "타워", "센터", "번길", "대로"):
        if part.endswith(ending):
            return draw.pick(lists["places"]) + ending
    return draw.pick(lists["places"]) + (part[-1] if part[-1] in "시군구읍면동리로길가" else "")


def _date(draw: _Draw, value: str) -> str:
    """A date with as many digits in each place; months and days of one digit stay so."""
    parts = value.split("-")
    year, month, day = 1950 + draw.below(55), 1 + draw.below(12), 1 + draw.below(28)
    if len(parts) != 3:
        whole = f"{year:04}{month:02}{day:02}"
        return whole[-len(value) :] if len(value) in (6, 8) else _plain_number(draw, value.replace("-", ""))
    return f"{year:04}-{month:02}-{day:02}"


def _date_part(group: str, made: str) -> str:
    return made[-len(group) :] if len(made) == 4 else str(int(made or "1")).zfill(len(group))


def _shape(draw: _Draw, value: str) -> str:
    """Characters of the same script and class."""
    made = []
    for character in value:
        if HANGUL.match(character):
            made.append(draw.pick(words()["given"]))
        elif character.isdigit():
            made.append(str(draw.below(10)))
        elif character.isalpha():
            made.append(draw.pick("abcdefghijklmnopqrstuvwxyz" if character.islower() else "ABCDEFGHJKLMNPRSTUVWXYZ"))
        else:
            made.append(character)
    return "".join(made)
