"""Drafters measured in deployed form: a real run on a tiny target, killed and continued, and figures with known answers."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafters import reference
from drafters.specs import SpecError
from drafters.training import evaluate_input, evaluate_stage
from drafters.training.stage import StageError, read_manifest
from harness.tasks import write_tasks
from tests.drafters.engine.serving import random_folder
from tests.test_experiment import task


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights, so that outputs are lively."""
    return random_folder(tmp_path_factory.mktemp("target"))


def workload(folder: Path, **keys: Any) -> Path:
    """Write a workload for another engine with arms and thresholds of its own."""
    write_tasks(folder / "tasks.jsonl", [task(number) for number in range(5)])
    content = {
        "name": "w",
        "tasks": "tasks.jsonl",
        "engine": {"kind": "llamacpp", "model": "smollm2-135m", "context_tokens": 512},
        "arms": [{"name": "baseline", "method": "none"}, {"name": "copied", "method": "ngram-simple"}],
        "concurrency": [4],
        "repeats": 2,
        "slo": {"ttft_p90": "2s"},
        "thresholds": ["speed_up{arm=copied} > 1.2"],
        **keys,
    }
    path = folder / "w.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def words(target: Path, file: Path, out: Path, *more: str) -> list[str]:
    """Return the command line behind the stage's name."""
    asked = ["--drafter", "look=prompt_lookup,num_tokens=3,min_ngram=1", "--concurrency", "1,2"]
    return ["--target", str(target), "--workload", str(file), "--out", str(out), *asked, *more]


def evaluate(arguments: Sequence[str]) -> tuple[int, list[str]]:
    """Run the stage here; return its code and what it said."""
    parser = argparse.ArgumentParser()
    evaluate_stage.add_arguments(parser)
    said: list[str] = []
    return evaluate_stage.run(parser.parse_args(list(arguments)), said.append), said


def test_a_killed_evaluation_is_continued_and_measured_in_deployed_form(target: Path, tmp_path: Path) -> None:
    """Stopped once a cell is done, the same command runs only the others; figures come from the run, outputs are the baseline's."""
    out = tmp_path / "out"
    all_cells = 40  # arms x concurrencies x repeats: more than a fast machine gets done while the signal is on its way
    arguments = words(target, workload(tmp_path, repeats=10), out, "--weights", "plain")
    program = (
        "import argparse, signal, sys\nfrom drafters.training import evaluate_stage as stage\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\nparser = argparse.ArgumentParser()\n"
        "stage.add_arguments(parser)\n"
        "try: stage.run(parser.parse_args(sys.argv[1:]), lambda line: None)\nexcept KeyboardInterrupt: sys.exit(130)\n"
    )
    first = subprocess.Popen([sys.executable, "-c", program, *arguments])
    cells = out / "run" / "cells.jsonl"
    deadline = time.monotonic() + 120
    while not (cells.exists() and cells.read_bytes().count(b"\n")) and first.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 130
    before = cells.read_bytes().splitlines()
    assert 1 <= len(before) < all_cells
    assert not (out / "manifest.json").exists()

    code, said = evaluate(arguments)

    assert code == 0
    assert cells.read_bytes().splitlines()[: len(before)] == before
    assert len(cells.read_bytes().splitlines()) == all_cells
    assert any("--resume" in line for line in said)
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    look = report["arms"]["look"]
    assert look["identical_outputs"] == {"n_steps": 200, "n_identical": 200, "share": 1.0}
    assert look["acceptance_length"]["(all)"]["value"] >= 1
    assert set(look["acceptance_length"]) == {"(all)", "code", "en"}
    assert [point["concurrency"] for point in look["speed_up"]] == [1, 2]
    assert read_manifest(out, "evaluate").counts == {"arms": 2, "workloads": 1}
    written = yaml.safe_load((out / "workloads" / "w.yaml").read_text(encoding="utf-8"))
    assert written["engine"] == {
        "kind": "builtin", "model": str(target.resolve()), "threads": 1, "context_tokens": 512, "options": {"weights": "plain"},
    }  # fmt: skip
    assert written["tasks"] == [{"file": str(tmp_path / "tasks.jsonl")}]
    assert [arm["name"] for arm in written["arms"]] == ["baseline", "look"]
    assert not {"slo", "thresholds"} & set(written)
    again, said = evaluate(arguments)
    assert (again, said) == (0, [f"already evaluated; the figures are in {out / 'report.json'}"])
    with pytest.raises(StageError):
        evaluate([*arguments, "--limit-tasks", "2"])


def test_a_harness_that_refuses_leaves_the_folder_free(target: Path, tmp_path: Path) -> None:
    """Its complaint is passed on, and the corrected command may use the folder."""
    arguments = words(target, workload(tmp_path, warm_up={"steps": "many"}), tmp_path / "out")
    with pytest.raises(StageError, match=r"(?s)refused its input.*warm_up\.steps"):
        evaluate(arguments)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_refusal_of_the_harness_is_told_once_and_of_the_file_that_was_given(target: Path, tmp_path: Path) -> None:
    """Not among the progress as well, and not of the copy that the stage makes."""
    file = workload(tmp_path, warm_up={"steps": "many"})
    parser = argparse.ArgumentParser()
    evaluate_stage.add_arguments(parser)
    said: list[str] = []
    with pytest.raises(StageError) as caught:
        evaluate_stage.run(parser.parse_args(words(target, file, tmp_path / "out")), said.append)
    assert f"{file}: warm_up.steps" in str(caught.value)
    assert "error: " not in str(caught.value)
    assert str(tmp_path / "out") not in str(caught.value)
    assert not [line for line in said if "warm_up" in line]


def test_a_drafter_that_the_engine_refuses_leaves_the_folder_free(target: Path, tmp_path: Path) -> None:
    """The target's own weights are no Medusa heads: the path is named, and the engine's log does not block the folder."""
    out = tmp_path / "out"
    with pytest.raises(StageError, match=rf"(?s)refused its input.*{target}"):
        evaluate(words(target, workload(tmp_path), out, "--drafter", f"x=medusa,model={target}"))
    assert list(out.iterdir()) == []


def test_a_workload_given_twice_is_refused(target: Path, tmp_path: Path) -> None:
    """Before anything is written."""
    file = workload(tmp_path)
    with pytest.raises(StageError, match=r"w\.yaml is given twice"):
        evaluate([*words(target, file, tmp_path / "out"), "--workload", str(file)])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("drafter", "message"),
    [
        ("baseline=ngram", "the name 'baseline' is taken"),
        ("look=ngram", "the name 'look' is taken"),
        ("x=dflash2,model=/nowhere/at/all", "/nowhere/at/all does not exist"),
        ("x=ngramm", "unknown method 'ngramm' .did you mean 'ngram'"),
        ("x=ngram,ordr=3", "unknown key 'ordr'"),
        ("x=ngram,lengths=nonsense", "lengths is 'nonsense'; allowed: fixed, goodput"),
        ("ngram", "give NAME=METHOD"),
    ],
)
def test_a_drafter_that_cannot_be_is_refused_before_anything_is_written(
    target: Path, tmp_path: Path, drafter: str, message: str
) -> None:
    """What was given, and what is allowed."""
    with pytest.raises((StageError, SpecError), match=message):
        evaluate(words(target, workload(tmp_path), tmp_path / "out", "--drafter", drafter))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"- a list", b"name: w\n", b"\xff\xfe", b"name: [", b"name: w\ntasks: 3\n"])
def test_a_file_that_is_no_workload_is_refused(target: Path, tmp_path: Path, content: bytes) -> None:
    """Neither a list, nor a mapping without tasks, nor something that is no YAML."""
    file = tmp_path / "w.yaml"
    file.write_bytes(content)
    with pytest.raises(StageError, match=r"w\.yaml"):
        evaluate(words(target, file, tmp_path / "out"))


def test_a_target_that_is_none_is_refused(tmp_path: Path) -> None:
    """A folder without config.json."""
    with pytest.raises(StageError, match="is no Hugging Face folder"):
        evaluate(words(tmp_path, workload(tmp_path), tmp_path / "out"))


@pytest.mark.parametrize("config", ["[]", "3", "{"])
def test_a_config_that_is_no_object_is_refused(tmp_path: Path, config: str) -> None:
    """A list, a number and half a file are no configuration of a model."""
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    with pytest.raises(StageError, match="is no Hugging Face folder"):
        evaluate(words(tmp_path, workload(tmp_path), tmp_path / "out"))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"engine": "builtin"}, "engine is 'builtin'; give a mapping"),
        ({"replay": ["a"]}, r"replay is \['a'\]; give a mapping"),
        ({"replay": False}, "replay is False; give a mapping"),
        ({"engine": {"context_tokens": "4k"}}, "engine.context_tokens is '4k'; give a whole number"),
        ({"engine": {"context_tokens": None}}, "engine.context_tokens is None; give a whole number"),
        ({"tasks": [{"file": 3}]}, "tasks has .*give a file"),
        ({"tasks": []}, "tasks is .*give a file"),
    ],
)
def test_a_key_of_another_kind_is_refused(target: Path, tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    """The file, the key, what it is and what it may be."""
    with pytest.raises(StageError, match=rf"w\.yaml: {message}"):
        evaluate(words(target, workload(tmp_path, **keys), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_two_workload_files_of_one_name_are_refused_before_anything_is_written(target: Path, tmp_path: Path) -> None:
    """They would be written side by side; the corrected command may use the folder, since nothing is in it."""
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files.append(workload(tmp_path / name))
    with pytest.raises(StageError, match=r"two workload files are called w\.yaml"):
        evaluate([*words(target, files[0], tmp_path / "out"), "--workload", str(files[1])])
    assert not (tmp_path / "out").exists()


def test_task_files_of_one_name_keep_a_hash_each(tmp_path: Path) -> None:
    """Two workloads in two folders, each with its tasks.jsonl: both decide the outcome."""
    contents = {tmp_path / f"{n}.yaml": {"tasks": [{"file": str(tmp_path / n / "tasks.jsonl")}]} for n in ("a", "b")}
    found = evaluate_input.input_files(tmp_path, contents, [])
    assert {path.parent.name for path in found.values() if path.name == "tasks.jsonl"} == {"a", "b"}
    assert len(found) == 5


@pytest.fixture
def shipped(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder laid out as the models that come with the package."""
    place = tmp_path / "shipped"
    place.mkdir()
    for name in ("ref-koen", "public-draft"):
        (place / name).symlink_to(target, target_is_directory=True)
    (place / "ngram").mkdir()
    (place / "ngram" / "corpus.txt").write_text("1 2 3\n", encoding="utf-8")
    monkeypatch.setenv("SPEC_HARNESS_REFERENCE", str(place))
    return place


def test_shipped_models_are_given_by_name(shipped: Path, tmp_path: Path) -> None:
    """The target keeps its name, so that the run tells which it was; drafters become the paths where they are."""
    folder = evaluate_input.target_folder(Path("ref-koen"))
    assert folder == shipped / "ref-koen"
    arms = evaluate_input.read_arms(["a=draft_model,model=ref:public-draft", "b=ngram,corpus=ref:ngram"])
    assert arms[0]["options"]["model"] == str(shipped / "public-draft")
    assert arms[1]["options"]["corpus"] == str(shipped / "ngram" / "corpus.txt")
    file = workload(tmp_path)
    parser = argparse.ArgumentParser()
    evaluate_stage.add_arguments(parser)
    options = parser.parse_args(words(Path("ref-koen"), file, tmp_path / "out"))
    assert evaluate_input.read_workloads([file], options, folder, arms)[file]["engine"]["model"] == "ref-koen"


def test_a_shipped_name_that_is_not_there_is_refused(shipped: Path, tmp_path: Path) -> None:
    """With what there is; a missing target says so too."""
    asked = words(
        Path("ref-koen"), workload(tmp_path), tmp_path / "out", "--drafter", "x=draft_model,model=ref:publik-draft"
    )
    with pytest.raises(StageError, match="did you mean ref:public-draft"):
        evaluate(asked)
    (shipped / "ref-koen").unlink()
    with pytest.raises(StageError, match="--target ref-koen: ref-koen is not in this installation"):
        evaluate(words(Path("ref-koen"), workload(tmp_path), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_help_loads_no_torch() -> None:
    """The stage reads files and starts a process; it needs no tensor."""
    code = "import sys; from drafters.training import evaluate_stage; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False).returncode == 0


def test_a_shipped_drafter_stands_in_the_workload_by_its_name(target: Path, tmp_path: Path) -> None:
    """So a run tells which it was, on every machine; its files are what is hashed. On another target than its own it stands by its
    path: by its name a run would leave it out."""
    parser = argparse.ArgumentParser()
    evaluate_stage.add_arguments(parser)
    file, path = workload(tmp_path), str(reference.drafter("public-dflash2"))
    for given, model in ((reference.target(), "ref:public-dflash2"), (target, path)):
        asked = words(given, file, tmp_path / "out", "--drafter", "ref=dflash2,model=ref:public-dflash2,num_tokens=7")
        options = parser.parse_args(asked)
        arms = evaluate_input.read_arms(options.drafter)
        (content,) = evaluate_input.read_workloads([file], options, given, arms).values()
        (arm,) = (item for item in content["arms"] if item["name"] == "ref")
        assert arm["options"] == {"model": model, "num_tokens": 7}
    assert evaluate_input.input_files(target, {}, arms)["drafter ref: model"] == reference.drafter("public-dflash2")


def test_an_arm_that_was_not_measured_is_told(tmp_path: Path) -> None:
    """A run without it in its summary is an error, not a figure that is unknown."""
    (tmp_path / "summary.csv").write_text("arm,n_steps\nbaseline,3\nnew,3\n", encoding="utf-8")
    evaluate_stage.check_arms(tmp_path, ["baseline", "new"])
    with pytest.raises(StageError, match="nothing was measured of old; its messages above say why"):
        evaluate_stage.check_arms(tmp_path, ["baseline", "old", "new"])
