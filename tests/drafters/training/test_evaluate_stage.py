"""Drafters measured in deployed form: a real run on a tiny target, killed and continued, and figures with known answers."""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafters.specs import SpecError
from drafters.training import evaluate_stage
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
    arguments = words(target, workload(tmp_path), out, "--weights", "plain")
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
    assert 1 <= len(before) < 8
    assert not (out / "manifest.json").exists()

    code, said = evaluate(arguments)

    assert code == 0
    assert cells.read_bytes().splitlines()[: len(before)] == before
    assert len(cells.read_bytes().splitlines()) == 8
    assert any("--resume" in line for line in said)
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    look = report["arms"]["look"]
    assert look["identical_outputs"] == {"n_steps": 40, "n_identical": 40, "share": 1.0}
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


@pytest.mark.parametrize(
    ("drafter", "message"),
    [
        ("baseline=ngram", "the name 'baseline' is taken"),
        ("look=ngram", "the name 'look' is taken"),
        ("x=dflash2,model=/nowhere/at/all", "/nowhere/at/all does not exist"),
        ("x=ngramm", "unknown method 'ngramm' .did you mean 'ngram'"),
        ("x=ngram,ordr=3", "unknown key 'ordr'"),
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


def table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as the harness writes its CSV files, unknown as an empty field."""
    with path.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), restval="")
        writer.writeheader()
        writer.writerows(rows)


def test_headline_figures_are_those_of_the_files(tmp_path: Path) -> None:
    """Acceptance by language over all workloads, speed-up of the steady window, 39 of 40 outputs, a break-even with its interval."""
    figure = {
        "acceptance_length": 2.5,
        "acceptance_length_low": 2.25,
        "acceptance_length_high": 2.75,
        "tokens_per_pass": 2,
    }
    place = {"arm": "a", "genre": "(all)", "concurrency": "(all)", "n_tasks": 6, "n_steps": 12, **figure}
    table(
        tmp_path / "drafters.csv",
        [
            {"workload": "(all)", "language": "ko", **place},
            {"workload": "w", "language": "(all)", **place, "acceptance_length_low": ""},
            {"workload": "(all)", "language": "ko", **place, "genre": "mail", "acceptance_length": 9},
            {"workload": "(all)", "language": "ko", **place, "concurrency": "1", "acceptance_length": 9},
        ],
    )
    speed_up = {
        "workload": "w",
        "arm": "a",
        "concurrency": 4,
        "speed_up": 1.5,
        "speed_up_low": 1.25,
        "speed_up_high": "",
    }
    table(tmp_path / "speed_up.csv", [speed_up | {"window": window} for window in ("steady", "whole")])
    table(tmp_path / "lossless.csv", [{"arm": "a", "n_steps": 20, "n_identical": n} for n in (20, 19)])
    verdict = {"break_even": 8, "break_even_low": 4, "break_even_high": ""}
    table(
        tmp_path / "verdicts.csv", [{"workload": "w", "arm": "a", "side": "crossed", "certainty": "limited", **verdict}]
    )
    finding = {"code": "counters_mismatch", "workload": "w", "arm": "a", "values": "{}"}
    table(tmp_path / "findings.csv", [finding | {"severity": severity} for severity in ("invalid", "note")])

    report = evaluate_stage.figures(tmp_path, ["a"])

    arm = report["arms"]["a"]
    told = {"value": 2.5, "low": 2.25, "high": 2.75, "n_tasks": 6, "n_steps": 12, "tokens_per_pass": 2}
    assert arm["acceptance_length"] == {"ko": told}
    assert arm["acceptance_length_by_workload"] == {"w": told | {"low": None}}
    assert arm["speed_up"] == [{"workload": "w", "concurrency": 4, "value": 1.5, "low": 1.25, "high": None}]
    assert arm["identical_outputs"] == {"n_steps": 40, "n_identical": 39, "share": 0.975}
    assert arm["break_even"][0] == {
        "workload": "w",
        "side": "crossed",
        "certainty": "limited",
        "value": 8,
        "low": 4,
        "high": None,
    }
    assert report["invalid"] == [finding]


def test_help_loads_no_torch() -> None:
    """The stage reads files and starts a process; it needs no tensor."""
    code = "import sys; from drafters.training import evaluate_stage; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False).returncode == 0
