"""Damage in the files of a run folder is told with file and line, whatever is read from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import cli
from harness.errors import RunFolderError, UsageError
from harness.overrides import Overrides
from harness.records import Round
from harness.store import RunFolder
from tests.builders import ARM, cell, cell_key, run_folder, step, workload_entry


def whole(path: Path) -> RunFolder:
    """Return a run of two steps and two cells, with rounds."""
    keys = [cell_key(), cell_key(repeat=2)]
    run = run_folder(path, [], [cell(key) for key in keys], [workload_entry(repeats=2)])
    for key in keys:
        run.append_step(step(key), "text", [Round(1, 2, 1)])
    run.append_step(step(keys[0], "t2"), "another", [Round(1, 2, 1)])
    run.close()
    return run


@pytest.mark.parametrize("name", ["cells", "steps", "outputs", "rounds"])
@pytest.mark.parametrize("line", ['{"x": 1}', "[]", "7", "null", "{"])
def test_a_line_that_is_no_record_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, line: str
) -> None:
    """A report and a comparison end with exit code 2 and the line, never with a shorter run; rounds are read where steps tell them."""
    run = whole(tmp_path / "run")
    file = run.path / f"{name}.jsonl"
    lines = file.read_text().replace('"spec_source":null', '"spec_source":"round"').splitlines()
    file.write_text("\n".join([lines[0], line, *lines[1:], ""]))
    if name == "rounds":
        steps = run.steps_file().read_text()
        run.steps_file().write_text(steps.replace('"spec_source":null', '"spec_source":"round"'))
    for words in (["report", str(run.path)], ["compare", str(run.path), "--arms", f"baseline={ARM}"]):
        assert cli.run(words) == 2
        assert f"{file}:2: damaged line" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("cells", '"concurrency":1', '"concurrency":"one"', "concurrency is 'one'"),
        ("cells", '"status":"done"', '"status":"gone"', "status is 'gone'"),
        ("cells", '"before_num_draft_tokens":null,', "", "before_num_draft_tokens|num_draft_tokens"),
        ("cells", '"order":0', '"order":true', "order is True"),
        ("steps", '"task_id":"t1"', '"task_id":null', "task_id is None"),
        ("steps", '"due_ns":0', '"due_ns":0.5', "due_ns is 0.5"),
    ],
)
def test_a_value_of_another_type_is_named(tmp_path: Path, name: str, old: str, new: str, words: str) -> None:
    """The first line is whole JSON and no record: its key and value are told with the line."""
    run = whole(tmp_path / "run")
    file = run.path / f"{name}.jsonl"
    content = file.read_text()
    assert old in content
    file.write_text(content.replace(old, new, 1))
    with pytest.raises(RunFolderError, match=rf"{name}\.jsonl:1: damaged line \(.*({words})"):
        from harness.analysis.run import analyse

        analyse(RunFolder.open(run.path))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("workloads", {}, "workloads: input should be a valid list"),
        ("engine", [], "engine: input should be"),
        ("machine", [1], "machine: input should be a valid dictionary"),
        ("argv", "run", "argv: input should be a valid list"),
        ("created", 5, "created: input should be a valid string"),
        ("overrides", [], "overrides: input should be a valid dictionary"),
    ],
)
def test_a_manifest_of_another_form_is_told_with_its_line(tmp_path: Path, key: str, value: object, words: str) -> None:
    """A list for an object, or the other way round: the line is that of the key."""
    run = whole(tmp_path / "run")
    run.manifest[key] = value
    run.write_manifest()
    lines = (run.path / "manifest.json").read_text().splitlines()
    line = 1 + next(number for number, text in enumerate(lines) if text.startswith(f'  "{key}"'))
    with pytest.raises(RunFolderError) as caught:
        RunFolder.open(run.path)
    assert f"manifest.json:{line}: damaged ({words}" in str(caught.value)


def test_a_key_deep_in_a_manifest_is_told_with_its_line(tmp_path: Path) -> None:
    """The arms of the workload are a number: the line is that of the arms, and the place is spelled out."""
    run = whole(tmp_path / "run")
    run.manifest["workloads"][0]["arms"] = 5
    run.write_manifest()
    lines = (run.path / "manifest.json").read_text().splitlines()
    line = 1 + next(number for number, text in enumerate(lines) if '"arms": 5' in text)
    with pytest.raises(RunFolderError, match=rf"manifest\.json:{line}: damaged \(workloads\.0\.arms: "):
        RunFolder.open(run.path)


@pytest.mark.parametrize(
    ("content", "line"),
    [(b'{\n"format": 1,\n]', 3), (b'{\n"format": "\xff"}', 2), (b'{"format":' + b"9" * 5000 + b"}", 1)],
    ids=["json", "utf-8", "number"],
)
def test_a_manifest_that_is_no_json_is_told_with_its_line(tmp_path: Path, content: bytes, line: int) -> None:
    """The line is where reading stopped."""
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(RunFolderError, match=rf"manifest\.json:{line}: damaged"):
        RunFolder.open(tmp_path)


def test_a_run_whose_manifest_lacks_what_continuing_needs_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and what is lacking."""
    run = whole(tmp_path / "run")
    assert "overrides" not in run.manifest
    assert cli.run(["run", "--resume", str(run.path)]) == 2
    assert "lacks overrides, salt" in capsys.readouterr().err


def test_overrides_of_another_form_are_refused() -> None:
    """What a run wrote comes back; anything else is said to be none."""
    given = Overrides(concurrency=(1, 4), slo={"ttft_p90": "2s"})
    assert Overrides.from_json(json.loads(json.dumps(given.to_json()))) == given
    without = given.to_json()
    del without["slo"]  # as versions before this wrote them
    assert Overrides.from_json(without) == Overrides(concurrency=(1, 4))
    for other in ({"concurrency": None}, given.to_json() | {"slo": ["ttft_p90"]}):
        with pytest.raises(UsageError, match="overrides are not as a run writes them"):
            Overrides.from_json(other)
