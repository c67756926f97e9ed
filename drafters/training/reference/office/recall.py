"""Dialogues that only ask for what was just shown: short records with invented keys and values, asked for one by one.

Nothing in them can be known beforehand, so a small model must learn to look things up in its context, which tool calls and
reports need too. No value is asked for twice in a row, and answers never repeat themselves.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable

from drafters.training.reference.office.dialogues import Turns

SYLLABLES = "가나다라마바사아자차카타파하거너더러머버서어저처고노도로모보소오조구누두루무부수우주기니디리미비시이지"
SYSTEMS = ("Answer with the value alone.", "You look things up in what the user shows.", "받은 자료에서 값을 찾아 그대로 답합니다.",
           "조회 도우미입니다. 값만 씁니다.", "Copy values exactly as they are written.")  # fmt: skip
ASKS = (
    "{key}?",
    "{key}:",
    "What is {key}?",
    "Give me {key}.",
    "{key} 값은?",
    "{key}[을] 알려 주세요.",
    "{key} 부탁합니다.",
)
LAYOUTS = (
    "{key}: {value}",
    "{key} = {value}",
    "- {key}: {value}",
    '"{key}": "{value}",',
    "{key} | {value}",
    "{key}\t{value}",
)
ANSWERS = ("{value}", "{value}", "{key}: {value}", '"{value}"', "{value}입니다.")


def _code(rng: random.Random) -> str:
    letters = "".join(rng.choices(string.ascii_uppercase, k=rng.randrange(1, 4)))
    return f"{letters}-{rng.randrange(10, 99_999)}"


def _number(rng: random.Random) -> str:
    return (
        f"{rng.randrange(1, 10_000_000):,}" if rng.random() < 0.5 else f"{rng.random() * 1000:.{rng.randrange(1, 3)}f}"
    )


def _name(rng: random.Random) -> str:
    parts = ("".join(rng.choices(string.ascii_lowercase, k=rng.randrange(2, 6))) for _ in range(rng.randrange(1, 4)))
    return "_".join(parts)


def _korean(rng: random.Random) -> str:
    words = ("".join(rng.choices(SYLLABLES, k=rng.randrange(2, 5))) for _ in range(rng.randrange(1, 4)))
    return " ".join(words)


def _date(rng: random.Random) -> str:
    return f"20{rng.randrange(20, 30)}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"


KEYS: tuple[Callable[[random.Random], str], ...] = (_code, _name, _korean)
VALUES: tuple[Callable[[random.Random], str], ...] = (_code, _number, _name, _korean, _date)


def recall(rng: random.Random) -> Turns:
    """Show four to twelve records and ask for three to eight of them, each once."""
    key_of, layout, ask, answer = rng.choice(KEYS), rng.choice(LAYOUTS), rng.choice(ASKS), rng.choice(ANSWERS)
    records: dict[str, str] = {}
    count = rng.randrange(4, 13)
    while len(records) < count:
        value = rng.choice(VALUES)(rng)
        if value not in records.values():
            records[key_of(rng)] = value
    shown = "\n".join(layout.format(key=key, value=value) for key, value in records.items())
    asked = rng.sample(sorted(records), rng.randrange(3, min(9, count + 1)))
    turns = [("system", rng.choice(SYSTEMS))]
    for index, key in enumerate(asked):
        said = ask.replace("[을]", "을" if rng.random() < 0.5 else "를").format(key=key)
        turns.append(("user", f"{shown}\n\n{said}" if index == 0 else said))
        turns.append(("assistant", answer.format(key=key, value=records[key])))
    return tuple(turns)
