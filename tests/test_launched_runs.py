"""Whole runs whose servers the harness starts itself, one arm after the other, as real child processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import experiment
from harness.analysis.run import analyse
from harness.manifest import build
from harness.overrides import Overrides
from harness.prepare import experiment_of, make_engine
from harness.store import RunFolder
from harness.tasks import write_tasks
from tests.test_experiment import Silent, keys, task

NGRAM = {"method": "ngram", "num_speculative_tokens": 2}


class Noted(Silent):
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.notes.append(text)


def written(folder: Path, drafted: Mapping[str, Any] | None = None, **more: Any) -> Path:
    """Write a workload of two launched arms; ``drafted`` are further keys of the second one's launch."""
    write_tasks(folder / "tasks.jsonl", [task(number) for number in range(6)])
    command = [sys.executable, "-m", "tests.launched_server", "--name", "{arm}", "--port", "{port}"]
    command += ["--starts", str(folder / "starts"), "--speculative-config", "{speculative_config}"]
    content = {
        "name": "w",
        "tasks": "tasks.jsonl",
        "engine": {"kind": "openai", "launch": {"command": command, "start_timeout_s": 120}},
        "arms": [
            {"name": "baseline", "method": "none"},
            {"name": "drafted", "method": "ngram", "launch": {"speculative_config": NGRAM, **(drafted or {})}},
        ],
        "concurrency": [1, 2],
        "repeats": 2,
        "tasks_per_cell": 2,
        **more,
    }
    path = folder / "w.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
    return path


async def measured(path: Path, out: Path) -> tuple[RunFolder, str | None, list[str]]:
    """Run a workload to its end or its failure, into a new folder or one that exists; return also what was noted."""
    plan = experiment_of([path], Overrides())
    exists = (out / "manifest.json").exists()
    folder = RunFolder.open(out) if exists else RunFolder.create(out, build(plan.workloads, [], "en", out))
    progress = Noted()
    stopped = await experiment.run(plan, make_engine(plan, out, lambda what, fraction: None), folder, progress)
    folder.close()
    return folder, None if stopped is None else str(stopped), progress.notes


def order(folder: RunFolder) -> list[tuple[str, int, int]]:
    """Return arm, concurrency and repeat of the cells as they ran."""
    return [(record.cell.arm, record.cell.concurrency, record.cell.repeat) for record in folder.cells()]


def starts(folder: Path) -> list[str]:
    """Return which arm's server was started, in order."""
    return (folder / "starts").read_text(encoding="utf-8").split()


async def test_arms_alternate_over_restarts(tmp_path: Path) -> None:
    """A B B A in blocks of all loads takes three starts; what differs beyond the drafter is told at once and in the findings."""
    path = written(tmp_path, {"command": ["--max-model-len", 8192]})
    folder, stopped, notes = await measured(path, tmp_path / "run")
    assert stopped is None
    assert starts(tmp_path) == ["baseline", "drafted", "baseline"]
    blocks = [("baseline", 1), ("drafted", 1), ("drafted", 2), ("baseline", 2)]
    assert order(folder) == [(arm, load, repeat) for arm, repeat in blocks for load in (1, 2)]
    assert all(record.error_kind is None for record in folder.steps() if record.phase == "counted")
    told = [note for note in notes if note.startswith("WARNING")]
    assert told == [
        "WARNING: the servers of the arms differ in more than the drafter: max-model-len (baseline: not given, drafted: 8192)"
    ]
    differing = {item["flag"]: item["drafter"] for item in folder.manifest["engine"]["flag_differences"]}
    assert differing == {"max-model-len": False, "speculative-config": True}
    found = {finding.code: finding for finding in analyse(folder).findings}
    assert "server_not_drained" not in found  # a server that does not tell is not one that still works
    assert found["flags_differ"].arm == "drafted"
    assert found["flags_differ"].values == {"n_flags": 1, "flags": "max-model-len: – → 8192"}


async def test_each_arm_once_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """With one block an arm each server starts once; a run whose second one did not come up goes on without the first."""
    model = tmp_path / "model"
    path = written(tmp_path, {"command": ["--needs", str(model)]}, order="per_arm", repeats=1)
    folder, stopped, _ = await measured(path, tmp_path / "run")
    assert stopped is not None
    assert f"no model at {model}" in stopped
    assert order(folder) == [("baseline", 1, 1), ("baseline", 2, 1)]
    assert folder.manifest["engine"]["arms"]["drafted"] is None
    model.touch()
    folder, stopped, _ = await measured(path, tmp_path / "run")
    assert stopped is None
    assert starts(tmp_path) == ["baseline", "drafted", "drafted"]
    assert order(folder) == [(arm, load, 1) for arm in ("baseline", "drafted") for load in (1, 2)]
    assert set(keys(folder).values()) == {1}
    assert folder.manifest["status"] == "complete"
    assert None not in folder.manifest["engine"]["arms"].values()
    found = {finding.code for finding in analyse(folder).findings}
    assert "arms_in_turn" in found
    assert "drift_not_cancelled" not in found


async def test_a_server_that_dies_in_a_cell_is_started_again(tmp_path: Path) -> None:
    """Its cell is run again on a fresh server, which is said while it happens and in the findings."""
    extra = ["--dies-once", str(tmp_path / "died")]
    path = written(tmp_path, {"command": extra}, order="per_arm", repeats=1, concurrency=[2], tasks_per_cell=6)
    folder, stopped, notes = await measured(path, tmp_path / "run")
    assert stopped is None
    assert "the server of arm drafted ended; starting it again" in notes
    assert starts(tmp_path) == ["baseline", "drafted", "drafted"]
    assert [(record.cell.arm, record.attempt, record.status) for record in folder.cells()] == [
        ("baseline", 1, "done"), ("drafted", 1, "failed"), ("drafted", 2, "done"),
    ]  # fmt: skip
    assert "engine_died" in {finding.code for finding in analyse(folder).findings}
