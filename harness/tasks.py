"""Recorded agent tasks: an ordered list of model calls with tool waits between them, and their file format.

A ``tasks.jsonl`` file holds two kinds of lines. A prefix line ``{"prefix", "system", "tools"}`` names a system prompt with its
tool schemas, shared by many tasks. A task line ``{"task", "title", "genre", "language", "prefix", "steps"}`` holds the steps.
The prompt of a step is the prefix, then the messages and answers of all earlier steps, then the step's own messages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from harness.errors import TraceError

StepKind = Literal["plan", "tool_call", "summarize", "write", "revise", "reply", "code_edit", "review"]
Language = Literal["ko", "ko+code", "en", "en+code", "code"]

KINDS: tuple[str, ...] = get_args(StepKind)
LANGUAGES: tuple[str, ...] = get_args(Language)
MAX_TOOL_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool as an assistant wrote it; ``arguments`` is JSON text, as on the wire."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; ``tool_calls`` only for the assistant, ``tool_call_id`` only for a tool result."""

    role: Literal["user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One model call.

    ``messages`` are appended to the history before the call, ``recorded`` is the answer given when the task was recorded,
    ``tool_wait_s`` is how long the tools it called took: the next step is due that many seconds after this one ends.
    """

    kind: StepKind
    language: Language
    messages: tuple[Message, ...]
    recorded: Message
    tool_wait_s: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """A system prompt and the tool schemas (OpenAI form) that tasks share."""

    name: str
    system: str
    tools: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Task:
    """One recorded agent job."""

    id: str
    title: str
    genre: str
    language: Language
    prefix: Prefix
    steps: tuple[Step, ...]


def read_tasks(path: Path) -> tuple[Task, ...]:
    """Read a ``tasks.jsonl`` file.

    Raises:
        TraceError: with file and line, if the file is missing, empty, not UTF-8, or any line is not of the format.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TraceError(
            f"{path}:0: cannot read the task file: {error.strerror}; give the path of a .jsonl file"
        ) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise TraceError(f"{path}:{line}: not UTF-8 (byte {raw[error.start]:#04x}); save the file as UTF-8") from error
    prefixes: dict[str, Prefix] = {}
    tasks: dict[str, Task] = {}
    for number, line_text in enumerate(text.split("\n"), start=1):
        if not line_text.strip():
            continue
        reader = _LineReader(f"{path}:{number}")
        value = reader.parse(line_text)
        if "prefix" in value and "steps" not in value:
            prefix = reader.prefix(value)
            if prefix.name in prefixes:
                raise reader.error(f"prefix {prefix.name!r} is defined twice; give each prefix its own name")
            prefixes[prefix.name] = prefix
        else:
            task = reader.task(value, prefixes)
            if task.id in tasks:
                raise reader.error(f"task {task.id!r} appears twice; task names must be unique in a file")
            tasks[task.id] = task
    if not tasks:
        raise TraceError(f"{path}:1: no task in the file; it needs at least one line with 'task' and 'steps'")
    return tuple(tasks.values())


def write_tasks(path: Path, tasks: Iterable[Task]) -> None:
    """Write tasks in the format that :func:`read_tasks` reads, prefixes first, UTF-8, one object a line."""
    tasks = list(tasks)
    prefixes = {task.prefix.name: task.prefix for task in tasks}
    lines: list[dict[str, Any]] = [
        {"prefix": prefix.name, "system": prefix.system, "tools": list(prefix.tools)} for prefix in prefixes.values()
    ]
    lines += [task_to_json(task) for task in tasks]
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def task_to_json(task: Task) -> dict[str, Any]:
    """Return the task line of the file format."""
    return {
        "task": task.id,
        "title": task.title,
        "genre": task.genre,
        "language": task.language,
        "prefix": task.prefix.name,
        "steps": [
            {
                "kind": step.kind,
                "language": step.language,
                "messages": [_message_to_json(message) for message in step.messages],
                "recorded": _message_to_json(step.recorded),
                "tool_wait_s": step.tool_wait_s,
                "max_tokens": step.max_tokens,
            }
            for step in task.steps
        ],
    }


def tasks_sha256(tasks: Iterable[Task]) -> str:
    """Return a SHA-256 over everything that a replay of these tasks depends on, in order."""
    digest = hashlib.sha256()
    for task in tasks:
        shared = {"system": task.prefix.system, "tools": list(task.prefix.tools)}
        for part in (shared, task_to_json(task)):
            digest.update(json.dumps(part, ensure_ascii=False, sort_keys=True).encode())
    return digest.hexdigest()


def _message_to_json(message: Message) -> dict[str, Any]:
    value: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        value["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": json.loads(call.arguments)} for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        value["tool_call_id"] = message.tool_call_id
    return value


@dataclass(frozen=True, slots=True)
class _LineReader:
    """Turns one parsed line into a prefix or a task; every complaint names the place."""

    where: str

    def error(self, what: str) -> TraceError:
        return TraceError(f"{self.where}: {what}")

    def parse(self, text: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise self.error(f"not JSON: {error.msg} at column {error.colno}; one JSON object a line") from error
        except RecursionError as error:
            raise self.error("nested too deeply; one flat task object a line") from error
        if not isinstance(value, dict):
            raise self.error(f"a line must hold a JSON object, not {type(value).__name__}")
        if "\\ud" in text.lower():  # an escaped surrogate: whole pairs are text, a lone one is not
            self._text(json.dumps(value, ensure_ascii=False), "the line")
        return value

    def _keys(
        self, value: Any, required: set[str], what: str, optional: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(f"{what} must be an object, not {type(value).__name__}")
        missing = sorted(required - set(value))
        unknown = sorted(set(value) - required - optional)
        allowed = ", ".join(sorted(required | optional))
        if missing:
            raise self.error(f"{what} lacks {', '.join(map(repr, missing))}; its keys are {allowed}")
        if unknown:
            raise self.error(f"{what} has unknown {', '.join(map(repr, unknown))}; its keys are {allowed}")
        return value

    def _text(self, value: Any, what: str, *, empty: bool = False) -> str:
        if not isinstance(value, str) or (not empty and not value.strip()):
            raise self.error(f"{what} must be {'text' if empty else 'non-empty text'}, not {value!r:.60}")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise self.error(
                f"{what} has a lone surrogate {value[error.start]!r} at {error.start}, not Unicode text"
            ) from error
        return value

    def _number(self, value: Any, what: str, low: float, high: float) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.error(f"{what} must be a number from {low:g} to {high:g}, not {value!r:.60}")
        return value

    def _list(self, value: Any, what: str) -> list[Any]:
        if not isinstance(value, list) or not value:
            raise self.error(f"{what} must be a non-empty list, not {value!r:.60}")
        return value

    def prefix(self, value: dict[str, Any]) -> Prefix:
        self._keys(value, {"prefix", "system", "tools"}, "a prefix line")
        if not isinstance(value["tools"], list):
            raise self.error("tools must be a list of OpenAI function schemas")
        for tool in value["tools"]:
            function = tool.get("function") if isinstance(tool, dict) else None
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                raise self.error(
                    "each tool needs the form {'type': 'function', 'function': {'name': …, 'parameters': …}}"
                )
        return Prefix(
            self._text(value["prefix"], "prefix"), self._text(value["system"], "system"), tuple(value["tools"])
        )

    def task(self, value: dict[str, Any], prefixes: Mapping[str, Prefix]) -> Task:
        self._keys(value, {"task", "title", "genre", "language", "prefix", "steps"}, "a task line")
        prefix = prefixes.get(value["prefix"]) if isinstance(value["prefix"], str) else None
        if prefix is None:
            known = ", ".join(sorted(prefixes)) or "none so far: prefix lines come first"
            raise self.error(f"unknown prefix {value['prefix']!r}; known: {known}")
        tool_names = {tool["function"]["name"] for tool in prefix.tools}
        steps: list[Step] = []
        open_calls: tuple[str, ...] = ()
        for index, item in enumerate(self._list(value["steps"], "steps")):
            step = self._step(item, f"step {index}", open_calls, tool_names)
            open_calls = tuple(call.id for call in step.recorded.tool_calls)
            steps.append(step)
        if open_calls:
            raise self.error(f"the last step calls tools ({', '.join(open_calls)}) whose results no step receives")
        return Task(
            id=self._text(value["task"], "task"),
            title=self._text(value["title"], "title"),
            genre=self._text(value["genre"], "genre"),
            language=self._choice(value["language"], LANGUAGES, "language"),
            prefix=prefix,
            steps=tuple(steps),
        )

    def _choice(self, value: Any, allowed: tuple[str, ...], what: str) -> Any:
        if value not in allowed:
            raise self.error(f"{what} is {value!r:.60}; allowed: {', '.join(allowed)}")
        return value

    def _step(self, value: Any, what: str, open_calls: tuple[str, ...], tool_names: set[str]) -> Step:
        self._keys(value, {"kind", "language", "messages", "recorded", "tool_wait_s", "max_tokens"}, what)
        waiting = list(open_calls)
        messages = []
        for item in self._list(value["messages"], f"{what}: messages"):
            role = self._choice(item.get("role") if isinstance(item, dict) else None, ("user", "tool"), f"{what}: role")
            self._keys(
                item, {"role", "content"} | ({"tool_call_id"} if role == "tool" else set()), f"{what}: a {role} message"
            )
            content = self._text(item["content"], f"{what}: content", empty=role == "tool")
            if role == "tool":
                if item["tool_call_id"] not in waiting:
                    raise self.error(
                        f"{what}: tool_call_id {item['tool_call_id']!r} answers no open call; open: {', '.join(waiting) or 'none'}"
                    )
                waiting.remove(item["tool_call_id"])
            messages.append(Message(role, content, tool_call_id=item.get("tool_call_id")))
        if waiting:
            raise self.error(f"{what}: the calls {', '.join(waiting)} of the step before have no tool message here")
        return Step(
            kind=self._choice(value["kind"], KINDS, f"{what}: kind"),
            language=self._choice(value["language"], LANGUAGES, f"{what}: language"),
            messages=tuple(messages),
            recorded=self._recorded(value["recorded"], f"{what}: recorded", tool_names),
            tool_wait_s=float(self._number(value["tool_wait_s"], f"{what}: tool_wait_s", 0, MAX_TOOL_WAIT_S)),
            max_tokens=self._integer(value["max_tokens"], f"{what}: max_tokens"),
        )

    def _integer(self, value: Any, what: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(f"{what} must be a whole number from 1, not {value!r:.60}")
        return value

    def _recorded(self, value: Any, what: str, tool_names: set[str]) -> Message:
        self._keys(value, {"role", "content"}, what, frozenset({"tool_calls"}))
        self._choice(value["role"], ("assistant",), f"{what}: role")
        calls = []
        for item in self._list(value["tool_calls"], f"{what}: tool_calls") if "tool_calls" in value else []:
            self._keys(item, {"id", "name", "arguments"}, f"{what}: a tool call")
            if self._text(item["name"], f"{what}: name") not in tool_names:
                raise self.error(
                    f"{what}: unknown tool {item['name']!r}; the prefix has {', '.join(sorted(tool_names)) or 'none'}"
                )
            if not isinstance(item["arguments"], dict):
                raise self.error(f"{what}: arguments must be an object, not {type(item['arguments']).__name__}")
            calls.append(
                ToolCall(
                    self._text(item["id"], f"{what}: id"),
                    item["name"],
                    json.dumps(item["arguments"], ensure_ascii=False),
                )
            )
        content = self._text(value["content"], f"{what}: content", empty=bool(calls))
        return Message("assistant", content, tuple(calls))
