"""Generated office text: particles, facts, calls, code tasks and quotations."""

from __future__ import annotations

import json
import random
import re

import pytest

from drafters.training.reference.office import generate
from drafters.training.reference.office.codetasks import code_dialogue, functions
from drafters.training.reference.office.dialogues import new_document, quotation, scenario_dialogue, tool_request
from drafters.training.reference.office.facts import MAKERS, add_table
from drafters.training.reference.office.grammar import Document, particles
from drafters.training.reference.office.toolset import is_held_out_name

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
SOURCE = "def area(width, height):\n    factor = 12\n    size = width * height\n    return size * factor\n"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("예산[은/는]", "예산은"),
        ("회의[은/는]", "회의는"),
        ("12,000원[으로/로]", "12,000원으로"),
        ("서울[으로/로]", "서울로"),
        ("A3[이/가]", "A3이"),
        ("A2[이/가]", "A2가"),
    ],
)
def test_particles_fit_the_last_sound(template: str, text: str) -> None:
    """The particle after a closed syllable differs from that after an open one; 로 also follows ㄹ."""
    assert particles(template) == text


def test_numbered_word_stays_the_same_in_a_document() -> None:
    """A numbered name is drawn once, and two numbers give two words."""
    document = Document(random.Random(1), MAKERS)
    first, again, other = document.expand("$dept1|$dept1|$dept2").split("|")
    assert first == again != other


def test_unknown_name_in_a_template_is_an_error() -> None:
    """A misspelt name does not slip into the training text."""
    with pytest.raises(KeyError, match="dpet"):
        Document(random.Random(1), MAKERS).expand("$dpet1")


def test_table_total_is_the_sum_of_its_rows() -> None:
    """The total that a summary quotes is the sum of the values that it lists."""
    document = new_document(random.Random(3))
    add_table(document, "branch")
    values = [
        int(value.replace(",", "")) for value in re.findall(r" ([\d,]+)\D*?(?:, |$)", document.bound["list"] + ", ")
    ]
    assert int(re.sub(r"\D", "", document.bound["total"])) == sum(values)


@pytest.mark.parametrize("language", ["ko", "en"])
@pytest.mark.parametrize("held_out", [False, True])
def test_every_call_parses_and_fills_what_its_schema_requires(language: str, held_out: bool) -> None:
    """Calls in generated dialogues name a tool of the system prompt and give its required arguments."""
    rng = random.Random(5)
    calls = 0
    for _ in range(30):
        for turns in (scenario_dialogue(language, held_out, rng), tool_request(language, held_out, rng)):
            schemas = {s["name"]: s for s in map(json.loads, re.findall(r"(?m)^\{.*\}$", turns[0][1]))}
            for role, content in turns:
                for call in CALL.findall(content) if role == "assistant" else ():
                    value = json.loads(call)
                    assert set(schemas[value["name"]]["parameters"]["required"]) <= set(value["arguments"])
                    calls += 1
    assert calls > 30


def test_invented_tools_of_held_out_dialogues_are_never_trained_on() -> None:
    """No tool of a training request has a name of the held-out tenth."""
    rng = random.Random(2)
    for _ in range(30):
        for line in re.findall(r"(?m)^\{.*\}$", tool_request("ko", False, rng)[0][1]):
            assert not is_held_out_name(json.loads(line)["name"])


def test_same_seed_gives_the_same_documents() -> None:
    """A part is the same for the same seed and another for another one."""

    def texts(seed: int) -> list[str | None]:
        made = generate("office-ko", 0.001, seed, held_out=False, code=(), passages={})
        return [document.text for document in made]

    assert texts(1) == texts(1) != texts(2)


def test_code_answer_holds_the_function_with_one_change() -> None:
    """Every line that the change does not touch comes back as it was read."""
    pool = functions(SOURCE)
    assert [function.name for function in pool] == ["area"]
    rng = random.Random(1)
    dialogues = [turns for turns in (code_dialogue(pool, rng) for _ in range(40)) if turns]
    assert dialogues
    for turns in dialogues:
        answer = next(
            (text for role, text in turns if role == "assistant" and "def area" in text and "@@" not in text), None
        )
        if answer is not None:
            assert "def area(width, height):" in answer
            assert answer not in SOURCE


def test_code_tasks_without_a_function_are_refused() -> None:
    """Text without a Python function cannot become code tasks, and says so instead of running for ever."""
    with pytest.raises(ValueError, match="no file has one"):
        next(generate("agent-code", 1.0, 1, held_out=False, code=["x = 1\n"], passages={}))


def test_quotation_answers_with_lines_of_the_passage() -> None:
    """What is quoted stands in the tool result of the dialogue."""
    passage = "\n".join(f"This is line number {number} of it." for number in range(9))
    for seed in range(10):
        turns = quotation("en", [passage], random.Random(seed))
        assert turns is not None
        for role, text in turns:
            if role == "assistant":
                assert all(line.removeprefix("- ").strip('"') in turns[1][1] for line in text.split("\n"))


def test_passage_with_repeated_lines_is_not_quoted() -> None:
    """Repeated lines would teach loops."""
    assert quotation("en", ["the very same line of text\n" * 9], random.Random(1)) is None
