"""The experiment on real sockets: the closed loop, faults, death of a server, kill -9 and resume."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import cli, experiment
from harness.combining import Experiment, check_resumable, combine
from harness.errors import EngineError, RunFolderError, WorkloadError
from harness.manifest import build
from harness.overrides import Overrides
from harness.prepare import experiment_of, make_engine
from harness.records import CellKey, CellRecord, StepRecord
from harness.store import RunFolder
from harness.tasks import Message, Prefix, Step, Task, ToolCall, write_tasks
from tests.fake_server import FakeLlama, FakeServer, Reply, delta, event, json_reply

TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}
PREFIX = Prefix("p", "You help.", (TOOL,))
ARMS = ("baseline", "drafted")


class Silent:
    """A progress that shows nothing."""

    def run_started(self, cells: Sequence[tuple[CellKey, int]], already_done: int) -> None:
        """Show nothing."""

    def cell_started(self, key: CellKey) -> None:
        """Show nothing."""

    def step_ended(self, record: StepRecord) -> None:
        """Show nothing."""

    def cell_ended(self, record: CellRecord) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""


def task(number: int, wait_s: float = 0.0) -> Task:
    """Return a task of two steps: a tool call, then a summary of the result after ``wait_s``."""
    call = Message("assistant", "", (ToolCall("c1", "find", "{}"),))
    first = Step("tool_call", "code", (Message("user", f"find item {number}"),), call, wait_s, 4)
    result = Message("tool", f"item {number} is red", tool_call_id="c1")
    last = Step("summarize", "en", (result,), Message("assistant", "It is red."), 0.0, 8)
    return Task(f"t{number}", "title", "genre", "en", PREFIX, (first, last))


def written(folder: Path, servers: Mapping[str, FakeServer], tasks: int = 3, wait_s: float = 0.0, **keys: Any) -> Path:
    """Write a workload whose arms attach to the servers, and its tasks."""
    write_tasks(folder / "tasks.jsonl", [task(number, wait_s) for number in range(tasks)])
    methods = {"baseline": "none", "drafted": "ngram-map-k"}
    content = {
        "name": "w",
        "tasks": "tasks.jsonl",
        "engine": {"request_timeout_s": 0.5},
        "arms": [{"name": arm, "method": methods[arm], "base_url": server.base_url} for arm, server in servers.items()],
        "concurrency": [1, 2],
        "repeats": 2,
        **keys,
    }
    path = folder / "w.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
    return path


@asynccontextmanager
async def two_servers(**drafted: Any) -> AsyncIterator[dict[str, FakeServer]]:
    """Start a server without and one with a drafter: two drafted, one accepted a round."""
    async with FakeServer(FakeLlama()) as plain, FakeServer(FakeLlama(draft=(2, 1), **drafted)) as other:
        yield {"baseline": plain, "drafted": other}


async def measured(path: Path, out: Path, plan: Experiment | None = None) -> tuple[RunFolder, EngineError | None]:
    """Run a workload to its end, into a new folder or one that exists."""
    plan = plan or experiment_of([path], Overrides())
    exists = (out / "manifest.json").exists()
    folder = RunFolder.open(out) if exists else RunFolder.create(out, build(plan.workloads, [], "en", out))
    stopped = await experiment.run(plan, make_engine(plan, out, lambda what, fraction: None), folder, Silent())
    folder.close()
    return folder, stopped


def keys(folder: RunFolder) -> Counter[tuple[Any, ...]]:
    """Return how often each step of a finished cell's finishing attempt stands in the folder, the cool-down left out."""
    done = folder.done_cells()
    return Counter(
        (r.cell, r.phase, r.instance, r.task_id, r.step_index)
        for r in folder.steps()
        if done.get(r.cell) == r.attempt and r.phase != "cool_down"
    )


async def test_every_step_of_every_cell_is_a_row(tmp_path: Path) -> None:
    """Three tasks of two steps, two arms, two concurrencies, two repeats: 48 counted rows and one warm-up a cell."""
    async with two_servers() as servers:
        folder, stopped = await measured(written(tmp_path, servers), tmp_path / "run")
    assert stopped is None
    phases = Counter(record.phase for record in folder.steps() if record.phase != "cool_down")
    assert phases == {"counted": 48, "warm_up": 8}
    assert [cell.counted_steps for cell in folder.cells()] == [6] * 8
    assert [(c.cell.concurrency, c.cell.arm) for c in folder.cells()] == [
        (1, "baseline"), (1, "drafted"), (1, "drafted"), (1, "baseline"),
        (2, "drafted"), (2, "baseline"), (2, "baseline"), (2, "drafted"),
    ]  # fmt: skip
    assert all(record.error_kind is None for record in folder.steps() if record.phase == "counted")
    assert folder.manifest["status"] == "complete"


async def test_cells_go_breadth_first_over_workloads(tmp_path: Path) -> None:
    """Two workloads at two loads: both run at the lower load before either runs at the higher one."""
    async with two_servers() as servers:
        paths = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            path = written(tmp_path / name, servers, tasks=1, repeats=1, name=name)
            paths.append(path)
        folder, stopped = await measured(paths[0], tmp_path / "run", experiment_of(paths, Overrides(limit_steps=1)))
    assert stopped is None
    cells = [(c.cell.concurrency, c.cell.workload, c.cell.arm) for c in folder.cells()]
    assert cells == [
        (1, "a", "baseline"), (1, "a", "drafted"), (1, "b", "drafted"), (1, "b", "baseline"),
        (2, "a", "drafted"), (2, "a", "baseline"), (2, "b", "baseline"), (2, "b", "drafted"),
    ]  # fmt: skip
    assert {r.step_index for r in folder.steps()} == {0}


async def test_both_arms_see_the_same_prompts(tmp_path: Path) -> None:
    """The counted prompts of the two arms are equal, body for body, apart from the arm's own fields."""
    async with two_servers() as servers:
        await measured(written(tmp_path, servers, concurrency=[1]), tmp_path / "run")
        sent = {
            arm: [r.json["messages"] for r in server.requests if "chat" in r.path] for arm, server in servers.items()
        }
    assert sorted(map(str, sent["baseline"])) == sorted(map(str, sent["drafted"]))
    assert len(sent["baseline"]) == 14  # two cells of one warm-up step and six counted ones


async def test_counts_agree_with_the_server(tmp_path: Path) -> None:
    """What the requests report adds up to what the server's own counters moved by."""
    async with two_servers() as servers:
        folder, _ = await measured(written(tmp_path, servers, concurrency=[1]), tmp_path / "run")
    drafted = [r for r in folder.steps() if r.cell.arm == "drafted"]
    cells = [c for c in folder.cells() if c.cell.arm == "drafted"]
    moved = [c.server_after - c.server_before for c in cells if c.server_after and c.server_before]
    assert sum(m.num_accepted_tokens for m in moved) == sum(r.spec.num_accepted_tokens for r in drafted if r.spec) > 0
    assert sum(m.num_draft_tokens for m in moved) == sum(r.spec.num_draft_tokens for r in drafted if r.spec) > 0


async def test_closed_loop_keeps_the_concurrency(tmp_path: Path) -> None:
    """At concurrency 2 two tasks are in progress until the last counted one ends, never three."""
    async with two_servers() as servers:
        path = written(tmp_path, servers, tasks=4, wait_s=0.05, concurrency=[2], repeats=1)
        folder, _ = await measured(path, tmp_path / "run")
        assert all(server.peak_requests <= 2 for server in servers.values())
    spans: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for r in folder.steps():
        if r.cell.arm == "baseline" and r.phase == "counted":
            spans[r.phase, r.instance] += [r.due_ns, r.end_ns]
    edges = sorted([(min(s), 1) for s in spans.values()] + [(max(s), -1) for s in spans.values()])
    depth = peak = 0
    for _, change in edges:
        depth += change
        peak = max(peak, depth)
    assert peak == 2


async def test_next_step_is_due_at_the_end_plus_the_tool_wait(tmp_path: Path) -> None:
    """A tool wait of 50 ms puts the next step's due time exactly 50 ms after the end of the step that called the tool."""
    async with two_servers() as servers:
        path = written(tmp_path, servers, wait_s=0.05, concurrency=[1], repeats=1)
        folder, _ = await measured(path, tmp_path / "run")
    steps = {(r.cell.arm, r.instance, r.step_index): r for r in folder.steps() if r.phase == "counted"}
    pairs = [(first, steps[arm, instance, 1]) for (arm, instance, index), first in steps.items() if index == 0]
    assert len(pairs) == 6
    for first, second in pairs:
        assert second.due_ns - first.end_ns == first.tool_wait_ns == 50_000_000
        assert second.sent_ns is not None
        assert second.sent_ns >= second.due_ns


async def test_cool_down_is_cut_and_never_counted(tmp_path: Path) -> None:
    """When the last counted task ends, tasks that only kept the load up are cut; the server is left with no request."""
    slow = FakeLlama(pass_s=lambda open_requests: 0.02)
    async with FakeServer(slow) as server:
        path = written(tmp_path, {"baseline": server}, tasks=2, concurrency=[2], repeats=1)
        folder, _ = await measured(path, tmp_path / "run")
        assert server.open_requests == 0
    phases = Counter((r.phase, r.error_kind) for r in folder.steps())
    assert phases["counted", None] == 4
    assert phases["cool_down", "cancelled"] == 1


FAULTS = {
    "an error status": (json_reply({"error": {"message": "boom"}}, 500), "http_status"),
    "a hang": (Reply([(0, delta(content="half "))], then="hang"), "timeout"),
    "garbage": (Reply([(0, b"\x00\xff not sse at all\n\n")]), "protocol"),
    "a close inside a chunk": (Reply([(0, delta(content="half ")[:-9])], then="reset"), "disconnect"),
    "an error event": (Reply([(0, event({"error": {"message": "out of memory"}}))]), "protocol"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failed_request_is_a_record_and_the_run_goes_on(tmp_path: Path, fault: str) -> None:
    """One bad answer fails its step, the rest of its task is recorded as not sent, every other row is there."""
    reply, kind = FAULTS[fault]
    async with two_servers(faults={1: reply}) as servers:
        folder, stopped = await measured(written(tmp_path, servers, concurrency=[1], repeats=1), tmp_path / "run")
    assert stopped is None
    counted = [r for r in folder.steps() if r.phase == "counted"]
    assert len(counted) == 12
    assert [(r.step_index, r.error_kind) for r in counted if r.error_kind] == [(0, kind), (1, "not_sent")]
    assert all(r.error_message for r in counted if r.error_kind)


async def test_a_server_that_always_fails_ends_the_run_early(tmp_path: Path) -> None:
    """After two cells without one good task the run stops; what was measured on the healthy arm is kept."""
    broken = {number: json_reply({"error": {"message": "boom"}}, 500) for number in range(1000)}
    async with two_servers(faults=broken) as servers:
        folder, stopped = await measured(written(tmp_path, servers, repeats=4), tmp_path / "run")
    assert stopped is not None
    assert stopped.exit_code == 4
    assert "no task of arm drafted succeeded in 2 cells in a row" in str(stopped)
    assert Counter(c.status for c in folder.cells()) == {"failed": 2, "done": 1}
    assert folder.manifest["status"].startswith("stopped: ")


async def test_a_run_that_broke_off_can_be_continued(tmp_path: Path) -> None:
    """Steps are on record, so the command ends with the engine's exit code and says how to go on."""
    broken = {number: json_reply({"error": {"message": "boom"}}, 500) for number in range(1000)}
    async with two_servers(faults=broken) as servers:
        path, out = written(tmp_path, servers, repeats=4), tmp_path / "run"
        command = [sys.executable, "-m", "harness", "run", str(path), "--out", str(out)]
        child = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=-3, stderr=-1)
        _, stderr = await child.communicate()
    assert child.returncode == 4
    assert f"continue with: harness run --resume {out}" in stderr.decode()
    assert RunFolder.open(out).begun()


async def test_a_hung_server_is_not_waited_for_task_by_task(tmp_path: Path) -> None:
    """At concurrency 1 a server that hangs costs three timeouts; the other tasks are recorded as not sent."""
    hung = {number: Reply([], then="hang") for number in range(1000)}
    async with FakeServer(FakeLlama(faults=hung)) as server:
        path = written(tmp_path, {"baseline": server}, tasks=8, concurrency=[1], repeats=1, warm_up={"steps": 0})
        folder, stopped = await measured(path, tmp_path / "run")
    assert stopped is not None
    kinds = Counter(r.error_kind for r in folder.steps())
    assert kinds == {"timeout": 3, "not_sent": 13}
    assert [c.error_message for c in folder.cells()] == ["given up: no task succeeded"]


async def test_a_failing_server_is_not_hammered_to_keep_the_load_up(tmp_path: Path) -> None:
    """While the last counted task waits for its tool, a cool-down task that fails is not followed by another one."""
    broken = {number: json_reply({"error": {"message": "boom"}}, 500) for number in range(2, 1000)}
    async with FakeServer(FakeLlama(faults=broken)) as server:
        path = written(
            tmp_path, {"baseline": server}, tasks=2, wait_s=0.3, concurrency=[2], repeats=1, warm_up={"steps": 0}
        )
        folder, _ = await measured(path, tmp_path / "run")
    cool_down = Counter(r.error_kind for r in folder.steps() if r.phase == "cool_down")
    assert cool_down["http_status"] <= 1


async def test_an_arm_that_always_fails_is_not_a_complete_run(tmp_path: Path) -> None:
    """One arm failing in its only cell lets the run go on to the end and still ends with an engine error."""
    broken = {number: json_reply({"error": {"message": "boom"}}, 500) for number in range(1000)}
    async with two_servers(faults=broken) as servers:
        folder, stopped = await measured(written(tmp_path, servers, concurrency=[1], repeats=1), tmp_path / "run")
    assert str(stopped) == "1 of 2 cells failed; the report says which"
    assert folder.manifest["status"].startswith("stopped: ")


async def test_an_attached_server_that_goes_away_ends_the_run(tmp_path: Path) -> None:
    """A server that stops listening in the middle leaves failed records and an engine error, not a crash."""
    async with FakeServer(FakeLlama()) as server:
        path = written(tmp_path, {"baseline": server}, tasks=3, concurrency=[1], repeats=4)

        def parts(body: Mapping[str, Any]) -> list[str]:
            if sum(request.path.endswith("completions") for request in server.requests) > 8:  # within the second cell
                asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(server.stop()))
            return ["a ", "b "]

        server._script = FakeLlama(answer=parts)
        folder, stopped = await measured(path, tmp_path / "run")
    assert stopped is not None
    assert stopped.exit_code == 4
    failed = Counter(r.error_kind for r in folder.steps())
    assert failed["connect"] + failed["disconnect"] >= 1
    assert failed["not_sent"] >= 1


async def test_resume_runs_only_what_is_missing(tmp_path: Path) -> None:
    """A folder whose last two cells are missing gets exactly those, as a second attempt where rows were left behind."""
    async with two_servers() as servers:
        path = written(tmp_path, servers)
        folder, _ = await measured(path, tmp_path / "run")
        whole = keys(folder)
        cells = (tmp_path / "run" / "cells.jsonl").read_bytes().splitlines(keepends=True)
        (tmp_path / "run" / "cells.jsonl").write_bytes(b"".join(cells[:-2]))
        before = {name: len(server.requests) for name, server in servers.items()}
        again, stopped = await measured(path, tmp_path / "run")
        chats = {
            name: sum("chat" in r.path for r in server.requests[before[name] :]) for name, server in servers.items()
        }
    assert stopped is None
    assert keys(again) == whole
    assert all(7 <= count <= 9 for count in chats.values())  # one cell each: a warm-up, six counted, a cool-down or two
    assert sorted(again.done_cells().values()) == [1] * 6 + [2] * 2


async def test_resume_refuses_other_input(tmp_path: Path) -> None:
    """A workload that changed since the run was started cannot continue it; the change is named."""
    async with two_servers() as servers:
        path = written(tmp_path, servers, concurrency=[1], repeats=1)
        folder, _ = await measured(path, tmp_path / "run")
        written(tmp_path, servers, concurrency=[1], repeats=1, sampling={"temperature": 0.5})
        with pytest.raises(RunFolderError, match=r"changed since .* was started \(sampling\)"):
            check_resumable(experiment_of([path], Overrides()), folder)


async def test_a_run_from_before_a_key_existed_can_be_continued(tmp_path: Path) -> None:
    """A manifest without keys that workloads got later counts as one with their defaults."""
    async with two_servers() as servers:
        path = written(tmp_path, servers)
    plan = experiment_of([path], Overrides())
    out = tmp_path / "run"
    folder = RunFolder.create(out, build(plan.workloads, [], "en", out))
    described = folder.manifest["workloads"][0]
    del described["engine"]["options"]
    for arm in described["arms"]:
        del arm["engine"]
    check_resumable(plan, folder)
    described["engine"]["threads"] = 2
    with pytest.raises(RunFolderError, match=r"changed since .* \(engine\)"):
        check_resumable(plan, folder)
    folder.close()


async def test_resume_refuses_another_engine(tmp_path: Path) -> None:
    """A run begun on one model cannot be continued on servers that serve another one."""
    async with two_servers() as servers:
        path = written(tmp_path, servers, concurrency=[1], repeats=1)
        folder, _ = await measured(path, tmp_path / "run")
    folder.manifest["engine"]["version"] = "another build"
    folder.write_manifest()
    (tmp_path / "run" / "cells.jsonl").write_bytes(b"")
    async with two_servers() as servers:
        plan = experiment_of([written(tmp_path, servers, concurrency=[1], repeats=1)], Overrides())
        with pytest.raises(RunFolderError, match="was begun with another engine"):
            await measured(path, tmp_path / "run", plan)


async def test_kill_9_and_resume_give_the_rows_of_an_uninterrupted_run(tmp_path: Path) -> None:
    """The command line, killed without warning in the middle and continued, ends with the rows of a run that was left alone."""
    plain_llama = FakeLlama(pass_s=lambda open_requests: 0.01)
    drafting_llama = FakeLlama(draft=(2, 1), pass_s=lambda open_requests: 0.01)
    async with FakeServer(plain_llama) as plain, FakeServer(drafting_llama) as other:
        path = written(tmp_path, {"baseline": plain, "drafted": other})
        left_alone, _ = await measured(path, tmp_path / "left-alone")
        out = tmp_path / "killed"
        command = [sys.executable, "-m", "harness", "run", str(path), "--out", str(out)]
        child = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=-3, stderr=-3)
        while not (out / "cells.jsonl").exists() or len((out / "cells.jsonl").read_bytes().splitlines()) < 3:
            assert child.returncode is None
            await asyncio.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()
        assert len(RunFolder.open(out).done_cells()) < 8
        resume = [sys.executable, "-m", "harness", "run", "--resume", str(out)]
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        child = await asyncio.create_subprocess_exec(*resume, cwd=elsewhere, stdout=-1, stderr=-1)
        stdout, stderr = await child.communicate()
    assert child.returncode == 0, stderr.decode()
    assert keys(RunFolder.open(out)) == keys(left_alone)
    assert (out / "report.html").stat().st_size > 10_000
    assert stdout.decode().strip().splitlines()[-1]  # the verdict


def test_files_of_one_run_must_agree_on_their_arms(tmp_path: Path) -> None:
    """One arm name with two meanings is told with the line of the second."""
    for name, n in (("a", 3), ("b", 4)):
        (tmp_path / name).mkdir()
        write_tasks(tmp_path / name / "tasks.jsonl", [task(0)])
        (tmp_path / name / "w.yaml").write_text(
            f"name: {name}\ntasks: tasks.jsonl\nconcurrency: [1]\narms:\n"
            f"  - {{name: baseline, method: none}}\n  - {{name: d, method: ngram-map-k, options: {{size_n: {n}}}}}\n"
        )
    with pytest.raises(WorkloadError, match=r"b/w\.yaml:6: arm 'd' is defined otherwise in .*a/w\.yaml"):
        experiment_of([tmp_path / "a" / "w.yaml", tmp_path / "b" / "w.yaml"], Overrides())


def test_one_workload_twice_in_a_run(tmp_path: Path) -> None:
    """The same workload given twice is refused before anything is sent."""
    write_tasks(tmp_path / "tasks.jsonl", [task(0)])
    path = tmp_path / "w.yaml"
    path.write_text("name: w\ntasks: tasks.jsonl\nconcurrency: [1]\narms: [{name: baseline, method: none}]\n")
    assert len(combine(experiment_of([path], Overrides()).workloads).arms) == 1
    with pytest.raises(WorkloadError, match="workload 'w' is already in the run"):
        experiment_of([path, path], Overrides())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run"], 2, "no workload given"),
        (["run", "none.yaml"], 2, "none.yaml:0: cannot read the workload"),
        (["run", "--resume", "nowhere"], 2, "nowhere is no run folder"),
        (["run", "w.yaml", "--resume", "nowhere"], 2, "--resume takes no workloads"),
        (["report", "nowhere"], 2, "nowhere is no run folder"),
        (["models", "pull", "gpt-9"], 2, "unknown model 'gpt-9'; known: smollm2-135m"),
    ],
)
def test_bad_command_lines(
    arguments: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bad input ends with exit code 2 and one message that says what to do; no folder is made."""
    monkeypatch.chdir(tmp_path)
    assert cli.run(arguments) == code
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
