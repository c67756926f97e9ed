"""The real builtin server with SmolLM2: three arms in one process, short answers, and the server's own counters as the judge."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness import experiment
from harness.analysis.run import analyse
from harness.engines.base import StreamFacts
from harness.engines.builtin import BuiltinEngine
from harness.errors import EngineStartError, EngineUnreachable
from harness.manifest import build
from harness.overrides import Overrides
from harness.prepare import experiment_of, make_engine
from harness.records import SpecCounters, StepRecord
from harness.store import RunFolder
from harness.tasks import write_tasks
from harness.workload import Arm, EngineSpec
from tests.test_experiment import Silent, task

pytestmark = pytest.mark.engine

SPEC = EngineSpec(kind="builtin", model="smollm2-135m", context_tokens=512)
ARMS = [
    Arm(name="baseline", method="none"),
    Arm(name="copy", method="prompt_lookup", options={"num_tokens": 6}),
    Arm(name="known", method="synthetic", options={"num_tokens": 3, "acceptance": 1.0}),
]
ENGLISH = (
    "The quarterly meeting of the Busan branch was moved from Monday to Thursday afternoon. Please bring the quarterly figures "
    "of the Busan branch. Repeat this text exactly, twice."
)


@dataclass(frozen=True)
class Answer:
    """One finished answer with what the reader and the server's counters said of it."""

    text: str
    facts: StreamFacts
    server: SpecCounters


async def ask(engine: BuiltinEngine, arm: str, prompt: str = ENGLISH, **body: Any) -> Answer:
    """Send one chat completion to a server that works on nothing else."""
    before = await engine.counters(arm)
    endpoint, reader = engine.endpoint(arm), engine.reader(arm)
    request = {
        "model": endpoint.model, "messages": [{"role": "user", "content": prompt}], "stream": True,
        "stream_options": {"include_usage": True}, "temperature": 0, "top_p": 1, "max_tokens": 40, **body, **endpoint.extra_body,
    }  # fmt: skip
    parts = []
    async with httpx.AsyncClient(trust_env=False, timeout=120) as client:
        response = await client.post(f"{endpoint.base_url}/v1/chat/completions", json=request)
    assert response.status_code == 200, response.text
    for number, line in enumerate(response.text.splitlines()):
        if line.startswith("data: {"):
            chunk = json.loads(line.removeprefix("data: "))
            reader.chunk(number, chunk)
            parts += [choice["delta"].get("content") or "" for choice in chunk["choices"]]
    assert await engine.drain(arm)
    after = await engine.counters(arm)
    assert before is not None
    assert after is not None
    return Answer("".join(parts), reader.facts(), after - before)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuiltinEngine]:
    """The three arms on one server, up for all tests of this file."""
    pytest.importorskip("torch")
    made = BuiltinEngine(SPEC, ARMS, concurrency=2, folder=tmp_path_factory.mktemp("engine"))
    asyncio.run(made.start())
    yield made
    asyncio.run(made.stop())
    assert not made.alive("baseline")


def counts(spec: SpecCounters | None) -> tuple[int | None, int, int, list[int]] | None:
    """Return the counters without the zeros of positions that no draft reached."""
    if spec is None:
        return None
    positions = spec.num_accepted_tokens_per_pos or ()
    return spec.num_drafts, spec.num_draft_tokens, spec.num_accepted_tokens, [count for count in positions if count]


async def test_drafting_changes_no_output_and_is_counted_to_the_token(engine: BuiltinEngine) -> None:
    """Greedy answers are equal with and without drafting, and each request's counts are the growth of the server's counters."""
    plain, drafted = await ask(engine, "baseline"), await ask(engine, "copy")
    assert drafted.text == plain.text
    assert counts(drafted.facts.spec) == counts(drafted.server)
    assert drafted.facts.spec is not None
    assert drafted.facts.spec.num_accepted_tokens > 10
    assert counts(plain.facts.spec) == counts(plain.server) == (0, 0, 0, [])
    assert plain.facts.output_tokens is not None
    assert plain.facts.decode_passes == plain.facts.output_tokens - 1
    assert (drafted.facts.decode_passes or 0) < (plain.facts.decode_passes or 0)


async def test_known_acceptance_is_found(engine: BuiltinEngine) -> None:
    """A drafter whose three tokens are always accepted makes rounds of four tokens, the last one cut at the limit."""
    answer = await ask(engine, "known", max_tokens=11)
    assert counts(answer.facts.spec) == counts(answer.server)
    rounds = answer.facts.rounds or ()
    assert [item.num_accepted_tokens for item in rounds[:2]] == [3, 3]
    assert answer.facts.output_tokens == 11


async def test_rounds_are_those_of_the_engine(engine: BuiltinEngine) -> None:
    """Rounds come in order, on the clock of this machine, and each of their parts took some time."""
    answer = await ask(engine, "copy")
    rounds = answer.facts.rounds or ()
    assert len(rounds) == answer.facts.decode_passes
    assert sorted(rounds, key=lambda item: (item.t_ns, item.round_index)) == list(rounds)
    assert all((item.verify_ns or 0) > 0 and item.batch_size == 1 for item in rounds)


async def test_a_reset_empties_the_prompt_cache(engine: BuiltinEngine) -> None:
    """A prompt asked again comes from the cache, whichever arm asked first, and after a reset it does not."""
    await ask(engine, "baseline", max_tokens=2)
    again = await ask(engine, "copy", max_tokens=2)
    assert (again.facts.cached_tokens or 0) > 20
    assert await engine.reset_prompt_cache("copy")
    assert (await ask(engine, "copy", max_tokens=2)).facts.cached_tokens == 0


async def test_drafting_is_reset_before_a_cell(engine: BuiltinEngine) -> None:
    """The server takes the call that every cell begins with, and what it keeps of prompts is not touched by it."""
    await ask(engine, "copy", max_tokens=2)
    await engine.reset_drafting("copy")
    assert ((await ask(engine, "copy", max_tokens=2)).facts.cached_tokens or 0) > 20


async def test_tokens_and_description(engine: BuiltinEngine) -> None:
    """Tokens are those of the model, and the description names versions, hash, storage, threads and each arm's drafter."""
    assert await engine.tokenize("copy", "Hello") == (19556,)
    told = await engine.describe()
    assert (told["engine"], told["attached"], told["threads"]) == ("builtin", False, 1)
    assert re.fullmatch("[0-9a-f]{64}", told["model"]["sha256"])
    assert told["model"]["name"] == "smollm2-135m"
    assert "float32" in told["model"]["storage"]
    assert told["versions"]["torch"]
    assert told["settings"]["dtype"] == "float32"
    assert told["settings"]["device"] == "cpu"
    assert told["arms"]["copy"]["drafter"]["spec"]["num_tokens"] == 6
    json.dumps(told)


async def test_attaching_by_address(engine: BuiltinEngine, tmp_path: Path) -> None:
    """A running server is reached by address, checked against the arms, and left alone by stop."""
    spec = SPEC.model_copy(update={"model": "whatever", "base_url": engine.endpoint("copy").base_url})
    attached = BuiltinEngine(spec, ARMS[:2], concurrency=1, folder=tmp_path)
    await attached.start()
    assert (await ask(attached, "copy")).text == (await ask(attached, "baseline")).text
    await attached.stop()
    assert engine.alive("copy")
    other = Arm(name="copy", method="prompt_lookup", options={"num_tokens": 7})
    with pytest.raises(EngineStartError, match="num_tokens 6 instead of 7"):
        await BuiltinEngine(spec, [other], concurrency=1, folder=tmp_path).start()


async def test_a_server_that_died_is_noticed_and_restarted(engine: BuiltinEngine) -> None:
    """After a kill no arm is alive and control calls say so; one restart brings all arms back."""
    assert engine._process is not None
    engine._process.kill()
    assert not engine.alive("copy")
    with pytest.raises(EngineUnreachable, match="does not answer /metrics"):
        await engine.counters("copy")
    await engine.restart("copy")
    assert engine.alive("baseline")
    assert (await ask(engine, "known", max_tokens=5)).facts.spec_source == "round"


async def test_a_context_beyond_the_model_is_refused(tmp_path: Path) -> None:
    """More context than the model was trained for is an error that says how much there is, and no server stays behind."""
    spec = SPEC.model_copy(update={"context_tokens": 16384})
    engine = BuiltinEngine(spec, ARMS[:1], concurrency=1, folder=tmp_path)
    with pytest.raises(
        EngineStartError, match=r"has 8192 tokens of context for a request, but engine.context_tokens is 16384"
    ):
        await engine.start()
    assert not engine.alive("baseline")


class Killer(Silent):
    """Kills the server when the first counted step of the drafting arm has ended, and keeps what was said."""

    def __init__(self) -> None:
        self.engine: BuiltinEngine | None = None
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keep a note."""
        self.notes.append(text)

    def step_ended(self, record: StepRecord) -> None:
        """Kill the server once."""
        if self.engine is not None and record.cell.arm == "copy" and record.phase == "counted":
            process = self.engine._process
            assert process is not None
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            self.engine = None


async def test_a_whole_run_with_a_killed_server(tmp_path: Path) -> None:
    """The cell of the killed server is run again, every count is the server's own, and the outputs of the arms are equal."""
    write_tasks(tmp_path / "tasks.jsonl", [task(number) for number in range(2)])
    content = {
        "name": "w",
        "tasks": "tasks.jsonl",
        "engine": {"kind": "builtin", "model": "smollm2-135m", "context_tokens": 512},
        "arms": [{"name": "baseline", "method": "none"}, {"name": "copy", "method": "prompt_lookup"}],
        "concurrency": [1],
        "repeats": 1,
    }
    path = tmp_path / "w.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    plan = experiment_of([path], Overrides())
    out = tmp_path / "run"
    folder = RunFolder.create(out, build(plan.workloads, [], "en", out))
    engine = make_engine(plan, out, lambda what, fraction: None)
    assert isinstance(engine, BuiltinEngine)
    killer = Killer()
    killer.engine = engine
    stopped = await experiment.run(plan, engine, folder, killer)
    folder.close()
    assert stopped is None
    assert any("the server of arm copy ended; starting it again" in text for text in killer.notes)
    assert [(c.cell.arm, c.attempt, c.status) for c in folder.cells()] == [
        ("baseline", 1, "done"), ("copy", 1, "failed"), ("copy", 2, "done"),
    ]  # fmt: skip
    analysis = analyse(folder)
    assert analysis.cells["counters_match"].to_list() == [True, True]
    assert analysis.lossless["n_identical"].to_list() == analysis.lossless["n_steps"].to_list() == [4]


def test_serve_runs_the_server_in_the_foreground() -> None:
    """The command becomes the server: it says where it listens, answers, and ends with 0 when told to."""
    command = [
        sys.executable,
        "-m",
        "harness",
        "serve",
        "smollm2-135m",
        "--context-tokens",
        "256",
        "--max-sequences",
        "2",
    ]
    command += ["--drafter", "copy=prompt_lookup,num_tokens=4", "--default-drafter", "copy"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip().removeprefix("LISTENING ")
            body = {
                "model": "smollm2-135m",
                "messages": [{"role": "user", "content": ENGLISH}],
                "max_tokens": 8,
                "temperature": 0,
            }
            with httpx.Client(trust_env=False, timeout=60) as client:
                answer = client.post(f"{address}/v1/chat/completions", json=body).json()
                config = client.get(f"{address}/server_info").json()["config"]
            assert answer["usage"]["completion_tokens"] == 8
            assert answer["metrics"]["speculative_decoding"] is not None
            assert (config["max_sequences"], config["default_drafter"]) == (2, "copy")
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()
