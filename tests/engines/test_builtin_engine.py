"""The adapter of the builtin engine on a scripted server: checks at the start, one address for all arms, a whole run and its report."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import cli, experiment
from harness.analysis.run import analyse
from harness.combining import check_resumable
from harness.engines import builtin
from harness.engines.builtin import BuiltinEngine, require_packages
from harness.engines.process import ChildProcess
from harness.errors import EngineError, EngineRefused, EngineStartError, EngineUnreachable
from harness.manifest import build
from harness.overrides import Overrides
from harness.prepare import experiment_of, make_engine
from harness.records import SpecCounters
from harness.store import RunFolder
from harness.tasks import write_tasks
from harness.workload import Arm, EngineSpec
from reports.files import write_all
from tests.fake_builtin import FakeBuiltin, described
from tests.fake_server import FakeServer
from tests.test_experiment import Silent, task

COPY = Arm(name="copy", method="prompt_lookup", options={"num_tokens": 4})
BASELINE = Arm(name="baseline", method="none")
SPECS = described(copy={"method": "prompt_lookup", "num_tokens": 4}, count={"method": "ngram", "lengths": "goodput"})


def fake(**fields: Any) -> FakeBuiltin:
    """Return a script of a server whose drafter accepts one of two drafted tokens."""
    return FakeBuiltin(drafts={"copy": (2, 1), "count": (3, 2)}, specs=SPECS, **fields)


def engine_at(server: FakeServer, folder: Path, arms: Sequence[Arm] = (BASELINE, COPY), **spec: Any) -> BuiltinEngine:
    """Return an engine attached to a server."""
    concurrency = spec.pop("concurrency", 1)
    made = EngineSpec(kind="builtin", base_url=server.base_url + "/", **spec)
    return BuiltinEngine(made, arms, concurrency=concurrency, folder=folder)


async def test_arms_share_one_address_and_differ_in_the_drafter(tmp_path: Path) -> None:
    """Every request names its arm's drafter, the baseline's none, and both ask for their rounds."""
    async with FakeServer(fake()) as server:
        engine = engine_at(server, tmp_path)
        await engine.start()
        drafted, plain = engine.endpoint("copy"), engine.endpoint("baseline")
    assert (drafted.base_url, drafted.model) == (plain.base_url, plain.model) == (server.base_url, "tiny")
    assert drafted.extra_body == {"drafter": "copy", "return_rounds": True}
    assert plain.extra_body == {"drafter": None, "return_rounds": True}


async def test_control_calls(tmp_path: Path) -> None:
    """Counters, tokens, draining, emptying the cache and forgetting work, and the description names what runs."""
    script = fake()
    count = Arm(name="count", method="ngram", options={"lengths": "goodput"})
    async with FakeServer(script) as server:
        engine = engine_at(server, tmp_path, [BASELINE, COPY, count])
        await engine.start()
        assert await engine.counters("copy") == SpecCounters(0, 0, 0, ())
        assert await engine.drain("copy")
        assert await engine.reset_prompt_cache("copy")
        await engine.reset_drafting("copy")
        assert len(await engine.tokenize("copy", "two words") or ()) == 2
        told = await engine.describe()
    assert (script.resets, script.drafting_resets) == (1, 1)
    assert (told["engine"], told["attached"], told["model"]["sha256"]) == ("builtin", True, "00")
    assert told["model"]["source_sha256"] == "00"  # what a file that was written from this folder tells as its source
    assert told["arms"]["copy"]["drafter"]["spec"]["num_tokens"] == 4
    assert told["arms"]["baseline"]["drafter"] is None
    assert {name: arm["drafter_carries_state"] for name, arm in told["arms"].items()} == {
        "baseline": False,
        "copy": False,
        "count": True,
    }
    assert {arm["drafting_state"] for arm in told["arms"].values()} == {"reset before each cell"}
    assert (engine.alive("copy"), engine.carries_state("copy")) == (True, False)
    json.dumps(told)


@pytest.mark.parametrize(
    ("arm", "spec", "said"),
    [
        (Arm(name="cop", method="prompt_lookup"), {}, "has no drafter 'cop', it has copy, count; start it with --drafter cop="),
        (Arm(name="copy", method="prompt_lookup"), {}, "is not the arm of that name: num_tokens 4 instead of 8"),
        (Arm(name="copy", method="ngram"), {}, "method prompt_lookup instead of ngram"),
        (COPY, {"context_tokens": 8192}, "has 4096 tokens of context for a request, but engine.context_tokens is 8192"),
        (COPY, {"concurrency": 9}, "works on 8 requests at once, but the highest concurrency is 9"),
    ],
)  # fmt: skip
async def test_a_server_that_is_not_what_the_arms_say(
    tmp_path: Path, arm: Arm, spec: dict[str, Any], said: str
) -> None:
    """A missing or other drafter, too little context or too few places are found before anything is measured."""
    async with FakeServer(fake()) as server:
        with pytest.raises(EngineRefused, match=said):
            await engine_at(server, tmp_path, [BASELINE, arm], **spec).start()


async def test_no_server_at_the_address(tmp_path: Path) -> None:
    """An address where nothing answers is named, and what starts a server there."""
    engine = BuiltinEngine(
        EngineSpec(kind="builtin", base_url="http://127.0.0.1:9"), [BASELINE], concurrency=1, folder=tmp_path
    )
    with pytest.raises(EngineUnreachable, match=r"no healthy builtin server at http://127.0.0.1:9; .*harness serve"):
        await engine.start()


async def test_an_attached_server_is_not_restarted(tmp_path: Path) -> None:
    """A server that was not started here is left for its owner to start again."""
    async with FakeServer(fake()) as server:
        engine = engine_at(server, tmp_path)
        await engine.start()
        with pytest.raises(EngineUnreachable, match="was not started here"):
            await engine.restart("copy")
        await engine.stop()


def test_the_clock_of_another_machine() -> None:
    """Only an address of this machine has this machine's clock."""
    spec = EngineSpec(kind="builtin", base_url="http://10.0.0.5:80")
    for address, same in (("http://127.0.0.1:80", True), ("http://[::1]:80", True), ("http://10.0.0.5:80", False)):
        there = spec.model_copy(update={"base_url": address})
        reader = BuiltinEngine(there, [BASELINE], concurrency=1, folder=Path()).reader("baseline")
        assert reader._same_clock is same


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch the engine says what to install, and starts nothing."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(
        EngineStartError, match=r"needs torch, not installed here: pip install 'spec-harness\[builtin\]'"
    ):
        require_packages()


async def test_a_server_that_does_not_come_up_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server says before it ends is in the error; its progress was shown on the way."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    program = tmp_path / "dies.py"
    program.write_text(
        "import time\nprint('loading weights', flush=True)\ntime.sleep(0.3)\nraise SystemExit('no memory')\n"
    )
    shown: list[str] = []
    monkeypatch.setattr(builtin, "require_packages", lambda: None)
    real = ChildProcess.start

    def start_other(process: ChildProcess) -> None:
        assert process.arguments[1:4] == ("-m", "drafters.engine.server", "--config-file")
        process.arguments = (sys.executable, str(program))
        real(process)

    monkeypatch.setattr(ChildProcess, "start", start_other)
    engine = BuiltinEngine(
        EngineSpec(kind="builtin", model=str(tmp_path)),
        [BASELINE, COPY],
        concurrency=2,
        folder=tmp_path / "engine",
        progress=lambda stage, fraction: shown.append(stage),
    )
    with pytest.raises(EngineStartError, match=r"(?s)ended with exit code 1 before it was ready.*no memory"):
        await engine.start()
    assert "start: loading weights" in shown
    config = json.loads((tmp_path / "engine" / "builtin.json").read_text())
    assert (config["max_sequences"], list(config["drafters"])) == (2, ["copy"])


@pytest.mark.parametrize(("exit_code", "error"), [(2, EngineRefused), (3, EngineStartError)])
def test_a_run_that_never_began_leaves_nothing_to_continue(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    exit_code: int,
    error: type[EngineError],
) -> None:
    """A configuration that the server refuses is bad input, any other end a failed engine; either way the folder can be used again."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    program = tmp_path / "refuses.py"
    program.write_text(f"print('no such device')\nraise SystemExit({exit_code})\n")
    monkeypatch.setattr(builtin, "require_packages", lambda: None)
    real = ChildProcess.start

    def start_other(process: ChildProcess) -> None:
        process.arguments = (sys.executable, str(program))
        real(process)

    monkeypatch.setattr(ChildProcess, "start", start_other)
    out = tmp_path / "run"
    path = written(tmp_path, "", engine={"kind": "builtin", "model": str(tmp_path)})
    for _ in range(2):
        assert cli.run(["run", str(path), "--out", str(out)]) == error.exit_code
        said = capsys.readouterr().err
        assert "no such device" in said
        assert f"nothing was measured, no run was kept; what the engine wrote is in {out}" in said
        assert "--resume" not in said
        assert [item.name for item in out.iterdir()] == ["engine"]


def test_an_address_where_nothing_answers_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was measured and no engine wrote anything: the engine's exit code, no folder, nothing to resume."""
    out = tmp_path / "run"
    path = written(tmp_path, "http://127.0.0.1:9")
    assert cli.run(["run", str(path), "--engine", "builtin", "--out", str(out)]) == EngineError.exit_code
    assert "--resume" not in capsys.readouterr().err
    assert not out.exists()


def written(folder: Path, address: str, **keys: Any) -> Path:
    """Write a workload of three tasks with arms for two engines."""
    write_tasks(folder / "tasks.jsonl", [task(number) for number in range(3)])
    content = {
        "name": "w",
        "tasks": "tasks.jsonl",
        "engine": {"base_url": address, "request_timeout_s": 5},
        "arms": [
            {"name": "baseline", "method": "none"},
            {"name": "copy", "method": "ngram-simple", "engine": "llamacpp"},
            {"name": "copy", "method": "prompt_lookup", "engine": "builtin", "options": {"num_tokens": 4}},
            {"name": "count", "method": "ngram", "engine": "builtin", "options": {"lengths": "goodput"}},
        ],
        "concurrency": [1, 2],
        "repeats": 2,
        **keys,
    }
    path = folder / "w.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
    return path


async def measured(path: Path, out: Path) -> tuple[RunFolder, EngineError | None]:
    """Run a workload on the builtin engine into a new folder."""
    plan = experiment_of([path], Overrides(engine="builtin"))
    folder = RunFolder.create(out, build(plan.workloads, [], "en", out))
    stopped = await experiment.run(plan, make_engine(plan, out, lambda what, fraction: None), folder, Silent())
    folder.close()
    return folder, stopped


async def test_a_whole_run_and_its_report(tmp_path: Path) -> None:
    """Rounds are on record, the server's counters are the sums of the requests in every cell, and the report is complete."""
    script = fake()
    async with FakeServer(script) as server:
        folder, stopped = await measured(written(tmp_path, server.base_url), tmp_path / "run")
    assert stopped is None
    assert {record.cache_policy for record in folder.cells()} == {
        "reset"
    }  # arms share the cache and send the same prompts
    assert script.resets == script.drafting_resets == 12
    steps = {(r.cell, r.attempt, r.instance, r.step_index): r for r in folder.steps() if r.phase == "counted"}
    found = [item for item in folder.rounds() if (item.cell, item.attempt, item.instance, item.step_index) in steps]
    assert len(found) == len(steps) == 3 * 2 * 3 * 2 * 2
    for item in found:
        record = steps[item.cell, item.attempt, item.instance, item.step_index]
        assert record.sent_ns is not None
        assert record.decode_passes == len(item.rounds)
        assert all(record.sent_ns <= r.t_ns <= record.end_ns for r in item.rounds)
        assert {(r.draft_ns, r.verify_ns, r.host_ns, r.batch_size) for r in item.rounds} <= {(1000, 2000, 3000, 1)}
    analysis = analyse(folder)
    alone, loaded = (analysis.cells.filter(analysis.cells["concurrency"] == load)["counters_match"] for load in (1, 2))
    assert alone.to_list() == [True] * 6
    assert False not in loaded.to_list()  # a request that was cut off at the end may have drafted without telling us
    pooled = {
        row["arm"]: row
        for row in analysis.acceptance.iter_rows(named=True)
        if not (row["kind"] or row["language"] or row["concurrency"])
    }
    assert [pooled[arm]["acceptance_length"] for arm in ("baseline", "copy", "count")] == [None, 2.0, 3.0]
    assert pooled["copy"]["tokens_per_pass"] == 2.0
    survival = {
        (row["arm"], row["position"]): row["survival"]
        for row in analysis.survival.iter_rows(named=True)
        if not (row["kind"] or row["language"])
    }
    assert survival == {("copy", 1): 1.0, ("copy", 2): 0.0, ("count", 1): 1.0, ("count", 2): 1.0}
    assert analysis.lossless["identical_share"].to_list() == [1.0] * len(analysis.lossless)
    # the scripted answers are no text of any language, which is what the report is right to mind
    assert {item.code for item in analysis.findings if item.severity == "invalid"} == {"output_language_mismatch"}
    page = write_all(analysis, folder.path, "en").html.read_text(encoding="utf-8")
    assert "goodput" in page
    assert "sha256" in page


async def test_draft_lengths_start_anew_where_the_prompt_cache_does_not(tmp_path: Path) -> None:
    """Cells that share what is cached on purpose still do not inherit what was learnt in the cells before."""
    script = fake()
    async with FakeServer(script) as server:
        path = written(tmp_path, server.base_url, replay={"prompt_cache": "shared"}, repeats=1)
        folder, stopped = await measured(path, tmp_path / "run")
    assert stopped is None
    assert {record.cache_policy for record in folder.cells()} == {"shared"}
    assert (script.resets, script.drafting_resets) == (0, 6)


async def test_a_server_that_counts_otherwise_is_told(tmp_path: Path) -> None:
    """Where the server's counters are not the sums of the requests, the cells and the report's validity say so."""
    script = fake()
    async with FakeServer(script) as server:
        path = written(tmp_path, server.base_url, concurrency=[1], repeats=1)
        plan = experiment_of([path], Overrides(engine="builtin", arms=("copy",)))
        folder = RunFolder.create(tmp_path / "run", build(plan.workloads, [], "en", tmp_path / "run"))

        class Skewed(Silent):
            def cell_started(self, key: object) -> None:
                script.miscounted = 5

        await experiment.run(plan, make_engine(plan, folder.path, lambda what, fraction: None), folder, Skewed())
        folder.close()
    analysis = analyse(folder)
    assert analysis.cells["counters_match"].to_list() == [False]


async def test_a_run_with_a_table_of_lengths_can_be_continued(tmp_path: Path) -> None:
    """A table's numbers become texts in the manifest; the file is known again all the same."""
    write_tasks(tmp_path / "tasks.jsonl", [task(0)])
    path = tmp_path / "w.yaml"
    path.write_text(
        "name: w\ntasks: tasks.jsonl\nengine: {kind: builtin, base_url: 'http://127.0.0.1:9'}\narms:\n"
        "- {name: baseline, method: none}\n- {name: a, method: ngram, options: {lengths: {1: 4, 8: 0}}}\nconcurrency: [1]\n"
    )
    plan = experiment_of([path], Overrides())
    RunFolder.create(tmp_path / "run", build(plan.workloads, [], "en", tmp_path / "run")).close()
    check_resumable(experiment_of([path], Overrides()), RunFolder.open(tmp_path / "run"))
