"""The streaming client: sends chat completions, times their chunks, and turns every failure into a result.

Requests go over plain asyncio sockets with httptools (llhttp) as parser, because on one core this carries several
times the chunk rate of the general clients (``bench/client.py`` prints the ratios). Proxies of the environment are
never used, redirects never followed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import orjson
from asyncio_throttle.throttler import Throttler

from harness.engines.base import Endpoint, StreamReader
from harness.errors import UsageError
from harness.replay.answer import Answer, StreamResult
from harness.replay.clock import Clock
from harness.replay.connection import Connection

__all__ = ["StreamClient", "StreamResult"]

PATH = "/v1/chat/completions"
_AT_ONCE_NS = 100_000_000


class StreamClient:
    """Streams chat completions over kept connections; an async context manager, for one event loop.

    ``request_timeout_s`` is the longest silence allowed, at the dial and before every byte; an answer that keeps
    coming may take any time. ``connections`` is how many idle connections are kept for each server: give it the
    concurrency of the run. It is no cap: no request ever waits for another's connection, and those beyond the number
    are closed after their answer. ``max_requests_per_s`` protects a shared server; ``None`` sends every request at
    once.

    A kept connection that the server closed meanwhile is no failure: if it dies before the first byte of the answer,
    the request is sent once more on a fresh one, with ``sent_ns`` that of the second sending and ``retried`` set.
    """

    def __init__(
        self, *, clock: Clock, request_timeout_s: float, connections: int, max_requests_per_s: float | None = None
    ) -> None:
        self._clock = clock
        self._timeout_s = request_timeout_s
        self._kept = connections
        self._throttler = None if max_requests_per_s is None else _throttler(max_requests_per_s)
        self._origins: dict[str, _Origin] = {}
        self._open: set[Connection] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._kept = 0
        for connection in tuple(self._open):
            connection.abort()
        await asyncio.sleep(0)  # the loop closes aborted sockets in its next turn

    async def complete(self, endpoint: Endpoint, body: Mapping[str, Any], reader: StreamReader) -> StreamResult:
        """Send one chat completion and return what came of it; never raises for a failed request.

        ``body`` needs ``messages`` and whatever sampling fields the caller wants; model, ``stream`` and
        ``stream_options.include_usage`` are set here, and ``endpoint.extra_body`` is merged over ``body``. Every
        decoded chunk goes to ``reader`` too.

        Raises:
            UsageError: if the endpoint's address or headers cannot be used at all.
            asyncio.CancelledError: when cancelled; the connection is closed first, so that the server frees the slot.
        """
        origin = self._origin(endpoint.base_url)
        request = _request(origin, endpoint, body)
        if self._throttler is not None:
            await self._throttler.acquire()  # type: ignore[no-untyped-call]  # the package carries no annotations
        kept = self._take_idle(origin)
        answer = Answer(reader)
        if kept is not None:
            await kept.exchange(request, answer, self._timeout_s)
            if answer.error_kind != "disconnect" or kept.heard:
                return answer.result(self._clock.now_ns())
            origin.note_loss(kept, self._clock.now_ns())
            answer = Answer(reader)
        fresh = await self._dial(origin, answer)
        if fresh is not None:
            await fresh.exchange(request, answer, self._timeout_s)
        return answer.result(self._clock.now_ns(), retried=kept is not None)

    def _origin(self, base_url: str) -> _Origin:
        origin = self._origins.get(base_url)
        if origin is None:
            origin = self._origins[base_url] = _Origin.of(base_url)
        return origin

    def _take_idle(self, origin: _Origin) -> Connection | None:
        while origin.idle:
            connection = origin.idle.pop()
            if connection.usable:
                return connection
        return None

    async def _dial(self, origin: _Origin, answer: Answer) -> Connection | None:
        def keep(connection: Connection) -> None:
            if origin.keeps and len(origin.idle) < self._kept:
                origin.idle.append(connection)
            else:
                connection.abort()

        def forget(connection: Connection) -> None:
            self._open.discard(connection)
            if connection in origin.idle:
                origin.idle.remove(connection)
                origin.note_loss(connection, self._clock.now_ns())

        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._clock, keep, forget), origin.host, origin.port, ssl=origin.tls
                )
        except TimeoutError:
            answer.fail(
                self._clock.now_ns(), "connect", f"no connection to {origin.authority} within {self._timeout_s:g} s"
            )
            return None
        except OSError as error:
            why = error.strerror or str(error)
            answer.fail(
                self._clock.now_ns(),
                "connect",
                f"cannot connect to {origin.authority}: {why}; is the server running there?",
            )
            return None
        if connection.usable:  # not if the server closed it already
            self._open.add(connection)
        return connection


@dataclass(slots=True)
class _Origin:
    """A server: its address, taken apart once, and the connections kept to it."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    authority: str
    path: str
    idle: list[Connection] = field(default_factory=list)
    keeps: bool = True

    def note_loss(self, connection: Connection, now_ns: int) -> None:
        """Learn from a kept connection that the server closed before it answered again."""
        if now_ns - connection.answered_ns < _AT_ONCE_NS:
            self.keeps = False

    @classmethod
    def of(cls, base_url: str) -> _Origin:
        try:
            parts = urlsplit(base_url)
            host, port = parts.hostname or "", parts.port
            host = host if ":" in host else host.encode("idna").decode()
        except ValueError as error:
            raise UsageError(
                f"cannot read the address {base_url!r}: {error}; give one like http://127.0.0.1:8000"
            ) from error
        path = parts.path.rstrip("/") + PATH
        plain = parts.username is None and not parts.query and not parts.fragment
        if parts.scheme not in ("http", "https") or not host or not plain or not path.isascii() or " " in path:
            raise UsageError(
                f"cannot use the address {base_url!r}; give one like http://127.0.0.1:8000, without /v1, user or query"
            )
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        authority = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
        return cls(host, port or (443 if tls else 80), tls, authority, path)


def _request(origin: _Origin, endpoint: Endpoint, body: Mapping[str, Any]) -> bytes:
    merged = {**body, **endpoint.extra_body, "model": endpoint.model, "stream": True}
    merged["stream_options"] = {**(merged.get("stream_options") or {}), "include_usage": True}
    content = orjson.dumps(merged)
    head = [
        f"POST {origin.path} HTTP/1.1",
        f"host: {origin.authority}",
        "content-type: application/json",
        "accept: text/event-stream",
        "accept-encoding: identity",
        "user-agent: spec-harness",
        f"content-length: {len(content)}",
    ]
    for name, value in endpoint.headers.items():
        line = f"{name}: {value}"
        if not line.isprintable() or not line.isascii() or not name:
            raise UsageError(
                f"the header {name!r} cannot be sent: names and values are printable ASCII; correct the engine's headers"
            )
        head.append(line)
    return "\r\n".join([*head, "\r\n"]).encode("ascii") + content


def _throttler(max_requests_per_s: float) -> Throttler:
    # Throttler counts whole requests a period, so a rate of 2.5/s is 2 requests in 0.8 s and 0.1/s is 1 request in 10 s
    count = max(1, int(max_requests_per_s))
    return Throttler(rate_limit=count, period=count / max_requests_per_s)
