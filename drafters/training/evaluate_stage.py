"""Measures drafters in deployed form: a run of the harness on the builtin engine, never a figure of training.

Writes workload files with these drafters as arms, calls ``harness run`` as a process of its own, and copies the headline figures out
of the run's CSV files. A killed evaluation is continued where the run stopped.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from drafters.training.evaluate_input import BASELINE, FILES, input_files, read_arms, read_workloads, target_folder
from drafters.training.run_figures import TABLES, figures, read_table
from drafters.training.stage import StageError, begin, finish, take_back, write_whole

NAME = "evaluate"
HELP = "measure drafters in deployed form: a harness run with a baseline and these drafters as arms"
RUN, REPORT = "run", "report.json"
DONE, THRESHOLD_MISSED, BAD_INPUT, INTERRUPTED = 0, 3, 2, 130
ERROR = "error: "  # what the harness's last words begin with
Say = Callable[[str], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the stage."""
    parser.add_argument(
        "--target", type=Path, required=True, metavar="HF_FOLDER", help="the target, as deployed, or ref-koen"
    )
    parser.add_argument(
        "--drafter",
        action="append",
        required=True,
        metavar="NAME=METHOD[,key=value…]",
        help="an arm, for example after=dflash2,model=DIR/checkpoint,num_tokens=7,lengths=fixed; can be given several times",
    )
    parser.add_argument(
        "--workload", type=Path, action="append", required=True, nargs="+", metavar="FILE", help="workload files"
    )
    parser.add_argument("--concurrency", default="1", metavar="N,N…", help="tasks in progress at once (default 1)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the run and report.json go")
    parser.add_argument(
        "--weights", choices=("plain", "rtn4", "nf4"), help="how the target's weights are held (default plain)"
    )
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float64"), help="type of the weights (default float32)"
    )
    parser.add_argument("--device", help="cpu, cuda, cuda:1 … (default cpu)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of one forward pass (default 1)")
    parser.add_argument(
        "--context-tokens",
        type=int,
        metavar="N",
        help="room of one request (default: the target's, at most the file's)",
    )
    parser.add_argument("--repeats", type=int, metavar="N", help="how often each cell runs (default: the file's)")
    parser.add_argument("--limit-tasks", type=int, metavar="N", help="count N tasks a cell")
    parser.add_argument("--limit-steps", type=int, metavar="N", help="only the first N steps of each task")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="cut every answer at N tokens")
    parser.add_argument(
        "--tool-wait", choices=("recorded", "none"), help="whether tools are waited for (default: the file's)"
    )
    parser.add_argument("--lang", choices=("ko", "en"), default="en", help="language of the run's report")


def run(options: argparse.Namespace, say: Say) -> int:
    """Evaluate. Returns 0, or the exit code of a harness run that was interrupted or whose engine failed.

    Raises StageError for bad input, SpecError for a drafter that is described wrongly.
    """
    arms = [{"name": BASELINE, "method": "none"}, *read_arms(options.drafter)]
    target = target_folder(options.target)
    workloads = [path for group in options.workload for path in (group if isinstance(group, list) else [group])]
    contents = read_workloads(workloads, options, target, arms)
    inputs = input_files(target, contents, arms)
    settings = {
        "drafters": [_named(arm) for arm in arms[1:]],
        **{key: value for key, value in vars(options).items() if key in _SETTINGS},
    }
    done = begin(options.out, NAME, inputs, settings)
    if done is not None:
        say(f"already evaluated; the figures are in {options.out / REPORT}")
        return DONE
    files = _write(contents, options.out / "workloads")
    code = _harness(_command(options, files), say, options.out, dict(zip(files, contents, strict=True)))
    if code != DONE:
        return code
    check_arms(options.out / RUN, [arm["name"] for arm in arms])
    report = figures(options.out / RUN, [arm["name"] for arm in arms[1:]])
    write_whole(options.out / REPORT, json.dumps(report, ensure_ascii=False, indent=2) + "\n")
    finish(options.out, [REPORT, *(f"{RUN}/{name}" for name in TABLES)], {"arms": len(arms), "workloads": len(files)})
    for line in _told(report):
        say(line)
    say(f"report: {options.out / RUN / 'report.html'}; figures: {options.out / REPORT}")
    return DONE


def check_arms(run: Path, arms: Sequence[str]) -> None:
    """Raise StageError for an arm that was asked for and stands nowhere in the run: its figures would be unknown, and nobody told why."""
    measured = {row["arm"] for row in read_table(run / "summary.csv")}
    missing = [name for name in arms if name not in measured]
    if missing:
        raise StageError(
            f"{run}: nothing was measured of {', '.join(missing)}; its messages above say why, {run / 'findings.csv'} too"
        )


_SETTINGS = (
    "concurrency", "weights", "dtype", "device", "threads", "context_tokens", "repeats", "limit_tasks", "limit_steps", "max_tokens",
    "tool_wait",
)  # fmt: skip


def _told(report: Mapping[str, Any]) -> Iterable[str]:
    for name, arm in report["arms"].items():
        parts = []
        for language, figure in arm["acceptance_length"].items():
            if figure["value"] is not None:
                ends = "no interval" if figure["low"] is None else f"{figure['low']:.2f}–{figure['high']:.2f}"
                parts.append(f"{language} {figure['value']:.2f} [{ends}]")
        same = arm["identical_outputs"]
        share = (
            "outputs not compared"
            if same["share"] is None
            else f"{same['n_identical']} of {same['n_steps']} outputs identical"
        )
        yield f"{name}: acceptance length {', '.join(parts) or 'unknown'}; {share}"


def _named(arm: Mapping[str, Any]) -> dict[str, Any]:
    """Return an arm for the record: its files are told by hash among the inputs, so that a moved folder is the same work."""
    return {**arm, "options": {key: value for key, value in arm["options"].items() if key not in FILES}}


def _write(contents: Mapping[Path, Mapping[str, Any]], folder: Path) -> list[Path]:
    folder.mkdir(exist_ok=True)
    files = []
    for path, content in contents.items():
        files.append(folder / path.name)
        write_whole(files[-1], yaml.safe_dump(dict(content), allow_unicode=True, sort_keys=False))
    return files


def _command(options: argparse.Namespace, files: Sequence[Path]) -> list[str]:
    command = [sys.executable, "-m", "harness", "run"]
    folder = options.out / RUN
    if (folder / "manifest.json").exists():
        return [*command, "--resume", str(folder), "--lang", options.lang]
    command += [*map(str, files), "--out", str(folder), "--concurrency", options.concurrency, "--lang", options.lang]
    for key in ("repeats", "limit_tasks", "limit_steps", "max_tokens"):
        if (value := getattr(options, key)) is not None:
            command += [f"--{key.replace('_', '-')}", str(value)]
    return command


def _harness(command: Sequence[str], say: Say, out: Path, given: Mapping[Path, Path]) -> int:
    """Run the harness and pass on what it says; ``given``: the file behind each copy that it is given.

    Returns 0 where it measured everything, 130 where it was interrupted and its own code where its engine failed: what it measured is
    kept, and the same command continues it. Raises StageError where it refuses its input.
    """
    say("measuring: " + " ".join(command))
    # a session of its own: Ctrl-C then reaches it once, as the signal that is sent below, and not in the middle of its way out
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    assert process.stdout is not None  # a pipe was asked for
    refusal: list[str] = []  # its last words: told once, by whoever catches what is raised here
    try:
        for line in process.stdout:
            text = line.rstrip()
            if refusal or text.startswith(ERROR):
                refusal.append(text)
            elif text:
                say(text)
        code = process.wait()
    except KeyboardInterrupt:
        _stopped(process)
        say(f"interrupted; the same command continues it ({out / RUN})")
        raise
    finally:
        if process.poll() is None:
            _stopped(process)
        process.stdout.close()
    if code == BAD_INPUT:
        _take_back(out)
        raise StageError(f"the harness refused its input: {_refused(refusal, given)}")
    for text in refusal:
        say(text)
    if code in (DONE, THRESHOLD_MISSED):
        return DONE
    if code == INTERRUPTED:
        say("interrupted; the same command continues it")
        return INTERRUPTED
    say(f"the harness ended with code {code}; the same command continues the run where it stopped")
    return code


def _refused(lines: Sequence[str], given: Mapping[Path, Path]) -> str:
    """What the harness said, with the files that the user has instead of their copies, whose lines are other ones."""
    text = "\n".join(lines).removeprefix(ERROR) or "it said nothing"
    for copy, original in given.items():
        shown = str(original).replace("\\", r"\\")  # a backslash would be one of the pattern
        text = re.sub(rf"{re.escape(str(copy))}(:\d+)?", shown, text)
    return text


def _take_back(out: Path) -> None:
    """Make a folder in which nothing was measured free again, so that a corrected command can use it."""
    if not (out / RUN / "manifest.json").exists():
        shutil.rmtree(out / RUN, ignore_errors=True)  # logs of an engine that did not start
        for file in (out / "workloads").iterdir():
            file.unlink(missing_ok=True)
        (out / "workloads").rmdir()
        take_back(out)


def _stopped(process: subprocess.Popen[str]) -> None:
    """Let the harness stop its server and close its files; it takes the signal for an interruption."""
    process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if process.poll() is None:
        process.kill()
        process.wait()
