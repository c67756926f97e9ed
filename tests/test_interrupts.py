"""A run that is told to stop: it ends in order, says how to continue, and nothing else."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.interrupts import run_until_told
from harness.store import RunFolder
from tests.fake_server import FakeLlama, FakeServer
from tests.test_experiment import written


async def stopped(tmp_path: Path, numbers: Sequence[signal.Signals]) -> tuple[int | None, str, FakeServer]:
    """Start a run of four tasks at once on a slow server, send it signals while it waits for answers, return how it ended."""
    async with FakeServer(FakeLlama(pass_s=lambda open_requests: 0.5)) as slow:
        path = written(
            tmp_path, {"baseline": slow}, concurrency=[4], warm_up={"steps": 0}, engine={"request_timeout_s": 60}
        )
        command = [sys.executable, "-m", "harness", "run", str(path), "--out", str(tmp_path / "run")]
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL, stderr=-1)
        while slow.peak_requests < 4:
            assert child.returncode is None, await child.communicate()
            await asyncio.sleep(0.02)
        for number in numbers:
            child.send_signal(number)
        _, stderr = await child.communicate()
        await slow.quiet()
        return child.returncode, stderr.decode(), slow


@pytest.mark.parametrize(
    "numbers",
    [[signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM, signal.SIGINT, signal.SIGTERM]],
    ids=["SIGTERM", "SIGINT", "three in a row"],
)
async def test_a_signal_ends_a_run_without_a_word_of_asyncio(tmp_path: Path, numbers: list[signal.Signals]) -> None:
    """It ends with 130 and the two lines that say so; requests in flight are closed and recorded as cancelled."""
    code, stderr, server = await stopped(tmp_path, numbers)
    assert code == 130
    said = [line for line in stderr.splitlines() if "interrupted" in line]
    assert said == [f"interrupted; continue with: harness run --resume {tmp_path / 'run'}", "interrupted"]
    for sign in ("Traceback", "Task ", "never retrieved", "pending", "Exception ignored"):
        assert sign not in stderr
    assert server.disconnects == 4
    steps = list(RunFolder.open(tmp_path / "run").steps())
    assert [item.error_kind for item in steps].count("cancelled") == 4
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "running"


def test_what_is_in_progress_is_cleaned_up_before_the_interrupt_is_raised() -> None:
    """A coroutine that takes a moment to close gets it; handlers are those of before afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    said: list[str] = []

    async def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            said.append("closed")

    with pytest.raises(KeyboardInterrupt):
        run_until_told(work())
    assert said == ["closed"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_cuts_the_cleaning_up_short_and_leaves_no_task_behind(caplog: pytest.LogCaptureFixture) -> None:
    """What waits for a minute in its way out is cancelled again; asyncio finds no task that nobody awaited."""
    ended: list[str] = []

    async def slot() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("slot")

    async def work() -> None:
        slots = [asyncio.create_task(slot()) for _ in range(2)]
        try:
            await asyncio.sleep(0)
            signal.raise_signal(signal.SIGTERM)
            await asyncio.gather(*slots)
        finally:
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        run_until_told(work())
    gc.collect()
    assert ended == ["slot", "slot"]
    assert [item.message for item in caplog.records if item.name == "asyncio"] == []


def test_without_a_signal_results_and_errors_come_through() -> None:
    """It returns what the coroutine returns and raises what it raises."""

    async def work(number: int) -> int:
        if number == 0:
            raise ValueError("none")
        return number

    assert run_until_told(work(3)) == 3
    with pytest.raises(ValueError, match="none"):
        run_until_told(work(0))
