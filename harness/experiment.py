"""The experiment: every cell of every workload in interleaved order, each step written down as it ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from harness.combining import Experiment, planned_cells
from harness.engines.base import Engine
from harness.engines.window import foreign_requests
from harness.errors import EngineError, EngineUnreachable, RunFolderError
from harness.manifest import DIFFERENCES, PROBED, merged_engine
from harness.power import EnergyMeter, NoMeter, open_meter
from harness.records import ENGINE_DIED, CellKey, CellRecord, Round, StepRecord
from harness.replay.cell import CellOutcome, CellRunner
from harness.replay.client import StreamClient
from harness.replay.clock import MonotonicClock
from harness.replay.schedule import CellPlan
from harness.store import RunFolder

MAX_ATTEMPTS = 2  # a cell whose server died is run once more on a fresh server
MAX_FAILED_CELLS = 2  # so many cells of an arm in a row without one good task: the engine is not going to recover


class Progress(Protocol):
    """Told what happens while a run goes on; shows it to whoever waits."""

    def run_started(self, cells: Sequence[tuple[CellKey, int]], already_done: int) -> None:
        """All cells still to run, each with the number of steps it counts."""

    def cell_started(self, key: CellKey) -> None:
        """A cell begins."""

    def step_ended(self, record: StepRecord) -> None:
        """A step ended."""

    def cell_ended(self, record: CellRecord) -> None:
        """A cell ended."""

    def note(self, text: str) -> None:
        """Something the waiting person should know."""


async def run(
    experiment: Experiment, engine: Engine, folder: RunFolder, progress: Progress, salt_run: str = ""
) -> EngineError | None:
    """Run every cell that the folder does not hold yet; return why the run is not whole, ``None`` if it is.

    Raises:
        RunFolderError: if the folder cannot be written, or was begun with another engine.
    """
    plans = planned_cells(experiment)
    done = folder.done_cells()
    left = [key for key in plans if key not in done]
    progress.run_started([(key, plans[key].counted_steps) for key in left], len(done))
    stopped: EngineError | None = None
    try:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(engine.stop)
            _warn_of(experiment.flag_differences, [], progress)
            await engine.start()
            _note_engine(folder, await engine.describe(), progress, experiment.flag_differences)
            client = StreamClient(
                clock=MonotonicClock(),
                request_timeout_s=experiment.engine.request_timeout_s,
                max_requests_per_s=experiment.engine.max_requests_per_s,
                connections=experiment.slots,
            )
            await stack.enter_async_context(client)
            meter = NoMeter() if experiment.attached else open_meter()
            folder.manifest["energy"] = meter.describe()
            cells = _Cells(experiment, engine, client, folder, progress, salt_run, _attempts(folder), meter)
            for order, key in enumerate(plans):
                if key not in done:
                    await cells.run(key, plans[key], order)
            progress.note("asking the engine for the tokens of outputs that differ")
            await _store_token_ids(folder, engine)
    except EngineError as error:
        stopped = error
    failed = len(left) - len([key for key in left if key in folder.done_cells()])
    if stopped is None and failed:
        stopped = EngineError(f"{failed} of {len(plans)} cells failed; the report says which")
    folder.manifest["status"] = "complete" if stopped is None else f"stopped: {stopped}"
    folder.write_manifest()
    return stopped


def _note_engine(folder: RunFolder, now: dict[str, Any], progress: Progress, told: Sequence[Mapping[str, Any]]) -> None:
    then = folder.manifest["engine"]
    engine, changed = merged_engine(then, now)
    if changed:
        raise RunFolderError(
            f"{folder.path} was begun with another engine ({', '.join(changed)} changed); halves of two engines are no run: "
            "restore the engine or start a new run"
        )
    _warn_of(engine[DIFFERENCES], [*told, *((then or {}).get(DIFFERENCES) or ())], progress)
    known = {} if then is None else then.get(PROBED) or {}
    for arm, probed in (engine.get(PROBED) or {}).items():
        if probed is not None and known.get(arm) is None and probed["acceptance_source"] is not None:
            progress.note(f"acceptance of {arm}: {probed['acceptance_source']}")
    folder.manifest["engine"] = engine
    folder.write_manifest()


def _warn_of(found: Sequence[Mapping[str, Any]], told: Sequence[Mapping[str, Any]], progress: Progress) -> None:
    """Say in what servers differ besides the drafter, as soon as it is known and each once."""
    known = [(item["flag"], arm, value) for item in told for arm, value in item["values"].items()]
    for item in found:
        new = [arm for arm, value in item["values"].items() if (item["flag"], arm, value) not in known]
        if not item["drafter"] and new:
            values = ", ".join(
                f"{arm}: {'not given' if text is None else text}" for arm, text in item["values"].items()
            )
            progress.note(
                f"WARNING: the servers of the arms differ in more than the drafter: {item['flag']} ({values})"
            )


@dataclass(slots=True)
class _Cells:
    """Runs cells one after the other and decides what a dead or failing server means."""

    experiment: Experiment
    engine: Engine
    client: StreamClient
    folder: RunFolder
    progress: Progress
    salt_run: str
    attempts: defaultdict[CellKey, int]
    meter: EnergyMeter
    failed_in_a_row: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    async def run(self, key: CellKey, plan: CellPlan, order: int) -> None:
        """Run one cell, once more on a fresh server if its server dies.

        Raises:
            EngineUnreachable: if the server dies again, or no task of this arm succeeds any more.
        """
        await self.engine.bring_up(key.arm)
        if self._is_new(key.arm):
            _note_engine(self.folder, await self.engine.describe(), self.progress, self.experiment.flag_differences)
        for _ in range(MAX_ATTEMPTS):
            if not self.engine.alive(key.arm):
                self.progress.note(f"the server of arm {key.arm} ended; starting it again")
                await self.engine.restart(key.arm)
            elif self.engine.carries_state(key.arm):
                await self.engine.restart(key.arm)
            self.attempts[key] += 1
            record, outcome = await self._once(key, plan, order)
            self.folder.append_cell(record)
            self.progress.cell_ended(record)
            self.failed_in_a_row[key.arm] = 0 if outcome.counted_ok else self.failed_in_a_row[key.arm] + 1
            if not outcome.engine_died:
                break
        else:
            raise EngineUnreachable(
                f"the server of arm {key.arm} ended {MAX_ATTEMPTS} times in the same cell ({_name(key)})"
            )
        if self.failed_in_a_row[key.arm] >= MAX_FAILED_CELLS:
            raise EngineUnreachable(
                f"no task of arm {key.arm} succeeded in {self.failed_in_a_row[key.arm]} cells in a row ({record.error_message})"
            )

    def _is_new(self, arm: str) -> bool:
        """Tell whether the manifest does not describe the arm yet, because its server has not been up before."""
        return (self.folder.manifest["engine"].get("arms") or {}).get(arm, arm) is None

    async def _once(self, key: CellKey, plan: CellPlan, order: int) -> tuple[CellRecord, CellOutcome]:
        workload = next(loaded.workload for loaded in self.experiment.workloads if loaded.workload.name == key.workload)
        policy = workload.replay.prompt_cache
        if policy == "salt" and self.engine.shares_cache():
            policy = "reset"  # the salt keeps cells of one arm apart; all arms send the same prompts
        if policy == "reset" and not await self.engine.reset_prompt_cache(key.arm):
            policy = "shared"  # the server cannot empty its cache; the record says what really was
        if policy == "salt" and self.attempts[key] > 1 and self.salt_run:
            policy = "shared"  # a server that outlives the attempt before may still hold its prompts
        await self.engine.reset_drafting(key.arm)  # or the order of the cells would enter what is measured
        before, others = await self.engine.counters(key.arm), await self.engine.state(key.arm)
        self.progress.cell_started(key)
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        sent = 0

        def sink(record: StepRecord, text: str | None, rounds: Sequence[Round] | None) -> None:
            nonlocal sent
            sent += record.error_kind != "not_sent"
            self.folder.append_step(record, text, rounds)
            self.progress.step_ended(record)

        clock = MonotonicClock()
        energy_before = self.meter.read_j()
        runner = CellRunner(
            key, self.attempts[key], plan, workload, self.engine, self.client, clock, sink, self.salt_run
        )
        outcome = await runner.run()
        energy_after = self.meter.read_j()
        after, drained, foreign = None, None, None
        if not outcome.engine_died:
            try:
                drained = await self.engine.drain(key.arm)
                after = await self.engine.counters(key.arm)
                foreign = foreign_requests(others, await self.engine.state(key.arm), sent)
            except EngineError as error:  # the cell is kept; the next one meets the same server and ends the run
                self.progress.note(str(error))
        good = outcome.counted_ok > 0 and not outcome.engine_died
        record = CellRecord(
            cell=key,
            attempt=self.attempts[key],
            order=order,
            status="done" if good else "failed",
            start_ns=outcome.start_ns,
            end_ns=outcome.end_ns,
            counted_tasks=len(plan.counted),
            cache_policy=policy,
            server_before=before,
            server_after=after,
            error_message=None if good else _why(outcome),
            started_at=started_at,
            drained=drained,
            counted_steps=plan.counted_steps,
            foreign_requests=foreign,
            energy_j=None if energy_before is None or energy_after is None else energy_after - energy_before,
        )
        return record, outcome


def _why(outcome: CellOutcome) -> str:
    if outcome.engine_died:
        return ENGINE_DIED
    return "given up: no task succeeded" if outcome.given_up else "every counted task failed"


def _attempts(folder: RunFolder) -> defaultdict[CellKey, int]:
    attempts: defaultdict[CellKey, int] = defaultdict(int)
    for record in folder.steps():
        attempts[record.cell] = max(attempts[record.cell], record.attempt)
    for found in folder.rounds():  # a step's rounds are written before the step: a kill can leave them alone
        attempts[found.cell] = max(attempts[found.cell], found.attempt)
    return attempts


async def _store_token_ids(folder: RunFolder, engine: Engine) -> None:
    """Store the tokens of outputs that differ between arms, so that the first differing token can be told without the engine."""
    outputs: dict[tuple[str, int, int, int, int], dict[str, str]] = defaultdict(dict)
    done = folder.done_cells()
    for record in folder.steps():
        if record.output_sha256 and record.phase == "counted" and done.get(record.cell) == record.attempt:
            cell = record.cell
            place = (cell.workload, cell.concurrency, cell.repeat, record.instance, record.step_index)
            outputs[place][cell.arm] = record.output_sha256
    differing = {sha: arm for place in outputs.values() if len(set(place.values())) > 1 for arm, sha in place.items()}
    stored = {output.sha256: output for output in folder.outputs()}
    for sha, arm in differing.items():
        if stored[sha].token_ids is None:
            ids = await engine.tokenize(arm, stored[sha].text)
            if ids is not None:
                folder.append_output(replace(stored[sha], token_ids=ids))


def _name(key: CellKey) -> str:
    return f"{key.workload}, {key.arm}, concurrency {key.concurrency}, repeat {key.repeat}"
