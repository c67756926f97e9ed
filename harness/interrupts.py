"""Signals that end a run: its tasks are cancelled and waited for, so that records, servers and connections are closed in order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, TypeVar

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
T = TypeVar("T")


@contextlib.contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    """Inside, every signal of :data:`SIGNALS` is Ctrl-C. Under nohup a hangup stays ignored."""
    with _handled_by(_interrupt):
        yield


def run_until_told(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own; a signal of :data:`SIGNALS` cancels it and waits until it has cleaned up.

    An exception raised by a signal handler inside the loop would leave tasks behind that nobody awaits. A further signal cancels again:
    what waits for a server to end by itself waits no longer.

    Raises:
        KeyboardInterrupt: if a signal came, once everything has ended.
    """
    told = False

    async def main() -> T | None:
        nonlocal told
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(work)

        def stop(number: int, frame: FrameType | None) -> None:
            nonlocal told
            told = True
            loop.call_soon_threadsafe(task.cancel)

        with _handled_by(stop):
            await asyncio.wait([task])
        if told and (task.cancelled() or task.exception() is not None):
            return None
        return task.result()

    result = asyncio.run(main())
    if told:
        raise KeyboardInterrupt
    return result  # type: ignore[return-value]  # None only where a signal came


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a handler have the signals that are not ignored, and put back what was there; only the main thread hears signals."""
    hears = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in SIGNALS if hears}
    heard = [number for number, own in before.items() if own not in (signal.SIG_IGN, None)]
    try:
        for number in heard:
            signal.signal(number, handler)
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
