"""The parent of a server that is not ours: passes the order to stop on, and leaves nothing of the server behind.

``python -m harness.engines.guard --grace 20 -- COMMAND…`` runs the command until it ends, SIGTERM or SIGINT arrives, or standard
input ends (which only the harness holds open: it is gone then, ``kill -9`` included). Servers start workers in sessions of their own,
which a signal to a process group does not reach and which outlive their parent; on Linux orphans become children of this process, so
that all of them are found. The exit code is the command's own. Variables that begin with ``SPEC_HARNESS_SERVER_`` are the server's,
and reach it without that beginning: a library that is put in front of the server's has no business in this process.

With ``--masked`` the first line of standard input is a JSON list of secrets, none of which is written to the log: neither the command
line nor the environment of this process tells them.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from typing import NoReturn

from harness.engines.masked_output import copy_masked
from harness.engines.tree import descendants, send

SERVER_ENV = "SPEC_HARNESS_SERVER_"
NOT_FOUND = 127  # as a shell says it
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_ORPHANS_S = 1.0
_LAST_WORDS_S = 2.0  # of a log whose writers have all ended
_AGAIN_S = 0.2  # what was forked while its parent was being killed


def main() -> int:
    """Run the command line's command to its end."""
    parser = argparse.ArgumentParser(description="runs a server and ends everything that it started")
    parser.add_argument("--grace", type=float, default=20.0, help="seconds between the order to stop and the kill")
    parser.add_argument(
        "--masked", action="store_true", help="read secrets from standard input and mask them in the output"
    )
    parser.add_argument("--cwd", help="folder in which the command runs")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    secrets = json.loads(_first_line() or "[]") if arguments.masked else []
    guard = _Guard(arguments.grace)
    signal.signal(signal.SIGALRM, guard.kill)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, guard.terminate)
    threading.Thread(target=_until_input_ends, name="parent-watch", daemon=True).start()
    try:
        leader = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if secrets else None,
            stderr=subprocess.STDOUT if secrets else None,
            start_new_session=True,
            cwd=arguments.cwd,
            env=_environment(),
        )
    except OSError as error:
        sys.stderr.write(f"cannot execute {command[0]!r}: {error}\n")
        return NOT_FOUND
    guard.leader = leader.pid
    copying = None if leader.stdout is None else copy_masked(leader.stdout.fileno(), sys.stdout.fileno(), secrets)
    status = 0
    while True:
        try:
            pid, ended = os.waitpid(-1, 0)
        except ChildProcessError:
            break
        if pid == leader.pid:
            status = leader.returncode = os.waitstatus_to_exitcode(ended)
            guard.finish()
    if copying is not None:
        copying.join(_LAST_WORDS_S)
    return status if status >= 0 else _end_by(-status)


class _Guard:
    """Ends the server's processes; ``leader`` is its first one, which leads their group, ``None`` before it is known."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._asked = False
        self.leader: int | None = None

    def terminate(self, *_: object) -> None:
        """Send SIGTERM to everything once, and SIGKILL after the grace."""
        if not self._asked:
            self._asked = True
            signal.setitimer(signal.ITIMER_REAL, self._grace_s)
            self._send(signal.SIGTERM)

    def finish(self) -> None:
        """End what the server's first process left behind. If it died by itself, soon: the harness waits to start it again."""
        if not self._asked:
            self._grace_s = min(self._grace_s, _ORPHANS_S)
        self.terminate()

    def kill(self, *_: object) -> None:
        """Send SIGKILL to everything until nothing is left."""
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        below = descendants(os.getpid())
        if self.leader is not None:
            # the group in one call, the others each: a second SIGTERM means "at once" to some servers
            below = [pid for pid in below if _group(pid) != self.leader]
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.leader, number)
        send(below, number)


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(SERVER_ENV)}
    given = {name.removeprefix(SERVER_ENV): value for name, value in os.environ.items() if name.startswith(SERVER_ENV)}
    return own | given


def _group(pid: int) -> int | None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        return os.getpgid(pid)
    return None


def _first_line() -> bytes:
    """Return the first line of standard input, read byte by byte: what follows is not for here."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def _until_input_ends() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGALRM)


def _end_by(number: int) -> NoReturn:
    signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
