"""One conversation answered anew: what is asked, what is kept, and how it is cut into sequences."""

from __future__ import annotations

from typing import Any

import pytest

from drafters.engine.text import Text
from drafters.training.conversations import Conversation
from drafters.training.regenerate.dialogue import Answer, Ask, Dialogue, Rules, seed_of, spread
from drafters.training.regenerate.repetition import loops
from drafters.training.regenerate.report import summary
from harness.analysis.outputs import is_repetitive
from tests.drafters.engine.serving import TEMPLATE, fast, tokenizer
from tests.drafters.training.regenerating import END, TOOLS, talk

RULES = Rules(max_tokens=20, context_tokens=200)
THINKING = TEMPLATE.replace(
    "message.content }}", "(message.content if loop.last else message.content.split('</think>')[-1]) }}", 1
)


@pytest.fixture(scope="module")
def text() -> Text:
    """Byte-level tokens: a byte each."""
    return Text(fast(tokenizer(merges=0)))


def asked(dialogue: Dialogue) -> Ask:
    """The next ask, which must be there."""
    ask = dialogue.ask()
    assert ask is not None, dialogue.ended
    return ask


def says(text: Text, words: str, finish: Any = "stop") -> Answer:
    """An answer of these words."""
    return Answer((*text.encode(words), *([END] if finish == "stop" else [])), words, finish)


def play(text: Text, dialogue: Dialogue, *answers: Answer) -> list[str]:
    """Give the answers; return the prompts as texts."""
    prompts = []
    for answer in answers:
        prompts.append(text.decode(asked(dialogue).prompt))
        dialogue.take(answer)
    assert dialogue.ask() is None
    return prompts


def test_later_turns_see_what_the_target_wrote_and_never_the_recorded_answer(text: Text) -> None:
    """The second prompt holds the new answer, and no prompt the recorded one."""
    dialogue = Dialogue(talk("a", "one", "two"), text, RULES, 0.0)
    prompts = play(text, dialogue, says(text, "NEW"), says(text, "END"))
    assert [("NEW" in prompt, "RECORDED" in prompt) for prompt in prompts] == [(False, False), (True, False)]
    assert dialogue.ended == "all"


def test_a_conversation_is_one_sequence_with_its_answers_marked_end_of_turn_included(text: Text) -> None:
    """Two answers of three bytes and an end each; what stands between them is not the target's."""
    dialogue = Dialogue(talk("a", "one", "two"), text, RULES, 0.0)
    play(text, dialogue, says(text, "NEW"), says(text, "END"))
    (example,) = dialogue.examples()
    assert example.id == "a"
    assert [example.token_ids[start:end] for start, end in example.answers] == [
        (*text.encode("NEW"), END),
        (*text.encode("END"), END),
    ]
    assert example.answer_tokens == 8
    assert text.decode(example.token_ids).count("two") == 1


def test_a_cut_answer_has_no_end_of_turn(text: Text) -> None:
    """The template ends the turn in the next prompt, but the target did not write that end."""
    dialogue = Dialogue(talk("a", "one", "two"), text, RULES, 0.0)
    play(text, dialogue, says(text, "NEW", "length"), says(text, "END"))
    (example,) = dialogue.examples()
    start, end = example.answers[0]
    assert example.token_ids[start : end + 1] == (*text.encode("NEW"), END)


def test_tool_results_are_spliced_in_whatever_the_target_wrote(text: Text) -> None:
    """The recorded call is gone, the recorded result stands behind the new answer."""
    messages = (
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"arguments": '{"city": "A"}'}}]},
        {"role": "tool", "tool_call_id": "1", "content": "SUNNY"},
        {"role": "assistant"},
    )
    conversation = Conversation("a", "hand", "en", "chat", "train", messages, TOOLS)
    dialogue = Dialogue(conversation, text, Rules(20, 1000), 0.0)
    first, second = play(text, dialogue, says(text, "no idea"), says(text, "fine"))
    assert "weather:" in first  # the tool's schema
    assert "tool_call>" not in second
    assert "SUNNY" in second


@pytest.mark.parametrize("template", [THINKING, TEMPLATE])
def test_a_template_that_writes_earlier_turns_otherwise_gives_one_sequence_a_turn(template: str) -> None:
    """One that drops earlier thoughts: the second prompt does not begin with what was written; without it, it does."""
    text = Text(fast(tokenizer(merges=0), chat_template=template))
    dialogue = Dialogue(talk("a", "one", "two"), text, RULES, 0.0)
    play(text, dialogue, says(text, "hm</think>NEW"), says(text, "END"))
    found = dialogue.examples()
    if template is TEMPLATE:
        assert [example.id for example in found] == ["a"]
    else:
        assert [example.id for example in found] == ["a#1", "a#2"]
        assert [len(example.answers) for example in found] == [1, 1]
        assert "hm" not in text.decode(found[1].token_ids)


def test_tokens_that_would_be_cut_otherwise_begin_a_new_sequence() -> None:
    """The target wrote "the" byte by byte, where the tokenizer has one token for it."""
    text = Text(fast(tokenizer()))
    letters = tuple(token for letter in "the" for token in text.encode(letter))
    assert len(text.encode("the")) < len(letters)
    dialogue = Dialogue(talk("a", "one", "two"), text, RULES, 0.0)
    asked(dialogue)
    dialogue.take(Answer((*letters, END), "the", "stop"))
    asked(dialogue)
    dialogue.take(says(text, "END"))
    assert [example.id for example in dialogue.examples()] == ["a#1", "a#2"]


def test_an_answer_that_loops_ends_the_conversation_and_is_not_learnt(text: Text) -> None:
    """The turn before stays; with the rule off, all three do."""
    loop = "round and " * 10
    rules = Rules(max_tokens=20, context_tokens=400)
    dialogue = Dialogue(talk("a", "one", "two", "three"), text, rules, 0.0)
    play(text, dialogue, says(text, "NEW"), says(text, loop))
    assert dialogue.ended == "repetition"
    assert [len(example.answers) for example in dialogue.examples()] == [1]
    assert [answer["loops"] for answer in dialogue.record()["answers"]] == [False, True]
    kept = Dialogue(talk("a", "one", "two", "three"), text, Rules(20, 400, keep_repetition=True), 0.0)
    play(text, kept, says(text, "NEW"), says(text, loop), says(text, "END"))
    assert [len(example.answers) for example in kept.examples()] == [3]


def test_a_later_answer_without_a_word_ends_the_conversation_and_the_earlier_ones_stay(text: Text) -> None:
    """Of three turns the second is empty: the first is learnt, the third not asked, and the report counts two answers."""
    dialogue = Dialogue(talk("a", "one", "two", "three"), text, RULES, 0.5)
    play(text, dialogue, says(text, "NEW"), Answer((END,), "", "stop"))
    assert (dialogue.ended, dialogue.failure) == ("empty", None)
    (example,) = dialogue.examples()
    assert [example.token_ids[start:end] for start, end in example.answers] == [(*text.encode("NEW"), END)]
    assert [answer["kept"] for answer in dialogue.record()["answers"]] == [True, False]
    report = summary([dialogue.record()])
    assert (report["ended"], report["kept_answers"], report["turns_not_asked"]) == ({"empty": 1}, 1, 1)


@pytest.mark.parametrize("system", [False, True])
def test_an_opening_turn_of_the_assistant_stays_and_is_not_answered(text: Text, system: bool) -> None:
    """A greeting before the first user turn, with or without a system prompt: one answer is asked for, after both."""
    messages = (
        *([{"role": "system", "content": "RULE"}] if system else []),
        {"role": "assistant", "content": "GREETING"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "RECORDED"},
    )
    dialogue = Dialogue(Conversation("a", "hand", "en", "chat", "train", messages), text, RULES, 0.0)
    (prompt,) = play(text, dialogue, says(text, "NEW"))
    words = ["RULE", "GREETING", "one", "RECORDED"]
    assert [word for word in words if word in prompt] == words[not system : 3]
    assert (dialogue.ended, dialogue.turns) == ("all", 1)
    (example,) = dialogue.examples()
    assert [example.token_ids[start:end] for start, end in example.answers] == [(*text.encode("NEW"), END)]


def test_an_opening_turn_that_holds_nothing_is_left_out(text: Text) -> None:
    """A place for an answer to nobody."""
    messages = ({"role": "assistant"}, {"role": "user", "content": "one"}, {"role": "assistant"})
    dialogue = Dialogue(Conversation("a", "hand", "en", "chat", "train", messages), text, RULES, 0.0)
    (prompt,) = play(text, dialogue, says(text, "NEW"))
    assert prompt.count("assistant") == 1


def test_an_assistant_alone_has_nothing_to_answer(text: Text) -> None:
    """Nobody said anything, so it is no failure; a system prompt alone can be answered, as before."""
    alone = ({"role": "assistant", "content": "RECORDED"},)
    dialogue = Dialogue(Conversation("a", "hand", "en", "chat", "train", alone), text, RULES, 0.0)
    assert (dialogue.ask(), dialogue.ended) == (None, "nothing_to_answer")
    told = ({"role": "system", "content": "RULE"}, *alone)
    asked(Dialogue(Conversation("b", "hand", "en", "chat", "train", told), text, RULES, 0.0))


def test_an_example_tells_the_temperature_of_its_answers(text: Text) -> None:
    """So that held-out figures can be told apart by it."""
    dialogue = Dialogue(talk("a", "one"), text, RULES, 0.5)
    play(text, dialogue, says(text, "NEW"))
    assert [example.temperature for example in dialogue.examples()] == [0.5]


def test_what_does_not_fit_the_context_is_not_asked(text: Text) -> None:
    """A long first turn: nothing is kept. A long second turn: the first stays."""
    long = "x" * 200
    first, second = (Dialogue(talk("a", *turns), text, RULES, 0.0) for turns in ([long], ["one", long]))
    assert first.ask() is None
    play(text, second, says(text, "NEW"))
    assert (first.ended, second.ended) == ("context", "context")
    assert (len(first.examples()), len(second.examples())) == (0, 1)


def test_a_plain_text_is_continued_as_it_is(text: Text) -> None:
    """No template around it."""
    conversation = Conversation("a", "hand", "ko", "essay", "train", text="첫눈이")
    dialogue = Dialogue(conversation, text, RULES, 0.0)
    ask = asked(dialogue)
    assert (text.decode(ask.prompt), ask.messages) == ("첫눈이", ())
    dialogue.take(says(text, " 왔다"))
    assert dialogue.examples()[0].token_ids == (*text.encode("첫눈이 왔다"), END)


@pytest.mark.parametrize(
    ("conversation", "reason"),
    [
        (talk("a", "one"), "answer 1 is empty"),
        (Conversation("a", "h", "ko", "chat", "train", ({"role": "user"}, {"role": "assistant"})), "content of a user"),
        (Conversation("a", "h", "ko", "chat", "train", text=""), "no tokens"),
    ],
)
def test_what_cannot_be_answered_fails_with_a_reason(text: Text, conversation: Any, reason: str) -> None:
    """An answer without a word, a message that is none, an empty text."""
    dialogue = Dialogue(conversation, text, RULES, 0.0)
    if dialogue.ask() is not None:
        dialogue.take(Answer((END,), "", "stop"))
    assert dialogue.ended == "failed"
    assert reason in str(dialogue.failure)
    assert dialogue.ask() is None


def test_a_conversation_without_an_assistant_turn_asks_nothing(text: Text) -> None:
    """And is no failure."""
    conversation = Conversation("a", "h", "ko", "chat", "train", ({"role": "user", "content": "hello"},))
    dialogue = Dialogue(conversation, text, RULES, 0.0)
    assert dialogue.ask() is None
    assert (dialogue.ended, dialogue.examples()) == ("nothing_to_answer", [])


def test_temperatures_are_spread_evenly_and_the_same_for_the_same_seed() -> None:
    """Ten conversations, two temperatures: five each, whatever order they come in; another seed gives others."""
    names = [f"c{number}" for number in range(10)]
    given = spread(names, [0.0, 0.8], 1)
    assert sorted(given.values()) == [0.0] * 5 + [0.8] * 5
    assert spread(names[::-1], [0.0, 0.8], 1) == given
    assert spread(names, [0.0, 0.8], 2) != given


def test_every_answer_has_a_seed_of_its_own() -> None:
    """By conversation and turn; all fit what servers take."""
    seeds = {seed_of(seed, name, turn) for seed in (1, 2) for name in ("a", "b") for turn in (0, 1)}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ("short short short short", False),
        ("The pump in hall two was checked on Monday; bearings are to be replaced by the end of the month.", False),
        ("처음은 다르다. " + "같은 말을 한다. " * 20, True),
        ("x" * 100, True),
    ],
)
def test_loops_are_told_as_the_instrument_tells_them(sample: str, expected: bool) -> None:
    """The same verdict as that on measured outputs."""
    assert loops(sample) is is_repetitive(sample) is expected
