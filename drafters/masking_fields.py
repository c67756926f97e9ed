"""Personal values that a name gives away: JSON keys and ``key: value`` lines. Imports no torch.

Nothing needs to be well-formed: JSON may stand inside prose, be cut off, be escaped once more or hold single quotes;
each value is found where it stands, so that the text around it stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from drafters.surrogates import words

__all__ = [
    "Found",
    "bounds",
    "field_spans",
    "is_foreign_name",
    "kind_of_key",
    "looks_like_name",
    "names_in",
    "value_spans",
]


@dataclass(frozen=True, slots=True)
class Found:
    """A value at [start, end). ``certain``: its key says what it is; else its looks do. ``bare``: a number in JSON.
    ``cued``: a name beside a title or a word for a role.
    """

    start: int
    end: int
    kind: str
    certain: bool = False
    bare: bool = False
    cued: bool = False


KEYS: tuple[tuple[str, str], ...] = (
    ("rrn", r"주민(등록)?번호|외국인등록번호|rrn|ssn|resident(registration)?(no|number|id)"),
    ("corp_reg", r"법인(등록)?번호|corp(oration)?reg(istration)?(no|number)?"),
    ("biz_reg", r"사업자(등록)?번호|사업자번호|biz(reg)?(no|number)|business(registration)?(no|number)|brn"),
    ("passport", r"여권(번호)?|passport(no|number)?"),
    ("driver_license", r"(운전)?면허(번호|증번호)?|driver(s)?licen[sc]e(no|number)?"),
    ("card", r"(신용|체크|법인)?카드번호|card(no|number)|creditcard(no|number)?"),
    ("account", r"(입금|환불|은행|출금|급여)?계좌(번호)?|account(no|number)|bankaccount(no|number)?|iban|account"),
    ("birth_date", r"생년월일|생일|birth(date|day)|dateofbirth|dob"),
    ("email", r"(전자우편|이메일|메일)(주소)?|e?mail(address)?|(customer|user|contact|to|cc)email"),
    (
        "phone",
        r"(휴대)?전화(번호)?|휴대폰(번호)?|핸드폰(번호)?|연락처|비상연락(처|망)|팩스(번호)?|phone(no|number)?"
        r"|(mobile|cell|tel|telephone|fax|contact)(phone)?(no|number)?|(customer|user)phone",
    ),
    (
        "address",
        r"도로명(주소)?|상세주소|지번(주소)?|우편번호|street|zip(code)?|postalcode|(자택|배송지?|거주지|집|우편|수령)?주소|(배송|거주)지|(home|street|shipping|billing|postal|mailing)?address(line)?[12]?",
    ),
    (
        "name",
        r"[가-힣]{0,4}(성명|성함)|(고객|회원|직원|사원|담당자?|신청[인자]|작성자|수령인|예금주|한글|영문|국문)이름|고객명|수령인(명)?|수취인(명)?|예금주(명)?|신청자(명)?|신청인(명)?|담당자(명)?|작성자(명)?|보고자|환자명"
        r"|직원명|사원명|회원명|사용자명|대표자(명)?|계약자(명)?|피보험자(명)?|보호자(명)?|참석자|발신자|수신자|기안자|결재자|승인자"
        r"|(full|first|last|middle|given|family|customer|user|employee|member|patient|contact|holder|owner|recipient"
        r"|sender|account|accountholder|cardholder|passenger|guest)name|assignee|attendees?|recipient|cardholder|accountholder",
    ),
)
"""Kind → names of keys, without spaces, marks and case."""
COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in KEYS)
LOOSE = {
    "name",
    "이름",
    "customer",
    "고객",
    "담당",
    "author",
    "owner",
    "user",
    "employee",
    "작성",
    "보고",
    "승인",
    "contact",
    "manager",
    "보낸사람",
    "받는사람",
    "보내는사람",
    "받은사람",
    "숨은참조",
    "참조",
    "수신",
    "발신",
}
"""Keys that hold a person's name or something else: the value or its neighbours must look like it."""
TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<mark>[{}\[\],:])|(?P<literal>-?\d[\d.eE+-]*|true|false|null|None|True|False)
    |(?P<quote>\\*["'])(?P<text>(?:(?!(?P=quote))(?:\\.|[^\n\\]))*)(?P=quote)""",
    re.VERBOSE,
)
OPENING = re.compile(r"[{\[](?=\s*(?:\\*[\"']|[{\[]))")
LINE = re.compile(
    r"^[^\w\n]*(?:[가-하\d]{1,2}[.)]\s*)?[*_]*([A-Za-z가-힣][A-Za-z가-힣 _]{0,24}?)[*_]*\s*[::=][*_]*[ \t]*(\S[^\n]*)$",
    re.M,
)
KOREAN_WORD = re.compile(r"[가-힣]+(?: [가-힣](?= |$))*")
LATIN_NAME = re.compile(r"[A-Z][a-z]+(?:[-'][A-Z]?[a-z]+)*(?: [A-Z]\.)?(?: [A-Z][a-z]+(?:[-'][A-Z]?[a-z]+)*){1,2}")
LATIN_HEAD = re.compile(
    r"^[^\w\n]*(?:(?:From|To|Cc|Attendees|Present)[ \t]*:[ \t]*(?P<list>\S[^\n]*)"
    r"|(?:Signed|(?:Reported|Prepared|Written|Approved|Reviewed|Requested|Submitted) by)[ \t]*:[ \t]*(?P<one>[^\n,;(<]+).*)$",
    re.M,
)
"""Heads of mails and reports; behind a comma stands another person in some, the person's house in others."""
CUED = re.compile(
    r"((?:법인|사업자)(?:등록)?번호|(?:계좌|카드|여권|운전면허|주민등록|외국인등록)번호)\s*[::은는]?\s*([A-Z]{0,2}\d[\d -]{5,22}\d)(?!\d)"
)
BIRTH = re.compile(r"(?:생년월일|출생일|date of birth|birth ?date)[^\d\n]{0,6}", re.I)
BIRTH_DATE = re.compile(r"(?:생)?[^\w\n]{0,4}((?:\d{4}|\d{2}) ?[-./년] ?\d{1,2} ?[-./월] ?\d{1,2}(?: ?일)?)(?!\d)")
MIN_DIGITS = 5
"""A number with fewer digits is a placeholder or a code."""
ADDRESS = re.compile(r"[가-힣][가-힣]+|[A-Za-z]{3,}.*\d|\d.*[A-Za-z]{3,}|^\s*\d{5}(-\d{4})?\s*$")
BRACKETED = re.compile(r"\([^)]*\)|\[[^\]]*\]")
"""What a column's head adds to its name: (한글), (정), [필수]."""
WORD = re.compile(r"[^\W\d_가-힣]+(?:['’.-][^\W\d_가-힣]+)*\.?")
BETWEEN = frozenset(
    ["van", "von", "der", "den", "de", "da", "di", "du", "dos", "del", "la", "le", "bin", "ibn", "al", "el"]
)
"""Words of names that begin small."""
PARTS = frozenset({"first", "last", "given", "family", "middle", "성", "이름", "fullname"})
"""Keys of an object under the key of a name."""
REACHED = re.compile(r"(?:\(?0|\+)\d[\d ().-]{6,18}\d|[^\s@]+@[^\s@]+\.[A-Za-z]{2,}")
"""A telephone number or a mail address: what stands in a list with a name."""
REACH_KINDS = frozenset({"phone", "email", "address", "rrn", "account", "birth_date", "card"})
SEPARATORS = re.compile(r"[,;/·、|&<>]|\s+외\s+\d+|\(|\)")


def kind_of_key(key: str) -> str | None:
    """Return what a key's value is, ``"?name"`` where it may be a name, and None otherwise."""
    for written in dict.fromkeys((key, BRACKETED.sub("", key))):
        plain = re.sub(r"[\s_\-.*()]|\\u200b", "", written).casefold()
        kind = next((kind for kind, pattern in COMPILED if pattern.fullmatch(plain)), None)
        if plain in LOOSE or kind:
            return "?name" if plain in LOOSE else kind
    return None


def looks_like_name(value: str) -> bool:
    """Tell whether a text has the form of one person's name: a Korean surname and a given name, or two Latin words."""
    plain = "".join(value.split())
    lists = words()
    if re.fullmatch(r"[가-힣]{2,4}", plain):
        if plain in lists["not_names"] or plain in lists["titles"] or plain in lists["provinces_short"]:
            return False
        is_compound = plain[:2] in lists["compound_surnames"] and len(plain) > 2
        given = plain[2:] if is_compound else plain[1:]
        is_surname = is_compound or (plain[0] in lists["all_surnames"] and len(plain) <= 3)
        return is_surname and all(syllable in lists["name_syllables"] for syllable in given)
    return LATIN_NAME.fullmatch(value.strip()) is not None


def is_foreign_name(value: str) -> bool:
    """Tell whether a text has the form of a name in letters other than Hangul: capital words, or a few characters of a
    script without capitals. So have many titles and products: it is to be asked only where something points to a person.
    """
    parts = value.split()
    if not 1 <= len(parts) <= 5 or not all(WORD.fullmatch(part) for part in parts):
        return False
    if {part.casefold().rstrip(".") for part in parts} & set(words()["latin_groups"]):
        return False
    caseless = all(part.lower() == part.upper() for part in parts)
    if caseless:
        return 2 <= len("".join(parts)) <= 20
    return len(parts) >= 2 and all(part[:1].isupper() or part in BETWEEN for part in parts) and parts[0] not in BETWEEN


def field_spans(text: str) -> list[Found]:
    """Find the personal values of a text that keys of JSON and line headings name."""
    found = list(_json_spans(text))
    found += _line_spans(text)
    return found


@dataclass(slots=True)
class _Level:
    """One open object or list."""

    is_object: bool
    kind: str | None
    key: str | None = None
    key_at: tuple[int, int] = (0, 0)
    of_name: bool = False
    """Whether the object stands under the key of a name."""
    texts: list[tuple[int, int]] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    loose: list[tuple[int, int, bool]] = field(default_factory=list)
    """Values that may be names, and whether their key means things as often as persons."""


def _json_spans(text: str) -> Iterator[Found]:
    at = 0
    while opening := OPENING.search(text, at):
        at = yield from _json_from(text, opening.start())
        at = max(at, opening.start() + 1)


def _json_from(text: str, start: int) -> Generator[Found, None, int]:
    """Yield the values of the JSON that opens at ``start``; the generator's result is where it ends or breaks."""
    at, levels = start, list[_Level]()
    while token := TOKEN.match(text, at):
        at = token.end()
        mark, top = token["mark"], levels[-1] if levels else None
        if token["space"]:
            continue
        if mark in ("{", "["):
            inherited = _kind_here(top)
            levels.append(_Level(mark == "{", inherited, of_name=mark == "{" and inherited in ("name", "?name")))
        elif mark in ("}", "]"):
            closed = levels.pop()
            yield from _closed(text, closed)
            if not levels:
                return at
            yield from _named_by_key(text, levels[-1], bool(closed.is_object and closed.kinds & REACH_KINDS))
        elif mark == "," and top:
            top.key = None if top.is_object else top.key
        elif top is not None and mark is None:
            is_text = token["text"] is not None
            span = token.span("text") if is_text else token.span()
            if top.is_object and top.key is None and is_text:
                top.key, top.key_at = token["text"], span
                continue
            yield from _noted(text, top, span, is_text)
            kind = _kind_here(top)
            inner = token["text"] or ""
            if '\\"' in inner and OPENING.search(inner):  # JSON written into a string
                yield from (
                    Found(one.start + span[0], one.end + span[0], one.kind, one.certain, one.bare)
                    for one in _json_spans(inner)
                )
            elif kind == "?name":
                top.loose.append((*span, top.key in ("name", "Name", "NAME")))
            elif kind and (is_text or token["literal"][-1:].isdigit()):
                top.kinds.add(kind)
                yield from value_spans(text, *span, kind, bare=not is_text)
    for level in levels:
        yield from _closed(text, level)
    return at


def _kind_here(level: _Level | None) -> str | None:
    """Return the kind of a value here: its key's, in a list that of the list's key; an object begins anew, so that a
    schema's ``{"name": {"type": …}}`` is no name.
    """
    if level is None:
        return None
    if level.of_name and (level.key or "").casefold() in PARTS:
        return "name"
    own = kind_of_key(level.key) if level.is_object and level.key is not None else None
    return own if level.is_object else level.kind


def _noted(text: str, level: _Level, span: tuple[int, int], is_text: bool) -> Iterator[Found]:
    """Remember a text of a list; one in an object may say of its key that it is a name."""
    if level.is_object:
        yield from _named_by_key(text, level, is_text and REACHED.fullmatch(text, *span) is not None)
    elif is_text:
        level.texts.append(span)


def _named_by_key(text: str, level: _Level, is_person: bool) -> Iterator[Found]:
    """A key that is itself a name, where what stands under it belongs to a person."""
    key = text[slice(*level.key_at)] if level.is_object and level.key is not None else ""
    if is_person and len(key) >= 3 and looks_like_name(key):
        yield Found(*level.key_at, "name", True)


def _closed(text: str, level: _Level) -> Iterator[Found]:
    """Decide on the names that need a second look: beside personal values, any value under such a key is one."""
    for start, end, is_plain in level.loose:
        value = text[start:end]
        beside = bool(level.kinds - {"name"})
        if (looks_like_name(value) and not (is_plain and value.isascii())) or (
            beside and (re.fullmatch(r"[가-힣 ]{2,6}|[A-Za-z .'-]{3,40}", value) or is_foreign_name(value))
        ):
            yield from value_spans(text, start, end, "name")
    if not level.is_object and level.kind is None and any(REACHED.fullmatch(text, *one) for one in level.texts):
        for start, end in level.texts:
            if end - start >= 3 and looks_like_name(text[start:end]):
                yield from value_spans(text, start, end, "name")


def value_spans(text: str, start: int, end: int, kind: str, *, bare: bool = False) -> Iterator[Found]:
    """Yield the value at [start, end), which a key names, without blanks around it; nothing where it is of another kind."""
    value = text[start:end]
    digits = sum(map(str.isdigit, value))
    if not value.strip() or (kind not in ("name", "email", "address", "birth_date") and digits < MIN_DIGITS):
        return
    if kind == "name":
        yield from names_in(value, start)
    elif not (
        (kind == "email" and "@" not in value)
        or (kind == "birth_date" and digits < 3)
        or (kind == "address" and not ADDRESS.search(value))
    ):
        begins = start + len(value) - len(value.lstrip())
        yield Found(begins, begins + len(value.strip()), kind, True, bare)


def names_in(value: str, start: int, *, strict: bool = False) -> Iterator[Found]:
    """Yield the names among a value's parts, without titles. ``strict``: only what looks like a name."""
    at = 0
    titles = words()["titles"]
    for part in [*SEPARATORS.finditer(value), None]:
        piece, offset = value[at : part.start() if part else len(value)], at
        at = part.end() if part else at
        if not piece.isascii() and is_foreign_name(piece):
            low, high = bounds(piece)
            yield Found(start + offset + low, start + offset + high, "name", True)
            continue
        latin = LATIN_NAME.search(piece)
        if latin or not re.search(r"[가-힣]", piece):
            span = latin.span() if latin else bounds(piece)
            if latin or (
                not strict and re.fullmatch(r"\s*(?:[A-Z]?[a-z.'-]+ ?|[A-Z.'-]+ ?|[一-鿿]+ ?){1,4}\s*", piece)
            ):
                yield Found(start + offset + span[0], start + offset + span[1], "name", True)
            continue
        for word in KOREAN_WORD.finditer(piece):
            shown = word.group()
            title = next((t for t in sorted(titles, key=len, reverse=True) if shown.endswith(t) and shown != t), "")
            name = shown.removesuffix(title).rstrip()
            doubtful = strict or title or " " in piece.strip()
            if shown in titles or len(name) < 2 or (doubtful and not looks_like_name(name)):
                continue
            if len("".join(name.split())) > 6 or name.endswith(tuple(words()["groups"])):
                continue
            yield Found(start + offset + word.start(), start + offset + word.start() + len(name), "name", True)


def bounds(piece: str) -> tuple[int, int]:
    """Where a text begins and ends without the blanks around it."""
    return len(piece) - len(piece.lstrip()), len(piece.rstrip())


def _line_spans(text: str) -> Iterator[Found]:
    """``성명: …`` and the like; the value must look like its kind, for a line of prose can begin so too."""
    for cued in CUED.finditer(text):
        kind = kind_of_key(cued[1])
        if kind:
            yield Found(*cued.span(2), kind, True)
    yield from _births(text)
    for head in LATIN_HEAD.finditer(text):
        for name in LATIN_NAME.finditer(text, *head.span("list" if head["list"] else "one")):
            if not set(name.group().casefold().split()) & set(words()["latin_groups"]):
                yield Found(*name.span(), "name", True)
    for line in LINE.finditer(text):
        kind = kind_of_key(line[1])
        start, value = line.start(2), line[2]
        if kind in ("name", "?name"):
            yield from names_in(value[:60], start, strict=True)
        elif kind == "address":
            if any(map(str.isdigit, value)) and len(value) <= 100:
                yield Found(start, start + len(value.rstrip()), kind, True)
        elif kind in ("account", "card", "rrn", "corp_reg", "biz_reg", "phone", "passport", "driver_license"):
            for number in re.finditer(r"(?<![\w])[A-Za-z]{0,2}[+(]?\d[\d ().*-]{5,24}\d(?!\w)", value):
                yield Found(start + number.start(), start + number.end(), kind, True)


def _births(text: str) -> Iterator[Found]:
    """All dates that stand in a row after the word for a day of birth."""
    for head in BIRTH.finditer(text):
        at = head.end()
        while found := BIRTH_DATE.match(text, at):
            yield Found(*found.span(1), "birth_date", True)
            at = found.end()
