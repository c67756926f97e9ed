"""A process with everything it started, as Linux tells it; elsewhere only the process group is known."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_PROC = Path("/proc")


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below ``pid``, parents first; empty where the system has no ``/proc``.

    A process whose parent has ended is found only if that parent's nearest subreaper is ``pid`` or stands below it.
    """
    children: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # the name in parentheses may hold blanks and parentheses of its own
            state, parent = entry.read_text(errors="replace").rsplit(")", 1)[1].split()[:2]
            if state not in ("Z", "X"):
                children.setdefault(int(parent), []).append(int(entry.parent.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
