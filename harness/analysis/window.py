"""The steady window of a cell: the time in which the full concurrency was in progress."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GAP_NS = 50_000_000
"""Shorter dips below the full concurrency do not end the window.

Between a task's end and the start of its successor in the same slot lies the client's own bookkeeping, microseconds to a few
milliseconds, and the first tasks of a cell start one after another in the same way. 50 ms is well above that and well below any
model call, so a slot that is really idle still ends the window.
"""


def steady_window(start_ns: NDArray[np.int64], end_ns: NDArray[np.int64], concurrency: int) -> tuple[int, int] | None:
    """Return begin and end of the longest stretch with ``concurrency`` tasks in progress, ``None`` if there is none.

    A task is in progress from the due time of its first step to the end of its last, tool waits included. Stretches with a dip of
    up to ``GAP_NS`` between them are one. The window begins with the first of the starts that filled the slots (within ``GAP_NS``
    before the level was reached), so that the tasks of the first wave lie inside it.

    Args:
        start_ns: start of each task of the cell, any phase. # [tasks]
        end_ns: end of each task. # [tasks]
        concurrency: how many tasks make the level.
    """
    times = np.concatenate([start_ns, end_ns])
    change = np.concatenate([np.ones_like(start_ns), -np.ones_like(end_ns)])
    order = np.lexsort((-change, times))  # starts first: a successor that starts as its predecessor ends leaves no dip
    times, level = times[order], np.cumsum(change[order])
    full = (level >= concurrency).astype(np.int8)
    edges = np.diff(full, prepend=0)
    begins, ends = times[edges == 1], times[edges == -1]  # [stretches]
    if not len(begins):
        return None
    apart = begins[1:] - ends[:-1] > GAP_NS
    begins, ends = begins[np.append(True, apart)], ends[np.append(apart, True)]
    longest = int(np.argmax(ends - begins))
    begin, end = int(begins[longest]), int(ends[longest])
    wave = start_ns[(start_ns <= begin) & (start_ns >= begin - GAP_NS)]
    return (int(wave.min()), end) if end > begin else None
