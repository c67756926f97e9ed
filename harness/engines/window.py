"""Counts of one request from the server's lifetime counters, where the request had the server to itself: the exclusive window.

Counters before and after a request are its own only if no other request ran between: one of ours at a time, none of anybody else's.
The latter shows in the server's metrics: no request is being worked on before and after, and exactly one has finished between.
Where a page tells neither, or more than one finished, nothing is attributed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from harness.engines.base import ServerState, StreamFacts
from harness.engines.dialect import Dialect
from harness.errors import EngineError
from harness.records import SpecCounters

_SETTLE_S = 2.0  # a server writes its counters down a moment after the last chunk
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a metrics page told at one moment."""

    counters: SpecCounters | None
    state: ServerState

    @property
    def quiet(self) -> bool:
        """Whether the server is known to work on nothing, as far as it tells."""
        return self.state.busy in (0, None)


def attributed(before: Snapshot, after: Snapshot) -> SpecCounters | None:
    """Return the counts of the one request between two snapshots; ``None`` unless it is shown to have been alone.

    A server that restarted between, or whose counters shrank, attributes nothing.
    """
    if before.counters is None or after.counters is None or not (before.quiet and after.quiet):
        return None
    told = (before.state.finished, after.state.finished)
    if told[0] is not None and told[1] is not None:
        if told[1] - told[0] != 1:
            return None
    elif before.state.busy is None or after.state.busy is None:
        return None
    grown = after.counters - before.counters
    values = (grown.num_draft_tokens, grown.num_accepted_tokens, grown.num_drafts or 0)
    if min(values) < 0 or grown.num_accepted_tokens > grown.num_draft_tokens:
        return None
    return grown


class ExclusiveWindow:
    """The windows of one server's requests, one after the other; ``page`` fetches its metrics page."""

    def __init__(self, page: Callable[[], Awaitable[str | None]], dialect: Dialect) -> None:
        self._page = page
        self._dialect = dialect
        self._before: Snapshot | None = None

    async def open(self) -> None:
        """Begin a window, before a request is sent; at once if the window before ended here."""
        if self._before is None:
            self._before = await self._snapshot()

    async def close(self, facts: StreamFacts) -> StreamFacts:
        """End the window after a request, and return what its stream told with its counts, if they can be told to be its own.

        What the answer told itself stands. Waits (two seconds at most) until the server has written the request down.
        """
        before, self._before = self._before, await self._settled()
        after = self._before
        if facts.spec is not None or before is None or after is None:
            return facts
        spec = attributed(before, after)
        return facts if spec is None else replace(facts, spec=spec, spec_source="window")

    def forget(self) -> None:
        """Let the next window begin with a fresh snapshot: something else may have run."""
        self._before = None

    async def _settled(self) -> Snapshot | None:
        finished = None if self._before is None else self._before.state.finished
        deadline = time.monotonic() + _SETTLE_S
        while True:
            now = await self._snapshot()
            if now is None:
                return None
            counted = finished is None or now.state.finished is None or now.state.finished > finished
            if (counted and now.quiet) or time.monotonic() > deadline:
                return now
            await asyncio.sleep(_POLL_S)

    async def _snapshot(self) -> Snapshot | None:
        try:
            text = await self._page()
            return None if text is None else Snapshot(self._dialect.counters(text), self._dialect.state(text))
        except EngineError:
            return None  # a server that died meets the next request too; without counters nothing is attributed


def foreign_requests(before: ServerState, after: ServerState, own: int) -> int | None:
    """Return how many requests of others a server was seen to have between two moments; ``None`` where it does not tell.

    Args:
        before: the server when none of our requests was on it.
        after: the same, later.
        own: requests that we sent between, those that we gave up included: they may or may not have been counted.
    """
    seen = [] if before.busy is None else [before.busy]
    if before.finished is not None and after.finished is not None and after.finished >= before.finished:
        seen.append(max(0, after.finished - before.finished - own))
    return max(seen) if seen else None
