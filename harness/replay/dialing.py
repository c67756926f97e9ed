"""From an address to a connection that stands: directly, over TLS, or through a proxy.

What carries the exchange afterwards is the same protocol in every case; only a tunnel has a protocol of its own before it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast
from urllib.parse import urlsplit

from harness.access import Access
from harness.addresses import address_fault
from harness.errors import UsageError
from harness.proxies import Proxy

Carrier = TypeVar("Carrier", bound=asyncio.Protocol)
"""The protocol that carries the exchanges of a connection."""

_MOST_HEAD_BYTES = 64 * 1024


class ProxyRefused(Exception):
    """A proxy that did not open a way to the server; the message says what it answered."""


@dataclass(frozen=True, slots=True)
class Route:
    """How to get to a server; ``authority`` is how messages call it, ``path`` stands before those of its calls. A plain server
    behind a proxy is asked for in each request, one with TLS through a tunnel (CONNECT). ``proxy_tls`` is for a proxy that is
    itself reached over TLS."""

    host: str
    port: int
    authority: str
    path: str = ""
    tls: ssl.SSLContext | None = None
    proxy: Proxy | None = None
    proxy_tls: ssl.SSLContext | None = None

    @property
    def first_hop(self) -> str:
        """Who is dialled, in words."""
        return self.authority if self.proxy is None else f"the proxy {self.proxy.authority}"


def route_to(base_url: str, access: Access) -> Route:
    """Return the way to a server's address.

    Raises:
        UsageError: if it is no address that requests can go to; user and password in it are not repeated.
    """
    if (fault := address_fault(base_url)) is not None:
        raise UsageError(f"cannot use the address {fault}")
    parts = urlsplit(base_url)
    host, port = parts.hostname or "", parts.port
    host = host if ":" in host else host.encode("idna").decode()
    path = parts.path.rstrip("/")
    context = access.context(base_url)
    authority = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    proxy = access.proxy_for(base_url)
    proxy_tls = None if proxy is None else access.context(proxy.url)
    return Route(host, port or (443 if context else 80), authority, path, context, proxy, proxy_tls)


def reason(error: OSError) -> str:
    """Return why a connection failed, in the system's words where it has any."""
    positive = error.errno is not None and error.errno > 0  # errors of name resolution are counted below 0
    return os.strerror(error.errno) if positive and error.errno is not None else error.strerror or str(error)


async def dial(route: Route, make: Callable[[], Carrier]) -> Carrier:
    """Return a connection that stands.

    Raises:
        OSError: if nothing answers there or TLS fails (``ssl.SSLError`` is one).
        ProxyRefused: if the proxy does not open the way.
    """
    loop = asyncio.get_running_loop()
    proxy = route.proxy
    if proxy is None:
        _, connection = await loop.create_connection(make, route.host, route.port, ssl=route.tls)
        return connection
    if route.tls is None:
        _, connection = await loop.create_connection(make, proxy.host, proxy.port, ssl=route.proxy_tls)
        return connection
    transport, greeting = await loop.create_connection(_Greeting, proxy.host, proxy.port, ssl=route.proxy_tls)
    try:
        transport.write(_connect_request(route, proxy))
        await greeting.opened
        connection = make()
        secured = await loop.start_tls(transport, connection, route.tls, server_hostname=route.host)
    except BaseException:
        transport.abort()
        raise
    if secured is None:  # typed so for loops that are not asyncio's own
        raise ConnectionAbortedError(f"{route.authority} closed the connection during the TLS handshake")
    connection.connection_made(secured)
    return connection


def _connect_request(route: Route, proxy: Proxy) -> bytes:
    target = f"{f'[{route.host}]' if ':' in route.host else route.host}:{route.port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}", "user-agent: spec-harness"]
    if proxy.authorization is not None:
        lines.append(f"proxy-authorization: {proxy.authorization}")
    return "\r\n".join([*lines, "\r\n"]).encode("ascii")


class _Greeting(asyncio.Protocol):
    """Waits for a proxy's answer to CONNECT; ``opened`` is done when the tunnel stands."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep nothing: whoever dialled has the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Collect the head of the answer."""
        if self.opened.done():
            return
        self._head += data
        head, ended, rest = bytes(self._head).partition(b"\r\n\r\n")
        if not ended and len(self._head) < _MOST_HEAD_BYTES:
            return
        version, _, status = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        if not version.startswith("HTTP/1."):
            self._refuse(f"it does not answer like an HTTP proxy: {head[:80]!r}")
        elif status[:1] != "2":
            wanted = "; it wants a user and a password in engine.access.proxy" if status[:3] == "407" else ""
            self._refuse(f"it answers {status[:80]!r}{wanted}")
        elif rest:
            self._refuse("it sent bytes of its own into the tunnel")
        else:
            self.opened.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The proxy is gone."""
        self._refuse(f"it closed the connection{f' ({exc})' if exc else ''}")

    def _refuse(self, why: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ProxyRefused(why))
