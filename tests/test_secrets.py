"""A key opens servers and is written nowhere: whole runs over TLS against servers that repeat it wherever they can."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness import experiment
from harness.analysis.run import analyse
from harness.errors import WorkloadError
from harness.manifest import build
from harness.overrides import Overrides
from harness.prepare import experiment_of, make_engine
from harness.store import RunFolder
from harness.tasks import write_tasks
from reports.files import write_all
from reports.tables import console
from tests.authority import Authority
from tests.fake_server import FakeLlama, FakeServer, Reply, Request, delta, event, json_reply
from tests.fake_vllm import FakeVllm
from tests.test_experiment import Silent, task

KEY = "sk-live-0123456789abcdef"
TENANT = "blue-cafe-9876"


@dataclass
class Gossip:
    """vLLM that repeats the key in its settings, its version and its errors; every third completion is such an error."""

    vllm: FakeVllm
    chats: int = 0
    tenants: set[str | None] = field(default_factory=set)

    def __call__(self, request: Request) -> Reply:
        """Answer one request."""
        self.tenants.add(request.headers.get("x-tenant-token"))
        said = f"{request.headers.get('authorization')} of {request.headers.get('x-tenant-token')}"
        if request.path == "/version":
            return json_reply({"version": f"0.32.0+{said}"})
        if request.path != "/v1/chat/completions" or str(self.vllm.key) not in said:
            return self.vllm(request)
        self.chats += 1
        if self.chats <= 4 or self.chats % 3:  # the first ones are those that find out what the server can tell
            return self.vllm(request)
        refused = json_reply({"error": {"message": f"{'x' * 270} no more for {said}"}}, 429)
        broken = Reply([(0, delta(content="a")), (0, event({"error": {"message": said}}))])
        return refused if self.chats % 2 else broken


def written(folder: Path, servers: dict[str, FakeServer], kind: str = "vllm", **access: Any) -> Path:
    """Write a workload whose arms attach to the servers with this access."""
    write_tasks(folder / "tasks.jsonl", [task(number) for number in range(4)])
    methods = {"baseline": "none", "drafted": "ngram" if kind == "vllm" else "ngram-map-k"}
    content = {
        "name": "w",
        "tasks": "tasks.jsonl",
        "engine": {"kind": kind, "access": access, "request_timeout_s": 5},
        "arms": [{"name": arm, "method": methods[arm], "base_url": server.base_url} for arm, server in servers.items()],
        "concurrency": [1, 2],
        "repeats": 1,
    }
    path = folder / "w.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
    return path


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of every file, those inside workbooks too."""
    for path in sorted(item for item in folder.rglob("*") if item.is_file()):
        yield path.name, path.read_bytes()
        if path.suffix == ".xlsx":
            with zipfile.ZipFile(path) as book:
                yield from ((f"{path.name}/{name}", book.read(name)) for name in book.namelist())


async def test_no_file_of_a_run_holds_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Key and header reach the servers; records, manifest, log and reports have neither, though the servers repeat them."""
    monkeypatch.setenv("ENGINE_KEY", KEY)
    monkeypatch.setenv("TENANT_TOKEN", TENANT)
    authority = Authority.create(tmp_path)
    config = {
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 4, "model": f"draft of {KEY}"},
        "model_config": {"dtype": f"float32 {TENANT}"},
    }
    drafted = Gossip(FakeVllm(draft=(4, 2), per_request="detailed", key=KEY, config=config))
    baseline = Gossip(FakeVllm(key=KEY))
    async with (
        FakeServer(baseline, tls=authority.server()) as first,
        FakeServer(drafted, tls=authority.server()) as second,
    ):
        path = written(
            tmp_path,
            {"baseline": first, "drafted": second},
            api_key_env="ENGINE_KEY",
            headers={"x-tenant-token": "${TENANT_TOKEN}"},
            ca_file="ca.pem",
        )
        plan = experiment_of([path], Overrides())
        out = tmp_path / "run"
        folder = RunFolder.create(out, build(plan.workloads, [], "en", out))
        stopped = await experiment.run(plan, make_engine(plan, out, lambda what, fraction: None), folder, Silent())
    analysis = analyse(folder)
    write_all(analysis, out, "ko")
    shown = console(analysis, "en", width=120)
    errors = [record.error_message or "" for record in folder.steps() if record.error_kind is not None]
    folder.close()
    assert any(message.startswith("status 429: x") for message in errors)
    assert any("carries an error" in message for message in errors)
    assert any(record.error_kind is None for record in folder.steps())
    assert drafted.tenants == {TENANT}
    for name, content in [*contents(out), ("console", f"{shown}{stopped}".encode())]:
        for secret in (KEY, TENANT):
            assert secret[:9].encode() not in content, name
    assert folder.manifest["workloads"][0]["engine"]["access"]["api_key_env"] == "ENGINE_KEY"


async def test_attached_llama_server_with_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A llama-server that was started with a key and a certificate is measured like an open one; every request carries the key."""
    monkeypatch.setenv("ENGINE_KEY", KEY)
    authority = Authority.create(tmp_path)
    async with (
        FakeServer(FakeLlama(), tls=authority.server()) as first,
        FakeServer(FakeLlama(draft=(4, 2)), tls=authority.server()) as second,
    ):
        servers = {"baseline": first, "drafted": second}
        path = written(tmp_path, servers, "llamacpp", api_key_env="ENGINE_KEY", ca_file="ca.pem")
        plan = experiment_of([path], Overrides())
        out = tmp_path / "run"
        folder = RunFolder.create(out, build(plan.workloads, [], "en", out))
        stopped = await experiment.run(plan, make_engine(plan, out, lambda what, fraction: None), folder, Silent())
        keys = {request.headers.get("authorization") for server in servers.values() for request in server.requests}
    folder.close()
    assert (stopped, keys) == (None, {f"Bearer {KEY}"})
    assert {record.error_kind for record in folder.steps() if record.phase == "counted"} == {None}
    assert all(KEY.encode() not in content for _, content in contents(out))


def test_servers_that_are_started_here_need_no_access(tmp_path: Path) -> None:
    """Access without an address is refused by file and line: the engine starts its own servers then."""
    server = FakeServer([])  # not started: no address
    with pytest.raises(WorkloadError, match="starts its own servers, which need no access") as caught:
        experiment_of(
            [written(tmp_path, {"drafted": server, "baseline": server}, "llamacpp", verify=False)], Overrides()
        )
    assert str(caught.value).startswith(f"{tmp_path / 'w.yaml'}:1: ")


async def test_refused_key_ends_a_run_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that the server refuses is told at the start, by the name of its variable; no cell is measured."""
    monkeypatch.setenv("ENGINE_KEY", "sk-wrong-0123456789")
    async with FakeServer(Gossip(FakeVllm(key=KEY))) as server:
        plan = experiment_of([written(tmp_path, {"baseline": server}, api_key_env="ENGINE_KEY")], Overrides())
        out = tmp_path / "run"
        folder = RunFolder.create(out, build(plan.workloads, [], "en", out))
        stopped = await experiment.run(plan, make_engine(plan, out, lambda what, fraction: None), folder, Silent())
    folder.close()
    assert "the key from $ENGINE_KEY was refused" in str(stopped)
    assert list(folder.cells()) == []
    assert all(b"sk-wrong" not in content for _, content in contents(out))
    assert "sk-wrong" not in str(stopped)


def test_missing_key_is_told_by_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is not set, or a certificate that is not there, ends with file and line before anything is sent."""
    monkeypatch.delenv("ENGINE_KEY", raising=False)
    server = FakeServer([])
    server.base_url = "http://127.0.0.1:9"
    for access, words in (
        ({"api_key_env": "ENGINE_KEY"}, "ENGINE_KEY, which is not set"),
        ({"ca_file": "none.pem"}, "none.pem' cannot be used"),
    ):
        path = written(tmp_path, {"baseline": server}, **access)
        with pytest.raises(WorkloadError, match=words) as caught:
            experiment_of([path], Overrides())
        assert str(caught.value).startswith(f"{path}:1: ")
