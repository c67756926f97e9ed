"""Runs one cell: a closed loop of tasks in progress, steps of a task strictly in order, every step a record.

Step n + 1 of a task is due when step n has ended and its tool wait is over. A slot that ends its task starts the next one at once,
so that ``concurrency`` tasks are in progress, tool waits included. A failed step ends its task: the steps after it are recorded
as not sent, so that rows never go missing.

Where only the server's counters can tell acceptance, they are read between the steps of a cell of concurrency 1. A step that this
makes late is due when they have been read, so that no latency holds the reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.engines.base import Engine, RequestWindow, StreamFacts
from harness.records import CellKey, ErrorKind, Round, StepRecord
from harness.replay.client import StreamClient, StreamResult
from harness.replay.clock import Clock
from harness.replay.prompts import build_request, live_answer
from harness.replay.schedule import CellPlan, Instance, salt
from harness.store import text_sha256
from harness.tasks import Message
from harness.workload import Workload

DYING_NS = 50_000_000
ENGINE_DEAD: ErrorKind = "engine_dead"
UNKNOWN_UNTIL_ANSWERED = (
    "sent_ns",
    "first_token_ns",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "output_sha256",
    "decode_passes",
    "spec",
    "spec_source",
    "finish_reason",
)


class StepSink(Protocol):
    """Takes each finished step at once: the record, its output text, its rounds."""

    def __call__(self, record: StepRecord, text: str | None, rounds: Sequence[Round] | None) -> None:
        """Store one step."""


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """How a cell went.

    ``engine_died`` tells that the server process ended while the cell ran, ``given_up`` that so many tasks failed in a row without one
    success that the rest was not sent.
    """

    start_ns: int
    end_ns: int
    counted_ok: int
    counted_failed: int
    engine_died: bool
    given_up: bool


@dataclass(slots=True)
class CellRunner:
    """One cell in progress. Not reusable."""

    key: CellKey
    attempt: int
    plan: CellPlan
    workload: Workload
    engine: Engine
    client: StreamClient
    clock: Clock
    sink: StepSink
    salt_run: str = ""
    _counted_left: int = 0
    _ok: int = 0
    _failed: int = 0
    _failed_in_a_row: int = 0
    _died: bool = False
    _done: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> CellOutcome:
        """Run warm-up, counted and cool-down tasks; return when the last counted task has ended."""
        window = self._window
        if window is not None:
            window.forget()
        start_ns = self.clock.now_ns()
        for instance in self.plan.warm_up:
            await self._task(instance)
        self._counted_left = len(self.plan.counted)
        queue = self._queue()
        slots = [asyncio.create_task(self._slot(queue)) for _ in range(self.key.concurrency)]
        try:
            await self._done.wait()
        finally:
            for slot in slots:
                slot.cancel()
            results = await asyncio.gather(*slots, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return CellOutcome(start_ns, self.clock.now_ns(), self._ok, self._failed, self._died, self._given_up)

    @property
    def _window(self) -> RequestWindow | None:
        return self.engine.window(self.key.arm) if self.key.concurrency == 1 else None

    @property
    def _given_up(self) -> bool:
        # a server that hangs would otherwise be waited for task by task, a timeout each
        return self._ok == 0 and self._failed_in_a_row >= max(3, self.key.concurrency)

    def _queue(self) -> Iterator[Instance]:
        yield from self.plan.counted
        if self.key.concurrency > 1:  # with one slot nothing can be in progress beside the last counted task
            yield from self.plan.cool_down()

    async def _slot(self, queue: Iterator[Instance]) -> None:
        try:
            for instance in queue:
                ok = await self._task(instance)
                if instance.phase == "counted":
                    self._counted_left -= 1
                    self._ok += ok
                    self._failed += not ok
                    self._failed_in_a_row = 0 if ok else self._failed_in_a_row + 1
                if self._counted_left == 0:
                    self._done.set()
                    return
                if not ok and instance.phase == "cool_down":
                    return  # this task only keeps the load up; a server that fails it at once must not be hammered
        except BaseException:
            self._done.set()
            raise

    async def _task(self, instance: Instance) -> bool:
        steps = instance.task.steps[: instance.steps]
        answers: list[Message] = []
        window = self._window
        if window is not None:
            await window.open()
        due_ns = self.clock.now_ns()
        for index, step in enumerate(steps):
            wait_ns = 0 if index + 1 == len(steps) else self._wait_ns(step.tool_wait_s)
            if self._died or self._given_up:
                why = (
                    "the server process ended"
                    if self._died
                    else f"{self._failed_in_a_row} tasks in a row failed before"
                )
                self._not_sent(instance, index, due_ns, why)
                return False
            await self.clock.sleep_until_ns(due_ns)
            result, facts = await self._send(instance, index, answers, due_ns, wait_ns)
            if window is not None and result.error_kind is None:
                facts = await window.close(facts)
            elif window is not None:
                window.forget()
            if result.error_kind is not None:
                # a dying process closes its sockets a moment before it counts as ended
                await self.clock.sleep_until_ns(self.clock.now_ns() + DYING_NS)
                self._died = self._died or not self.engine.alive(self.key.arm)
            self._record(instance, index, due_ns, wait_ns, result, facts)
            if result.error_kind is not None:
                self._not_sent(instance, index + 1, result.end_ns, f"step {index} failed")
                return False
            live = self.workload.replay.history == "live"
            answers.append(live_answer(step, result.text, result.tool_calls) if live else step.recorded)
            due_ns = result.end_ns + wait_ns
            if window is not None:
                await window.open()
                due_ns = max(due_ns, self.clock.now_ns())
        return True

    def _wait_ns(self, tool_wait_s: float) -> int:
        replay = self.workload.replay
        scale = {"none": 0.0, "recorded": 1.0, "scaled": replay.tool_wait_scale}[replay.tool_wait]
        return round(tool_wait_s * scale * 1e9)

    async def _send(
        self, instance: Instance, index: int, answers: Sequence[Message], due_ns: int, wait_ns: int
    ) -> tuple[StreamResult, StreamFacts]:
        reader = self.engine.reader(self.key.arm)
        endpoint = self.engine.endpoint(self.key.arm)
        try:
            result = await self.client.complete(endpoint, self._body(instance, index, answers), reader)
        except asyncio.CancelledError:
            row = self._row(instance, index, due_ns, wait_ns)
            self.sink(StepRecord(**row, end_ns=self.clock.now_ns(), error_kind="cancelled"), None, None)
            raise
        return result, reader.facts()

    def _body(self, instance: Instance, index: int, answers: Sequence[Message]) -> dict[str, Any]:
        replay, sampling = self.workload.replay, self.workload.sampling
        label = salt(self.salt_run, self.key, instance) if replay.prompt_cache == "salt" else None
        parts = build_request(instance.task, index, answers, tools=replay.tools, salt=label)
        body: dict[str, Any] = {
            "messages": parts.messages,
            "max_tokens": min(instance.task.steps[index].max_tokens, sampling.max_tokens),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
        }
        if parts.tools is not None:
            body["tools"] = parts.tools
        return body

    def _record(
        self, instance: Instance, index: int, due_ns: int, wait_ns: int, result: StreamResult, facts: StreamFacts
    ) -> None:
        text = output_text(result)
        kind = ENGINE_DEAD if self._died and result.error_kind is not None else result.error_kind
        record = StepRecord(
            **self._row(instance, index, due_ns, wait_ns)
            | {
                "sent_ns": result.sent_ns,
                "first_token_ns": result.first_token_ns,
                "prompt_tokens": facts.prompt_tokens,
                "cached_tokens": facts.cached_tokens,
                "output_tokens": facts.output_tokens,
                "output_sha256": text_sha256(text) if text else None,
                "decode_passes": facts.decode_passes,
                "spec": facts.spec,
                "spec_source": facts.spec_source,
                "finish_reason": result.finish_reason,
                "chunks": result.chunks,
            },
            end_ns=result.end_ns,
            error_kind=kind,
            error_message=result.error_message,
        )
        self.sink(record, text or None, facts.rounds)

    def _not_sent(self, instance: Instance, first: int, due_ns: int, why: str) -> None:
        for index in range(first, instance.steps):
            row = self._row(instance, index, due_ns, 0)
            self.sink(StepRecord(**row, end_ns=due_ns, error_kind="not_sent", error_message=why), None, None)

    def _row(self, instance: Instance, index: int, due_ns: int, wait_ns: int) -> dict[str, Any]:
        step = instance.task.steps[index]
        return {
            "cell": self.key,
            "attempt": self.attempt,
            "phase": instance.phase,
            "instance": instance.index,
            "task_id": instance.task.id,
            "step_index": index,
            "kind": step.kind,
            "language": step.language,
            "due_ns": due_ns,
            "tool_wait_ns": wait_ns,
            "max_tokens": min(step.max_tokens, self.workload.sampling.max_tokens),
            "chunks": 0,
            **dict.fromkeys(UNKNOWN_UNTIL_ANSWERED),
        }


def output_text(result: StreamResult) -> str:
    """Return everything the model wrote, in one text: reasoning, content, then each tool call on a line of its own."""
    calls = [f"<tool_call>{name} {arguments}</tool_call>" for name, arguments in result.tool_calls]
    return "\n".join(part for part in (result.reasoning, result.text, *calls) if part)
