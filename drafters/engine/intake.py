"""Bodies of requests on their way to the engine's queue, and a bound on all of them together. Imports no torch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from drafters.engine.messages import ApiError

__all__ = ["MAX_BODY_BYTES", "Intake"]

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_REQUESTS = 4096
MAX_BYTES = 256 * 1024 * 1024


class Intake:
    """Reads bodies and counts them until they are in the engine's queue, which has a bound of its own.

    ``most_requests`` and ``most_bytes`` bound what is read and tokenized at one time, over all clients.
    """

    def __init__(self, most_requests: int = MAX_REQUESTS, most_bytes: int = MAX_BYTES) -> None:
        self._most_requests = most_requests
        self._most_bytes = most_bytes
        self.requests = 0
        self.bytes = 0

    @asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytes]:
        """The whole body, which counts until the block is left.

        Raises ApiError for one above the bound, before it is read where its length is told, and when too much is being
        read already.
        """
        told = request.headers.get("content-length", "0")
        too_large = ApiError(
            413, f"the body is larger than {MAX_BODY_BYTES} bytes; send a smaller one", code="body_too_large"
        )
        if told.isdecimal() and int(told[:20]) > MAX_BODY_BYTES:
            raise too_large
        if self.requests >= self._most_requests:
            raise _busy(f"{self._most_requests} requests are being read already")
        self.requests += 1
        parts: list[bytes] = []
        size = 0
        try:
            async for part in request.stream():
                size += len(part)
                self.bytes += len(part)
                if size > MAX_BODY_BYTES:
                    raise too_large
                if self.bytes > self._most_bytes:
                    raise _busy(f"{self._most_bytes} bytes of requests are being read already")
                parts.append(part)
            yield b"".join(parts)
        finally:
            self.requests -= 1
            self.bytes -= size


def _busy(what: str) -> ApiError:
    return ApiError(429, f"{what}; ask again later", kind="rate_limit_error", code="too_much_at_once")
