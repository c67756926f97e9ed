"""A whole run on the real engine: a server killed on the way, counts against the server's own, outputs of both arms."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from harness import experiment
from harness.analysis.run import analyse
from harness.engines.llamacpp import LlamaCppEngine
from harness.manifest import build
from harness.overrides import Overrides
from harness.prepare import experiment_of, make_engine
from harness.records import StepRecord
from harness.store import RunFolder
from harness.tasks import write_tasks
from tests.test_experiment import Silent, task

pytestmark = pytest.mark.engine


def written(folder: Path) -> Path:
    """Write a workload of two short tasks for a baseline and an arm that drafts from the request."""
    write_tasks(folder / "tasks.jsonl", [task(number) for number in range(2)])
    content = {
        "name": "w",
        "tasks": "tasks.jsonl",
        "engine": {"model": "smollm2-135m", "context_tokens": 512},
        "arms": [{"name": "baseline", "method": "none"}, {"name": "drafted", "method": "ngram-simple"}],
        "concurrency": [1],
        "repeats": 1,
    }
    path = folder / "w.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


class Killer(Silent):
    """Kills the drafting server when its first counted step has ended, and keeps what was said."""

    def __init__(self) -> None:
        self.engine: LlamaCppEngine | None = None
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keep a note."""
        self.notes.append(text)

    def step_ended(self, record: StepRecord) -> None:
        """Kill the server once."""
        if self.engine is not None and record.cell.arm == "drafted" and record.phase == "counted":
            process = self.engine._servers["drafted"].process
            assert process is not None
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            self.engine = None


async def test_a_killed_server_is_started_again_and_its_cell_run_again(tmp_path: Path) -> None:
    """The rows of the first attempt stay on record as failed, the second attempt fills the cell, and the run is complete."""
    plan = experiment_of([written(tmp_path)], Overrides())
    out = tmp_path / "run"
    folder = RunFolder.create(out, build(plan.workloads, [], "en", out))
    killer = Killer()
    engine = make_engine(plan, out, lambda what, fraction: None)
    assert isinstance(engine, LlamaCppEngine)
    killer.engine = engine
    stopped = await experiment.run(plan, engine, folder, killer)
    folder.close()
    assert stopped is None
    assert any("the server of arm drafted ended; starting it again" in text for text in killer.notes)
    assert [(c.cell.arm, c.attempt, c.status) for c in folder.cells()] == [
        ("baseline", 1, "done"), ("drafted", 1, "failed"), ("drafted", 2, "done"),
    ]  # fmt: skip
    first = [r for r in folder.steps() if r.cell.arm == "drafted" and r.attempt == 1 and r.phase == "counted"]
    assert len(first) == 4
    assert {r.error_kind for r in first} <= {None, "engine_dead", "not_sent", "disconnect", "connect"}
    analysis = analyse(folder)
    assert [(item.code, item.arm) for item in analysis.findings if item.code == "engine_died"] == [
        ("engine_died", "drafted")
    ]
    done = analysis.cells.filter(analysis.cells["arm"] == "drafted").row(0, named=True)
    assert (done["n_steps"], done["n_steps_failed"], done["counters_match"]) == (4, 0, True)
    assert analysis.lossless["n_identical"].to_list() == analysis.lossless["n_steps"].to_list() == [4]
