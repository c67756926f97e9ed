"""How a step of a task becomes the messages of a request."""

import orjson
import pytest

from harness.replay.prompts import PromptParts, build_request, live_answer
from harness.tasks import Message, Prefix, Step, Task, ToolCall

SEARCH = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
CALLS = (ToolCall("c1", "search", '{"q": "예산"}'), ToolCall("c2", "search", '{"q": "인력"}'))
PLAN = Step("tool_call", "ko", (Message("user", "찾아 줘"),), Message("assistant", "찾겠습니다.", CALLS), 0.5, 64)
ANSWER = Step(
    "summarize",
    "ko",
    (
        Message("tool", "3억", tool_call_id="c1"),
        Message("tool", "5명", tool_call_id="c2"),
        Message("user", "요약해 줘"),
    ),
    Message("assistant", "예산 3억, 인력 5명."),
    0.0,
    64,
)
THANKS = Step("reply", "ko", (Message("user", "고마워"),), Message("assistant", "네."), 0.0, 64)
TASK = Task("t", "t", "office", "ko", Prefix("p", "비서입니다.", (SEARCH,)), (PLAN, ANSWER, THANKS))
RECORDED = [PLAN.recorded, ANSWER.recorded]


def native(*answers: Message) -> PromptParts:
    """Build the step after these answers in native mode."""
    return build_request(TASK, len(answers), answers, tools="native", salt=None)


def text(*answers: Message) -> PromptParts:
    """Build the step after these answers in text mode."""
    return build_request(TASK, len(answers), answers, tools="text", salt=None)


def test_text_mode_system() -> None:
    """In text mode the system prompt lists each schema on a line of its own and says how to call."""
    parts = text()
    lines = parts.messages[0]["content"].split("\n")
    assert lines[0] == "비서입니다."
    assert '{"name":"search","parameters":{"type":"object"}}' in lines
    assert "<tool_call>" in lines[-1]
    assert parts.tools is None


def test_text_mode_without_tools() -> None:
    """A prefix without tools is sent as it stands."""
    task = Task("t", "t", "essay", "ko", Prefix("p", "작가입니다.", ()), (THANKS,))
    assert build_request(task, 0, [], tools="text", salt=None).messages == [
        {"role": "system", "content": "작가입니다."},
        {"role": "user", "content": "고마워"},
    ]


def test_text_mode_history() -> None:
    """Calls become text of the assistant, results of one step become one user message, and the roles alternate."""
    messages = text(*RECORDED).messages
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert messages[2]["content"] == (
        "찾겠습니다.\n"
        '<tool_call>{"name": "search", "arguments": {"q": "예산"}}</tool_call>\n'
        '<tool_call>{"name": "search", "arguments": {"q": "인력"}}</tool_call>'
    )
    assert messages[3]["content"] == (
        "<tool_response>\n3억\n</tool_response>\n\n<tool_response>\n5명\n</tool_response>\n\n요약해 줘"
    )


def test_native_mode_history() -> None:
    """In native mode schemas, calls and results take their OpenAI forms."""
    parts = native(PLAN.recorded)
    assert parts.tools == [SEARCH]
    assert parts.messages[2:5] == [
        {
            "role": "assistant",
            "content": "찾겠습니다.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "예산"}'}},
                {"id": "c2", "type": "function", "function": {"name": "search", "arguments": '{"q": "인력"}'}},
            ],
        },
        {"role": "tool", "content": "3억", "tool_call_id": "c1"},
        {"role": "tool", "content": "5명", "tool_call_id": "c2"},
    ]


def test_native_mode_without_tools() -> None:
    """A prefix without tools sends no tools field."""
    task = Task("t", "t", "essay", "ko", Prefix("p", "작가입니다.", ()), (THANKS,))
    assert build_request(task, 0, [], tools="native", salt=None).tools is None


def test_salt() -> None:
    """The salt stands in front of everything else, and nothing else changes."""
    plain = text().messages
    salted = build_request(TASK, 0, [], tools="text", salt="a1b2").messages
    assert salted[0]["content"] == "[a1b2] " + plain[0]["content"]
    assert salted[1:] == plain[1:]


def test_live_calls_that_fit_are_used() -> None:
    """Live calls of the recorded names take the recorded ids, and their own arguments are sent."""
    answer = live_answer(PLAN, "", [("search", '{"q": "돈"}'), ("search", '{"q": "사람"}')])
    calls = native(answer).messages[2]["tool_calls"]
    assert [(call["id"], call["function"]["arguments"]) for call in calls] == [
        ("c1", '{"q": "돈"}'),
        ("c2", '{"q": "사람"}'),
    ]


@pytest.mark.parametrize(
    "calls",
    [
        [],
        [("search", "{}")],
        [("search", "{}"), ("delete", "{}")],
        [("search", "{}"), ("search", "{}"), ("search", "{}")],
        [("search", "{}"), ("search", '{"q": ')],
        [("search", "{}"), ("search", "[]")],
    ],
    ids=["none", "too few", "other name", "too many", "cut off", "no object"],
)
def test_live_calls_that_do_not_fit(calls: list[tuple[str, str]]) -> None:
    """In native mode the recorded calls stand in for live ones that the recorded results do not answer; the live text stays."""
    message = native(live_answer(PLAN, "음", calls)).messages[2]
    assert message["content"] == "음"
    assert message["tool_calls"] == native(PLAN.recorded).messages[2]["tool_calls"]


def test_live_call_that_nothing_answers() -> None:
    """A live call where none was recorded is dropped in native mode, since no result follows it."""
    messages = native(PLAN.recorded, live_answer(ANSWER, "요약", [("search", "{}")])).messages
    assert messages[6] == {"role": "assistant", "content": "요약"}


@pytest.mark.parametrize("mode", [text, native])
def test_empty_live_answer(mode: object) -> None:
    """An answer with nothing in it is replaced by the recorded one in both modes."""
    build = text if mode is text else native
    assert build(PLAN.recorded, Message("assistant", "")) == build(*RECORDED)


def test_live_call_in_text_mode_is_kept_as_written() -> None:
    """In text mode a malformed live call is sent as the model wrote it: it is only text."""
    content = text(live_answer(PLAN, "", [("search", '{"q": ')])).messages[2]["content"]
    assert content == '<tool_call>{"name": "search", "arguments": {"q": }</tool_call>'


def test_same_bytes() -> None:
    """Building the same request twice gives the same bytes, and the shared part of two steps is a common beginning."""
    first, second = (orjson.dumps(text(PLAN.recorded).messages) for _ in range(2))
    assert first == second
    assert text(*RECORDED).messages[:4] == text(PLAN.recorded).messages


def test_wrong_number_of_answers() -> None:
    """One answer for each earlier step is needed, no more and no fewer."""
    with pytest.raises(ValueError, match="needs 1 earlier answers, got 0"):
        build_request(TASK, 1, [], tools="text", salt=None)
