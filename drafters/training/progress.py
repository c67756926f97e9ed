"""How long work of even pace still takes, and when to say so."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["TOLD_EVERY_S", "Pace"]

TOLD_EVERY_S = 5.0
IN_SECONDS_BELOW = 90


class Pace:
    """Counts from its making; ``clock`` gives seconds."""

    def __init__(self, every_s: float = TOLD_EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s, self._clock = every_s, clock
        self._began = self._told = clock()

    def due(self) -> bool:
        """Whether it is time to say something again: ``every_s`` seconds after the last time it was."""
        now = self._clock()
        if now - self._told < self._every_s:
            return False
        self._told = now
        return True

    def per_second(self, done: float) -> float:
        """What was done in a second, of what was done since the beginning."""
        return done / max(self._clock() - self._began, 1e-9)

    def left(self, done: float, rest: float) -> str:
        """About how long ``rest`` takes, in the unit of what was ``done`` since the beginning."""
        if done <= 0:
            return "what is left is not known"
        seconds = max(0.0, rest) / self.per_second(done)
        shown = f"{seconds:.0f} s" if seconds < IN_SECONDS_BELOW else f"{seconds / 60:.1f} min"
        return f"about {shown} left"
