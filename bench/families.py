"""Both families of reference drafters on the workloads: what each drafts, what that gains, and whether outputs stay the same.

``python -m bench.families --out OUT`` measures ``ref-koen`` on the builtin engine in float32, without a drafter and with each one that
comes with the package, on all tasks of ``workloads/`` (one repeat, the arms next to each other, tool waits left out, draft lengths
fixed), and writes into ``OUT``:

``run/``: the run folder, which the same command continues · ``families*.csv`` · ``families.{ko,en}.{html,md}``: acceptance length and
tokens per pass, survival by position, speed-up at each load, all with intervals, by family, method, language and type of text; how
much the later family gains over the first; how many outputs equal the baseline's

``--readme FOLDER`` copies the run's report and these tables into a folder to be published, with a page of plain words. ``--reload`` only
checks that each checkpoint loaded twice, and saved and loaded again, computes the same to the bit.

Exit codes: 0 done, 2 bad input, 3 an output or a reloaded checkpoint differs, else that of ``harness run``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.families_figures import Figures, figures
from bench.families_input import WORKLOADS, available, chosen_files, known, load_settings, write_workloads
from bench.families_page import headlines, words_of, write_all
from bench.families_readme import publish
from drafters.reference import drafters
from harness.errors import HarnessError, UsageError
from harness.store import MANIFEST, RunFolder

RUN = "run"
QUICK_TASKS, QUICK_STEPS, QUICK_TOKENS = 5, 2, 32
DIFFERS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is not there yet, then write tables and pages; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        names = [name.removeprefix("ref:") for name in options.drafters.split(",") if name]
        if options.reload:
            return _reload(names)
        if options.out is None:
            raise UsageError("give a folder with --out, or --reload")
        code = 0 if options.report_only else measure(options, names)
        if code:
            return code
        return report(options)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="python -m bench.families"
    )
    parser.add_argument(
        "--out", type=Path, help="folder of run and tables; the same command goes on with what is in it"
    )
    parser.add_argument("--quick", action="store_true", help="five tasks a cell, two steps a task, 32 tokens an answer")
    parser.add_argument("--concurrency", type=_loads, default=(1, 16), metavar="N,N,…", help="default: 1,16")
    parser.add_argument("--limit-tasks", type=int, metavar="N", help="tasks a cell (never fewer than the concurrency)")
    parser.add_argument("--limit-steps", type=int, metavar="N", help="first steps of each task")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="of each answer")
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="of each cell, arms A B B A (default: 1)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of the engine (default: 1)")
    parser.add_argument(
        "--lengths",
        choices=("fixed", "goodput"),
        default="fixed",
        help="of drafts (default: fixed; goodput may draft none)",
    )
    parser.add_argument(
        "--tool-wait",
        choices=("none", "recorded"),
        default="none",
        help="default: none, no drafter shortens a tool's work",
    )
    parser.add_argument("--drafters", default="", metavar="NAME,…", help="only these (default: all of the package)")
    parser.add_argument("--workloads", nargs="+", type=Path, metavar="FILE", help="default: all of workloads/")
    parser.add_argument("--report-only", action="store_true", help="measure nothing, write the tables again")
    parser.add_argument("--readme", type=Path, metavar="FOLDER", help="also fill a folder to be published")
    parser.add_argument("--reload", action="store_true", help="only check the checkpoints")
    return parser


def measure(options: argparse.Namespace, names: Sequence[str]) -> int:
    """Write the workload files and start or continue ``harness run``; returns its exit code, 0 where it is complete already."""
    arms = available(drafters(), load_settings(), names)
    quick = (QUICK_TASKS, QUICK_STEPS, QUICK_TOKENS) if options.quick else (None, None, None)
    settings = {name: getattr(options, name) for name in ("concurrency", "repeats", "threads", "lengths", "tool_wait")}
    for name, short in zip(("limit_tasks", "limit_steps", "max_tokens"), quick, strict=True):
        given = getattr(options, name)
        settings[name] = short if given is None else given
    folder = options.out / RUN
    begun = (folder / MANIFEST).exists()
    sources = chosen_files(options.workloads or sorted(WORKLOADS.glob("*.yaml")))
    files = write_workloads(sources, options.out / "workloads", arms, settings, begun=begun)
    command = [sys.executable, "-m", "harness", "run"]
    if begun:
        opened = RunFolder.open(folder)
        complete = opened.manifest.get("status") == "complete"
        opened.close()
        if complete:
            return 0
        command += ["--resume", str(folder)]
    else:
        command += [*map(str, files), "--out", str(folder)]
    return subprocess.run(command, check=False).returncode


def report(options: argparse.Namespace) -> int:
    """Write the tables of a run; 3 if an output differs from the baseline's, or one was not compared."""
    found = read(options.out / RUN)
    for path in write_all(found, options.out):
        print(path)
    if options.readme is not None:
        print(publish(found, options.out, options.out / RUN, options.readme))
    for line in headlines(found, words_of("en")):
        print(line.text)
    return 0 if found.unchanged else DIFFERS


def read(folder: Path) -> Figures:
    """Return the figures of a run folder of this benchmark. Raises RunFolderError if there is none or it is damaged."""
    opened = RunFolder.open(folder)
    try:
        return figures(opened, known(load_settings()))
    finally:
        opened.close()


def _reload(names: Sequence[str]) -> int:
    from bench.families_reload import check, table

    arms = available(drafters(), load_settings(), names)
    rows = [check(one) for one in arms]
    print(table(rows))
    return 0 if all(row.same for row in rows) else DIFFERS


def _loads(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of whole numbers; for example 1,16") from None


if __name__ == "__main__":
    sys.exit(main())
