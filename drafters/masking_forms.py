"""Names in the forms of office texts: heads of mails and chats, signatures, tags, lists, forms of address. Imports no torch.

What stands in running text with nothing beside it that points to a person is not found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from drafters.masking_fields import Found, bounds, is_foreign_name, kind_of_key, looks_like_name, names_in, value_spans
from drafters.surrogates import words

__all__ = ["form_spans"]

TITLES = "|".join(words()["titles"])
FOREIGN = r"[^\W\d_가-힣][^\W_가-힣]*(?:['’.-][^\W_가-힣]+)*\.?"
MAIL_HEAD = re.compile(
    r"^[^\w\n]*(?:From|To|Cc|CC|Bcc|BCC|Sender|Reply-To|보낸 ?사람|보내는 ?사람|받는 ?사람|받은 ?사람|보낸 ?이|받는 ?이|숨은 ?참조|참조"
    r"|수신인?|발신인?)[ \t]*[*_]*[::][*_]*[ \t]*(\S[^\n]{0,400})",
    re.M,
)
MAILBOX = re.compile(
    rf"(?:(?<![가-힣])(?P<korean>[가-힣]{{2,4}})(?: ?(?:{TITLES}))?|(?<!\w)(?P<foreign>{FOREIGN}(?: {FOREIGN}){{0,3}}))"
    r"\"? ?<[^<>\s@]+@[^<>\s@]+>"
)
"""``Name <address>``."""
TRAILER = re.compile(
    r"\b(?:Signed-off|Co-authored|Co-developed|Reviewed|Acked|Tested|Reported|Suggested)-by:[ \t]*([^<\n]{2,60})"
)
CHAT_HEADS = (
    re.compile(r"^\[([^\]\n]{2,30})\] ?\[(?:(?:오전|오후) ?)?\d{1,2}:\d{2}(?: ?[AP]M)?\]", re.M),
    re.compile(r"(?:오전|오후) ?\d{1,2}:\d{2}(?::\d{2})?, ?([^:\n,]{2,30}?) ?:(?= |$)", re.M),
    re.compile(r"^([가-힣]{2,4}|[A-Z][a-z]+ [A-Z][a-z]+)[ \t]+\[?(?:오전|오후) ?\d{1,2}:\d{2}\]?[ \t]*$", re.M),
)
CALLED = re.compile(
    rf"(?:(?<![\w@.])@|\b[cC][cC]:? )([가-힣]{{3,4}})(?=(?: ?(?:{TITLES}))?(?![가-힣]))"
    r"|^> ?([가-힣]{3}) ?:(?= )"
    r"|(?<![가-힣])([가-힣]{3})님(?=(?:이|은|께|께서|과|을|의|에게|도|께는)?(?![가-힣]))"
    r"|(?<![가-힣])([가-힣]{3}) ?(?:드림|올림|배상)[ \t]*$"
    rf"|^([가-힣]{{3}}) ?[|/] ?(?:[^|/\n]{{1,20}}[|/] ?)?(?:{TITLES})(?![가-힣])",
    re.M,
)
"""Names that are spoken to, quoted or signed with."""
ADDRESSED = re.compile(rf"\b(?:Mr|Mrs|Ms|Dr|Prof|Mme|Herr|Frau)\.? ({FOREIGN}(?: {FOREIGN}){{0,2}})")
POLITE = re.compile(
    rf"(?<!\w)({FOREIGN}(?: {FOREIGN}){{0,3}}) ?(?:씨|님)(?=(?:이|은|는|가|께|과|와|을|를|의|에게|도)?(?![가-힣]))"
)
ELEMENT = re.compile(r"<([A-Za-z가-힣][\w가-힣:.-]*)(?:\s[^<>]*)?>([^<>]{2,80})</\1\s*>")
TAG = re.compile(r"<[A-Za-z가-힣][\w가-힣:.-]*\s[^<>]+>")
ATTRIBUTE = re.compile(r"([\w가-힣:.-]+)\s*=\s*(?:\"([^\"<>]{2,80})\"|'([^'<>]{2,80})')")
LIST_HEAD = re.compile(r"^([ \t]*)(?:- )?([\w가-힣]+)[ \t]*:[ \t]*\n", re.M)
LIST_ITEM = re.compile(
    r"([ \t]*)-[ \t]+([\"']?)([^\n:\"']{2,40})\2[ \t]*(?:\n|$)|([ \t]*)(?:-[ \t]+)?[\w가-힣]+[ \t]*:[^\n]*(?:\n|$)"
)
PEOPLE = frozenset(["staff", "members", "attendees", "participants", "owners", "authors", "reviewers", "approvers", "maintainers",
    "people", "employees", "contacts", "users", "managers", "assignees", "직원", "사원", "담당자", "참석자", "참석", "구성원", "팀원",
    "명단", "결재선", "수신", "참조"])  # fmt: skip
"""Keys of lists of persons."""


def form_spans(text: str) -> Iterator[Found]:
    """Find names, and in tags other personal values, by the form of what stands around them."""
    yield from _mails(text)
    for pattern in CHAT_HEADS:
        for head in pattern.finditer(text):
            yield from names_in(head[1], head.start(1))
    for called in CALLED.finditer(text):
        group = next(number for number in range(1, 6) if called[number])
        is_post = called[group].endswith((*words()["groups"], "장", "사"))  # 위원장님, 간호사님
        if looks_like_name(called[group]) and not is_post:
            yield Found(*called.span(group), "name", cued=True)
    yield from _foreign(text)
    if "<" in text:
        yield from _tags(text)
    yield from _lists(text)


def _mails(text: str) -> Iterator[Found]:
    """Senders and addressees, ``Name <address>``, and the last lines of changes to programs."""
    for head in MAIL_HEAD.finditer(text):
        for found in names_in(head[1], head.start(1), strict=True):
            short = found.end - found.start == 2  # two syllables are as often the name of a place
            is_group = set(text[found.start : found.end].casefold().split()) & set(words()["latin_groups"])
            if not is_group and (not short or re.match(rf" ?(?:<|{TITLES})", text[found.end : found.end + 8])):
                yield found
    for box in MAILBOX.finditer(text):
        if box["korean"]:
            yield from names_in(box["korean"], box.start("korean"), strict=True)
        else:  # words of the sentence may stand before the name
            starts = (box.start("foreign") + part.start() for part in re.finditer(r"[^ ]+", box["foreign"]))
            first = next((start for start in starts if is_foreign_name(text[start : box.end("foreign")])), None)
            if first is not None:
                yield Found(first, box.end("foreign"), "name", True)
    for trailer in TRAILER.finditer(text):
        low, high = bounds(trailer[1])
        yield Found(trailer.start(1) + low, trailer.start(1) + high, "name", True)


def _foreign(text: str) -> Iterator[Found]:
    for match in ADDRESSED.finditer(text):
        parts = [part.span() for part in re.finditer(r"[^ ]+", match[1])]
        small = next((index for index, (low, _) in enumerate(parts) if not match[1][low].isupper()), len(parts))
        shown = match[1][: parts[small - 1][1]].rstrip(".") if small else ""
        if shown and not set(shown.casefold().split()) & set(words()["address_words"]):
            yield Found(match.start(1), match.start(1) + len(shown), "name", True)
    for match in POLITE.finditer(text):
        if is_foreign_name(match[1]):
            yield Found(*match.span(1), "name", True)


def _tags(text: str) -> Iterator[Found]:
    """Elements and attributes of XML and HTML whose name says what they hold."""
    for element in ELEMENT.finditer(text):
        yield from _under(text, element[1], element.span(2), has_company=False)
    for tag in TAG.finditer(text):
        attributes = [
            (one[1], one.span(2) if one[2] is not None else one.span(3))
            for one in ATTRIBUTE.finditer(text, *tag.span())
        ]
        kinds = {kind_of_key(name) for name, (low, high) in attributes if any(map(str.isdigit, text[low:high]))}
        for name, span in attributes:
            yield from _under(text, name, span, has_company=bool(kinds & {"phone", "email", "rrn", "birth_date"}))


def _under(text: str, key: str, span: tuple[int, int], *, has_company: bool) -> Iterator[Found]:
    kind, value = kind_of_key(key.rpartition(":")[2]), text[slice(*span)]
    if kind in ("name", "?name"):
        fits = has_company and (re.fullmatch(r"[가-힣]{2,4}", value) or is_foreign_name(value))
        if fits or looks_like_name(value) or (kind == "name" and not value.isascii()):
            yield from names_in(value, span[0], strict=not fits)
    elif kind and (any(map(str.isdigit, value)) or kind == "email"):
        yield from value_spans(text, *span, kind)


def _lists(text: str) -> Iterator[Found]:
    """Items of a list in YAML under a key that is of persons."""
    for head in LIST_HEAD.finditer(text):
        if head[2].casefold() not in PEOPLE:
            continue
        at = head.end()
        while at < len(text) and (item := LIST_ITEM.match(text, at)):
            if item[3] is None and len(item[4]) <= len(head[1]):
                break
            if item[3] is not None and looks_like_name(item[3].strip()):
                yield from names_in(item[3], item.start(3), strict=True)
            at = item.end()
