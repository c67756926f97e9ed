"""A real HTTP proxy on a real socket: tunnels (CONNECT) and plain requests. Every name leads to this machine, so that tests need
no DNS."""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class FakeProxy:
    """Passes on what it is asked to, on a free loopback port; an async context manager.

    ``asked`` holds the first line of every request, ``authorizations`` what came as ``proxy-authorization``. A proxy with
    ``wants`` refuses any other value of that with status 407; ``answer`` is said to every CONNECT instead of opening a tunnel,
    ``tls`` is for a proxy that is itself reached over TLS.
    """

    def __init__(
        self, *, wants: str | None = None, answer: bytes | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._wants = wants
        self._tls = tls
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.url = f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            pass  # a side left, or the test is over
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.asked.append(first)
        self.authorizations.append(headers.get("proxy-authorization"))
        method, target, version = first.split(" ")
        if self._wants is not None and headers.get("proxy-authorization") != self._wants:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            return
        tunnel = method == "CONNECT"
        if tunnel and self._answer is not None:
            writer.write(self._answer)
            await writer.drain()
            return
        parts = urlsplit(f"http://{target}" if tunnel else target)
        behind, onward = await asyncio.open_connection("127.0.0.1", parts.port)
        if tunnel:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            kept = [line for line in lines if not line.lower().startswith("proxy-")]
            onward.write("\r\n".join([f"{method} {parts.path} {version}", *kept, "\r\n"]).encode("latin-1"))
        try:
            await asyncio.gather(_pump(reader, onward), _pump(behind, writer))
        finally:
            onward.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while block := await source.read(65536):
        sink.write(block)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()
