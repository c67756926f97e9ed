"""Noise, turns that run on and tool calls that do not parse, in single texts."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from harness.analysis.text_signs import calls_parse, is_random, plays_both_sides, runs_past_end
from harness.tasks import read_tasks
from tests.analysis.test_language import DATA, KOREAN, written
from tests.analysis.test_outputs import LETTER

DICE = random.Random(1)


def vocabulary() -> list[str]:
    """Return the English words of all recorded answers, each once."""
    answers = [written(step) for path in DATA for task in read_tasks(path) for step in task.steps]
    return sorted({word for answer in answers for word in answer.split() if re.fullmatch("[a-z]+", word)})


@pytest.mark.parametrize(
    "text",
    [
        " ".join(DICE.sample(vocabulary(), 60)),
        "".join(chr(DICE.randrange(ord("가"), ord("힣"))) for _ in range(80)),
        bytes(DICE.randrange(256) for _ in range(400)).decode(errors="replace"),
        "".join(DICE.choice("abcАБВאבגあいう가나다ابت") for _ in range(100)),
    ],
    ids=["words of a vocabulary", "syllables", "bytes", "scripts"],
)
def test_noise_is_random(text: str) -> None:
    """Tokens drawn blindly are told, whether they make words, syllables, broken bytes or a mixture of scripts."""
    assert is_random(text)


@pytest.mark.parametrize("text", [LETTER, KOREAN])
def test_a_letter_is_not(text: str) -> None:
    """Prose in either language holds together."""
    assert is_random(text) is False


@pytest.mark.parametrize("text", ["", "Release notes", "def f(x):\n    return x + 1\n"])
def test_what_cannot_be_judged_is_unknown(text: str) -> None:
    """Nothing, a heading and program code have no grammar to judge."""
    assert is_random(text) is None


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.stem)
def test_no_recorded_answer_shows_a_sign(path: Path) -> None:
    """The bounds leave every recorded answer of the committed task files unflagged."""
    for task in read_tasks(path):
        for step in task.steps:
            text = written(step)
            signs = (is_random(text), runs_past_end(text), plays_both_sides(text), calls_parse(text) is False)
            assert not any(signs), (task.id, signs, text)


@pytest.mark.parametrize(
    ("text", "past"),
    [("Yes.<|im_end|>\nno no no", True), ("Yes.<|im_end|>", False), ("Yes.</s></s>", False), ("Yes.", False)],
)
def test_text_behind_the_end_of_text(text: str, past: bool) -> None:
    """A mark of the end may stand last, even twice; what follows it was written past the end."""
    assert runs_past_end(text) is past


@pytest.mark.parametrize(
    ("text", "both"),
    [
        ("It is done.\n<|im_start|>user\nThanks", True),
        ("It is done.\nuser\nThanks\nassistant\nWelcome", True),
        ("It is done.\nUser: Thanks\nAssistant: Welcome", True),
        ("User: kim is locked out. Please reset the account.", False),
        ("The user asked the assistant for a summary.", False),
    ],
)
def test_a_model_that_plays_both_sides(text: str, both: bool) -> None:
    """Marks of a template, its bare roles, or two speakers; one label of a form is none of these."""
    assert plays_both_sides(text) is both


@pytest.mark.parametrize(
    ("text", "parses"),
    [
        ('<tool_call>{"name": "find", "arguments": {"q": "색"}}</tool_call>', True),
        ('<tool_call>find {"q": "색"}</tool_call>', True),
        ("<tool_call>now </tool_call>", True),
        ('<tool_call>find {"q": "색"</tool_call>', False),
        ('<tool_call>{"name": "find", "arguments": {"q": "', False),
        ('<tool_call>find {"q": 1}</tool_call> and <tool_call>find [1]</tool_call>', False),
        ("I shall look it up.", None),
    ],
)
def test_tool_calls_that_parse(text: str, parses: bool | None) -> None:
    """Both written forms count, a call without arguments too; one bad call spoils a text, and a text without calls is neither."""
    assert calls_parse(text) is parses
