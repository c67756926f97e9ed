"""One HTTP/1.1 connection as an asyncio protocol: bytes are timed, parsed and handed on in the callback that receives
them.

No task wakes up for a chunk, only for the end of an answer; that is what one core's chunk rate depends on
(``bench/client.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from harness.replay.answer import Answer
from harness.replay.clock import Clock

_GRACE_S = 0.05


class Connection(asyncio.Protocol):
    """Carries one exchange at a time. ``on_idle`` is called when it could take the next, ``on_lost`` once, when it is
    gone.

    ``heard`` tells whether any byte of the latest answer has arrived, ``answered_ns`` when the last whole answer ended.
    """

    def __init__(
        self, clock: Clock, on_idle: Callable[[Connection], None], on_lost: Callable[[Connection], None]
    ) -> None:
        self._now_ns = clock.now_ns
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timeout_s = 0.0
        self.answered_ns = 0
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._t_ns = 0
        self._heard_at = 0.0
        self._has_head = False
        self._message_complete = False
        self._keep_alive = False
        self._graced = False
        self.heard = False

    @property
    def usable(self) -> bool:
        """Whether the connection stands and has no exchange in progress."""
        return self._transport is not None and not self._transport.is_closing() and self._waiter is None

    async def exchange(self, request: bytes, answer: Answer, timeout_s: float) -> None:
        """Send a request and return when its answer is complete or has failed; what happened is in ``answer``.

        ``timeout_s`` is the longest silence allowed. A cancelled exchange closes the connection, so that the server
        can stop.
        """
        self._reset()
        if self._transport is None or self._transport.is_closing():
            answer.fail(self._now_ns(), "disconnect", "the server closed the connection before the request was sent")
            return
        self._answer = answer
        self._timeout_s = timeout_s
        self._waiter = self._loop.create_future()
        self._heard_at = self._loop.time()
        self._timer = self._loop.call_at(self._heard_at + timeout_s, self._check_silence)
        answer.sent_ns = self._now_ns()
        self._transport.write(request)
        try:
            await self._waiter
        except asyncio.CancelledError:
            self._finish()
            self.abort()
            raise

    def abort(self) -> None:
        """Close at once, unsent bytes dropped."""
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; asyncio has set TCP_NODELAY already."""
        self._transport = cast(asyncio.Transport, transport)  # other loops' transports are not subclasses of it

    def data_received(self, data: bytes) -> None:
        """Time the bytes, parse them, and see whether the answer is over."""
        self._t_ns = self._now_ns()
        answer = self._answer
        if answer is None:
            self.abort()  # nothing was asked, so whatever this is would be taken for the next answer
            return
        self.heard = True
        self._heard_at = self._loop.time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keep_alive = False
            if not self._message_complete:
                answer.fail(self._t_ns, "protocol", f"not HTTP: {error!r}; the bytes began {data[:80]!r}")
        if answer.error_kind is not None or self._message_complete:
            self._conclude()
        elif answer.done and not self._graced:
            # The chunk that ends the HTTP body usually follows at once; waiting for it keeps the connection for the next request
            self._graced = True
            self._loop.call_later(_GRACE_S, self._end_grace, answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Judge the answer that was in progress, if any."""
        self._transport = None
        answer = self._answer
        if answer is not None:
            delimited = (
                b"content-length" in self._headers or b"chunked" in self._headers.get(b"transfer-encoding", b"").lower()
            )
            answer.lost(self._now_ns(), exc, delimited=delimited)
            self._finish()
        self._on_lost(self)

    # What httptools calls

    def on_message_begin(self) -> None:
        """Forget the headers of an interim (1xx) response."""
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one header."""
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Tell the answer its status and content type."""
        status = self._parser.get_status_code()
        answer = self._answer
        if self._message_complete:
            self._keep_alive = False  # a second response to one request
        if answer is None or 100 <= status < 200 or self._message_complete:
            return
        self._has_head = True
        encoding = self._headers.get(b"content-encoding", b"identity").decode("latin-1")
        if encoding != "identity":
            answer.fail(self._t_ns, "protocol", f"content-encoding is {encoding!r} although only identity was accepted")
        content_type = self._headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        answer.begin(status, content_type, self._headers)

    def on_body(self, body: bytes) -> None:
        """Hand bytes of the body on."""
        if self._answer is not None and not self._message_complete:
            self._answer.body(self._t_ns, body)

    def on_message_complete(self) -> None:
        """Note the end of the body, unless it is an interim response's."""
        if self._has_head and self._answer is not None and not self._message_complete:
            self._message_complete = True
            self.answered_ns = self._t_ns
            # llhttp forgets this as soon as the callback returns
            self._keep_alive = self._parser.should_keep_alive()
            self._answer.end(self._t_ns)

    # How an exchange ends

    def _conclude(self) -> None:
        keep = self._message_complete and self._keep_alive
        self._finish()
        if keep and self.usable:
            self._on_idle(self)
        else:
            self.abort()

    def _finish(self) -> None:
        waiter, self._waiter, self._answer = self._waiter, None, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _end_grace(self, answer: Answer) -> None:
        if self._answer is answer:
            answer.end(self._now_ns())
            self._finish()
            self.abort()

    def _check_silence(self) -> None:
        answer = self._answer
        if answer is None:
            return
        due = self._heard_at + self._timeout_s
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._check_silence)
            return
        what = f"no byte for {self._timeout_s:g} s after {answer.chunks} chunks"
        answer.fail(self._now_ns(), "timeout", f"{what}; raise request_timeout_s if the server is merely slow")
        self._finish()
        self.abort()
