"""Connections: what may stand around a body, how long a request may take, and how one is refused. Real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from drafters.engine.connection import BoundedProtocol, listening

LIMIT = 65_536


class Site:
    """A server that answers with the size of the body; at ``/slow`` not before it is told to."""

    def __init__(self) -> None:
        self.address = ("127.0.0.1", 0)
        self.go = asyncio.Event()
        self.left = asyncio.Event()  # a client was gone before its body had ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application."""
        size, more = 0, scope["path"] != "/unread"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                return
            size += len(message["body"])
            more = message["more_body"]
        if scope["path"] == "/slow":
            await self.go.wait()
        await PlainTextResponse(str(size))(scope, receive, send)

    async def say(self, parts: Iterable[bytes]) -> bytes:
        """Send these and return all that comes until the server closes the connection."""
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            with suppress(ConnectionError):  # a server may hang up on one who is still talking
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
            async with asyncio.timeout(20):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def site(keep_alive: int = 60, **bounds: float) -> AsyncIterator[Site]:
    """A site whose connections have these bounds, and a short patience with those whom they refused."""
    made = Site()
    kind: Any = type("Bounded", (BoundedProtocol,), {"linger_s": 0.2, **bounds})
    config = uvicorn.Config(made, ws="none", lifespan="off", log_config=None, timeout_keep_alive=keep_alive)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(lambda: kind(config, state, {}), "127.0.0.1", 0)
    made.address = server.sockets[0].getsockname()[:2]
    try:
        yield made
    finally:
        server.close()
        for task in list(state.tasks):
            task.cancel()
        for connection in list(state.connections):
            connection.transport.abort()


def head(size: int) -> bytes:
    """The head of a request, so many bytes of it."""
    frame = b"GET / HTTP/1.1\r\nConnection: close\r\nX: %s\r\n\r\n"
    return frame % (b"a" * (size - len(frame) + 2))


def cut(data: bytes, size: int) -> list[bytes]:
    """Pieces of this size."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def refusal(answer: bytes, status: int) -> dict[str, Any]:
    """The error object of an answer with this status, which must be all there is."""
    top, _, body = answer.partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b"connection: close" in top
    error: dict[str, Any] = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize("size", [1_000_000, 1000, 65_535])
async def test_a_head_is_taken_up_to_the_bound_and_no_further(size: int) -> None:
    """64 KiB are answered and a byte more is refused, however they are cut into pieces."""
    async with site() as at:
        assert (await at.say(cut(head(LIMIT), size))).startswith(b"HTTP/1.1 200 ")
        assert refusal(await at.say(cut(head(LIMIT + 1), size)), 431)["code"] == "headers_too_large"


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET / HTTP/1.1\r\nX: ",
        b"GET / HTTP/1.1\r\n",
        b"GET /",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ",
    ],
    ids=["a header's value", "a header's name", "the address", "a header behind the body"],
)
async def test_what_never_ends_is_refused_while_it_is_still_being_sent(beginning: bytes) -> None:
    """Twenty megabytes of it are said, and the answer is there afterwards."""
    async with site() as at:
        refusal(await at.say([beginning, *[b"a" * 1_000_000] * 20]), 431)


async def test_bodies_and_further_requests_do_not_count_as_part_of_a_head() -> None:
    """A body of 300,000 bytes after its head, the same in chunks of ten bytes, and a request with a head of 60,000 bytes
    behind each, all in one piece."""
    body = b"b" * 300_000
    told = b"POST / HTTP/1.1\r\nContent-Length: 300000\r\n\r\n" + body
    chunks = b"".join(b"a\r\n%s\r\n" % part for part in cut(body, 10))
    chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    async with site() as at:
        for first in (told, chunked):
            answer = await at.say([first + head(60_000)])
            assert answer.count(b"HTTP/1.1 200 OK") == 2
            assert answer.count(b"\r\n300000HTTP/1.1") == 1


async def test_what_is_no_http_is_refused_in_openai_s_form() -> None:
    """Also when it is long."""
    async with site() as at:
        for rubbish in (b"hello\r\n\r\n", b"\x16\x03\x01" + b"x" * 200_000):
            assert refusal(await at.say([rubbish]), 400)["code"] == "invalid_http"


@pytest.mark.parametrize(
    "half",
    [
        b"G",
        b"GET / HTTP/1.1\r\nX:",
        b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc",
    ],
    ids=["a letter", "half a head", "no body", "half a body"],
)
async def test_a_request_that_stays_a_part_of_one_is_refused(half: bytes) -> None:
    """After the time that it has to arrive; who waited for its body is told that the client is gone."""
    async with site(arrival_s=0.1) as at:
        assert refusal(await at.say([half]), 408)["code"] == "request_timeout"
        if b"\r\n\r\n" in half:
            await asyncio.wait_for(at.left.wait(), 20)


async def test_a_body_that_nobody_waits_for_ends_the_connection_without_a_second_answer() -> None:
    """The request was answered by its head alone."""
    async with site(arrival_s=0.1) as at:
        answer = await at.say([b"POST /unread HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"])
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("half", [b"GET / HT", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab"])
async def test_an_answer_may_take_longer_than_its_request_had_to_arrive(half: bytes) -> None:
    """Half a request behind it waits until it has been given, and is refused then."""
    async with site(arrival_s=0.05) as at:
        talk = asyncio.create_task(at.say([b"GET /slow HTTP/1.1\r\n\r\n", half]))
        await asyncio.sleep(0.3)
        assert not talk.done()
        at.go.set()
        first, _, second = (await talk).partition(b"\r\n\r\n0")
        assert first.startswith(b"HTTP/1.1 200 ")
        refusal(second, 408)


async def test_rubbish_behind_a_request_ends_the_connection_and_is_not_its_answer() -> None:
    """The first answer is still to come, and there is none that says 400 in its place."""
    async with site() as at:
        assert await at.say([b"GET /slow HTTP/1.1\r\n\r\n", b"\x00\x00"]) == b""


async def test_a_connection_that_never_says_anything_is_closed_like_an_idle_one() -> None:
    """Here at once."""
    async with site(keep_alive=0) as at:
        assert await at.say([]) == b""


async def test_no_chunk_of_an_answer_waits_for_the_one_before_to_be_acknowledged() -> None:
    """Nagle's algorithm is off for connections that the engine's own socket takes: it would hold a first token back by 40 ms."""
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        accepted.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = listening("127.0.0.1", 0)
    async with await asyncio.start_server(answer, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        assert await asyncio.wait_for(accepted, 10)
        writer.close()
