"""One streamed answer: chunks of a chat completion gathered into text, tool calls, counts and times. No sockets
here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from harness.engines.base import StreamReader
from harness.errors import EngineProtocolError
from harness.records import ErrorKind
from harness.sse import EventParser, SseError

MAX_PLAIN_BYTES = 64 * 1024
_EXCERPT_CHARS = 300
_ADVICE = {
    404: "base_url is the address without /v1, engine.model one of the names that its /v1/models lists",
    405: "base_url is the address of an OpenAI-compatible server, without /v1",
    429: "the server takes no more requests: lower the concurrency, or set engine.max_requests_per_s",
    503: "the server is not ready: its model may still be loading, or it has too much to do",
}


@dataclass(frozen=True, slots=True)
class StreamResult:
    """What came of one request, successful or not; times in nanoseconds of the client's clock.

    ``sent_ns`` is when the request's bytes were handed to the socket, after any wait for the rate cap and after the
    connection stood; ``None`` if it never came to that. ``first_token_ns`` is the arrival of the first chunk with
    non-empty content, reasoning or tool-call text. ``end_ns`` is the arrival of the last such chunk or of the one
    with the finish reason, whichever is later (never of the usage chunk); for a failure, the moment it was noticed.
    ``chunks`` counts the token-bearing chunks; they are not tokens. ``tool_calls`` are (name, arguments) in order,
    arguments as the model wrote them. Token counts are the engine's usage, ``None`` where it tells none. ``retried``
    marks a request sent again because a kept connection turned out to be closed; its times are the second sending's.
    """

    sent_ns: int | None
    first_token_ns: int | None
    end_ns: int
    text: str
    reasoning: str
    tool_calls: tuple[tuple[str, str], ...]
    finish_reason: str | None
    chunks: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    http_status: int | None
    error_kind: ErrorKind | None = None
    error_message: str | None = None
    retried: bool = False


class Answer:
    """Collects one response body. The connection pushes bytes in; :meth:`result` may be asked for at any time.

    ``done`` is set by ``data: [DONE]``. ``error_kind`` is set by the first thing that goes wrong and never changed
    afterwards.
    """

    def __init__(self, reader: StreamReader) -> None:
        self.sent_ns: int | None = None
        self.http_status: int | None = None
        self.done = False
        self.error_kind: ErrorKind | None = None
        self.chunks = 0
        self._error_message: str | None = None
        self._failed_ns = 0
        self._reader_chunk = reader.chunk
        self._events = EventParser()
        self._plain: bytearray | None = None
        self._headers: Mapping[bytes, bytes] = {}
        self._head = b""
        self._first_token_ns: int | None = None
        self._last_ns = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._tool_calls: dict[int, tuple[list[str], list[str]]] = {}  # index → (name, pieces of arguments)
        self._finish_reason: str | None = None
        self._usage: dict[str, int | None] = {}

    def fail(self, t_ns: int, kind: ErrorKind, message: str) -> None:
        """Note that the request failed; the first failure stays."""
        if self.error_kind is None:
            self.error_kind, self._error_message, self._failed_ns = kind, message, t_ns

    def begin(self, status: int, content_type: str, headers: Mapping[bytes, bytes]) -> None:
        """Take the response's head, names of headers in lower case. Anything but a stream with status 200 is kept as plain
        bytes for the error message."""
        self.http_status = status
        self._headers = headers
        if status != 200 or content_type not in ("", "text/event-stream"):
            self._plain = bytearray()

    def body(self, t_ns: int, block: bytes) -> None:
        """Take the bytes of the body that arrived at ``t_ns``."""
        if self._plain is not None:
            self._plain += block
            if len(self._plain) > MAX_PLAIN_BYTES:
                self.end(t_ns)
            return
        if not self._head:
            self._head = block[:_EXCERPT_CHARS]
        try:
            events = self._events.feed(block)
        except SseError as error:
            self.fail(t_ns, "protocol", str(error))
            return
        for name, data in events:
            self._event(t_ns, name, data)

    def end(self, t_ns: int) -> None:
        """The body is over as HTTP sees it: judge whether the answer is complete."""
        if self._plain is None:
            for name, data in self._events.finish():
                self._event(t_ns, name, data)
        if self.error_kind is not None:
            return
        if self._plain is not None:
            message = _server_message(bytes(self._plain))
            if self.http_status == 200:
                self.fail(t_ns, "protocol", f"status 200, but no event stream{_whole(self._plain)}: {message}")
            else:
                self.fail(t_ns, "http_status", f"status {self.http_status}: {message}{self._advice()}")
        elif not self.done and self._finish_reason is None:
            began = "" if self.chunks else f"; it began {self._head.decode(errors='backslashreplace')!r}"
            self.fail(
                t_ns,
                "protocol",
                f"the stream ended after {self.chunks} chunks with neither a finish reason nor [DONE]{began}",
            )
        elif not self.chunks:
            self.fail(t_ns, "empty", f"the answer holds no token (finish reason {self._finish_reason!r})")

    def lost(self, t_ns: int, reason: Exception | None, *, delimited: bool) -> None:
        """The connection is gone. ``delimited``: the head had said how the body would end, so this end came too
        early."""
        whole = not delimited and reason is None and (self._plain is not None or self._finish_reason is not None)
        why = f" ({reason})" if reason is not None else ""
        if self.done or whole or self.http_status not in (None, 200):
            self.end(t_ns)
        elif self.http_status is None:
            self.fail(t_ns, "disconnect", f"the server closed the connection without an answer{why}")
        else:
            self.fail(
                t_ns,
                "disconnect",
                f"the server closed the connection within the answer, after {self.chunks} chunks{why}",
            )

    def result(self, now_ns: int, *, retried: bool = False) -> StreamResult:
        """Return what was received so far."""
        failed = self.error_kind is not None
        return StreamResult(
            sent_ns=self.sent_ns,
            first_token_ns=self._first_token_ns,
            end_ns=self._failed_ns if failed else self._last_ns or now_ns,
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(
                ("".join(name), "".join(pieces)) for _, (name, pieces) in sorted(self._tool_calls.items())
            ),
            finish_reason=self._finish_reason,
            chunks=self.chunks,
            prompt_tokens=self._usage.get("prompt_tokens"),
            completion_tokens=self._usage.get("completion_tokens"),
            cached_tokens=self._usage.get("cached_tokens"),
            http_status=self.http_status,
            error_kind=self.error_kind,
            error_message=self._error_message,
            retried=retried,
        )

    def _advice(self) -> str:
        """Return what the status, and the headers that go with it, mean for whoever set up the run."""
        advice = _ADVICE.get(self.http_status or 0)
        wait = self._headers.get(b"retry-after", b"").decode("latin-1").strip()
        place = self._headers.get(b"location", b"").decode("latin-1").strip()
        if wait and wait.isprintable():
            asked = f"it asks to wait {wait} s" if wait.isdecimal() else f"it asks to wait until {wait:.40}"
            advice = f"{advice}; {asked} (Retry-After)" if advice else f"{asked} (Retry-After)"
        elif place and 300 <= (self.http_status or 0) < 400:
            advice = f"it points to {place!r:.200}: give the address there as base_url, redirects are not followed"
        return f"; {advice}" if advice else ""

    def _event(self, t_ns: int, name: bytes, data: bytes) -> None:
        if self.done or self.error_kind is not None:
            return
        if data == b"[DONE]":
            self.done = True
            return
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            self.fail(t_ns, "protocol", f"an event is not JSON ({error}): {_excerpt(data)}")
            return
        if name == b"error" or not isinstance(value, dict) or value.get("error") is not None:
            self.fail(t_ns, "protocol", f"the stream carries an error or no chunk: {_server_message(data)}")
            return
        try:
            self._chunk(t_ns, value)
            self._reader_chunk(t_ns, value)
        except (EngineProtocolError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # What an engine sends is outside our control: a chunk of another shape fails this request, not the run.
            self.fail(t_ns, "protocol", f"a chunk of unknown shape ({type(error).__name__}: {error}): {_excerpt(data)}")

    def _chunk(self, t_ns: int, value: dict[str, Any]) -> None:
        choices = value.get("choices")
        if choices:
            choice = choices[0]
            delta = choice.get("delta")
            if delta and self._delta(delta):
                self.chunks += 1
                self._last_ns = t_ns
                if self._first_token_ns is None:
                    self._first_token_ns = t_ns
            reason = choice.get("finish_reason")
            if reason is not None:
                self._finish_reason = str(reason)
                self._last_ns = t_ns
        usage = value.get("usage")
        if usage:
            self._take_usage(usage)

    def _delta(self, delta: Mapping[str, Any]) -> bool:
        """Append what the delta bears; ``False`` if that is nothing (a role, an empty string)."""
        bears = False
        content = delta.get("content")
        if content:
            self._text.append(_text(content))
            bears = True
        # vLLM has renamed reasoning_content to reasoning and for a time sent both with the same text
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning:
            self._reasoning.append(_text(reasoning))
            bears = True
        for call in delta.get("tool_calls") or ():
            bears |= self._tool_call(call)
        return bears

    def _tool_call(self, call: Mapping[str, Any]) -> bool:
        function = call.get("function") or {}
        name, arguments = function.get("name") or "", function.get("arguments") or ""
        index = call.get("index")
        if index is None:
            # Some servers send each call whole and unnumbered: a name opens the next call
            index = len(self._tool_calls) - (0 if name or not self._tool_calls else 1)
        if not isinstance(index, int):
            raise TypeError(f"the index of a tool call must be a number, not {index!r:.60}")
        names, pieces = self._tool_calls.setdefault(index, ([], []))
        if name and not names:  # repeated in every delta by some servers
            names.append(_text(name))
        if arguments:
            pieces.append(_text(arguments))
        return bool(name or arguments)

    def _take_usage(self, usage: Mapping[str, Any]) -> None:
        details = usage.get("prompt_tokens_details") or {}
        for key, source in (("prompt_tokens", usage), ("completion_tokens", usage), ("cached_tokens", details)):
            count = source.get(key)
            if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
                self._usage[key] = count


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value


def _excerpt(data: bytes) -> str:
    return repr(data[:_EXCERPT_CHARS].decode(errors="backslashreplace"))


def _whole(body: bytes | bytearray) -> str:
    """Return what is to be said of a completion that came in one piece."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    is_answer = isinstance(value, dict) and isinstance(value.get("choices"), list) and bool(value["choices"])
    return ", the answer came whole: the server does not stream, so no token can be timed" if is_answer else ""


def _server_message(body: bytes) -> str:
    """Return the message of an OpenAI-style error body, or the beginning of whatever else it is."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _excerpt(body)
    error = value.get("error", value) if isinstance(value, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message[:_EXCERPT_CHARS] if isinstance(message, str) and message else _excerpt(body)
