"""What passes between the HTTP side and the engine's thread: requests on their way, and the engine's state. Imports no
torch."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drafters.engine.messages import ApiError
from drafters.engine.records import Counters, RoundRecord
from drafters.engine.sequence import Request, RunningSequence

if TYPE_CHECKING:
    from drafters.engine.runner import Event

__all__ = ["Job", "RoundLog", "State"]

MAX_ROUNDS = 100_000
MAX_PAGE = 10_000


class RoundLog:
    """The last rounds of the engine. One thread appends, others read."""

    def __init__(self, size: int = MAX_ROUNDS) -> None:
        self._records: deque[RoundRecord] = deque(maxlen=size)
        self.last: RoundRecord | None = None

    def append(self, record: RoundRecord) -> None:
        """Take the record of a finished round."""
        self._records.append(record)
        self.last = record

    def since(self, index: int, most: int = MAX_PAGE) -> list[RoundRecord]:
        """The first ``most`` of those kept whose ``round_index`` is ``index`` or more, in order."""
        records = list(self._records.copy())  # the copy is one step of the interpreter: nobody appends meanwhile
        first = bisect_left(records, index, key=lambda record: record.round_index)
        return records[first : first + most]


@dataclass(slots=True, eq=False)
class Job:
    """A request between the HTTP side, which makes it and reads ``updates``, and the engine, which fills the rest.

    ``updates`` carry the events of its rounds in order, the last one ``finished``, or instead of that an `ApiError`;
    ``None`` when the client is gone. Times are `time.monotonic_ns`: ``queued_ns`` when it was left for the engine, its
    prompt in tokens already. ``round_records`` go with the sequence's ``rounds`` one by one, kept only if
    ``wants_rounds``.
    """

    request: Request
    arrived_ns: int
    wants_rounds: bool = False
    updates: asyncio.Queue[Event | ApiError | None] = field(default_factory=asyncio.Queue)
    sequence: RunningSequence | None = None
    gone: bool = False
    queued_ns: int | None = None
    admitted_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    round_records: list[RoundRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class State:
    """What the engine was like after its last round: counters of one moment, and who is there.

    ``owned_tokens`` are slots of live sequences, ``kept_tokens`` those kept for reuse.
    """

    counters: Counters
    running: int
    waiting: int
    owned_tokens: int
    kept_tokens: int
