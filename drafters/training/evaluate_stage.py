"""Measures drafters in deployed form: a run of the harness on the builtin engine, never a figure of training.

Writes workload files with these drafters as arms, calls ``harness run`` as a process of its own, and copies the headline figures out
of the run's CSV files. A killed evaluation is continued where the run stopped.
"""

from __future__ import annotations

import argparse
import csv
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from drafters.specs import SpecError, parse_spec, split_spec
from drafters.training.stage import StageError, begin, finish, write_whole

NAME = "evaluate"
HELP = "measure drafters in deployed form: a harness run with a baseline and these drafters as arms"
BASELINE = "baseline"
RUN, REPORT = "run", "report.json"
FILES = ("model", "corpus")  # options of a drafter that name a file or folder
POOLED = "(all)"  # how the run's CSV files mark a row that pools
TABLES = ("drafters.csv", "summary.csv", "speed_up.csv", "lossless.csv", "verdicts.csv", "findings.csv")
DONE, THRESHOLD_MISSED, BAD_INPUT, INTERRUPTED = 0, 3, 2, 130
LAST_LINES = 12  # of the harness, told when it fails
Say = Callable[[str], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the stage."""
    parser.add_argument("--target", type=Path, required=True, metavar="HF_FOLDER", help="the target, as deployed")
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
    arms = [{"name": BASELINE, "method": "none"}, *_arms(options.drafter)]
    workloads = [path for group in options.workload for path in (group if isinstance(group, list) else [group])]
    context = _context_tokens(options)
    contents = {path: _workload(path, options, arms, context) for path in workloads}
    inputs = {"target": options.target}
    inputs |= {f"workload {path.name}": path for path in workloads}
    inputs |= {
        f"tasks {Path(item['file']).name}": Path(item["file"])
        for content in contents.values()
        for item in content["tasks"]
    }
    inputs |= {
        f"drafter {arm['name']}: {key}": Path(arm["options"][key])
        for arm in arms[1:]
        for key in FILES
        if arm["options"].get(key) is not None
    }
    settings = {
        "drafters": [_named(arm) for arm in arms[1:]],
        **{key: value for key, value in vars(options).items() if key in _SETTINGS},
    }
    done = begin(options.out, NAME, inputs, settings)
    if done is not None:
        say(f"already evaluated; the figures are in {options.out / REPORT}")
        return DONE
    files = _write(contents, options.out / "workloads")
    code = _harness(_command(options, files), say, options.out)
    if code != DONE:
        return code
    report = figures(options.out / RUN, [arm["name"] for arm in arms[1:]])
    write_whole(options.out / REPORT, json.dumps(report, ensure_ascii=False, indent=2) + "\n")
    finish(options.out, [REPORT, *(f"{RUN}/{name}" for name in TABLES)], {"arms": len(arms), "workloads": len(files)})
    for line in _told(report):
        say(line)
    say(f"report: {options.out / RUN / 'report.html'}; figures: {options.out / REPORT}")
    return DONE


_SETTINGS = (
    "concurrency", "weights", "dtype", "device", "threads", "context_tokens", "repeats", "limit_tasks", "limit_steps", "max_tokens",
    "tool_wait",
)  # fmt: skip


def figures(folder: Path, arms: Sequence[str]) -> dict[str, Any]:
    """Return the headline figures of a run from its CSV files: acceptance by language, speed-up by load, outputs, break-even.

    A figure is ``{"value", "low", "high"}``, unknown is null. Languages pool workloads; ``(all)`` pools languages too.
    """
    drafters, speed_ups, same, verdicts, findings = (
        _read(folder / name)
        for name in ("drafters.csv", "speed_up.csv", "lossless.csv", "verdicts.csv", "findings.csv")
    )
    report: dict[str, Any] = {"run": folder.name, "arms": {}}
    for arm in arms:
        own = [row for row in drafters if row["arm"] == arm and row["genre"] == POOLED]
        pooled = [row for row in own if row["concurrency"] == POOLED]
        languages = {row["language"]: _acceptance(row) for row in pooled if row["workload"] == POOLED}
        report["arms"][arm] = {
            "acceptance_length": languages,
            "acceptance_length_by_workload": {
                row["workload"]: _acceptance(row)
                for row in pooled
                if row["workload"] != POOLED and row["language"] == POOLED
            },
            "speed_up": [
                {"workload": row["workload"], "concurrency": int(row["concurrency"]), **_figure(row, "speed_up")}
                for row in speed_ups
                if row["arm"] == arm and row["window"] == "steady"
            ],
            "identical_outputs": _identical([row for row in same if row["arm"] == arm]),
            "break_even": [
                {
                    "workload": row["workload"],
                    "side": row["side"],
                    "certainty": row["certainty"],
                    **_figure(row, "break_even"),
                }
                for row in verdicts
                if row["arm"] == arm
            ],
        }
    report["invalid"] = [
        {key: row[key] for key in ("code", "workload", "arm", "values")}
        for row in findings
        if row["severity"] == "invalid"
    ]
    return report


def _acceptance(row: Mapping[str, str]) -> dict[str, Any]:
    return {
        **_figure(row, "acceptance_length"),
        "n_tasks": int(row["n_tasks"]),
        "n_steps": int(row["n_steps"]),
        "tokens_per_pass": _number(row["tokens_per_pass"]),
    }


def _figure(row: Mapping[str, str], name: str) -> dict[str, float | None]:
    return {"value": _number(row[name]), "low": _number(row[f"{name}_low"]), "high": _number(row[f"{name}_high"])}


def _identical(rows: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    rows = list(rows)
    n, same = (sum(int(row[name]) for row in rows) for name in ("n_steps", "n_identical"))
    return {"n_steps": n, "n_identical": same, "share": same / n if n else None}


def _number(text: str) -> float | None:
    return float(text) if text else None


def _read(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return list(csv.DictReader(stream))
    except OSError as error:
        raise StageError(f"{path}: {error.strerror}; run 'harness report {path.parent}' to write it again") from error


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


def _arms(texts: Sequence[str]) -> list[dict[str, Any]]:
    arms: list[dict[str, Any]] = []
    for text in texts:
        name, method, options = split_spec(text)
        if name == BASELINE or name in [arm["name"] for arm in arms]:
            raise StageError(
                f"--drafter {text!r}: the name {name!r} is taken; give each drafter another one than {BASELINE}"
            )
        for key in FILES:
            if options.get(key) is not None:
                options[key] = str(Path(str(options[key])).expanduser().resolve())
                if not Path(options[key]).exists():
                    raise StageError(
                        f"--drafter {text!r}: {options[key]} does not exist; give the path of one that does"
                    )
        try:
            parse_spec({**{key: value for key, value in options.items() if key != "lengths"}, "method": method})
        except SpecError as error:
            raise SpecError(f"--drafter {text!r}: {error}") from error
        arms.append({"name": name, "method": method, "options": options})
    return arms


def _named(arm: Mapping[str, Any]) -> dict[str, Any]:
    """Return an arm for the record: its files are told by hash among the inputs, so that a moved folder is the same work."""
    return {**arm, "options": {key: value for key, value in arm["options"].items() if key not in FILES}}


def _context_tokens(options: argparse.Namespace) -> int | None:
    """Return the room that was asked for, else the target's own, ``None`` where it does not tell."""
    if options.context_tokens is not None:
        return int(options.context_tokens)
    try:
        config = json.loads((options.target / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StageError(
            f"{options.target} is no Hugging Face folder: config.json cannot be read ({error}); give one that is"
        ) from error
    room = config.get("max_position_embeddings")
    return room if isinstance(room, int) else None


def _workload(
    path: Path, options: argparse.Namespace, arms: Sequence[Mapping[str, Any]], context: int | None
) -> dict[str, Any]:
    """Return a workload file's content with the builtin engine, these arms and absolute task files."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise StageError(
            f"{path} cannot be read as a workload ({error}); give a YAML file of workloads/README.md's form"
        ) from error
    if not isinstance(content, dict) or "tasks" not in content:
        raise StageError(
            f"{path} is no workload: it has no key 'tasks'; give a YAML file of workloads/README.md's form"
        )
    sources = [{"file": content["tasks"]}] if isinstance(content["tasks"], str) else content["tasks"]
    try:
        tasks = [{**source, "file": str((path.parent / source["file"]).resolve())} for source in sources]
    except (TypeError, KeyError) as error:
        raise StageError(
            f"{path}: tasks is {content['tasks']!r:.80}; give a file, or a list of file and take"
        ) from error
    given = content.get("engine") or {}
    asked = given.get("context_tokens", 4096)
    engine = {
        "kind": "builtin",
        "model": str(options.target.resolve()),
        "threads": options.threads,
        "context_tokens": asked if context is None else context if options.context_tokens else min(asked, context),
        **{key: given[key] for key in ("start_timeout_s", "request_timeout_s") if key in given},
        "options": {
            key: value for key in ("weights", "dtype", "device") if (value := getattr(options, key)) is not None
        },
    }
    replay = {**(content.get("replay") or {}), **({"tool_wait": options.tool_wait} if options.tool_wait else {})}
    # thresholds and objectives belong to the file's own arms and engine
    kept = {key: value for key, value in content.items() if key not in ("thresholds", "slo")}
    return {**kept, "tasks": tasks, "engine": engine, "arms": list(arms), "replay": replay}


def _write(contents: Mapping[Path, Mapping[str, Any]], folder: Path) -> list[Path]:
    folder.mkdir(exist_ok=True)
    files = []
    for path, content in contents.items():
        file = folder / path.name
        if file in files:
            raise StageError(f"two workload files are called {path.name}; rename one")
        write_whole(file, yaml.safe_dump(dict(content), allow_unicode=True, sort_keys=False))
        files.append(file)
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


def _harness(command: Sequence[str], say: Say, out: Path) -> int:
    """Run the harness and pass on what it says.

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
    last: list[str] = []
    try:
        for line in process.stdout:
            text = line.rstrip()
            if text:
                last = [*last[-LAST_LINES:], text]
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
    if code in (DONE, THRESHOLD_MISSED):
        return DONE
    if code == INTERRUPTED:
        say("interrupted; the same command continues it")
        return INTERRUPTED
    if code == BAD_INPUT:
        _take_back(out)
        raise StageError("the harness refused its input: " + "\n".join(last))
    say(f"the harness ended with code {code}; the same command continues the run where it stopped")
    return code


def _take_back(out: Path) -> None:
    """Make a folder in which nothing was measured free again, so that a corrected command can use it."""
    if not (out / RUN / "manifest.json").exists():
        for file in (out / "request.json", *(out / "workloads").glob("*.yaml")):
            file.unlink(missing_ok=True)
        (out / "workloads").rmdir()


def _stopped(process: subprocess.Popen[str]) -> None:
    """Let the harness stop its server and close its files; it takes the signal for an interruption."""
    process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if process.poll() is None:
        process.kill()
        process.wait()
