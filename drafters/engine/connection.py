"""An HTTP connection with bounds: on what stands before and behind a request's body, and on how long a request may take to
arrive. Imports no torch.

The parser keeps a header until it has ended, however long that takes and however long it becomes.
"""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from drafters.engine.messages import ApiError

__all__ = ["BoundedProtocol", "listening"]


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that holds the port; asked for before anything is loaded, a wrong one shows at once.

    Its protocol is named: asyncio turns Nagle's algorithm off only for sockets of which it is known to be TCP. Without that a text's first
    chunk waits behind the headers until the client acknowledges these, which takes it up to 40 ms.

    Raises:
        OSError: if the port cannot be had.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        raise OSError(
            f"cannot listen on {host}:{port} ({error.strerror}); give another port, or 0 for a free one"
        ) from error
    listener.setblocking(False)
    return listener


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's connection. A request that breaks a bound, or is no HTTP, is refused in OpenAI's form, and that is the
    connection's end.

    ``max_head_bytes`` bounds request line and headers together, ``arrival_s`` the time from a request's first byte to its
    last. What still comes after a refusal is read and dropped for ``linger_s``: closed at once, the connection would be
    reset, and a client that is still sending would never see why.
    """

    max_head_bytes: int = 65_536
    arrival_s: float = 60.0
    linger_s: float = 1.0

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._unended = 0  # bytes since the parser last came to the end of something, or to a part of a body
        self._timer: asyncio.TimerHandle | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `HttpToolsProtocol`; a connection that never says anything counts as an idle one."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `HttpToolsProtocol`."""
        super().connection_lost(exc)
        self._stop_timer()

    def data_received(self, data: bytes) -> None:
        """See `HttpToolsProtocol`; the parser is never given more than may still be part of a head."""
        while data and not self._refused and not self.transport.is_closing():
            room = self.max_head_bytes - self._unended
            part, data = data[:room], data[room:]
            self._unended += len(part)
            super().data_received(part)
            if self._unended >= self.max_head_bytes:
                self._refuse(
                    ApiError(
                        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                        f"request line and headers are larger than {self.max_head_bytes} bytes; send fewer or shorter ones",
                        code="headers_too_large",
                    )
                )

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._refuse(ApiError(HTTPStatus.BAD_REQUEST, msg, code="invalid_http"))

    def on_message_begin(self) -> None:
        """See `HttpToolsProtocol`."""
        super().on_message_begin()
        self._start_timer()

    def on_headers_complete(self) -> None:
        """See `HttpToolsProtocol`."""
        self._unended = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """See `HttpToolsProtocol`."""
        self._unended = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See `HttpToolsProtocol`."""
        self._unended = 0
        self._stop_timer()
        super().on_message_complete()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.arrival_s, self._overdue)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self) -> None:
        if self._owed:
            message = f"the request has not arrived whole within {self.arrival_s:g} s; send it faster"
            self._refuse(ApiError(HTTPStatus.REQUEST_TIMEOUT, message, code="request_timeout"))
        elif self.cycle.response_complete:
            self.transport.close()  # it was answered before it was there, and nobody needs the rest
        else:
            self._start_timer()  # an answer is on its way, which must not be cut

    @property
    def _owed(self) -> bool:
        """Whether the next answer that the client expects is the one to the request that is arriving now."""
        if self.cycle is None:
            return True
        if self.cycle.scope is not self.scope:  # its head is not complete; the cycle is that of the request before
            return self.cycle.response_complete
        return self.cycle.more_body and not self.cycle.response_started and not self.pipeline

    def _refuse(self, error: ApiError) -> None:
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._stop_timer()
        if not self._owed:
            self.transport.close()
            return
        body = orjson.dumps(error.body())
        head = (
            f"HTTP/1.1 {error.status:d} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(self.linger_s, self.transport.close)
