"""The committed workloads: enough of them, of the stated shape, no near-copies, labels that a detector confirms."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from harness.analysis.language import agrees
from harness.overrides import Overrides, apply
from harness.prepare import experiment_of
from harness.tasks import Message, Task, read_tasks
from harness.workload import KINDS, REMOTE_KINDS, load

FOLDER = Path(__file__).parent.parent / "workloads"
FILES = sorted((FOLDER / "data").glob("*.jsonl"))
OWN_KINDS = [kind for kind in KINDS if kind not in REMOTE_KINDS]
YAML = [(path, load(path).workload.engine.kind) for path in sorted(FOLDER.glob("**/*.yaml"))]
# a file for a server that the package does not start names that server's own drafters
ATTACHED = FOLDER / "servers" / "llama-server"
ON_ENGINES = [
    (path, kind)
    for path, own in YAML
    for kind in ([own] if own in REMOTE_KINDS or path.parent == ATTACHED else OWN_KINDS)
]
SHORT = [path for path in FILES if not path.stem.endswith("-long")]
GRAM = 8  # words; shorter runs are shared by any two documents of one form (approval phrases, greetings)
MAX_SHARED = 0.05  # of the smaller text; two independent memos on one form stay below 2 %


def answer(message: Message) -> str:
    """Return what the assistant wrote, arguments of its calls included."""
    return message.content + " ".join(call.arguments for call in message.tool_calls)


def text(task: Task) -> str:
    """Return all text of a task."""
    parts = [m.content for step in task.steps for m in step.messages] + [answer(step.recorded) for step in task.steps]
    return "\n".join(parts)


def grams(words: str) -> set[tuple[str, ...]]:
    """Return the runs of eight words."""
    found = re.findall(r"\w+", words)
    return {tuple(found[i : i + GRAM]) for i in range(len(found) - GRAM + 1)}


def all_tasks() -> list[Task]:
    """Return every committed task."""
    return [task for path in FILES for task in read_tasks(path)]


def shared(one: set[tuple[str, ...]], two: set[tuple[str, ...]]) -> float:
    """Return the share of the smaller set that both hold."""
    return len(one & two) / max(1, min(len(one), len(two)))


def test_there_are_enough_tasks() -> None:
    """At least 72 tasks in all, in six files, every name once."""
    tasks = all_tasks()
    assert len(FILES) >= 6
    assert len(tasks) >= 72
    assert len({task.id for task in tasks}) == len(tasks)


@pytest.mark.parametrize("path", SHORT, ids=lambda path: path.stem)
def test_sizes_fit_two_cores(path: Path) -> None:
    """Tasks of the everyday workloads have 3 to 8 steps and ask for at most 160 tokens a step."""
    for task in read_tasks(path):
        assert 3 <= len(task.steps) <= 8, task.id
        assert all(32 <= step.max_tokens <= 160 for step in task.steps), task.id


def test_no_near_copies() -> None:
    """No two tasks share more than a twentieth of their runs of eight words."""
    sets = [(task.id, grams(text(task))) for task in all_tasks()]
    copies = [(a, b) for (a, x), (b, y) in itertools.combinations(sets, 2) if shared(x, y) > MAX_SHARED]
    assert copies == []


def test_the_overlap_measure_sees_a_copy() -> None:
    """A task with its numbers changed is caught by the measure that the committed tasks pass."""
    task = all_tasks()[0]
    assert shared(grams(text(task)), grams(re.sub(r"\b1\b", "2", text(task)))) > MAX_SHARED


def test_language_labels_hold() -> None:
    """The detector confirms at least 95 in 100 of the language labels."""
    steps = [(task.id, index, step) for task in all_tasks() for index, step in enumerate(task.steps)]
    wrong = [
        (task, index, step.language) for task, index, step in steps if not agrees(step.language, answer(step.recorded))
    ]
    assert len(wrong) <= 0.05 * len(steps), wrong


def test_tool_calls_follow_their_schemas() -> None:
    """Every recorded call has the required arguments and no unknown ones."""
    for task in all_tasks():
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in task.prefix.tools}
        for call in (call for step in task.steps for call in step.recorded.tool_calls):
            arguments, schema = json.loads(call.arguments), schemas[call.name]
            assert set(schema.get("required", [])) <= set(arguments) <= set(schema["properties"]), (task.id, call)


def test_tool_waits_are_recorded_where_tools_are_called() -> None:
    """A step waits for tools if and only if it calls one."""
    assert all((step.tool_wait_s > 0) == bool(step.recorded.tool_calls) for task in all_tasks() for step in task.steps)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("**/*.yaml")), ids=lambda path: path.stem)
def test_every_workload_file_is_good(path: Path) -> None:
    """Each committed YAML file passes its own check, also in the quick profile, and has a baseline to compare with."""
    loaded = load(path)
    assert loaded.workload.name == path.stem
    assert loaded.workload.baseline is not None
    assert apply(loaded, Overrides(quick=True)).workload.tasks_per_cell == 5


@pytest.mark.parametrize(("path", "kind"), ON_ENGINES, ids=[f"{path.stem}-{kind}" for path, kind in ON_ENGINES])
def test_every_workload_file_is_for_its_engines(path: Path, kind: str) -> None:
    """Each committed YAML file passes the check of each of its engines and has a baseline and something to compare there."""
    methods = [arm.method for arm in experiment_of([path], Overrides(engine=kind)).arms]
    assert methods[0] == "none"
    assert len(methods) >= 2


def test_all_everyday_workloads_make_one_run() -> None:
    """The files beside each other share engine and arms, so that one run can take them all."""
    for kind in OWN_KINDS:
        plan = experiment_of(sorted(FOLDER.glob("*.yaml")), Overrides(engine=kind))
        assert len(plan.workloads) == 6
