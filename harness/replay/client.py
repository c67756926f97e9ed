"""The streaming client: sends chat completions, times their chunks, and turns every failure into a result.

Requests go over plain asyncio sockets with httptools (llhttp) as parser, because on one core this carries several
times the chunk rate of the general clients (``bench/client.py`` prints the ratios). A proxy is used only where the
endpoint's access names one, redirects are never followed. No message holds a key, whatever the server writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import orjson
from asyncio_throttle.throttler import Throttler

from harness import tls
from harness.access import Access
from harness.engines.base import Endpoint, StreamReader
from harness.errors import UsageError
from harness.replay.answer import Answer, StreamResult
from harness.replay.clock import Clock
from harness.replay.connection import Connection
from harness.replay.dialing import ProxyRefused, Route, dial, reason, route_to

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
        self._origins: dict[tuple[str, Access], _Origin] = {}
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
        origin = self._origin(endpoint.base_url, endpoint.access)
        request = _request(origin, endpoint, body)
        if self._throttler is not None:
            await self._throttler.acquire()  # type: ignore[no-untyped-call]  # the package carries no annotations
        kept = self._take_idle(origin)
        answer = Answer(reader)
        if kept is not None:
            await kept.exchange(request, answer, self._timeout_s)
            if answer.error_kind != "disconnect" or kept.heard:
                return _told(answer.result(self._clock.now_ns()), origin)
            origin.note_loss(kept, self._clock.now_ns())
            answer = Answer(reader)
        fresh = await self._dial(origin, answer)
        if fresh is not None:
            await fresh.exchange(request, answer, self._timeout_s)
        return _told(answer.result(self._clock.now_ns(), retried=kept is not None), origin)

    def _origin(self, base_url: str, access: Access) -> _Origin:
        origin = self._origins.get((base_url, access))
        if origin is None:
            origin = self._origins[base_url, access] = _Origin.of(base_url, access)
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

        route = origin.route
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await dial(route, lambda: Connection(self._clock, keep, forget))
        except TimeoutError:
            what = "connection" if route.tls is None else "TLS connection"
            why = f"no {what} to {route.first_hop} within {self._timeout_s:g} s"
            answer.fail(self._clock.now_ns(), "connect", why)
            return None
        except ProxyRefused as error:
            why = f"the proxy {route.first_hop} opens no way to {route.authority}: {error}"
            answer.fail(self._clock.now_ns(), "connect", why)
            return None
        except OSError as error:
            answer.fail(self._clock.now_ns(), "connect", _unreached(error, route))
            return None
        if connection.usable:  # not if the server closed it already
            self._open.add(connection)
        return connection


@dataclass(slots=True)
class _Origin:
    """A server: its address, taken apart once, what every request to it begins with, and the connections kept to it."""

    route: Route
    access: Access
    head: str
    idle: list[Connection] = field(default_factory=list)
    keeps: bool = True

    def note_loss(self, connection: Connection, now_ns: int) -> None:
        """Learn from a kept connection that the server closed before it answered again."""
        if now_ns - connection.answered_ns < _AT_ONCE_NS:
            self.keeps = False

    @classmethod
    def of(cls, base_url: str, access: Access) -> _Origin:
        route = route_to(base_url, access)
        asked = route.proxy if route.tls is None else None  # in a tunnel the proxy sees no request
        lines = [
            f"POST {'' if asked is None else f'http://{route.authority}'}{route.path}{PATH} HTTP/1.1",
            f"host: {route.authority}",
            "content-type: application/json",
            "accept: text/event-stream",
            "accept-encoding: identity",
            "user-agent: spec-harness",
            *_header_lines(access.headers),
        ]
        if asked is not None and asked.authorization is not None:
            lines.append(f"proxy-authorization: {asked.authorization}")
        return cls(route, access, "".join(f"{line}\r\n" for line in lines))


def _request(origin: _Origin, endpoint: Endpoint, body: Mapping[str, Any]) -> bytes:
    merged = {**body, **endpoint.extra_body, "model": endpoint.model, "stream": True}
    merged["stream_options"] = {**(merged.get("stream_options") or {}), "include_usage": True}
    content = orjson.dumps(merged)
    own = "".join(f"{line}\r\n" for line in _header_lines(endpoint.headers))
    return f"{origin.head}{own}content-length: {len(content)}\r\n\r\n".encode("ascii") + content


def _header_lines(headers: Mapping[str, str]) -> list[str]:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    for name, line in zip(headers, lines, strict=True):
        if not line.isprintable() or not line.isascii() or not name:
            raise UsageError(
                f"the header {name!r} cannot be sent: names and values are printable ASCII; correct the engine's headers"
            )
    return lines


def _unreached(error: OSError, route: Route) -> str:
    failed = tls.ssl_error(error)
    if failed is not None:
        return tls.explain(failed, route.authority if route.tls is not None else route.first_hop)
    why = reason(error)
    return f"cannot connect to {route.first_hop}: {why}; is the {'server' if route.proxy is None else 'proxy'} running there?"


def _told(result: StreamResult, origin: _Origin) -> StreamResult:
    """Return a result whose message holds no secret, and says what a refused key means."""
    if result.error_message is None:
        return result
    advice = origin.access.refusal(result.http_status)
    if result.error_kind == "disconnect" and result.http_status is None and origin.route.tls is not None:
        advice = tls.CUT_OFF
    message = result.error_message if advice is None else f"{result.error_message}; {advice}"
    return replace(result, error_message=origin.access.redact(message))


def _throttler(max_requests_per_s: float) -> Throttler:
    # Throttler counts whole requests a period, so a rate of 2.5/s is 2 requests in 0.8 s and 0.1/s is 1 request in 10 s
    count = max(1, int(max_requests_per_s))
    return Throttler(rate_limit=count, period=count / max_requests_per_s)
