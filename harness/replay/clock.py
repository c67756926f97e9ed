"""The one clock of a run: monotonic integer nanoseconds, and a sleep that ends when it should."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

_COARSE_NS = 1_000_000


class Clock(Protocol):
    """Monotonic time in nanoseconds; tests replace it by one that they turn by hand."""

    def now_ns(self) -> int:
        """Return the time in nanoseconds; only differences mean anything."""

    async def sleep_until_ns(self, t_ns: int) -> None:
        """Return at ``t_ns`` or, if that is past, at once; other tasks run meanwhile."""


class MonotonicClock:
    """``CLOCK_MONOTONIC``, which all processes of one machine share."""

    def now_ns(self) -> int:
        """Return ``time.monotonic_ns()``."""
        return time.monotonic_ns()

    async def sleep_until_ns(self, t_ns: int) -> None:
        """Sleep until ``t_ns``, typically within 0.1 ms of it on an idle loop.

        epoll waits in whole milliseconds, rounded up, so the sleep proper ends up to a millisecond early on purpose;
        for the rest the task yields again and again. Each yield lets every other ready task and socket run first.
        """
        while (left_ns := t_ns - time.monotonic_ns()) > 0:  # noqa: ASYNC110 (what is waited for is a time, no event)
            await asyncio.sleep(max(0, left_ns - _COARSE_NS) / 1e9)
