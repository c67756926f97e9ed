"""The schedule: which cell runs when and what it starts, without clock or network."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from harness.records import CellKey
from harness.replay.schedule import Instance, block_order, cell_order, plan_cell, salt
from harness.tasks import Message, Prefix, Step, Task
from harness.workload import Workload

PREFIX = Prefix("p", "system", ())
STEP = Step("plan", "en", (Message("user", "go"),), Message("assistant", "done"), 0.0, 32)


def tasks(count: int) -> list[Task]:
    """Return tasks t0, t1, … of two steps."""
    return [Task(f"t{i}", "title", "genre", "en", PREFIX, (STEP, STEP)) for i in range(count)]


def test_arms_alternate_inside_each_concurrency() -> None:
    """Two repeats of two arms run A B B A at one concurrency, B A A B at the next."""
    order = cell_order("w", ["A", "B"], [1, 4], 2)
    assert [(key.concurrency, key.arm) for key in order] == [
        (1, "A"), (1, "B"), (1, "B"), (1, "A"), (4, "B"), (4, "A"), (4, "A"), (4, "B"),
    ]  # fmt: skip


def test_single_repeats_alternate_which_arm_comes_first() -> None:
    """With one repeat each arm comes first at every other concurrency, and at every other workload."""
    first = [key.arm for key in cell_order("w", ["A", "B"], [1, 4, 16], 1)][::2]
    second = [key.arm for key in cell_order("v", ["A", "B"], [1, 4, 16], 1, place=1)][::2]
    assert (first, second) == (["A", "B", "A"], ["B", "A", "B"])


def test_mean_position_of_every_arm_is_the_same() -> None:
    """Over an even number of repeats a linear drift meets all of three arms alike."""
    order = cell_order("w", ["A", "B", "C"], [1], 4)
    means = {arm: sum(i for i, key in enumerate(order) if key.arm == arm) / 4 for arm in "ABC"}
    assert set(means.values()) == {5.5}


def test_each_task_is_counted_once_when_there_are_enough() -> None:
    """Five tasks at concurrency 3 are five counted starts, each of another task."""
    plan = plan_cell(tasks(5), 3, 1, "w")
    assert sorted(instance.task.id for instance in plan.counted) == ["t0", "t1", "t2", "t3", "t4"]
    assert {instance.cycle for instance in plan.counted} == {0}
    assert plan.counted_steps == 10


def test_tasks_start_again_when_the_concurrency_exceeds_them() -> None:
    """Two tasks at concurrency 5 are counted five times, told apart by their cycle."""
    plan = plan_cell(tasks(2), 5, 0, "w")
    assert [instance.cycle for instance in plan.counted] == [0, 0, 1, 1, 2]
    assert len({(instance.task.id, instance.cycle) for instance in plan.counted}) == 5


def test_limit_never_goes_below_the_concurrency() -> None:
    """A limit of two tasks a cell still counts four at concurrency 4, and the lower cell's tasks are among them."""
    low, high = plan_cell(tasks(9), 1, 0, "w", 2), plan_cell(tasks(9), 4, 0, "w", 2)
    assert [len(low.counted), len(high.counted)] == [2, 4]
    assert [i.task.id for i in high.counted][:2] == [i.task.id for i in low.counted]


def test_warm_up_sends_single_steps() -> None:
    """A warm-up start sends one step; instance numbers go on without a gap into the counted and cool-down starts."""
    plan = plan_cell(tasks(2), 1, 3, "w")
    assert [instance.steps for instance in plan.warm_up] == [1, 1, 1]
    assert [instance.index for instance in (*plan.warm_up, *plan.counted, *islice(plan.cool_down(), 2))] == list(
        range(7)
    )


def test_cool_down_goes_on_with_new_cycles() -> None:
    """A task that was counted once returns in the cool-down as another cycle, so that its prompt is not in the cache."""
    plan = plan_cell(tasks(2), 2, 0, "w")
    assert [instance.cycle for instance in islice(plan.cool_down(), 4)] == [1, 1, 2, 2]


def test_salt_is_the_same_in_every_arm_and_differs_between_cells() -> None:
    """Arms see one prompt; another repeat, concurrency, cycle or warm-up sees another."""
    instance = Instance(0, "counted", tasks(1)[0], 0)
    arms = {salt("", CellKey("w", arm, 4, 1), instance) for arm in ("A", "B")}
    assert len(arms) == 1
    others = {
        salt("", CellKey("w", "A", 4, 2), instance),
        salt("", CellKey("w", "A", 1, 1), instance),
        salt("", CellKey("v", "A", 4, 1), instance),
        salt("", CellKey("w", "A", 4, 1), Instance(0, "warm_up", instance.task, 0)),
        salt("", CellKey("w", "A", 4, 1), Instance(0, "counted", instance.task, 1)),
        salt("run2", CellKey("w", "A", 4, 1), instance),
    }
    assert len(others | arms) == 7


def workload(name: str, concurrency: list[int], repeats: int = 2, arms: Sequence[str] = ("A", "B")) -> Workload:
    """Return a workload whose arms have servers of their own."""
    given = {"name": name, "tasks": "t.jsonl", "arms": [{"name": arm, "method": arm.lower()} for arm in arms]}
    return Workload.model_validate({**given, "concurrency": concurrency, "repeats": repeats})


def test_where_arms_are_restarts_they_alternate_in_blocks() -> None:
    """Two repeats are A B B A with three starts; a block runs the low load of every workload before the next load."""
    order = block_order([workload("v", [1, 4]), workload("w", [2])], per_arm=False)
    assert [(key.arm, key.repeat) for key in order[::3]] == [("A", 1), ("B", 1), ("B", 2), ("A", 2)]
    assert [(key.workload, key.concurrency) for key in order[:3]] == [("v", 1), ("w", 2), ("v", 4)]
    assert len(set(order)) == len(order) == 12


def test_per_arm_each_arm_runs_once() -> None:
    """One start an arm: all its loads and repeats, then the next arm; workloads may lack an arm or have fewer repeats."""
    order = block_order([workload("v", [1, 4]), workload("w", [1], repeats=1, arms=["B"])], per_arm=True)
    assert order == (
        CellKey("v", "A", 1, 1), CellKey("v", "A", 1, 2), CellKey("v", "A", 4, 1), CellKey("v", "A", 4, 2),
        CellKey("v", "B", 1, 1), CellKey("v", "B", 1, 2), CellKey("w", "B", 1, 1), CellKey("v", "B", 4, 1), CellKey("v", "B", 4, 2),
    )  # fmt: skip
