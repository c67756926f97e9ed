"""From a warm start to the first request: ``python -m bench.start``. The limit is 3 s.

Starts ``harness run`` on the pulled model, as a user does, and reads from the first step when its request left. The clock is the
system's monotonic one, shared by both processes. Warm: the model is in the cache folder and was read before. Several starts; the
first is not counted. Beside it stands the time of ``harness --help``: the interpreter and the imports that nothing can save.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.store import RunFolder

STARTS = 5
COMMAND = [sys.executable, "-m", "harness"]
MODEL = ["--engine", "llamacpp", "--model", "smollm2-135m"]
RUN = ["run", "workloads/coding-en.yaml", *MODEL, "--limit-tasks", "1", "--concurrency", "1", "--arms"]
RUN += ["baseline,ngram-simple"]


def first_request_s(folder: Path) -> float:
    """Return the seconds from the start of the process to its first request, then end it."""
    began_ns = time.monotonic_ns()
    child = subprocess.Popen(
        [*COMMAND, *RUN, "--out", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not (folder / "steps.jsonl").exists():
            if child.poll() is not None:
                raise SystemExit(f"the run ended with exit code {child.returncode} before its first step")
            time.sleep(0.05)
        sent_ns = next(RunFolder.open(folder).steps()).sent_ns
    finally:
        child.send_signal(signal.SIGINT)
        child.wait()
    assert sent_ns is not None
    return (sent_ns - began_ns) / 1e9


def help_s() -> float:
    """Return the seconds until the command has printed its help and ended."""
    began = time.monotonic()
    subprocess.run([*COMMAND, "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def main() -> None:
    """Print the median, the extremes and the share of the limit."""
    os.chdir(Path(__file__).parent.parent)
    folder = Path(tempfile.mkdtemp(prefix="spec-harness-start-"))
    try:
        pairs = [(help_s(), first_request_s(folder / str(index))) for index in range(STARTS + 1)][1:]
    finally:
        shutil.rmtree(folder)
    helps, firsts = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    print(
        f"first request after {statistics.median(firsts):.2f} s (from {min(firsts):.2f} to {max(firsts):.2f}, {STARTS} starts, limit 3 s)"
    )
    print(
        f"of it the interpreter alone (--help): {statistics.median(helps):.2f} s; two llama.cpp servers are started one after the other"
    )


if __name__ == "__main__":
    main()
