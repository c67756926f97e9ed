"""The experiment: every cell of every workload in interleaved order, each step written down as it ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Protocol

from harness.engines.base import Engine
from harness.errors import EngineError, EngineUnreachable, RunFolderError, WorkloadError
from harness.manifest import describe_workload
from harness.records import CellKey, CellRecord, Round, StepRecord
from harness.replay.cell import CellOutcome, CellRunner
from harness.replay.client import StreamClient
from harness.replay.clock import MonotonicClock
from harness.replay.schedule import CellPlan, cell_order, plan_cell
from harness.store import RunFolder
from harness.workload import Arm, EngineSpec, LoadedWorkload

MAX_ATTEMPTS = 2  # a cell whose server died is run once more on a fresh server
MAX_FAILED_CELLS = 2  # so many cells in a row without one good task: the engine is not going to recover


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


@dataclass(frozen=True, slots=True)
class Experiment:
    """The workloads of one run with the one set of servers they share: an arm of a name is the same in every workload."""

    workloads: tuple[LoadedWorkload, ...]
    engine: EngineSpec
    arms: tuple[Arm, ...]

    @property
    def slots(self) -> int:
        """How many requests a server must take at once."""
        return max(max(loaded.workload.concurrency) for loaded in self.workloads)


def combine(workloads: Sequence[LoadedWorkload]) -> Experiment:
    """Check that workload files can share one run.

    Raises:
        WorkloadError: with file and line, if two files have one name, or differ in engine or in what an arm name means.
    """
    arms: dict[str, tuple[Arm, LoadedWorkload]] = {}
    first = workloads[0]
    spec = first.workload.engine
    names: dict[str, LoadedWorkload] = {}
    for loaded in workloads:
        twin = names.setdefault(loaded.workload.name, loaded)
        if twin is not loaded:
            raise WorkloadError(
                f"{loaded.where('name')}: workload {loaded.workload.name!r} is already in the run ({twin.path}); rename one"
            )
        room = max(spec.context_tokens, loaded.workload.engine.context_tokens)
        spec = spec.model_copy(update={"context_tokens": room})
        if loaded.workload.engine.model_copy(update={"context_tokens": room}) != spec:
            raise WorkloadError(
                f"{loaded.where('engine')}: the engine differs from that of {first.path}; files of one run share one engine "
                "(context_tokens aside): make them equal or run them apart"
            )
        for index, arm in enumerate(loaded.workload.arms):
            known, where = arms.setdefault(arm.name, (arm, loaded))
            if known != arm:
                raise WorkloadError(
                    f"{loaded.where('arms', index)}: arm {arm.name!r} is defined otherwise in {where.path}; "
                    "one name means one configuration in a run"
                )
    return Experiment(tuple(workloads), spec, tuple(arm for arm, _ in arms.values()))


def check_resumable(experiment: Experiment, folder: RunFolder) -> None:
    """Check that the files still say what the run in the folder was started with.

    Raises:
        RunFolderError: naming the first workload and key that changed.
    """
    then = {item["name"]: item for item in folder.manifest["workloads"]}
    for loaded in experiment.workloads:
        now = describe_workload(loaded)
        before = then.get(now["name"])
        if before is None:
            raise RunFolderError(f"{folder.path} holds no workload {now['name']!r}; it has {', '.join(then)}")
        changed = [key for key in now if key not in ("path", "sha256", "description") and before.get(key) != now[key]]
        if changed:
            raise RunFolderError(
                f"{loaded.path} changed since {folder.path} was started ({', '.join(changed)}); "
                "a run cannot be continued on other input: restore the file or start a new run"
            )


async def run(
    experiment: Experiment, engine: Engine, folder: RunFolder, progress: Progress, salt_run: str = ""
) -> EngineError | None:
    """Run every cell that the folder does not hold yet; return why the engine ended the run early, ``None`` if it did not."""
    plans = _plans(experiment)
    done, attempts = folder.done_cells(), _attempts(folder)
    left = [key for key in plans if key not in done]
    progress.run_started([(key, plans[key].counted_steps) for key in left], len(done))
    by_name = {loaded.workload.name: loaded.workload for loaded in experiment.workloads}
    clock = MonotonicClock()
    stopped: EngineError | None = None
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.stop)
        await engine.start()
        folder.manifest["engine"] = await engine.describe()
        folder.write_manifest()
        client = await stack.enter_async_context(
            StreamClient(
                clock=clock,
                request_timeout_s=experiment.engine.request_timeout_s,
                max_requests_per_s=experiment.engine.max_requests_per_s,
                connections=experiment.slots,
            )
        )

        def sink(record: StepRecord, text: str | None, rounds: Sequence[Round] | None) -> None:
            folder.append_step(record, text, rounds)
            progress.step_ended(record)

        failed_in_a_row = 0
        try:
            for order, key in enumerate(plans):
                if key in done:
                    continue
                while True:
                    attempts[key] += 1
                    runner = CellRunner(
                        key, attempts[key], plans[key], by_name[key.workload], engine, client, clock, sink, salt_run
                    )
                    record, outcome = await _cell(runner, engine, progress, order)
                    folder.append_cell(record)
                    progress.cell_ended(record)
                    failed_in_a_row = 0 if outcome.counted_ok else failed_in_a_row + 1
                    if not outcome.engine_died:
                        break
                    progress.note(f"the server of arm {key.arm} ended; starting it again")
                    await engine.restart(key.arm)
                    if attempts[key] >= MAX_ATTEMPTS:
                        raise EngineUnreachable(
                            f"the server of arm {key.arm} ended twice in the same cell ({_name(key)})"
                        )
                if failed_in_a_row >= MAX_FAILED_CELLS:
                    raise EngineUnreachable(
                        f"no task succeeded in the last {failed_in_a_row} cells (arm {key.arm}: {record.error_message})"
                    )
        except EngineError as error:
            stopped = error
        if stopped is None:
            await _store_token_ids(folder, engine)
    folder.manifest["status"] = "complete" if stopped is None else f"stopped: {stopped}"
    folder.write_manifest()
    return stopped


async def _cell(runner: CellRunner, engine: Engine, progress: Progress, order: int) -> tuple[CellRecord, CellOutcome]:
    key, workload = runner.key, runner.workload
    policy = workload.replay.prompt_cache
    if policy == "reset" and not await engine.reset_prompt_cache(key.arm):
        policy = "shared"  # the server cannot empty its cache; the record says what really was
    before = await engine.counters(key.arm)
    progress.cell_started(key)
    outcome = await runner.run()
    after = None
    if not outcome.engine_died:
        try:
            await engine.drain(key.arm)
            after = await engine.counters(key.arm)
        except EngineError as error:  # the cell is kept; the next one meets the same server and ends the run
            progress.note(str(error))
    good = outcome.counted_ok > 0 and not outcome.engine_died
    message = None if good else "the server process ended" if outcome.engine_died else "every counted task failed"
    record = CellRecord(
        cell=key,
        attempt=runner.attempt,
        order=order,
        status="done" if good else "failed",
        start_ns=outcome.start_ns,
        end_ns=outcome.end_ns,
        counted_tasks=len(runner.plan.counted),
        cache_policy=policy,
        server_before=before,
        server_after=after,
        error_message=message,
    )
    return record, outcome


def _plans(experiment: Experiment) -> dict[CellKey, CellPlan]:
    plans: dict[CellKey, CellPlan] = {}
    for place, loaded in enumerate(experiment.workloads):
        workload = loaded.workload
        arms = [arm.name for arm in workload.arms]
        for key in cell_order(workload.name, arms, workload.concurrency, workload.repeats, place):
            steps, limit = workload.warm_up.steps, workload.tasks_per_cell
            plans[key] = plan_cell(loaded.tasks, key.concurrency, steps, workload.name, limit)
    return plans


def _attempts(folder: RunFolder) -> defaultdict[CellKey, int]:
    attempts: defaultdict[CellKey, int] = defaultdict(int)
    for record in folder.steps():
        attempts[record.cell] = max(attempts[record.cell], record.attempt)
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
