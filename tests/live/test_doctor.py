"""``harness doctor`` on real servers of four kinds; what it prints is kept beside the reports."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from harness.engines.control import ControlCalls
from harness.engines.launched import LaunchedServer, free_port
from harness.workload import load
from tests.live.running import ROOT, Place, harness
from tests.live.test_llama_server import WORKLOADS as OF_LLAMA
from tests.live.test_llama_server import llama_server
from tests.live.test_vllm import WORKLOADS as OF_VLLM

FIT, UNFIT = 0, 4
START_S = 300.0


def ask(place: Place, name: str, address: str) -> tuple[int, str]:
    """Return exit code and screen of the doctor, and keep the screen."""
    done = harness("doctor", address, capture=True)
    (ROOT / place.reports / f"doctor-{name}.txt").write_text(done.stdout, encoding="utf-8")
    return done.returncode, done.stdout


@contextmanager
def command(*arguments: str, port: int, path: str) -> Iterator[str]:
    """Run a Python module as a server and give its address once it answers."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_S
    try:
        while process.poll() is None and time.monotonic() < deadline:
            try:
                if httpx.get(f"{address}{path}", trust_env=False).status_code == httpx.codes.OK:
                    break
            except httpx.TransportError:
                time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait(30)


async def test_doctor_of_vllm(place: Place, target: str, context: int, tmp_path: Path) -> None:
    """A server that drafts and tells its acceptance is fit, and the screen says so."""
    workload = load(ROOT / OF_VLLM[0]).workload
    engine = workload.engine.model_copy(update={"context_tokens": context})
    launch = engine.launch_for(workload.arms[1])
    assert launch is not None

    async def status(base_url: str, path: str) -> int | None:
        return await ControlCalls("vllm", base_url).status(path)

    server = LaunchedServer(launch, model=str(ROOT / target), folder=tmp_path, status=status)
    await server.start()
    try:
        code, screen = ask(place, "vllm", server.base_url)
    finally:
        await server.stop()
    assert code == FIT
    assert "0.32.0" in screen


def test_doctor_of_llama_server(place: Place, gguf: Path, context: int, tmp_path: Path) -> None:
    """A llama-server that drafts is fit."""
    arm = load(OF_LLAMA[0]).workload.arms[1]
    with llama_server(gguf, arm, tmp_path / "server.log", context) as address:
        code, _ = ask(place, "llama-server", address)
    assert code == FIT


def test_doctor_of_the_builtin_engine(place: Place, target: str) -> None:
    """The engine of this package is asked like any other and is fit."""
    port = free_port()
    serve = ("harness", "serve", target, "--drafter", "lookup=prompt_lookup", "--port", str(port))
    with command(*serve, port=port, path="/health") as address:
        code, _ = ask(place, "builtin", address)
    assert code == FIT


def test_doctor_of_a_plain_web_server(place: Place, tmp_path: Path) -> None:
    """A server of files answers no chat completion: not fit, and it is said why."""
    port = free_port()
    with command(
        "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path), port=port, path="/"
    ) as address:
        code, screen = ask(place, "web-server", address)
    assert code == UNFIT
    assert "no OpenAI-compatible server" in screen
