"""Documents and dialogues of one kind of office each: finance, manufacturing, hospital, and one full of personal data."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from drafters.training.reference.office.dialogues import Turns
from drafters.training.reference.office.facts import MAKERS
from drafters.training.reference.office.grammar import Document, load_lists

__all__ = ["KINDS", "kind_dialogue"]

KINDS = ("finance", "manufacturing", "hospital", "personal")
STREETS = ("가온로", "누리길", "다온대로", "미르로", "새봄길", "한결로")
CITIES = ("가람시 중앙구", "도담시 남구", "라온시 북구", "마루시 동구")


def _phone(document: Document) -> str:
    rng = document.rng
    return f"010-{rng.randrange(2000, 9999)}-{rng.randrange(1000, 9999)}"


def _email(document: Document) -> str:
    rng = document.rng
    name = "".join(rng.choice("abcdefghijklmnoprstuwy") for _ in range(rng.randrange(4, 8)))
    return f"{name}{rng.randrange(10, 99)}@{rng.choice(('hanbit', 'garam', 'nuri'))}.example.com"


def _account(document: Document) -> str:
    rng = document.rng
    return f"{rng.randrange(100, 999)}-{rng.randrange(10, 99)}-{rng.randrange(100000, 999999)}"


def _address(document: Document) -> str:
    rng = document.rng
    return f"{rng.choice(CITIES)} {rng.choice(STREETS)} {rng.randrange(1, 320)}"


_MADE: Mapping[str, Callable[[Document], str]] = {
    **MAKERS, "phone": _phone, "email": _email, "account": _account, "address": _address,
}  # fmt: skip


def kind_dialogue(kind: str, held_out: bool, rng: random.Random) -> Turns:
    """A dialogue of an office: a document is asked for, then a summary, then a mail. Held-out ones have forms and requests of
    their own. The answers stand where the target is to give its own.

    Raises:
        ValueError: for a kind that is not in `KINDS`.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of office {kind!r}; known: {', '.join(KINDS)}")
    lists = load_lists("kinds")
    own: Mapping[str, Any] = lists[kind]
    document = Document(rng, _MADE)
    document.add_lists(own["lists"])
    form = rng.choice(own["held_out" if held_out else "forms"])
    parts = [document.pick(part) for part in form]
    asks = lists["asks"]["held_out" if held_out else "train"]
    document.bound["facts"] = _facts(parts, rng)
    turns = [("system", document.pick(lists["systems"])), ("user", document.pick(asks["write"]))]
    turns += [("assistant", "\n".join(parts))]
    turns += [("user", document.pick(asks["summarize"])), ("assistant", f"{parts[0].splitlines()[0]}\n{parts[-1]}")]
    if rng.random() < 0.6:
        mail = f"안녕하세요, {document.expand('$dept1')}입니다.\n{parts[-2]}\n확인 부탁드립니다. 감사합니다."
        turns += [("user", document.pick(asks["mail"])), ("assistant", mail)]
    return tuple(turns)


def _facts(parts: list[str], rng: random.Random) -> str:
    """The document's lines as loose notes, out of order, without their marks."""
    lines = [line.strip(" -ㅇ□") for part in parts for line in part.split("\n")]
    notes = [line.removesuffix(" 끝.") for line in lines if line]
    head, rest = notes[:1], notes[1:]
    rng.shuffle(rest)
    return "\n".join(f"- {note}" for note in [*head, *rest])
