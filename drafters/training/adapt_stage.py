"""``drafters adapt``: the whole chain from one YAML file, corpus to a report before and after.

Every stage is a process of its own with a folder of its own; ``chain.json`` remembers what each was asked to do and how long
it took. Killed and started again, the chain goes on where it was: finished stages say so, the one begun continues.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from drafters.training.adapt_checks import check
from drafters.training.adapt_defaults import told
from drafters.training.adapt_plan import RUN, Link, links
from drafters.training.chain_record import ChainRecord, check_asked
from drafters.training.site import LoadedSite, load_site
from drafters.training.stage import MANIFEST, StageError, digest, read_manifest, write_whole

__all__ = ["HELP", "NAME", "add_arguments", "left", "plan", "run"]

NAME = "adapt"
HELP = "the whole chain from one YAML: corpus to a report before and after"
RESULT = "adapt.json"
TEXT = "compare.txt"
THRESHOLD_MISSED, INTERRUPTED = 3, 130
WAIT_FOR_LOCK_S, LET_GO_S, REMEMBER_S = 60.0, 60.0, 5.0
LEAST_SHARE = 10  # of the chain's time: less tells nothing of the rest
PARENT = "DRAFTERS_END_WITH_STDIN"  # see drafters.cli


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the stage's options."""
    parser.add_argument("site", type=Path, metavar="SITE.yaml", help="what to learn from, for which target")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder of the whole chain")
    parser.add_argument("--lang", choices=("en", "ko"), default="en", help="language of the verdict (default en)")
    parser.add_argument(
        "--plan", action="store_true", help="check the file, show the stages' command lines, do nothing"
    )


def run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Run every stage that is not done and write ``adapt.json``.

    Returns the exit code of a stage that failed. Raises StageError for a wrong file, and for one that was changed where a
    stage is already begun.
    """
    loaded, chain, out = _checked(options)
    for line in told(loaded.site):
        say(line)
    if options.plan:  # the lines come from `plan`
        return 0
    with _alone(out, say) as lock:
        record = ChainRecord.read(out)
        check_asked(record, chain, out, loaded.path)
        for number, link in enumerate(chain):
            say(f"[{number + 1}/{len(chain)}] {link.name}; {left(record, chain, number)}")
            code = _run(link, _command(link, options.lang), record, out, lock)
            if code not in (0, THRESHOLD_MISSED):
                record.forget_unbegun()
                how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}, see above"
                say(f"{link.name} {how}; the same command goes on there")
                return code if code > 0 else 1
            record.done(link.name)
        found = _result(loaded, chain, record, out)
    write_whole(out / RESULT, json.dumps(found, ensure_ascii=False, indent=2) + "\n")
    for line in found["verdict"][options.lang]:
        say(line)
    say(f"all of it: {out / RESULT}; the run's report: {found['measured']['run']}/report.html")
    return 0


def plan(options: argparse.Namespace) -> list[str]:
    """The stages' command lines, under what the file leaves to the defaults, once it is checked as `run` checks it; nothing is done.

    Raises StageError.
    """
    loaded, chain, _ = _checked(options)
    notes = [f"# {line}" for line in told(loaded.site)]
    return notes + [shlex.join(_command(link, options.lang)) for link in chain]


def _checked(options: argparse.Namespace) -> tuple[LoadedSite, list[Link], Path]:
    loaded, out = load_site(options.site), options.out.resolve()
    chain = links(loaded, out)
    check(loaded, chain, out)
    return loaded, chain, out


def _command(link: Link, lang: str) -> list[str]:
    program = "harness" if link.stage == "compare" else "drafters.cli"
    spoken = ["--lang", lang] if link.stage in ("compare", "evaluate") else []  # decides no figure, so it is no setting
    return [sys.executable, "-m", program, *link.argv(), *spoken]


def _run(link: Link, command: Sequence[str], record: ChainRecord, out: Path, lock: int) -> int:
    """Run one stage to its end. Its messages pass through; it ends when this process does."""
    record.begin(link.name, link.asked(out))
    shown = None
    if link.stage == "compare":
        shown = _text_of_comparison(link.folder, record.stages[link.name]["done"])
    before, begun = record.seconds(link.name), time.monotonic()
    environment = os.environ | {PARENT: "1"}
    # The child holds the lock too, so that a chain started again waits for what a killed one left behind.
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=shown, env=environment, pass_fds=(lock,))
    told = begun
    try:
        while True:
            try:
                return child.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                if time.monotonic() - told > REMEMBER_S:
                    told = time.monotonic()
                    record.remember(link.name, before + told - begun)
    except KeyboardInterrupt:
        _let_go(child)
        raise
    finally:
        record.remember(link.name, before + time.monotonic() - begun)
        if child.stdin is not None:
            child.stdin.close()
        if shown is not None:
            shown.close()
            (link.folder / f".{TEXT}").replace(link.folder / TEXT)


def _text_of_comparison(folder: Path, done: bool) -> BinaryIO:
    """Open what the comparison prints into, hidden until it is over: it writes among its own files alone, in a folder that
    holds no half comparison of a killed one, which takes seconds to be made anew."""
    if not done:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    (folder / TEXT).unlink(missing_ok=True)
    return (folder / f".{TEXT}").open("wb")


def _let_go(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(timeout=LET_GO_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def left(record: ChainRecord, chain: Sequence[Link], number: int) -> str:
    """What is over and, once some of it is, about what is left: by usual shares of time, scaled by this chain's own."""
    spent = sum(record.seconds(link.name) for link in chain)
    known = sum(link.share for link in chain[:number])
    measured = sum(record.seconds(link.name) for link in chain[:number])
    rest = sum(link.share for link in chain[number:]) * (measured / known if known else 0.0)
    rest -= record.seconds(chain[number].name)
    if known < LEAST_SHARE or rest <= 0:
        return f"{_clock(spent)} so far, what is left is not known"
    return f"{_clock(spent)} so far, roughly {_clock(rest)} left"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02}"


def _result(loaded: LoadedSite, chain: Sequence[Link], record: ChainRecord, out: Path) -> dict[str, Any]:
    from drafters.training.adapt_report import TEXTS, measured, verdict

    site, stages, versions = loaded.site, [], {}
    for link in chain:
        entry: dict[str, Any] = {"name": link.name, "stage": link.stage, "options": link.asked(out)}
        entry |= {"seconds": round(record.seconds(link.name), 1), "starts": record.starts(link.name)}
        if link.stage != "compare":
            manifest = read_manifest(link.folder, link.stage)
            versions = dict(manifest.versions)
            entry |= {"manifest_sha256": digest(link.folder / MANIFEST), "counts": dict(manifest.counts)}
        stages.append(entry)
    run = next(link.folder for link in chain if link.stage == "evaluate") / RUN
    found = measured(run, next((link.folder for link in chain if link.stage == "compare"), None))
    return {
        "site": {"name": site.name, "file": str(loaded.path), "sha256": loaded.sha256},
        "target": {"folder": str(loaded.target), "sha256": digest(loaded.target), "weights": site.target.weights},
        "drafter": {
            "method": site.drafter.method,
            "weights": site.drafter.weights,
            "start": None if loaded.start is None else {"folder": str(loaded.start), "sha256": digest(loaded.start)},
        },
        "versions": versions,
        "stages": stages,
        "seconds": round(sum(stage["seconds"] for stage in stages), 1),
        "measured": found,
        "verdict": {lang: verdict(found, lang) for lang in TEXTS},
    }


@contextmanager
def _alone(out: Path, say: Callable[[str], None]) -> Iterator[int]:
    """Hold the folder's lock; wait a little for the stage of a chain that was just killed."""
    import fcntl

    try:
        out.mkdir(parents=True, exist_ok=True)
        file = os.open(out / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StageError(f"{out} cannot be written: {error.strerror}; give a folder that can") from error
    try:
        until, told = time.monotonic() + WAIT_FOR_LOCK_S, False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise StageError(f"another 'drafters adapt' is at work in {out}; wait for it or end it") from None
                if not told:
                    say(f"a stage of an earlier chain is still ending in {out}; waiting for it")
                    told = True
                time.sleep(0.2)
        yield file
    finally:
        os.close(file)
