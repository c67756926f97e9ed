"""How long a report takes: a million steps and ten million rounds, analysed and rendered by ``harness report``.

``python -m bench.analysis`` writes a generated run (a minute or two, not counted), then runs the command on two cores and prints
wall time, time on the processor, peak memory and what was written. Exit code 1 where a limit is passed. ``--stages`` runs the
same in this process instead and prints the functions that took longest, by processor time and so that busy neighbours do not
matter.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tabulate import tabulate

from bench.generated_run import Size, write_run
from harness.analysis.rows import MOMENTS, STEP_ROWS
from harness.analysis.step_lines import read_lines
from harness.store import STEPS

CORES = 2
LOOK_S = 0.1  # between two looks at memory, which take time of the same cores
MOST_S, MOST_GIB = 10.0, 2.0


def report(run: Path) -> tuple[float, float, float]:
    """Run the command and return wall time and processor time in seconds, peak memory of all its processes together in GiB.

    Raises:
        subprocess.CalledProcessError: if it fails.
    """
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    environment = {**os.environ, "POLARS_MAX_THREADS": str(len(cores))}
    environment.pop("_RJEM_MALLOC_CONF", None)  # polars, loaded here, has left its own in what a child would inherit
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    command = [sys.executable, "-m", "harness", "report", str(run)]
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # by which those are found that it starts itself
    )
    os.sched_setaffinity(process.pid, cores)
    memory = 0
    while process.poll() is None:
        memory = max(memory, _resident(process.pid))
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
    wall = time.monotonic() - begin
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, busy, max(memory, after.ru_maxrss << 10) / (1 << 30)


def _resident(session: int) -> int:
    """Return the bytes in memory of all processes of a session; what they share counts more than once."""
    pages = 0
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdecimal() and os.getsid(int(place.name)) == session:
                pages += int((place / "statm").read_text().split()[1])
        except OSError:  # it ended meanwhile
            continue
    return pages * resource.getpagesize()


def parsing(run: Path) -> float:
    """Return the processor time of reading the steps into columns and nothing else: no analysis of them takes less."""
    begin = time.process_time()
    read_lines(run / STEPS, STEP_ROWS, MOMENTS)
    return time.process_time() - begin


def stages(run: Path) -> None:
    """Do the same in this process and print where its processor time goes."""
    from harness.analysis.run import analyse
    from harness.store import RunFolder
    from reports.files import write_all

    profile = cProfile.Profile(time.process_time)
    profile.enable()
    write_all(analyse(RunFolder.open(run)), run, "en")
    profile.disable()
    pstats.Stats(profile).sort_stats("cumulative").print_stats(45)


def _show(size: Size, run: Path, wall: float, busy: float, memory: float, least: float) -> None:
    written = sum(file.stat().st_size for file in run.iterdir() if file.suffix in (".csv", ".html", ".xlsx"))
    rows = [
        ("steps", f"{size.steps:,}"),
        ("rounds", f"{size.rounds:,}"),
        ("cells", f"{size.cells:,}"),
        ("distinct outputs", f"{size.outputs:,}"),
        ("records read, MiB", f"{size.bytes / (1 << 20):,.0f}"),
        ("files written, MiB", f"{written / (1 << 20):,.0f}"),
        ("wall time, s", f"{wall:.2f} (limit {MOST_S:.0f})"),
        ("processor time, s", f"{busy:.2f}"),
        ("reading the steps alone, s", f"{least:.2f} (1/{busy / least:.1f} of the processor time)"),
        ("peak memory, GiB", f"{memory:.2f} (limit {MOST_GIB:.0f})"),
    ]
    print(tabulate(rows, ("harness report", f"{CORES} cores"), colalign=("left", "right")))


def main() -> int:
    """Generate, report, print; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps of the generated run")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of a step, on average")
    parser.add_argument("--folder", type=Path, help="where to write the run; by default a folder that is removed again")
    parser.add_argument("--stages", action="store_true", help="profile in this process instead of timing the command")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spec-harness-bench-") as temporary:
        run = args.folder or Path(temporary) / "run"
        size = write_run(run, args.steps, args.rounds)
        if args.stages:
            stages(run)
            return 0
        os.sync()  # what was generated is on the disk before anything is timed, not meanwhile
        measured = report(run)
        _show(size, run, *measured, parsing(run))
    wall, _, memory = measured
    return 1 if wall > MOST_S or memory > MOST_GIB else 0


if __name__ == "__main__":
    sys.exit(main())
