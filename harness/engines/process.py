"""Another program as a child: started in its own process group, watched, and stopped with everything it started.

A child must not outlive the harness, however that ends. Three nets: :meth:`ChildProcess.stop` on the normal path and on Ctrl-C,
``atexit`` on a crash, and for ``kill -9`` of the harness :func:`die_with_parent` inside the child.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from harness.engines.tree import descendants, send
from harness.errors import EngineStartError
from harness.printable import printable

_POLL_S = 0.05
_LOG_LINES = 12
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class ChildProcess:
    """One program with its log file.

    ``name`` is how errors call it; ``env`` is added to the environment; ``said`` is the first thing on its standard input.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None, said: bytes = b""
    ) -> None:
        self.name = name
        self.arguments = tuple(arguments)
        self.log = log
        self.env = dict(env or {})
        self._said = said
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """Process id, ``None`` before the start."""
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code (negative: the signal that ended it), ``None`` while it runs or before the start."""
        return None if self._process is None else self._process.poll()

    def alive(self) -> bool:
        """Tell whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the program; its standard output and error are appended to the log, its standard input is a pipe held open here.

        Raises:
            EngineStartError: if the program cannot be executed, or its log not be written.
        """
        if self.alive():
            raise EngineStartError(f"{self.name} already runs as process {self.pid}; stop it first")
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            opened = self.log.open("ab")
        except OSError as error:
            raise EngineStartError(
                f"{self.name}: cannot write its log {self.log}: {error.strerror}; give another file"
            ) from error
        with opened as log:
            self._log_start = log.tell()
            try:
                self._process = subprocess.Popen(
                    self.arguments,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self.env},
                    start_new_session=True,
                )
            except OSError as error:
                raise EngineStartError(
                    f"{self.name}: cannot execute {self.arguments[0]!r}: {error.strerror}; check that the program is installed"
                ) from error
        atexit.register(self.kill)
        if self._said and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has ended already, which whoever waits for it sees
                self._process.stdin.write(self._said)
                self._process.stdin.flush()

    def log_since_start(self, *, tail_bytes: int | None = None) -> str:
        """Return what the program has written since :meth:`start`, or the last ``tail_bytes`` of it."""
        with self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(self._log_start if tail_bytes is None else max(self._log_start, end - tail_bytes))
            return log.read().decode("utf-8", errors="replace")

    async def wait_until(
        self, ready: Callable[[], Awaitable[bool]], timeout_s: float, *, poll_s: float = _POLL_S
    ) -> None:
        """Poll ``ready`` every ``poll_s`` until it is true.

        Raises:
            EngineStartError: if the program ends first or ``timeout_s`` passes; the message quotes the end of the log.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if not self.alive():
                raise EngineStartError(
                    f"{self.name} ended with exit code {self.exit_code} before it was ready\n{self.log_end()}"
                )
            if await ready():
                return
            if time.monotonic() > deadline:
                raise EngineStartError(
                    f"{self.name} was not ready within {timeout_s:g} s; raise start_timeout_s or read the log\n{self.log_end()}"
                )
            await asyncio.sleep(poll_s)

    async def stop(self, grace_s: float = 5.0) -> None:
        """End the program and everything in its group: SIGTERM, then SIGKILL after ``grace_s``. Never raises, safe to repeat."""
        process = self._process
        if process is None:
            return
        try:
            if process.poll() is None:
                self._signal_group(signal.SIGTERM)
                deadline = time.monotonic() + grace_s
                while process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110 (a process has no event)
                    await asyncio.sleep(_POLL_S)
        finally:
            self.kill()  # also when the wait is cancelled, and for what the program left behind in its group

    def kill(self) -> None:
        """SIGKILL the whole group at once, and what its processes started in groups of their own; collect the exit code."""
        process = self._process
        atexit.unregister(self.kill)
        if process is None or process.stdin is None or process.stdin.closed:
            return
        below = descendants(process.pid) if process.poll() is None else []
        self._signal_group(signal.SIGKILL)
        send(below, signal.SIGKILL)
        process.wait()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()

    def _signal_group(self, number: signal.Signals) -> None:
        # the group's id is the child's own, since it leads a new session; gone already is as good as stopped
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number) if self._process is not None else None

    def log_end(self) -> str:
        """Return the last lines of what it has written, fit for a terminal, under the path of the log."""
        lines = [printable(line) for line in self.log_since_start().rstrip().splitlines()[-_LOG_LINES:]]
        return "\n".join([f"last lines of {self.log}:", *(f"  {line[:400]}" for line in lines)])


def die_with_parent() -> None:
    """Called in a child at its start: end this process as soon as its parent is gone, even after ``kill -9`` of the parent.

    The kernel's parent-death signal is quick but is tied to the parent's starting thread and exists on Linux only; the end of
    the standard input pipe, which only the parent holds open, covers the rest.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_with_stdin, name="parent-watch", daemon=True).start()


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL) if os.getpgrp() == os.getpid() else os._exit(1)
