"""Workload files of one run put together: one set of servers for all of them, and all cells in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from harness.engines import flags
from harness.errors import RunFolderError, WorkloadError
from harness.manifest import describe_workload
from harness.records import CellKey
from harness.replay.schedule import CellPlan, block_order, cell_order, plan_cell
from harness.store import RunFolder
from harness.workload import Arm, EngineSpec, LoadedWorkload, Workload

# of a workload's description; what is told of single tasks stands in tasks_sha256 too
NOT_INPUT = frozenset({"path", "path_from_run", "sha256", "description", "genres", "task_sha256"})


@dataclass(frozen=True, slots=True)
class Experiment:
    """The workloads of one run with the one set of servers they share: an arm of a name is the same in every workload."""

    workloads: tuple[LoadedWorkload, ...]
    engine: EngineSpec
    arms: tuple[Arm, ...]

    @property
    def attached(self) -> bool:
        """Whether any server is one that was up already, on this machine or another."""
        return self.engine.base_url is not None or any(arm.base_url is not None for arm in self.arms)

    @property
    def slots(self) -> int:
        """How many requests a server must take at once."""
        return max(max(loaded.workload.concurrency) for loaded in self.workloads)

    @property
    def flag_differences(self) -> list[dict[str, Any]]:
        """In what the command lines of the arms' servers differ, as a manifest has it; known before any of them is started."""
        launches = [launch for arm in self.arms if (launch := self.engine.launch_for(arm)) is not None]
        return [item.to_json() for item in flags.differences([flags.from_command(launch) for launch in launches])]

    @property
    def one_server_at_a_time(self) -> bool:
        """Whether the arms' servers are started one after the other, because they do not fit side by side."""
        launches = [launch for arm in self.arms if (launch := self.engine.launch_for(arm)) is not None]
        return len(self.arms) > 1 and not all(launch.side_by_side for launch in launches)


def combine(workloads: Sequence[LoadedWorkload]) -> Experiment:
    """Check that workload files can share one run.

    Raises:
        WorkloadError: with file and line, if two files have one name, or differ in engine, order or what an arm name means.
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
        if loaded.workload.order != first.workload.order:
            raise WorkloadError(
                f"{loaded.where('order')}: order is {loaded.workload.order}, that of {first.path} is {first.workload.order}; files of "
                "one run share one order: make them equal or run them apart"
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
        now = describe_workload(loaded, folder.path)
        before = then.get(now["name"])
        if before is None:
            raise RunFolderError(f"{folder.path} holds no workload {now['name']!r}; it has {', '.join(then)}")
        before |= _with_defaults(before)
        changed = [key for key in now if key not in NOT_INPUT and before.get(key) != now[key]]
        if changed:
            raise RunFolderError(
                f"{loaded.path} changed since {folder.path} was started ({', '.join(changed)}); "
                "a run cannot be continued on other input: restore the file or start a new run"
            )


def _with_defaults(described: dict[str, Any]) -> dict[str, Any]:
    """Return the workload's own keys of a description; a key that came after it was written has its default."""
    try:
        own = {key: described[key] for key in Workload.model_fields if key in described}
        return Workload.model_validate(own).model_dump(mode="json")
    except ValidationError:
        return {}  # written by hand or by another version: compared as it stands


def planned_cells(experiment: Experiment) -> dict[CellKey, CellPlan]:
    """Return all cells in the order in which they run."""
    by_name = {loaded.workload.name: loaded for loaded in experiment.workloads}
    return {key: _plan(by_name[key.workload], key.concurrency) for key in _order(experiment)}


def _order(experiment: Experiment) -> Iterable[CellKey]:
    """Return the cells in order: the lowest load of every workload, then the next load of every workload.

    A run that is cut short so has whole loads of all workloads rather than all loads of some. Where arms cannot alternate inside a
    load, that order holds inside each block of an arm.
    """
    workloads = [loaded.workload for loaded in experiment.workloads]
    per_arm = workloads[0].order == "per_arm"
    if per_arm or experiment.one_server_at_a_time:
        return block_order(workloads, per_arm=per_arm)
    order = [
        (workload.concurrency.index(key.concurrency), place, key)
        for place, workload in enumerate(workloads)
        for key in cell_order(
            workload.name, [arm.name for arm in workload.arms], workload.concurrency, workload.repeats, place
        )
    ]
    return [key for _, _, key in sorted(order, key=lambda item: item[:2])]


def _plan(loaded: LoadedWorkload, concurrency: int) -> CellPlan:
    workload = loaded.workload
    tasks = [replace(task, steps=task.steps[: workload.steps_per_task]) for task in loaded.tasks]
    return plan_cell(tasks, concurrency, workload.warm_up.steps, workload.name, workload.tasks_per_cell)
