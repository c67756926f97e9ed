"""Loops, copies and texts of another language among the outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.analysis.outputs import is_echo, is_repetitive, prompts
from harness.analysis.plan import read_plan
from harness.tasks import Message, Prefix, Step, Task, read_tasks, tasks_sha256, write_tasks
from tests.analysis.test_language import DATA, KOREAN, written
from tests.builders import TEXT, workload_entry

LETTER = (
    "Dear Ms Haddad, a suitcase that arrives 31 hours late is exactly what this cover is for. Your purchases add up to "
    "418.00, of which your plan pays 400.00."
)


@pytest.mark.parametrize(
    "text", ["[메일] " * 30, LETTER + "\nThank you for your help." * 12, "def f():\n    pass\n" * 9]
)
def test_a_loop_at_the_end_is_repetitive(text: str) -> None:
    """A phrase over and over is a loop, whether it fills the text or begins after a good start."""
    assert is_repetitive(text)


@pytest.mark.parametrize("text", [LETTER, KOREAN, "no no no", ""])
def test_natural_and_short_texts_are_not(text: str) -> None:
    """A letter is no loop, and three words are too few to tell."""
    assert not is_repetitive(text)


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.stem)
def test_no_recorded_answer_loops_or_echoes(path: Path) -> None:
    """The bounds leave every recorded answer of the committed task files unflagged, program code included."""
    for task in read_tasks(path):
        for step in task.steps:
            text, given = written(step), "\n".join(message.content for message in step.messages)
            assert not is_repetitive(text), (task.id, text)
            assert not is_echo(text, given), (task.id, text)


def test_a_copy_of_the_prompt_is_an_echo() -> None:
    """The prompt's own sentences, line breaks aside, are a copy; a new sentence is not."""
    assert is_echo(LETTER.replace(". ", ".\n"), "Summarise:\n" + LETTER)
    assert not is_echo(TEXT, "Summarise:\n" + LETTER)


def workload_files(folder: Path) -> tuple[Path, Task]:
    """Write a workload of one task of one step and return the path of its YAML file and the task."""
    step = Step("reply", "en", (Message("user", LETTER),), Message("assistant", TEXT), 0.0, 50)
    task = Task("letter", "A letter", "mail", "en", Prefix("mail", "You answer mail.", ()), (step,))
    write_tasks(folder / "letter.jsonl", [task])
    path = folder / "letter.yaml"
    path.write_text(
        "name: office\ntasks: letter.jsonl\narms: [{name: baseline, method: none}]\nconcurrency: [1]\n",
        encoding="utf-8",
    )
    return path, task


def test_prompts_are_read_from_the_task_files(tmp_path: Path) -> None:
    """The own messages of each step are found under workload, task and step index."""
    path, task = workload_files(tmp_path)
    entry = workload_entry(path=str(path), task_ids=["letter"], tasks_sha256=tasks_sha256([task]))
    assert prompts(read_plan({"workloads": [entry]}), tmp_path) == ({("office", "letter", 0): LETTER}, {})


def test_changed_or_missing_task_files_give_no_prompts(tmp_path: Path) -> None:
    """Files that are gone or differ from the run's are not used, and it is said which: better unknown than wrong."""
    path, _ = workload_files(tmp_path)
    changed = workload_entry(path=str(path), task_ids=["letter"], tasks_sha256="f" * 64)
    gone = workload_entry("code", path=str(tmp_path / "gone.yaml"), task_ids=["letter"])
    unread = {"office": "task_files_changed", "code": "task_files_missing"}
    assert prompts(read_plan({"workloads": [changed, gone]}), tmp_path) == ({}, unread)
