"""Conversations in the forms they are kept in, and recorded tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafters.training.corpus.dialogues import read_dialogues, read_tasks
from drafters.training.corpus.sources import Given, LeftOut, Source
from drafters.training.stage import StageError

WORKLOADS = Path(__file__).parents[4] / "workloads" / "data"
USER = {"role": "user", "content": "일정을 알려 주세요."}
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": "일정"}'}}


def read(folder: Path, *lines: Any) -> list[Source | LeftOut]:
    """What the lines give."""
    path = folder / "log.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), "utf-8")
    return list(read_dialogues(Given(path)))


def test_chat_request_with_tools(tmp_path: Path) -> None:
    """Messages, calls and tools stay; an open end becomes an answer to be given."""
    tools = [{"type": "function", "function": {"name": "find", "parameters": {}}}]
    turns = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "[]"},
    ]
    (source,) = read(tmp_path, {"messages": turns, "tools": tools})
    assert isinstance(source, Source)
    assert source.messages == (
        USER,
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "[]", "tool_call_id": "c1"},
        {"role": "assistant", "content": ""},
    )
    assert source.tools == tuple(tools)


def test_sharegpt(tmp_path: Path) -> None:
    """``from`` and ``value`` are role and content, and a function_call turn is a tool call."""
    turns = [
        {"from": "human", "value": "찾아 줘"},
        {"from": "function_call", "value": '{"name": "find", "arguments": {"q": 1}}'},
        {"from": "observation", "value": "없음"},
        {"from": "gpt", "value": "없습니다."},
    ]
    (source,) = read(tmp_path, {"conversations": turns, "tools": '[{"name": "find"}]'})
    assert isinstance(source, Source)
    assert [message["role"] for message in source.messages] == ["user", "assistant", "tool", "assistant"]
    assert source.messages[1]["tool_calls"][0]["function"] == {"name": "find", "arguments": '{"q": 1}'}
    assert source.tools == ({"type": "function", "function": {"name": "find"}},)


def test_request_with_its_response(tmp_path: Path) -> None:
    """A logged exchange is the request's messages and the first choice of the response."""
    answer = {"role": "assistant", "content": "월요일입니다."}
    (source,) = read(tmp_path, {"request": {"messages": [USER]}, "response": {"choices": [{"message": answer}]}})
    assert isinstance(source, Source)
    assert source.messages == (USER, answer)


def test_states_of_one_conversation_are_one_unit(tmp_path: Path) -> None:
    """What opens alike or names one session is never divided between train and held-out."""
    longer = [USER, {"role": "assistant", "content": "네."}, {"role": "user", "content": "고마워요."}]
    one, two, three, four = read(
        tmp_path,
        {"messages": [USER]},
        {"messages": longer},
        {"text": "가나다", "session_id": 7},
        {"text": "라마바", "session_id": 7},
    )
    assert (
        isinstance(one, Source) and isinstance(two, Source) and isinstance(three, Source) and isinstance(four, Source)
    )
    assert one.unit == two.unit
    assert three.unit == four.unit != one.unit


def test_a_conversation_over_two_files_is_one_unit(tmp_path: Path) -> None:
    """A log is cut by days; its sessions, and what opens alike, are not divided by it."""
    for day, session in (("1", 7), ("2", 7)):
        lines = [
            {"session_id": session, "messages": [USER]},
            {"messages": [USER]},
            {"text": f"본문 {day}", "session_id": 8},
        ]
        lines.append({"text": f"다른 본문 {day}", "id": 1})
        (tmp_path / f"day{day}.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    units = [one.unit for one in read_dialogues(Given(tmp_path)) if isinstance(one, Source)]
    assert units[:3] == units[4:7]
    assert units[3] != units[7]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"messages": [', "log.jsonl:1: not JSON"),
        ("[1, 2]", "log.jsonl:1: a line holds an object, not a list"),
        ({"prompt": "비밀"}, "log.jsonl:1: neither text nor conversation"),
        ({"messages": [{"role": "wizard", "content": "비밀"}]}, "role is of none of the kinds"),
        ({"messages": [{"role": "user", "content": {"비밀": 1}}]}, "content is text"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [{"id": "비밀"}]}]}, "needs the tool's name"),
        ({"messages": [USER], "tools": [{"function": "비밀"}]}, "each tool is"),
        ('{"text": "half \\ud83d of a pair"}', "half of a surrogate pair"),
        ('{"text": "안녕\\u0000하세요 비밀"}', "log.jsonl:1: a NUL character"),
        ('{"text": "비밀", "n": ' + "1" * 5000 + "}", "log.jsonl:1: a number with too many digits"),
        ('{"messages": ' + "[" * 100_000 + "]" * 100_000 + "}", "log.jsonl:1: nested too deeply"),
        ({"request": {"messages": [USER]}, "response": {"choices": ["비밀"]}}, "a response's choices are objects"),
        ({"messages": [USER], "tools": "[" * 100_000 + "]" * 100_000}, "log.jsonl:1: tools are nested too deeply"),
        ({"messages": [USER], "tools": "[" * 300 + "]" * 300}, "log.jsonl:1: nested too deeply"),
        (
            {"conversations": [USER, {"from": "function_call", "value": "[" * 100_000}]},
            "a function_call turn holds no JSON",
        ),
    ],
)
def test_wrong_lines(tmp_path: Path, line: Any, said: str) -> None:
    """File and line are named, and nothing of the line's content is quoted."""
    with pytest.raises(StageError) as told:
        read(tmp_path, line)
    assert said in str(told.value)
    assert "비밀" not in str(told.value)


def test_text_about_nul_is_text(tmp_path: Path) -> None:
    """A backslash that is itself written out is no NUL."""
    (one,) = read(tmp_path, '{"text": "C 문자열은 \\\\u0000 으로 끝난다"}')
    assert isinstance(one, Source)


def test_lines_without_work_are_left_out(tmp_path: Path) -> None:
    """A conversation in which nobody asks and an empty text are left out, with their line."""
    found = read(tmp_path, {"messages": [{"role": "assistant", "content": "안녕"}]}, {"text": " "})
    assert [one.reason for one in found if isinstance(one, LeftOut)] == [
        "line 1: no turn of a user in it",
        "line 2: empty text",
    ]


def test_a_named_file_in_another_encoding_is_an_error(tmp_path: Path) -> None:
    """What was named itself must be readable; in a folder it is left out."""
    path = tmp_path / "log.jsonl"
    path.write_bytes('{"text": "결재 문서를 검토해 주시기 바랍니다"}'.encode("cp949"))
    with pytest.raises(StageError, match=r"CP949 \(EUC-KR\) text"):
        list(read_dialogues(Given(path)))
    (left,) = read_dialogues(Given(tmp_path))
    assert isinstance(left, LeftOut) and "CP949" in left.reason


def test_recorded_tasks() -> None:
    """A task is its system prompt, then each step's messages and recorded answer."""
    sources = [one for one in read_tasks(Given(WORKLOADS / "office-ko.jsonl")) if isinstance(one, Source)]
    assert len(sources) == 20
    first = sources[0]
    assert [message["role"] for message in first.messages[:5]] == ["system", "user", "assistant", "user", "assistant"]
    assert json.loads(first.messages[4]["tool_calls"][0]["function"]["arguments"])["source"] == "production"
    assert first.messages[5]["role"] == "tool"
    assert (first.language, first.text_type) == ("ko", "office")
    assert len(first.tools) >= 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"task": "t", "prefix": "p", "steps": [{}]}, "not defined before it"),
        ({"prefix": "p", "tools": []}, "needs 'system'"),
        ({"prefix": "p", "system": "s", "tools": []}, "no task in the file"),
    ],
)
def test_wrong_tasks(tmp_path: Path, line: Any, said: str) -> None:
    """A file that is no task file is told what is missing."""
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(line), "utf-8")
    with pytest.raises(StageError, match=said):
        list(read_tasks(Given(path)))
