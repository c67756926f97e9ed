"""Turns a step of a recorded task into the messages of a request, byte for byte the same for the same input.

``text`` mode writes tool schemas, calls and results into the messages, for servers whose chat template knows no
tools; the roles then alternate strictly. ``native`` mode uses the OpenAI fields ``tools``, ``tool_calls`` and the
role ``tool``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.tasks import Message, Prefix, Step, Task, ToolCall

TOOL_INTRODUCTION = "Tools, one JSON object a line:"
TOOL_USAGE = 'To use a tool, answer with <tool_call>{"name": "…", "arguments": {…}}</tool_call>, one per call.'


@dataclass(frozen=True, slots=True)
class PromptParts:
    """What a request body needs: OpenAI messages, and OpenAI tool schemas or ``None``."""

    messages: list[dict[str, Any]]
    tools: list[Mapping[str, Any]] | None


def build_request(
    task: Task, step_index: int, answers: Sequence[Message], *, tools: Literal["text", "native"], salt: str | None
) -> PromptParts:
    """Build the prompt of one step.

    ``answers`` are the assistant messages of the earlier steps, recorded or live (:func:`live_answer`), one for each.
    ``salt`` is put in brackets in front of the system prompt, so that no server finds the prompt in a cache filled
    under another salt.

    A live answer may not fit the recorded messages that follow it. The request is valid all the same: in native mode
    an answer whose tool calls are not exactly those that the next step's tool results belong to (none, too many,
    other ids, arguments that are no JSON object) keeps its content and gets the recorded step's tool calls; calls
    that no recorded result answers are dropped. In both modes an answer left with neither content nor calls is
    replaced by the recorded one.

    Raises:
        ValueError: if there is not exactly one answer for each earlier step.
    """
    if len(answers) != step_index or step_index >= len(task.steps):
        raise ValueError(
            f"step {step_index} of {len(task.steps)} needs {step_index} earlier answers, got {len(answers)}"
        )
    earlier = list(zip(task.steps, answers, strict=False))
    label = "" if salt is None else f"[{salt}] "
    if tools == "native":
        messages = _native(earlier, task.steps[step_index])
        system, schemas = task.prefix.system, list(task.prefix.tools) or None
    else:
        messages = _text(earlier, task.steps[step_index])
        system, schemas = _system_with_tools(task.prefix), None
    return PromptParts([{"role": "system", "content": label + system}, *messages], schemas)


def live_answer(step: Step, content: str, tool_calls: Sequence[tuple[str, str]]) -> Message:
    """Make the assistant message of an answer that an engine just gave, from its text and its (name, arguments) calls.

    Engines invent their own call ids; here each call gets the id of the recorded call in the same place if the names
    agree, so that the recorded tool results answer it.
    """
    recorded = step.recorded.tool_calls
    calls = []
    for index, (name, arguments) in enumerate(tool_calls):
        same = index < len(recorded) and recorded[index].name == name
        calls.append(ToolCall(recorded[index].id if same else f"live-{index}", name, arguments))
    return Message("assistant", content, tuple(calls))


def _native(earlier: Sequence[tuple[Step, Message]], last: Step) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for step, answer in earlier:
        messages += map(_native_message, step.messages)
        calls = answer.tool_calls if _calls_fit(answer, step.recorded) else step.recorded.tool_calls
        fitted = replace(answer, tool_calls=calls)
        messages.append(_native_message(fitted if fitted.content or calls else step.recorded))
    messages += map(_native_message, last.messages)
    return messages


def _native_message(message: Message) -> dict[str, Any]:
    value: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_call_id is not None:
        value["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        value["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return value


def _calls_fit(answer: Message, recorded: Message) -> bool:
    """Tell whether the recorded results answer these calls, and whether a server's template can read their
    arguments."""
    if sorted(call.id for call in answer.tool_calls) != sorted(call.id for call in recorded.tool_calls):
        return False
    try:
        return all(isinstance(json.loads(call.arguments), dict) for call in answer.tool_calls)
    except (ValueError, RecursionError):
        return False


def _text(earlier: Sequence[tuple[Step, Message]], last: Step) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for step, answer in earlier:
        messages.append(_user_turn(step))
        content = _assistant_text(answer) or _assistant_text(step.recorded)
        messages.append({"role": "assistant", "content": content})
    return [*messages, _user_turn(last)]


def _user_turn(step: Step) -> dict[str, Any]:
    parts = [
        f"<tool_response>\n{message.content}\n</tool_response>" if message.role == "tool" else message.content
        for message in step.messages
    ]
    return {"role": "user", "content": "\n\n".join(parts)}


def _assistant_text(answer: Message) -> str:
    calls = [
        f'<tool_call>{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {call.arguments}}}</tool_call>'
        for call in answer.tool_calls
    ]
    return "\n".join(part for part in (answer.content, *calls) if part)


def _system_with_tools(prefix: Prefix) -> str:
    if not prefix.tools:
        return prefix.system
    schemas = [json.dumps(tool["function"], ensure_ascii=False, separators=(",", ":")) for tool in prefix.tools]
    return "\n".join([prefix.system, "", TOOL_INTRODUCTION, *schemas, TOOL_USAGE])
