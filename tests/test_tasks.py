"""Recorded tasks: the file format, and what is said about a file that is not of it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import TraceError
from harness.tasks import read_tasks, tasks_sha256, write_tasks

TOOL = {
    "type": "function",
    "function": {"name": "find", "description": "find", "parameters": {"type": "object", "properties": {}}},
}
PREFIX = {"prefix": "p", "system": "You help.", "tools": [TOOL]}
TASK: dict[str, Any] = {
    "task": "t1",
    "title": "a task",
    "genre": "report",
    "language": "ko",
    "prefix": "p",
    "steps": [
        {
            "kind": "tool_call",
            "language": "code",
            "messages": [{"role": "user", "content": "찾아 주세요"}],
            "recorded": {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c1", "name": "find", "arguments": {"q": "가"}}],
            },
            "tool_wait_s": 0.25,
            "max_tokens": 32,
        },
        {
            "kind": "summarize",
            "language": "ko",
            "messages": [{"role": "tool", "tool_call_id": "c1", "content": "결과"}],
            "recorded": {"role": "assistant", "content": "요약입니다."},
            "tool_wait_s": 0.0,
            "max_tokens": 64,
        },
    ],
}


def write(path: Path, *lines: Any) -> Path:
    """Write lines as JSON."""
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return path


def changed(*path: Any, value: Any) -> dict[str, Any]:
    """Return TASK with one place set to another value, or removed where the value is ``...``."""
    task = copy.deepcopy(TASK)
    at: Any = task
    for key in path[:-1]:
        at = at[key]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return task


def test_reads_what_it_wrote(tmp_path: Path) -> None:
    """Tasks survive a write and a read, and their hash with them."""
    tasks = read_tasks(write(tmp_path / "a.jsonl", PREFIX, TASK))
    write_tasks(tmp_path / "b.jsonl", tasks)
    again = read_tasks(tmp_path / "b.jsonl")
    assert again == tasks
    assert tasks_sha256(again) == tasks_sha256(tasks)
    assert tasks[0].steps[0].recorded.tool_calls[0].arguments == '{"q": "가"}'


def test_hash_covers_the_prefix(tmp_path: Path) -> None:
    """A changed system prompt changes the hash although the task line is the same."""
    one = read_tasks(write(tmp_path / "a.jsonl", PREFIX, TASK))
    two = read_tasks(write(tmp_path / "b.jsonl", {**PREFIX, "system": "You hinder."}, TASK))
    assert tasks_sha256(one) != tasks_sha256(two)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (changed("steps", value=[]), "steps must be a non-empty list"),
        (changed("prefix", value="q"), "unknown prefix 'q'; known: p"),
        (changed("language", value="jp"), "allowed: ko, ko+code, en, en+code, code"),
        (changed("steps", 0, "kind", value="think"), "step 0: kind is 'think'; allowed: plan, tool_call"),
        (changed("steps", 0, "tool_wait_s", value=-1), "tool_wait_s must be a number from 0 to 3600, not -1"),
        (changed("steps", 0, "max_tokens", value=True), "max_tokens must be a whole number from 1, not True"),
        (changed("steps", 0, "max_tokens", value=...), "step 0 lacks 'max_tokens'"),
        (changed("steps", 1, "messages", 0, "tool_call_id", value="c9"), "'c9' answers no open call; open: c1"),
        (changed("steps", 1, "messages", value=[{"role": "user", "content": "x"}]), "the calls c1 of the step before"),
        (changed("steps", 1, value=...), "whose results no step receives"),
        (
            changed("steps", 0, "recorded", "tool_calls", 0, "name", value="search"),
            "unknown tool 'search'; the prefix has find",
        ),
        (changed("steps", 1, "recorded", "content", value=" "), "content must be non-empty text"),
        (changed("extra", value=1), "unknown 'extra'"),
        (changed("steps", 1, "recorded", "tool_calls", value=None), "tool_calls must be a non-empty list"),
        (changed("steps", 0, "recorded", "tool_calls", 0, "name", value=["find"]), "name must be non-empty text"),
        (changed("steps", 0, "recorded", "tool_calls", 0, "arguments", value={"q": "\ud800"}), "lone surrogate"),
        (changed("title", value="\ud800"), "lone surrogate"),
    ],
)
def test_names_line_and_remedy(tmp_path: Path, task: dict[str, Any], words: str) -> None:
    """Each defect of a task is told with file, line, what was given and what is allowed."""
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(PREFIX) + "\n\n" + json.dumps(task) + "\n", encoding="utf-8")
    with pytest.raises(TraceError) as caught:
        read_tasks(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"", 1, "no task in the file"),
        (b"{}\n", 1, "a task line lacks"),
        (b"[1]\n", 1, "must hold a JSON object, not list"),
        (b'{"prefix": \n', 1, "not JSON"),
        ("\n안녕".encode("cp949"), 2, "not UTF-8"),
    ],
)
def test_files_that_hold_no_tasks(tmp_path: Path, content: bytes, line: int, words: str) -> None:
    """A file that is empty, of another encoding or no JSON is told as such, with its line."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_tasks(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert words in str(caught.value)


def test_duplicate_task(tmp_path: Path) -> None:
    """The second task of the same name is refused where it stands."""
    with pytest.raises(TraceError, match=r":3: task 't1' appears twice"):
        read_tasks(write(tmp_path / "a.jsonl", PREFIX, TASK, TASK))


def test_missing_file(tmp_path: Path) -> None:
    """A missing file is told with what to give instead."""
    with pytest.raises(TraceError, match=r"cannot read the task file: No such file"):
        read_tasks(tmp_path / "none.jsonl")
