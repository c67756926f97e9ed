"""A real HTTP server on a real socket that does what a test tells it: delays, faults, disconnects. Never a mock of a
client.

``FakeServer`` runs a script; ``FakeLlama`` is a script that speaks the dialect of llama.cpp's server, for tests of
the whole harness.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

Part = tuple[float, bytes]
"""Seconds to wait, then bytes to write with one flush."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived. ``number`` counts from 0 over the server; ``open_requests`` includes this one."""

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    open_requests: int

    @property
    def json(self) -> Any:
        """The decoded body."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """What to answer. ``framing``: each part one HTTP chunk, one body of known length, a body that the close ends, or
    no HTTP at all.

    ``then``: keep the connection; end the body properly and close all the same (a server whose keep-alive ran out);
    close or reset without ending the body; or hang, saying nothing more until the client leaves.
    """

    parts: Sequence[Part] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    framing: Literal["chunked", "length", "close", "raw"] = "chunked"
    then: Literal["keep", "end_and_close", "close", "reset", "hang"] = "keep"
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self) -> bytes:
        """Return status line and headers."""
        lines = [f"HTTP/1.1 {self.status} Scripted", f"content-type: {self.content_type}"]
        if self.framing == "chunked":
            lines.append("transfer-encoding: chunked")
        elif self.framing == "length":
            lines.append(f"content-length: {sum(len(data) for _, data in self.parts)}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "\r\n"]).encode()

    def frame(self, data: bytes) -> bytes:
        """Return the bytes of one part as they go over the wire."""
        return b"%x\r\n%s\r\n" % (len(data), data) if self.framing == "chunked" else data


Script = Callable[[Request], Reply]


def event(value: Any) -> bytes:
    """Return one server-sent event with a JSON value (or the text ``[DONE]``) as data."""
    data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"data: {data}\n\n".encode()


def delta(finish_reason: str | None = None, **fields: Any) -> bytes:
    """Return the event of one chunk whose delta has the given fields."""
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]})


def usage(prompt: int, completion: int, cached: int = 0) -> bytes:
    """Return the event of a usage chunk."""
    counts = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return event({"choices": [], "usage": counts})


DONE = event("[DONE]")


def json_reply(value: Any, status: int = 200) -> Reply:
    """Return a plain JSON answer."""
    return Reply([(0, json.dumps(value, ensure_ascii=False).encode())], status, "application/json", "length")


class FakeServer:
    """Serves a script, or a list of replies in the order of the requests, on a free loopback port; an async context
    manager. ``tls`` makes it an HTTPS server, ``listen_on`` gives it a port."""

    def __init__(
        self, script: Script | Sequence[Reply], *, tls: ssl.SSLContext | None = None, listen_on: int = 0
    ) -> None:
        self._script = script if callable(script) else _in_order(list(script))
        self._tls = tls
        self._listen_on = listen_on
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.base_url = ""
        self.requests: list[Request] = []
        self.open_requests = 0
        self.peak_requests = 0
        self.connections_made = 0
        self.disconnects = 0
        """Clients that left before their answer was over."""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self._listen_on, ssl=self._tls)
        self.base_url = f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}"
        return self

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and drop every connection, as a server that dies does."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.drop_connections()
        await asyncio.sleep(0)

    def drop_connections(self) -> None:
        """Close every connection at once, the idle ones and those with an answer in progress."""
        for connection in tuple(self._connections):
            connection.abort()

    @property
    def open_connections(self) -> int:
        """Connections that stand now, idle ones included."""
        return len(self._connections)

    async def quiet(self, timeout_s: float = 5.0) -> None:
        """Return when no request is open."""
        await asyncio.wait_for(self._quiet.wait(), timeout_s)

    def begin(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Count a request in and ask the script."""
        self.open_requests += 1
        self.peak_requests = max(self.peak_requests, self.open_requests)
        self._quiet.clear()
        request = Request(len(self.requests), method, path, headers, body, self.open_requests)
        self.requests.append(request)
        return self._script(request)

    def end(self, *, disconnected: bool) -> None:
        """Count a request out."""
        self.open_requests -= 1
        self.disconnects += disconnected
        if self.open_requests == 0:
            self._quiet.set()

    def attach(self, connection: _Connection) -> None:
        """Note a new connection."""
        self.connections_made += 1
        self._connections.add(connection)

    def detach(self, connection: _Connection) -> None:
        """Forget a closed connection."""
        self._connections.discard(connection)


class _Connection(asyncio.Protocol):
    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self._buffer = b""
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.attach(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.detach(self)
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        self._transport.abort()

    def _next_request(self) -> None:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if self._task is not None or not found:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        method, target, _ = first.split(" ")
        path = "/" + target.split("/", 3)[3] if target.startswith("http") else target  # as proxies may ask for it
        reply = self._server.begin(method, path, headers, rest[:length])
        self._task = asyncio.create_task(self._answer(reply))

    async def _answer(self, reply: Reply) -> None:
        disconnected = True
        try:
            if reply.framing != "raw" and (reply.parts or reply.then != "close"):
                self._transport.write(reply.head())
            for delay_s, data in reply.parts:
                if delay_s:
                    await asyncio.sleep(delay_s)
                self._transport.write(reply.frame(data))
            if reply.then == "hang":
                await asyncio.Event().wait()
            disconnected = False
        finally:
            self._task = None
            self._server.end(disconnected=disconnected)
        if reply.then in ("keep", "end_and_close") and reply.framing == "chunked":
            self._transport.write(b"0\r\n\r\n")
        if reply.then == "reset":
            linger = struct.pack("ii", 1, 0)  # no waiting: the close sends RST
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._transport.abort()
        elif reply.then != "keep" or reply.framing in ("close", "raw"):
            self._transport.close()
        else:
            self._next_request()


def _in_order(replies: Sequence[Reply]) -> Script:
    def script(request: Request) -> Reply:
        if request.number < len(replies):
            return replies[request.number]
        return json_reply({"error": {"message": f"the script holds {len(replies)} replies"}}, 500)

    return script


def word_tokens(text: str) -> list[int]:
    """Return one stable token id for each word."""
    return [zlib.crc32(word.encode()) % 30_000 for word in text.split()]


def echo_answer(body: Mapping[str, Any]) -> list[str]:
    """Return as many words as ``max_tokens`` allows, at most 12, that depend on nothing but the messages."""
    seed = zlib.crc32(json.dumps(body["messages"], sort_keys=True).encode())
    words = ("보고서", "검토", "결과", "회의", "the", "report", "is", "done", "def", "return")
    return [f"{words[(seed >> shift) % len(words)]} " for shift in range(min(12, body.get("max_tokens") or 12))]


@dataclass
class FakeLlama:
    """Answers like llama.cpp's server (b11549): streams, ``/health``, ``/props``, ``/tokenize``, ``/metrics``,
    ``/v1/models``.

    ``draft`` is (tokens drafted, tokens accepted) of every verify round, ``None`` for a server without a drafter; the
    first token comes from the prompt's own pass, and the last round is cut short where the answer ends. ``pass_s``
    gives the seconds of one decode pass for a number of open requests, ``prompt_s`` those of the prompt; a pass sends
    its tokens as one chunk each, at once. ``faults`` replaces the reply of the chat requests with these numbers
    (counted from 0 over chat requests). Counters move when a request begins, so read them when the server is quiet.
    """

    answer: Callable[[Mapping[str, Any]], Sequence[str]] = echo_answer
    draft: tuple[int, int] | None = None
    pass_s: Callable[[int], float] = lambda open_requests: 0.0
    prompt_s: float = 0.0
    model: str = "fake"
    method: str = "ngram-map-k"
    context_tokens: int = 4096
    slots: int = 8
    faults: dict[int, Reply] = field(default_factory=dict)
    chat_requests: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    predicted: int = 0
    prompted: int = 0

    def __call__(self, request: Request) -> Reply:
        """Answer one request."""
        path = request.path.partition("?")[0]
        if path == "/v1/chat/completions":
            self.chat_requests += 1
            return self.faults.get(self.chat_requests - 1) or self._chat(request)
        if path == "/tokenize":
            return json_reply({"tokens": word_tokens(request.json["content"])})
        if path == "/metrics":
            return Reply([(0, self._metrics().encode())], content_type="text/plain; version=0.0.4", framing="length")
        plain: dict[str, Any] = {
            "/health": {"status": "ok"},
            "/completion": {"content": "1", "generation_settings": {"speculative.types": self.drafter}},
            "/v1/models": {"object": "list", "data": [{"id": self.model, "object": "model", "owned_by": "llamacpp"}]},
            "/props": {
                "default_generation_settings": {"n_ctx": self.context_tokens, "params": {}},
                "total_slots": self.slots,
                "model_alias": self.model,
                "model_path": self.model,
                "endpoint_metrics": True,
                "build_info": "fake",
            },
        }
        if path in plain:
            return json_reply(plain[path])
        return json_reply({"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}, 404)

    @property
    def drafter(self) -> str:
        """What a completion's settings say the server drafts with."""
        return "none" if self.draft is None else self.method

    def _chat(self, request: Request) -> Reply:
        body = request.json
        tokens = list(self.answer(body))
        passes = self._passes(len(tokens))
        prompt = sum(len(word_tokens(message["content"])) for message in body["messages"])
        self.prompted += prompt
        self.predicted += len(tokens)
        timings: dict[str, Any] = {"cache_n": 0, "prompt_n": prompt, "predicted_n": len(tokens)}
        if self.draft is not None and passes:
            timings |= self._count_rounds(passes)
        delay_s = self.pass_s(request.open_requests)
        parts: list[Part] = [(0, delta(role="assistant", content=None))]
        for index, size in enumerate([1, *passes] if tokens else []):
            burst, tokens = tokens[:size], tokens[size:]
            waits = [delay_s if index else self.prompt_s] + [0.0] * (size - 1)
            parts += [(wait_s, delta(content=token)) for wait_s, token in zip(waits, burst, strict=True)]
        reason = "length" if timings["predicted_n"] == body.get("max_tokens") else "stop"
        counts = {
            "prompt_tokens": prompt,
            "completion_tokens": timings["predicted_n"],
            "total_tokens": prompt + timings["predicted_n"],
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        last = event({"choices": [], "object": "chat.completion.chunk", "usage": counts, "timings": timings})
        return Reply([*parts, (0, delta(reason)), (0, last), (0, DONE)])

    def _passes(self, tokens: int) -> list[int]:
        """Return how many tokens each decode pass after the prompt's yields."""
        size = 1 if self.draft is None else self.draft[1] + 1
        left = max(0, tokens - 1)
        return [size] * (left // size) + ([left % size] if left % size else [])

    def _count_rounds(self, passes: Sequence[int]) -> dict[str, int]:
        drafted = len(passes) * (self.draft or (0, 0))[0]
        self.rounds += len(passes)
        self.drafted += drafted
        for size in passes:
            for position in range(size - 1):
                if position == len(self.accepted_per_position):
                    self.accepted_per_position.append(0)
                self.accepted_per_position[position] += 1
        return {"draft_n": drafted, "draft_n_accepted": sum(passes) - len(passes)}

    def _metrics(self) -> str:
        counters = {
            "prompt_tokens_total": self.prompted,
            "prompt_tokens_cached_total": 0,
            "tokens_predicted_total": self.predicted,
            "spec_decode_num_draft_tokens_total": self.drafted,
            "spec_decode_num_accepted_tokens_total": sum(self.accepted_per_position),
            "spec_decode_num_drafts_total": self.rounds,
        }
        lines = [f"# TYPE llamacpp:{name} counter\nllamacpp:{name} {count}" for name, count in counters.items()]
        name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
        lines.append(f"# TYPE {name} counter")
        lines += [f'{name}{{position="{index}"}} {count}' for index, count in enumerate(self.accepted_per_position)]
        return "\n".join(lines) + "\n"
