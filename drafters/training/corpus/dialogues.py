"""Recorded conversations and tasks, in the forms they are kept in, → messages as in OpenAI's chat requests."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from drafters.training.conversations import LANGUAGES
from drafters.training.corpus.encoding import Unreadable, read_text
from drafters.training.corpus.languages import text_type_of_genre
from drafters.training.corpus.sources import Given, LeftOut, Reading, Source, shown_path
from drafters.training.stage import StageError

__all__ = ["read_dialogues", "read_tasks"]

ROLES = {
    "system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant",
    "model": "assistant", "bing": "assistant", "chatgpt": "assistant", "tool": "tool", "function": "tool", "observation": "tool",
    "tool_response": "tool", "function_call": "assistant", "tool_call": "assistant",
}  # fmt: skip
"""Role, or ShareGPT's ``from`` → role."""
SESSIONS = ("conversation_id", "session_id", "session", "thread_id", "chat_id", "trace_id", "source", "document_id")
"""Keys that say which lines belong together; such lines fall on one side of the split."""
MAX_DEPTH = 200
FORMS = '{"text": …}, {"messages": […], "tools": […]} or {"conversations": [{"from": …, "value": …}]}'


def read_dialogues(given: Given) -> Reading:
    """Yield texts and conversations of a ``.jsonl`` file, or of a folder's ``.jsonl`` files.

    Raises StageError with file and line for what is not JSON of a known form. In a folder, files that cannot be read are
    left out; a file that was named itself must be readable.
    """
    root = given.path
    files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
    for path in files:
        name = shown_path(Path(path.name) if path == root else path.relative_to(root))
        if path != root and (
            path.suffix.lower() != ".jsonl" or any(p.startswith(".") for p in path.relative_to(root).parts)
        ):
            yield LeftOut(name, "not .jsonl; give documents with --documents")
            continue
        try:
            text = read_text(path)
        except Unreadable as error:
            if path == root:
                raise StageError(f"{path}: {error}") from error
            yield LeftOut(name, str(error))
            continue
        yield from _lines(path, name, text, given)


def read_tasks(given: Given) -> Reading:
    """Yield the tasks of a ``tasks.jsonl`` as conversations, recorded answers included. Raises StageError."""
    path = given.path
    if not path.is_file():
        raise StageError(f"{path} is a folder; give a tasks.jsonl file")
    try:
        text = read_text(path)
    except Unreadable as error:
        raise StageError(f"{path}: {error}") from error
    prefixes: dict[str, Mapping[str, Any]] = {}
    count = 0
    for place, value in _objects(path, text):
        if "prefix" in value and "steps" not in value:
            _need(
                isinstance(value.get("system"), str), place, "a prefix line needs 'system' (text) and 'tools' (a list)"
            )
            prefixes[str(value["prefix"])] = value
            continue
        prefix = prefixes.get(str(value.get("prefix")))
        steps = value.get("steps")
        _need(prefix is not None, place, "the line's 'prefix' is not defined before it; prefix lines come first")
        _need(isinstance(steps, list) and bool(steps), place, "a task line needs 'steps', a list that is not empty")
        messages: list[dict[str, Any]] = [{"role": "system", "content": (prefix or {})["system"]}]
        for step in steps or ():
            _need(isinstance(step, dict) and isinstance(step.get("messages"), list), place, "a step needs 'messages'")
            _need(isinstance(step.get("recorded"), dict), place, "a step needs 'recorded', the answer that was given")
            messages += [_message(message, place) for message in (*step["messages"], step["recorded"])]
        language = given.language or (value.get("language") if value.get("language") in LANGUAGES else None)
        count += 1
        yield Source(
            file=path.name,
            unit=f"{path.name}#{value.get('task', count)}",
            messages=tuple(messages),
            tools=_tools((prefix or {}).get("tools"), place),
            language=language,
            text_type=given.text_type or text_type_of_genre(str(value.get("genre", ""))),
        )
    if not count:
        raise StageError(f"{path}: no task in the file; it needs at least one line with 'task' and 'steps'")


def _lines(path: Path, name: str, text: str, given: Given) -> Reading:
    for number, (place, value) in enumerate(_objects(path, text), start=1):
        request, response = value.get("request"), value.get("response")
        body: Mapping[str, Any] = request if isinstance(request, dict) and "messages" in request else value
        if isinstance(body.get("text"), str) and "messages" not in body:
            if len(body["text"].strip()) < 2:
                yield LeftOut(name, f"line {number}: empty text")
                continue
            session = _session(value)
            own = str(value["id"]) if isinstance(value.get("id"), str | int) else f"{number}"
            unit = f"session {session}" if session else f"{name}#{own}"
            yield Source(name, unit, text=body["text"].strip(), language=given.language, text_type=given.text_type)
            continue
        turns = body.get("messages", body.get("conversations"))
        _need(isinstance(turns, list), place, f"neither text nor conversation; a line is {FORMS}")
        messages = [_message(turn, place) for turn in turns or ()]
        if isinstance(response, dict) and isinstance(response.get("choices"), list) and response["choices"]:
            first = response["choices"][0]
            _need(
                isinstance(first, dict) and "message" in first, place, "a response's choices are objects with 'message'"
            )
            messages.append(_message(first["message"], place))
        if not any(message["role"] == "user" and message["content"].strip() for message in messages):
            yield LeftOut(name, f"line {number}: no turn of a user in it")
            continue
        if messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        session = _session(value)
        yield Source(
            file=name,
            # whatever the file: a log is cut by days, a conversation is not
            unit=f"session {session}" if session else f"opening {_opening(messages)}",
            messages=tuple(messages),
            tools=_tools(body.get("tools"), place),
            language=given.language,
            text_type=given.text_type,
        )


def _objects(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise StageError(f"{place}: not JSON ({error.msg}, column {error.colno}); one object a line") from error
        except (ValueError, RecursionError) as error:  # numbers of thousands of digits; lists in lists
            raise StageError(f"{place}: {_why(error)}; one flat object a line") from error
        _need_shallow(value, place)
        if not isinstance(value, dict):
            raise StageError(f"{place}: a line holds an object, not a {type(value).__name__}; a line is {FORMS}")
        if "\\u0000" in line and "\0" in "".join(_texts(value)):
            raise StageError(f"{place}: a NUL character (\\u0000) in it, which is no text; write the line anew")
        if "\\ud" in line.lower():  # escaped halves of characters: pairs are text, a lone one is none
            try:
                json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                raise StageError(
                    f"{place}: half of a surrogate pair in it, which is no text; write the line anew"
                ) from error
        yield place, value


def _message(turn: Any, place: str) -> dict[str, Any]:
    _need(isinstance(turn, dict), place, f"a turn is an object with role and content; a line is {FORMS}")
    said = turn.get("role", turn.get("from"))
    role = ROLES.get(said) if isinstance(said, str) else None
    _need(role is not None, place, f"a turn's role is of none of the kinds {', '.join(sorted(ROLES))}")
    content = _content(turn.get("content", turn.get("value")), place)
    message: dict[str, Any] = {"role": role, "content": content}
    calls = turn.get("tool_calls")
    if said in ("function_call", "tool_call"):
        message["content"], calls = "", _written_calls(content, place)
    if role == "assistant" and calls:
        _need(isinstance(calls, list), place, "tool_calls is a list")
        message["tool_calls"] = [_call(call, number, place) for number, call in enumerate(calls, start=1)]
    if role == "tool" and isinstance(turn.get("tool_call_id"), str):
        message["tool_call_id"] = turn["tool_call_id"]
    return message


def _content(value: Any, place: str) -> str:
    if isinstance(value, list):  # parts: what is not text (pictures, sound) has no place in a text drafter's corpus
        texts = [part.get("text") for part in value if isinstance(part, dict)]
        value = "\n".join(text for text in texts if isinstance(text, str))
    _need(value is None or isinstance(value, str), place, "content is text, a list of parts, or null")
    return unicodedata.normalize("NFC", value or "")


def _call(call: Any, number: int, place: str) -> dict[str, Any]:
    function: Any = call.get("function", call) if isinstance(call, dict) else None
    _need(
        isinstance(function, dict) and isinstance(function.get("name"), str), place, "a tool call needs the tool's name"
    )
    arguments = function.get("arguments", "{}")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    named = call.get("id")
    return {
        "id": named if isinstance(named, str) else f"call_{number}",
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }


def _written_calls(content: str, place: str) -> Sequence[Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StageError(f"{place}: a function_call turn holds no JSON; it is {{'name': …, 'arguments': …}}") from error
    _need_shallow(value, place)
    return value if isinstance(value, list) else [value]


def _tools(tools: Any, place: str) -> tuple[Mapping[str, Any], ...]:
    if isinstance(tools, str):  # some exports write the list as text
        try:
            tools = json.loads(tools)
        except ValueError:
            tools = None
        except RecursionError as error:
            raise StageError(f"{place}: tools are nested too deeply; tools is a list of schemas") from error
    if not tools:
        return ()
    _need_shallow(tools, place)
    _need(
        isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools), place, "tools is a list of schemas"
    )
    wrapped = [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools]
    named = all(
        isinstance(tool["function"], dict) and isinstance(tool["function"].get("name"), str) for tool in wrapped
    )
    _need(named, place, "each tool is {'type': 'function', 'function': {'name': …, 'parameters': …}}")
    return tuple(wrapped)


def _need_shallow(value: Any, place: str) -> None:
    """Refuse what is nested so deeply that what comes later could not write it."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = (part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list))
        level = [one for parts in inner for one in parts]
        if not level:
            return
    raise StageError(f"{place}: nested too deeply; at most {MAX_DEPTH} levels")


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _why(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"


def _session(value: Mapping[str, Any]) -> str | None:
    metadata = value.get("metadata")
    places: list[Mapping[str, Any]] = [value, metadata] if isinstance(metadata, dict) else [value]
    found = (str(place[key]) for place in places for key in SESSIONS if isinstance(place.get(key), str | int))
    return next(found, None)


def _opening(messages: Sequence[Mapping[str, Any]]) -> str:
    """Conversations that open alike are states of one that grows."""
    first = next(message for message in messages if message["role"] == "user")
    return hashlib.sha256(first["content"].encode("utf-8", "replace")).hexdigest()[:16]


def _need(holds: bool, place: str, what: str) -> None:
    if not holds:
        raise StageError(f"{place}: {what}")
