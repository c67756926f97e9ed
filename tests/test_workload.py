"""Workload files: every complaint names file and line, what was given and what is allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import UsageError, WorkloadError
from harness.overrides import Overrides, apply
from harness.workload import load
from tests.test_tasks import PREFIX, TASK

GOOD = """\
name: small
tasks: tasks.jsonl
engine:
  kind: llamacpp
  model: smollm2-135m
arms:
  - {name: baseline, method: none}
  - name: drafted
    method: ngram-map-k
    options: {size_n: 3}
concurrency: [1, 4]
repeats: 2
replay: {history: recorded}
sampling: {temperature: 0.0}
"""


def written(folder: Path, text: str) -> Path:
    """Write a workload file beside a file of one task."""
    (folder / "tasks.jsonl").write_text(json.dumps(PREFIX) + "\n" + json.dumps(TASK) + "\n", encoding="utf-8")
    path = folder / "w.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_good_file(tmp_path: Path) -> None:
    """A good file gives the workload, its tasks and the line of any key."""
    loaded = load(written(tmp_path, GOOD))
    assert loaded.workload.concurrency == [1, 4]
    assert loaded.workload.baseline is not None
    assert loaded.workload.baseline.name == "baseline"
    assert [task.id for task in loaded.tasks] == ["t1"]
    assert loaded.where("arms", 1, "method") == f"{tmp_path / 'w.yaml'}:9"
    assert loaded.where("arms", 1, "options", "size_m") == f"{tmp_path / 'w.yaml'}:10"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (
            "repeats: 2",
            "repeat: 2",
            12,
            "unknown key 'repeat'; did you mean 'repeats'? allowed: name, description, tasks",
        ),
        ("{history: recorded}", "{histroy: recorded}", 13, "unknown key 'replay.histroy'; did you mean 'history'?"),
        ("  model: smollm2-135m", "  model: 3", 5, "engine.model is 3: input should be a valid string"),
        ("repeats: 2", "repeats: two", 12, "repeats is 'two'"),
        ("repeats: 2", "repeats: 2\nrepeats: 3", 13, "key 'repeats' appears twice"),
        ("tasks: tasks.jsonl", "tasks: other.jsonl", 2, "task file 'other.jsonl' does not exist"),
        ("tasks: tasks.jsonl", "tasks: []", 2, "tasks is empty"),
        ("tasks: tasks.jsonl", "tasks: [{file: tasks.jsonl, take: 2}]", 2, "take is 2, but tasks.jsonl holds 1 tasks"),
        ("  - name: drafted", "  - name: baseline", 8, "arms has 'baseline' twice"),
        ("    method: ngram-map-k", "    method: none", 9, "a second arm with method none"),
        ("[1, 4]", "[0, 4]", 11, "concurrency.0 is 0: input should be greater than or equal to 1"),
        ("[1, 4]", "[4, 4]", 11, "concurrency has 4 twice"),
        ("[1, 4]", "[]", 11, "concurrency is []"),
        ("[1, 4]", "[1, 4", 12, "not YAML"),
        ("name: small\n", "", 1, "key 'name' is missing"),
        ("{temperature: 0.0}", "{temperature: -1}", 14, "sampling.temperature is -1"),
        ("history: recorded", "history: invented", 13, "input should be 'recorded' or 'live'"),
    ],
)
def test_bad_files(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    """Each kind of mistake is told at its own line in words that say what to do."""
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(WorkloadError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"), [("", "not an empty file"), ("- a\n", "not list"), ("just text\n", "not str")]
)
def test_files_that_are_no_mapping(tmp_path: Path, content: str, words: str) -> None:
    """A file that is empty or holds no mapping is told which keys a workload has."""
    with pytest.raises(WorkloadError, match=words):
        load(written(tmp_path, content))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\x1bb\n", "w.yaml:1: a control character"),
        ("name: x\ndescription: 2026-13-01\n", "not YAML"),
        ("name: &a [*a]\n", "anchor"),
        ("name: x\nengine: {max_requests_per_s: .inf}\n", "finite"),
    ],
)
def test_yaml_that_breaks_readers(tmp_path: Path, text: str, words: str) -> None:
    """Control characters, dates that are none, endless anchors and infinities are told, not crashed on."""
    with pytest.raises(WorkloadError, match=words):
        load(written(tmp_path, text))


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    """Two mistakes give two lines, so that one run of the check is enough."""
    path = written(tmp_path, GOOD.replace("repeats: 2", "repeats: 0").replace("kind: llamacpp", "kind: llama"))
    with pytest.raises(WorkloadError) as caught:
        load(path)
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == [f"{path}:4", f"{path}:12"]


def test_arm_may_be_called_off(tmp_path: Path) -> None:
    """YAML 1.1 would read ``off`` as false; a workload keeps it as the word it is."""
    loaded = load(written(tmp_path, GOOD.replace("name: drafted", "name: off")))
    assert loaded.workload.arms[1].name == "off"


def test_overrides_change_only_what_they_name(tmp_path: Path) -> None:
    """An override replaces its key and leaves the rest of the file."""
    loaded = load(written(tmp_path, GOOD))
    workload = apply(loaded, Overrides(concurrency=(2,), arms=("drafted", "baseline"), limit_tasks=1)).workload
    assert workload.concurrency == [2]
    assert [arm.name for arm in workload.arms] == ["drafted", "baseline"]
    assert workload.tasks_per_cell == 1
    assert workload.repeats == 2


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (Overrides(concurrency=(0,)), "--concurrency is 0: input should be greater than or equal to 1"),
        (Overrides(concurrency=(4, 4)), "--concurrency 4,4 names a value twice"),
        (Overrides(arms=("drafte",)), "no arm 'drafte'; did you mean 'drafted'? its arms: baseline, drafted"),
        (Overrides(engine="vlm"), "--engine is 'vlm': input should be 'llamacpp'"),
        (Overrides(limit_tasks=0), "--limit-tasks is 0"),
        (Overrides(repeats=-1), "--repeats is -1"),
    ],
)
def test_bad_overrides(tmp_path: Path, overrides: Overrides, words: str) -> None:
    """A bad value on the command line is told by the name of its option."""
    with pytest.raises(UsageError) as caught:
        apply(load(written(tmp_path, GOOD)), overrides)
    assert words in str(caught.value)
