"""The thread that runs the engine, and how the HTTP side talks to it.

Calls go to it through an inbox that it empties between rounds; what a round gave goes back with one wake-up of the event
loop for all requests together.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch

from drafters.engine.jobs import Job, RoundLog, State
from drafters.engine.messages import ApiError
from drafters.engine.runner import Event, Runner
from drafters.engine.sequence import RequestError, Status

__all__ = ["Worker"]

MAX_WAITING = 4096
STOPPING = "the server is stopping; ask another one"

logger = logging.getLogger(__name__)
Made = TypeVar("Made")


class Worker:
    """Runs ``runner`` in a thread of its own. All methods may be called from the event loop's thread, none waits."""

    def __init__(self, runner: Runner, rounds: RoundLog, loop: asyncio.AbstractEventLoop, threads: int = 1) -> None:
        self._runner = runner
        self._rounds = rounds
        self._loop = loop
        self._threads = threads
        self._inbox: list[Callable[[], None]] = []
        self._condition = threading.Condition()
        self._stopping = False
        self._reason: str | None = None  # why nothing is taken any more
        self._changed = True
        self._owned = self._kept = 0
        self._jobs: dict[int, Job] = {}  # by sequence id; the engine's thread alone
        self._queue: OrderedDict[int, Job] = OrderedDict()  # not admitted yet, in order; the engine's thread alone
        self._outbox: list[tuple[Job, Event | ApiError | None]] = []
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)
        self.state = self._look()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether rounds are run."""
        return self._thread.is_alive() and self._reason is None

    def submit(self, job: Job) -> None:
        """Queue a request. Raises ApiError when too many wait, or nothing is run any more."""
        if self._runner.scheduler.num_waiting + len(self._inbox) >= MAX_WAITING:
            raise ApiError(
                429, f"{MAX_WAITING} requests wait already; ask again later", kind="rate_limit_error", code="queue_full"
            )
        job.queued_ns = time.monotonic_ns()
        if not self._call(partial(self._add, job)):
            raise _unavailable(self._reason)

    def abort(self, job: Job) -> None:
        """The client is gone: free what the request holds before the next round."""
        job.gone = True
        self._call(partial(self._abort, job))

    def reset_prefix_cache(self) -> asyncio.Future[None]:
        """Forget what finished sequences left for reuse; the future is done when that has happened."""
        return self.between_rounds(self._reset_prefix_cache)

    def reset_drafting(self) -> asyncio.Future[None]:
        """Forget what earlier rounds taught the policies of draft lengths; the future is done when that has happened."""
        return self.between_rounds(self._runner.reset_drafting)

    def between_rounds(self, make: Callable[[], Made]) -> asyncio.Future[Made]:
        """Let the engine's thread call ``make``, so that no round changes what it reads; the future has what it returns.

        Raises ApiError when nothing is run any more.
        """
        made: asyncio.Future[Made] = self._loop.create_future()
        if not self._call(partial(self._make, make, made)):
            raise _unavailable(self._reason)
        return made

    def stop(self) -> None:
        """Run no further round; all requests end with an error."""
        with self._condition:
            self._stopping = True
            self._reason = self._reason or STOPPING
            self._condition.notify()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; False when it is still in a round."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _call(self, call: Callable[[], None]) -> bool:
        """Leave a call for the engine's thread; False when it takes none any more."""
        with self._condition:
            if self._reason is None:
                self._inbox.append(call)
                self._condition.notify()
            return self._reason is None

    def _main(self) -> None:
        torch.set_num_threads(self._threads)  # counts for the thread that calls it
        try:
            while self._next_calls():
                self._deliver()  # refusals need not wait for the round
                if self._runner.busy:
                    self._round()
                self.state = self._look()
                self._deliver()
        finally:
            self._close()

    def _next_calls(self) -> bool:
        """Do what was asked since the last round; sleep while there is nothing to do. False at the end."""
        with self._condition:
            while not (self._inbox or self._stopping or self._runner.busy):
                self._condition.wait()
            if self._stopping:
                return False
            calls, self._inbox = self._inbox, []
        for call in calls:
            call()
        return True

    def _close(self) -> None:
        with self._condition:
            self._reason = (
                self._reason or "the engine has ended with an error; see the server's messages and start it again"
            )
            calls, self._inbox = self._inbox, []
        for call in calls:
            call()  # submissions that came last are answered like all others
        self._outbox += [(job, _unavailable(self._reason)) for job in self._jobs.values()]
        self._jobs.clear()
        self._deliver()

    def _round(self) -> None:
        start = time.monotonic_ns()
        try:
            events = self._runner.step()
        except Exception as error:
            logger.exception("a round failed; its requests end, the others go on")
            self._admitted(start)
            self._failed(error)
            return
        now = time.monotonic_ns()
        self._admitted(start)
        record = self._rounds.last
        for event in events:
            job = self._jobs[event.sequence.sequence_id]
            job.last_ns = now
            if job.first_ns is None:
                job.first_ns = now
            elif job.wants_rounds and record is not None:  # all but the first token come of rounds
                job.round_records.append(record)
            if event.finished:
                self._changed = True
                del self._jobs[event.sequence.sequence_id]
            self._outbox.append((job, event))

    def _admitted(self, now_ns: int) -> None:
        while self._queue:
            sequence_id, job = next(iter(self._queue.items()))
            if job.sequence is not None and job.sequence.status is Status.WAITING:
                return
            del self._queue[sequence_id]
            job.admitted_ns = now_ns
            self._changed = True

    def _failed(self, error: Exception) -> None:
        ended = [job for job in self._jobs.values() if job.sequence and job.sequence.status is Status.FINISHED]
        if not ended:  # an error before anyone took part would come again for ever
            ended = list(self._jobs.values())
        message = f"the engine failed in a round of this request ({type(error).__name__}: {str(error)[:300]})"
        for job in ended:
            self._drop(job)
            self._outbox.append((job, ApiError(500, message, kind="server_error", code="engine_error")))
        if self._runner.busy and not self._jobs:
            raise error  # what is left belongs to nobody and cannot be ended

    def _add(self, job: Job) -> None:
        if job.gone:
            return
        try:
            job.sequence = self._runner.add(job.request)
        except RequestError as error:
            self._outbox.append((job, ApiError(400, str(error))))
            return
        self._jobs[job.sequence.sequence_id] = job
        self._queue[job.sequence.sequence_id] = job

    def _abort(self, job: Job) -> None:
        self._drop(job)
        self._outbox.append((job, None))

    def _drop(self, job: Job) -> None:
        if job.sequence is None or self._jobs.pop(job.sequence.sequence_id, None) is None:
            return
        self._queue.pop(job.sequence.sequence_id, None)  # or it would stay, prompt and all, behind one that waits
        self._changed = True
        try:
            self._runner.abort(job.sequence)
        except Exception:  # the slots are free by then; a drafter failed to forget
            logger.exception("a request's end failed")

    def _reset_prefix_cache(self) -> None:
        slots = self._runner.scheduler.slots
        for entry in slots.kept:
            slots.drop(entry)
        self._changed = True

    def _make(self, make: Callable[[], Made], made: asyncio.Future[Made]) -> None:
        try:
            result = make()
        except Exception as error:  # whoever asked is told; the engine goes on
            logger.exception("what was asked for between rounds failed")
            self._wake(_fail, made, error)
        else:
            self._wake(_done, made, result)

    def _look(self) -> State:
        counters, scheduler = self._runner.counters, self._runner.scheduler
        copied = replace(
            counters,
            accepted_per_position=list(counters.accepted_per_position),
            acceptance_histogram=list(counters.acceptance_histogram),
        )
        if self._changed:
            self._changed = False
            self._owned = scheduler.slots.owned
            self._kept = scheduler.slots.used - self._owned
        return State(copied, scheduler.num_active, scheduler.num_waiting, self._owned, self._kept)

    def _deliver(self) -> None:
        if self._outbox:
            outbox, self._outbox = self._outbox, []
            self._wake(_hand_over, outbox)

    def _wake(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed: nobody waits any more
            logger.debug("nobody is told any more")


def _unavailable(reason: str | None) -> ApiError:
    return ApiError(503, reason or STOPPING, kind="server_error", code="unavailable")


def _hand_over(outbox: Sequence[tuple[Job, Event | ApiError | None]]) -> None:
    for job, update in outbox:
        job.updates.put_nowait(update)


def _done(made: asyncio.Future[Made], result: Made) -> None:
    if not made.done():
        made.set_result(result)


def _fail(made: asyncio.Future[Made], error: Exception) -> None:
    if not made.done():
        made.set_exception(error)
