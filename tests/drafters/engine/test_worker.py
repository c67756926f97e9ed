"""The engine's thread: what fails fails alone, and nobody waits in vain."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from drafters.base import Commit, Draft, DraftRequest
from drafters.engine import worker as worker_module
from drafters.engine.jobs import Job, RoundLog
from drafters.engine.lengths import FullLength, Outcome
from drafters.engine.messages import ApiError
from drafters.engine.records import RoundRecord
from drafters.engine.runner import Event, Runner
from drafters.engine.sequence import Request
from drafters.engine.worker import Worker
from drafters.prompt_lookup import PromptLookup
from tests.drafters.models import greedy, lean, prompt


class Broken:
    """A drafter that fails whenever it is asked."""

    feature_layers: tuple[int, ...] = ()
    max_nodes = 4
    tree = False

    def open(self, sequence_id: int, max_length: int) -> None:
        """Take note of nothing."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Fail."""
        raise RuntimeError("out of ideas")

    def commit(self, commits: Sequence[Commit]) -> None:
        """Take note of nothing."""

    def release(self, sequence_id: int) -> None:
        """Fail as well."""
        raise RuntimeError("out of ideas here too")


@asynccontextmanager
async def working() -> AsyncIterator[tuple[Worker, Runner, RoundLog]]:
    """A worker over a tiny model."""
    rounds = RoundLog()
    runner = Runner(
        lean("llama"), 400, {"broken": Broken(), "lookup": PromptLookup(4, 1, 3)}, 2, on_round=rounds.append
    )
    worker = Worker(runner, rounds, asyncio.get_running_loop())
    worker.start()
    try:
        yield worker, runner, rounds
    finally:
        worker.stop()
        assert worker.join(10)


def job(max_tokens: int = 20, drafter: str | None = None, length: int = 9) -> Job:
    """A request for the tiny model."""
    return Job(Request(tuple(prompt(5, length)), max_tokens, drafter=drafter), time.monotonic_ns(), wants_rounds=True)


async def result(asked: Job) -> list[int] | ApiError | None:
    """All tokens of a job, its error, or None when it was aborted."""
    tokens: list[int] = []
    while True:
        update = await asyncio.wait_for(asked.updates.get(), 20)
        if not isinstance(update, Event):
            return update
        tokens += update.token_ids
        if update.finished:
            return tokens


async def test_a_failed_round_ends_its_own_requests_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    """One waits while the drafter fails, and is served afterwards by the same thread."""
    caplog.set_level(logging.CRITICAL)
    async with working() as (worker, runner, _):
        jobs = [job(drafter="broken"), job(drafter="broken"), job(drafter="lookup")]
        for asked in jobs:
            worker.submit(asked)
        first, second, third = [await result(asked) for asked in jobs]
        for error in (first, second):
            assert isinstance(error, ApiError)
            assert (error.status, error.kind) == (500, "server_error")
            assert "out of ideas" in error.message
        assert third == greedy("llama", prompt(5, 9), 20)
        assert worker.alive
        assert runner.scheduler.slots.owned == worker.state.owned_tokens == 0


async def test_records_go_with_the_rounds_of_a_request() -> None:
    """One each, with the same index, and the first token has none."""
    async with working() as (worker, _, rounds):
        asked = job(drafter="lookup")
        worker.submit(asked)
        assert await result(asked) == greedy("llama", prompt(5, 9), 20)
        assert asked.sequence is not None
        own = [step.round_index for step in asked.sequence.rounds]
        assert [record.round_index for record in asked.round_records] == own
        assert rounds.since(own[0]) == asked.round_records
        assert asked.arrived_ns <= (asked.admitted_ns or 0) <= (asked.first_ns or 0) <= (asked.last_ns or 0)


async def test_an_aborted_request_frees_its_memory_wherever_it_stands() -> None:
    """Running, waiting, or not even seen by the engine yet."""
    async with working() as (worker, runner, _):
        jobs = [job(90), job(90), job(90)]
        for asked in jobs:
            worker.submit(asked)
        await asyncio.wait_for(jobs[0].updates.get(), 20)
        unseen = job(90)
        worker.submit(unseen)
        for asked in [*jobs, unseen]:
            worker.abort(asked)
        assert [await result(asked) for asked in [*jobs, unseen]] == [None] * 4
        await worker.reset_prefix_cache()
        assert (runner.scheduler.slots.used, runner.scheduler.num_waiting, runner.busy) == (0, 0, False)


async def test_an_aborted_request_takes_part_in_no_further_round() -> None:
    """The round that is being computed is its last one, however many were still to come."""
    async with working() as (worker, _runner, rounds):
        asked = job(240)
        worker.submit(asked)
        await asyncio.wait_for(asked.updates.get(), 20)
        worker.abort(asked)
        last = rounds.last
        assert await result(asked) is None
        assert last is not None
        assert asked.sequence is not None
        assert asked.sequence.rounds[-1].round_index <= last.round_index + 1


async def test_a_request_aborted_behind_one_that_waits_is_not_kept() -> None:
    """Two run, two wait; the second of these goes while the first still waits, and nothing holds its prompt any more."""
    async with working() as (worker, _runner, _):
        running, head, behind = [job(200), job(200)], job(200), job(200)
        for asked in [*running, head, behind]:
            worker.submit(asked)
        await asyncio.wait_for(running[1].updates.get(), 20)
        worker.abort(behind)
        assert await result(behind) is None
        assert await worker.between_rounds(lambda: list(worker._queue.values())) == [head]
        assert worker.state.waiting == 1


async def test_a_request_waits_from_when_it_was_queued() -> None:
    """What came before, such as reading its prompt, is no waiting: a second here."""
    async with working() as (worker, _runner, _):
        asked = Job(Request(tuple(prompt(5, 9)), 2), time.monotonic_ns() - 10**9)
        before = time.monotonic_ns()
        worker.submit(asked)
        await result(asked)
        assert before <= (asked.queued_ns or 0) <= (asked.admitted_ns or 0)


class Learning(FullLength):
    """A policy that counts what it was told, and notes in which thread it was made to forget."""

    seen = 0
    thread = ""

    def observe(self, record: RoundRecord, outcomes: Sequence[Outcome], draft_ns: int) -> None:
        """One more."""
        self.seen += 1

    def reset(self) -> None:
        """None."""
        self.seen, self.thread = 0, threading.current_thread().name


async def test_policies_forget_between_rounds_when_asked_to() -> None:
    """In the engine's thread; requests go on and teach them anew."""
    async with working() as (worker, runner, _):
        policy = runner.lengths["lookup"] = Learning()
        asked = job(drafter="lookup")
        worker.submit(asked)
        await result(asked)
        assert policy.seen > 0
        await worker.reset_drafting()
        assert (policy.seen, policy.thread) == (0, "engine")


async def test_a_call_between_rounds_that_fails_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Its error comes to whoever asked; the engine serves on."""
    caplog.set_level(logging.CRITICAL)

    def fail() -> None:
        raise KeyError("no such thing")

    async with working() as (worker, _runner, _):
        with pytest.raises(KeyError, match="no such thing"):
            await worker.between_rounds(fail)
        asked = job(5)
        worker.submit(asked)
        assert await result(asked) == greedy("llama", prompt(5, 9), 5)


async def test_what_the_engine_can_never_serve_is_refused_beside_those_it_serves() -> None:
    """A prompt and an answer of 500 tokens in a memory of 400."""
    async with working() as (worker, _, _rounds):
        large, small = job(248, length=9), job(5)
        worker.submit(job(100))
        worker.submit(large)
        worker.submit(small)
        error = await result(large)
        assert isinstance(error, ApiError)
        assert error.status == 400
        assert await result(small) == greedy("llama", prompt(5, 9), 5)


async def test_all_who_wait_are_told_when_the_thread_stops() -> None:
    """And whoever comes later, at once."""
    async with working() as (worker, _, _rounds):
        jobs = [job(200) for _ in range(5)]
        for asked in jobs:
            worker.submit(asked)
        await asyncio.wait_for(jobs[0].updates.get(), 20)
        worker.stop()
        results = [await result(asked) for asked in jobs]
        assert all(isinstance(error, ApiError) and error.status == 503 for error in results)
        with pytest.raises(ApiError, match="stopping"):
            worker.submit(job())
        assert not worker.alive


async def test_too_many_who_wait_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound of two: two run, two wait, the fifth is refused with 429."""
    monkeypatch.setattr(worker_module, "MAX_WAITING", 2)
    async with working() as (worker, _runner, _):
        jobs = [job(90), job(90)]
        for asked in jobs:
            worker.submit(asked)
        await asyncio.wait_for(jobs[1].updates.get(), 20)
        worker.submit(job(90))
        worker.submit(job(90))
        with pytest.raises(ApiError) as caught:
            worker.submit(job(90))
        assert caught.value.status == 429


def test_the_log_of_rounds_keeps_the_last_ones_and_finds_them_by_index() -> None:
    """Three kept of five; an index that was left out is no hole."""
    log = RoundLog(size=3)
    for index in (0, 1, 2, 4, 5):
        log.append(RoundRecord(index, index, 1, 0, 0, 0, 0, 0, 0, 0, 0))
    assert [record.round_index for record in log.since(0)] == [2, 4, 5]
    assert [record.round_index for record in log.since(3)] == [4, 5]
    assert log.since(6) == []
    assert [record.round_index for record in log.since(0, most=2)] == [2, 4]


def test_a_page_of_rounds_has_ten_thousand_at_most() -> None:
    """The next page begins where it ends."""
    log = RoundLog()
    for index in range(10_002):
        log.append(RoundRecord(index, index, 1, 0, 0, 0, 0, 0, 0, 0, 0))
    assert [record.round_index for record in log.since(0)] == list(range(10_000))
    assert [record.round_index for record in log.since(10_000)] == [10_000, 10_001]
