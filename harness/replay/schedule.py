"""Which cell runs when, and which tasks a cell starts in which order. Pure: no clock, no network.

Cells alternate between arms inside each concurrency (A B B A over two repeats), so that a slow drift of the machine meets every
arm alike; where a change of arms is a restart of servers they alternate in longer blocks, or not at all. All arms of a cell position
get the same task instances in the same order with the same prompts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from harness.records import CellKey, Phase
from harness.tasks import Task
from harness.workload import Workload


@dataclass(frozen=True, slots=True)
class Instance:
    """One start of a task in a cell. ``cycle`` counts how often the cell has started this task before."""

    index: int
    phase: Phase
    task: Task
    cycle: int

    @property
    def steps(self) -> int:
        """How many steps this instance sends: one in the warm-up, all of the task otherwise."""
        return 1 if self.phase == "warm_up" else len(self.task.steps)


@dataclass(frozen=True, slots=True)
class CellPlan:
    """What a cell runs: warm-up steps, then the counted tasks; after them tasks go on to keep the load until the last counted ends."""

    warm_up: tuple[Instance, ...]
    counted: tuple[Instance, ...]
    tasks: tuple[Task, ...]

    def cool_down(self) -> Iterator[Instance]:
        """Yield the tasks started once no counted one is left to start; without end."""
        first = len(self.warm_up) + len(self.counted)
        for offset in count():
            position = len(self.counted) + offset
            yield Instance(
                first + offset, "cool_down", self.tasks[position % len(self.tasks)], position // len(self.tasks)
            )

    @property
    def counted_steps(self) -> int:
        """How many rows the counted tasks will have."""
        return sum(instance.steps for instance in self.counted)


def cell_order(
    workload: str, arms: Sequence[str], concurrencies: Sequence[int], repeats: int, place: int = 0
) -> tuple[CellKey, ...]:
    """Return the cells of one workload in the order in which they run.

    Arms run forward and backward in turn over the repeats of a concurrency. Which of the two comes first alternates from one concurrency
    to the next (and by ``place``, from one workload to the next), so that even single repeats do not always favour the same arm.
    """
    return tuple(
        CellKey(workload, arm, concurrency, repeat + 1)
        for position, concurrency in enumerate(concurrencies, start=place)
        for repeat in range(repeats)
        for arm in (tuple(reversed(arms)) if (position + repeat) % 2 else arms)
    )


def block_order(workloads: Sequence[Workload], *, per_arm: bool) -> tuple[CellKey, ...]:
    """Return the cells of all workloads where a change of arms is a restart of servers: as few of them as the order allows.

    One block an arm and repeat, the arms forward and backward in turn (A B B A); with ``per_arm`` one block an arm. A block runs the
    lowest load of every workload, then the next load of every workload.
    """
    arms = list(dict.fromkeys(arm.name for workload in workloads for arm in workload.arms))
    repeats = range(1, max(workload.repeats for workload in workloads) + 1)
    if per_arm:
        blocks = [(arm, repeats) for arm in arms]
    else:
        turns = ((repeat, arms if repeat % 2 else reversed(arms)) for repeat in repeats)
        blocks = [(arm, range(repeat, repeat + 1)) for repeat, turn in turns for arm in turn]
    return tuple(
        CellKey(workload.name, arm, workload.concurrency[position], repeat)
        for arm, own in blocks
        for position in range(max(len(workload.concurrency) for workload in workloads))
        for workload in workloads
        if position < len(workload.concurrency) and any(arm == one.name for one in workload.arms)
        for repeat in own
        if repeat <= workload.repeats
    )


def plan_cell(
    tasks: Sequence[Task], concurrency: int, warm_up_steps: int, seed: str, limit: int | None = None
) -> CellPlan:
    """Return what one cell runs.

    ``limit`` tasks are counted (all where it is ``None``), and never fewer than are in progress at once; where a workload has too few
    for that, they start again. The order is shuffled by ``seed`` (the workload's name), so that kinds of tasks mix and the tasks of a
    lower concurrency are among those of a higher one.
    """
    shuffled = list(tasks)
    random.Random(seed).shuffle(shuffled)

    def instance(phase: Phase, index: int, position: int) -> Instance:
        return Instance(index, phase, shuffled[position % len(shuffled)], position // len(shuffled))

    counted = max(min(limit or len(shuffled), len(shuffled)), concurrency)
    return CellPlan(
        warm_up=tuple(instance("warm_up", i, i) for i in range(warm_up_steps)),
        counted=tuple(instance("counted", warm_up_steps + i, i) for i in range(counted)),
        tasks=tuple(shuffled),
    )


def salt(run: str, key: CellKey, instance: Instance) -> str:
    """Return the label in front of the system prompt that keeps one cell's prompts out of another's cache.

    It leaves the arm out: every arm must see the same prompt. ``run`` is empty for servers that the run starts itself, so that two
    runs send the same prompts, and a stamp for servers that were already up and may remember an earlier run.
    """
    phase = "w" if instance.phase == "warm_up" else ""
    label = f"{key.workload} {key.concurrency}-{key.repeat}-{phase}{instance.cycle}"
    return f"{run} {label}" if run else label
