"""Servers that the harness starts for an arm: real child processes, from the first line of their log to the last of their workers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.engines.control import ControlCalls
from harness.engines.launched import LaunchedServer, free_port, make_room
from harness.errors import EngineRefused, EngineStartError
from harness.workload_launch import LaunchSpec, launch_of
from tests.engines.test_process import eventually, running
from tests.fake_server import FakeLlama, FakeServer

PROGRAM = [sys.executable, "-m", "tests.launched_server", "--name", "{arm}", "--port", "{port}"]
HARNESS = """
import asyncio, sys
from pathlib import Path
from tests.engines.test_launched import PROGRAM, server
async def main():
    own = server(Path(sys.argv[1]), command=[*PROGRAM, "--worker", sys.argv[2]])
    await own.start()
    sys.stdout.write(own.base_url + chr(10))
    sys.stdout.flush()
    await asyncio.sleep(600)
asyncio.run(main())
"""
WITH_CONFIG = [*PROGRAM, "--speculative-config", "{speculative_config}"]


async def healthy(base_url: str, path: str) -> bool:
    """Ask a server whether it is ready."""
    return await ControlCalls("the server", base_url).healthy(path)


async def status(base_url: str, path: str) -> int | None:
    """Ask a server for the status of a path."""
    return await ControlCalls("the server", base_url).status(path)


def server(
    folder: Path,
    arm: str = "a",
    base_url: str | None = None,
    told: list[tuple[str, float]] | None = None,
    grace_s: float = 5.0,
    hidden: tuple[str, ...] = (),
    patience_s: float = 30.0,
    **keys: Any,
) -> LaunchedServer:
    """Return a server that is not started yet; ``told`` collects what its progress is told."""
    given = LaunchSpec.model_validate({"command": PROGRAM, "start_timeout_s": 60.0, **keys})
    launch = launch_of(arm, None, given, drafts=arm != "baseline", context_tokens=4096)
    assert launch is not None
    kept = [] if told is None else told
    return LaunchedServer(
        launch,
        model="m",
        folder=folder,
        status=status,
        base_url=base_url,
        hidden=hidden,
        patience_s=patience_s,
        progress=lambda stage, part: kept.append((stage, part)),
        grace_s=grace_s,
    )


def parent_of(pid: int) -> int:
    """Return the process that started another."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def arguments_of(started: LaunchedServer) -> list[str]:
    """Return the arguments that the program says it got."""
    line = next(line for line in started.log.read_text().splitlines() if line.startswith("arguments "))
    value: list[str] = json.JSONDecoder().raw_decode(line.removeprefix("arguments "))[0]
    return value


async def test_a_server_is_started_on_a_port_of_its_own_and_stopped_with_its_workers(tmp_path: Path) -> None:
    """It answers at the port that was filled in; a worker that left its group and ignores SIGTERM is gone after the stop."""
    file = tmp_path / "worker"
    command = [*PROGRAM, "--worker", str(file)]
    own = server(tmp_path, command=command, env={"TUNING": "{arm} at {port}"}, grace_s=0.3)
    assert not own.alive()
    await own.start()
    port = own.base_url.rsplit(":", 1)[1]
    assert arguments_of(own)[:4] == ["--name", "a", "--port", port]
    assert f"tuning a at {port}" in own.log.read_text()
    worker = int(file.read_text())
    assert running(worker)
    await own.start()  # runs already
    assert own.base_url.endswith(port)
    await own.stop()
    assert not own.alive()
    assert eventually(lambda: not running(worker))
    await own.stop()


async def test_a_deaf_server_is_killed(tmp_path: Path) -> None:
    """A server that ignores SIGTERM is gone after the grace, and can be started again."""
    own = server(tmp_path, command=[*PROGRAM, "--deaf"], grace_s=0.2)
    await own.start()
    await own.stop()
    assert not await healthy(own.base_url, "/health")
    await own.start()
    assert await healthy(own.base_url, "/health")
    await own.stop()


async def test_a_server_that_dies_takes_its_workers_along(tmp_path: Path) -> None:
    """Killed from outside it is known to have died, its worker is gone soon, and it can be started again."""
    file = tmp_path / "worker"
    own = server(tmp_path, command=[*PROGRAM, "--worker", str(file)])
    await own.start()
    assert not own.died
    worker = int(file.read_text())
    os.kill(parent_of(worker), signal.SIGKILL)
    assert eventually(lambda: own.died)
    assert eventually(lambda: not running(worker))
    await own.start()
    assert await healthy(own.base_url, "/health")
    assert not own.died
    await own.stop()
    assert not own.died


async def test_waiting_is_told(tmp_path: Path) -> None:
    """While it loads, progress says how long of how long it has been waited for, and what the log said last."""
    told: list[tuple[str, float]] = []
    own = server(tmp_path, told=told, command=[*PROGRAM, "--load-s", "1"])
    await own.start()
    await own.stop()
    stages = [stage for stage, _ in told]
    assert any(re.fullmatch(r"start a: loading the weights · \d+ of 60 s", stage) for stage in stages), stages
    assert stages[-1] == "start a: ready"
    assert all(0 <= part <= 1 for _, part in told)


async def test_a_server_that_is_never_ready_is_an_error_with_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past its timeout the error quotes log and command; the key that the server repeats is in neither, nor in the log."""
    monkeypatch.setenv("LAUNCH_TEST_KEY", "sk-1234567890")
    says = "echo loading the weights on port $0 with $2; sleep 600"
    command = ["sh", "-c", says, "{port}", "--api-key", "${LAUNCH_TEST_KEY}"]
    own = server(tmp_path, command=command, start_timeout_s=8.0, grace_s=0.2)
    with pytest.raises(EngineStartError) as caught:
        await own.start()
    text = str(caught.value)
    assert "the server of arm 'a' was not ready within 8 s" in text
    assert re.search(r"loading the weights on port \d+ with \*\*\*", text)
    assert "started with: sh -c" in text
    assert re.search(r"asked: GET http://127.0.0.1:\d+/health, the last time with no answer", text)
    assert re.search(r" \d+ --api-key '\$\{LAUNCH_TEST_KEY\}'", text)
    assert re.search(r"loading the weights on port \d+ with \*\*\*", own.log.read_text())
    assert not own.alive()


async def test_a_wrong_health_path_is_told_early(tmp_path: Path) -> None:
    """A server that answers 404 there for a while is stopped long before its timeout; path and answer are named."""
    own = server(tmp_path, health="/nowhere", patience_s=0.3)
    with pytest.raises(
        EngineStartError, match=r"(?s)give launch.health a path.*GET .*/nowhere, the last time with status 404"
    ):
        await own.start()
    assert not own.alive()


async def test_quoted_output_is_fit_for_a_terminal(tmp_path: Path) -> None:
    """Colours go, other control characters are escaped, and an argument of several lines is cut to its first."""
    says = "printf '\\033[31mred\\033[0m \\007bell\\rback\\n'\nexit 3"
    own = server(tmp_path, command=["sh", "-c", says, "{port}"])
    with pytest.raises(EngineStartError, match=r"red \\x07bell\n  back") as caught:
        await own.start()
    assert "\x1b" not in str(caught.value)
    assert "exit 3" not in str(caught.value)
    assert " …" in str(caught.value)


async def test_inherited_keys_are_in_no_message_and_no_kept_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server prints what it inherits: the key of the access and variables that are called like one are masked, others are not."""
    for name, value in (
        ("GATE_TOKEN", "tk-1234567890"),
        ("ENGINE", "en-1234567890"),
        ("TOKENIZERS_PARALLELISM", "parallel"),
    ):
        monkeypatch.setenv(name, value)
    says = "echo $0 $GATE_TOKEN $ENGINE $TOKENIZERS_PARALLELISM; exit 3"
    own = server(tmp_path, command=["sh", "-c", says, "{port}"], hidden=("en-1234567890",))
    with pytest.raises(EngineStartError, match=r"\*\*\* \*\*\* parallel") as caught:
        await own.start()
    for text in (str(caught.value), own.log.read_text()):
        assert "-12345" not in text


async def test_no_key_is_ever_in_the_log_not_even_while_the_server_runs_or_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It prints the key among its arguments at once; the log has the mask while it runs, and after everything was killed with -9."""
    monkeypatch.setenv("LAUNCH_TEST_KEY", "sk-1234567890")
    own = server(tmp_path, command=[*PROGRAM, "--api-key", "${LAUNCH_TEST_KEY}"])
    await own.start()
    process = own._process
    assert process is not None
    assert process.pid is not None
    assert "***" in arguments_of(own)
    process.kill()
    assert not own.alive()
    assert "sk-12345" not in own.log.read_text()
    await own.stop()


async def test_a_server_that_ends_at_once_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    """The error has the program's exit code and what it complained about; a program that is not there is named."""
    own = server(tmp_path, command=[*PROGRAM, "--no-such-flag"])
    with pytest.raises(EngineStartError, match=r"(?s)ended with exit code 2 .*unrecognized arguments: --no-such-flag"):
        await own.start()
    own = server(tmp_path, command=[str(tmp_path / "nothing"), "{port}"])
    with pytest.raises(EngineStartError, match=r"(?s)exit code 127 .*cannot execute '.*nothing'.*No such file"):
        await own.start()


async def test_the_drafter_is_one_json_argument_and_a_baseline_has_none(tmp_path: Path) -> None:
    """The mapping of the arm becomes one argument; without one the flag goes with it."""
    config = {"method": "ngram", "num_speculative_tokens": 4}
    own = server(tmp_path, command=WITH_CONFIG, speculative_config=config)
    plain = server(tmp_path, "baseline", command=WITH_CONFIG, speculative_config=config)
    for each in (own, plain):
        await each.start()
        await each.stop()
    flag, text = arguments_of(own)[-2:]
    assert flag == "--speculative-config"
    assert json.loads(text) == config
    assert "--speculative-config" not in arguments_of(plain)


async def test_a_server_with_an_address_of_its_own_must_find_it_free(tmp_path: Path) -> None:
    """Where something answers already the measured server would be another one: it is refused before anything is started."""
    async with FakeServer(FakeLlama()) as other:
        own = server(tmp_path, base_url=other.base_url, command=[arg.replace("{port}", "1") for arg in PROGRAM])
        with pytest.raises(EngineRefused, match="something already answers there"):
            await own.start()
    assert not own.started


async def test_servers_that_do_not_fit_side_by_side_make_room(tmp_path: Path) -> None:
    """Only servers that both say so stay up together; the others are stopped."""
    servers = {arm: server(tmp_path, arm, side_by_side=arm != "c") for arm in "abc"}
    for arm in ("a", "b"):
        assert await make_room(servers, arm) == []
        await servers[arm].start()
    assert await make_room(servers, "c") == ["a", "b"]
    assert not servers["a"].alive()
    await servers["c"].start()
    assert await make_room(servers, "a") == ["c"]
    assert not servers["c"].alive()


def test_nothing_outlives_a_harness_that_was_killed(tmp_path: Path) -> None:
    """After ``kill -9`` of the process that started it, server and worker are gone."""
    file = tmp_path / "worker"
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(tmp_path), str(file)], stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    base_url = harness.stdout.readline().strip()
    os.kill(harness.pid, signal.SIGKILL)
    harness.wait()
    harness.stdout.close()
    assert eventually(lambda: not running(int(file.read_text())))
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{base_url}/health", trust_env=False)


def test_a_free_port_is_not_one_of_outgoing_connections() -> None:
    """The port lies below the range from which the system numbers connections, so that none sits on it while a model loads."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert 10_000 <= free_port() < first
