"""Child processes: real ones, started, watched, stopped, and never left behind."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.engines.process import ChildProcess
from harness.errors import EngineStartError

WATCHING = "from harness.engines.process import die_with_parent\ndie_with_parent()\n"


def child(folder: Path, code: str, name: str = "the child") -> ChildProcess:
    """Return a child that runs a piece of Python."""
    return ChildProcess(name, [sys.executable, "-u", "-c", textwrap.dedent(code)], folder / "child.log")


def running(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def eventually(condition: Callable[[], bool]) -> bool:
    """Wait up to 20 s for a condition."""
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


async def said(process: ChildProcess, text: str) -> None:
    """Wait until the child has written a text."""

    async def ready() -> bool:
        return text in process.log_since_start()

    await process.wait_until(ready, 20)


async def test_start_and_stop(tmp_path: Path) -> None:
    """A started child is alive with its output in the log, a stopped one is gone, and stopping again does nothing."""
    process = child(tmp_path, "import time; print('ready'); time.sleep(600)")
    assert not process.alive()
    process.start()
    await said(process, "ready")
    assert process.alive()
    with pytest.raises(EngineStartError, match="already runs"):
        process.start()
    await process.stop()
    assert not process.alive()
    assert process.exit_code == -signal.SIGTERM
    await process.stop()


async def test_a_child_can_be_started_again(tmp_path: Path) -> None:
    """After a stop the same child starts anew, and only its new output counts."""
    process = child(tmp_path, "import os, time; print('pid', os.getpid()); time.sleep(600)")
    process.start()
    await said(process, f"pid {process.pid}")
    first = process.pid
    await process.stop()
    process.start()
    await said(process, f"pid {process.pid}")
    assert f"pid {first}" not in process.log_since_start()
    await process.stop()


async def test_a_deaf_child_is_killed_with_its_own_children(tmp_path: Path) -> None:
    """A child that ignores SIGTERM, and what it started, are killed after the grace."""
    process = child(
        tmp_path,
        """
        import signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        inner = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
        print("inner", inner.pid, "end")
        time.sleep(600)
        """,
    )
    process.start()
    await said(process, "end")
    inner = int(process.log_since_start().split()[1])
    await process.stop(grace_s=0.2)
    assert process.exit_code == -signal.SIGKILL
    assert eventually(lambda: not running(inner))


async def test_a_child_that_ends_early_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    """The error of a child that ended names the exit code and quotes the end of its log."""
    process = child(tmp_path, "import sys; print('no such model'); sys.exit(3)", "the server of arm 'a'")
    process.start()
    with pytest.raises(EngineStartError, match=r"(?s)the server of arm 'a' ended with exit code 3.*no such model"):
        await said(process, "never")
    await process.stop()


async def test_a_child_that_is_never_ready_is_an_error(tmp_path: Path) -> None:
    """Past the timeout the error says so and quotes the log."""
    process = child(tmp_path, "import time; print('still loading'); time.sleep(600)")
    process.start()
    await said(process, "still loading")

    async def never() -> bool:
        return False

    with pytest.raises(EngineStartError, match=r"(?s)not ready within 0.1 s.*still loading"):
        await process.wait_until(never, 0.1)
    await process.stop()


def test_a_missing_program_is_an_error(tmp_path: Path) -> None:
    """A program that does not exist is named."""
    process = ChildProcess("the server", [str(tmp_path / "nothing")], tmp_path / "log")
    with pytest.raises(EngineStartError, match="cannot execute"):
        process.start()


async def test_cancelling_a_stop_still_kills(tmp_path: Path) -> None:
    """A second Ctrl-C during the grace ends the child at once."""
    process = child(tmp_path, "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready'); time.sleep(600)")
    process.start()
    await said(process, "ready")
    stopping = asyncio.create_task(process.stop(grace_s=600))
    await asyncio.sleep(0.1)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert process.exit_code == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_child_outlives_its_parent(tmp_path: Path, number: signal.Signals) -> None:
    """However the parent ends, kill -9 included, the child ends too."""
    script = f"""
    import sys, time
    from pathlib import Path
    from harness.engines.process import ChildProcess
    code = {WATCHING + "import time; print('ready'); time.sleep(600)"!r}
    process = ChildProcess("child", [sys.executable, "-u", "-c", code], Path({str(tmp_path / "child.log")!r}))
    process.start()
    while "ready" not in process.log_since_start():
        time.sleep(0.05)
    print(process.pid, flush=True)
    time.sleep(600)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert running(pid)
    os.kill(parent.pid, number)
    parent.wait(20)
    parent.stdout.close()
    assert eventually(lambda: not running(pid))


def test_a_crash_of_the_parent_ends_any_child(tmp_path: Path) -> None:
    """An uncaught error in the parent ends even a child that watches nothing."""
    script = f"""
    import sys
    from pathlib import Path
    from harness.engines.process import ChildProcess
    process = ChildProcess("child", [sys.executable, "-c", "import time; time.sleep(600)"], Path({str(tmp_path / "log")!r}))
    process.start()
    print(process.pid, flush=True)
    raise RuntimeError("crash")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert eventually(lambda: not running(int(done.stdout)))
