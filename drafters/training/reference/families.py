"""Makes the reference drafters: ``python -m drafters.training.reference.families --prompts F --target F --out F``.

Every step is a stage of the pipeline in a process of its own, so a run that dies goes on where it was, and two runs with
``--only`` can share the work. ``families.yaml`` holds the settings; the finished checkpoints lie under ``OUT/drafters``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from drafters.training.folder_lock import lock_of
from drafters.training.reference.prompts import COUNTS, LABELS
from drafters.training.stage import MANIFEST, StageError, read_manifest

SETTINGS = Path(__file__).with_name("families.yaml")
TRAINING = "training.json"


@dataclass(frozen=True, slots=True)
class Work:
    """One stage: the folder it writes and its command line without the program."""

    name: str
    out: Path
    arguments: tuple[str, ...]


def plan(settings: Mapping[str, Any], prompts: Path, target: Path, out: Path) -> list[Work]:
    """List the stages in order: corpora, answers, the target's states on them, then every drafter."""
    made: list[Work] = []
    for folder, parts in COUNTS.items():
        corpus, answers = out / f"{folder}-corpus", out / f"{folder}-answers"
        # plain texts are documents to be continued or worked on, dialogues are conversations: the reader tells by the line
        sources = [
            word for part in parts for word in ("--conversations", f"{prompts / folder / part}.jsonl={LABELS[part]}")
        ]
        made.append(_work(f"{folder} corpus", "corpus", corpus, [*sources, *_options(settings["corpus"])]))
        limit = str(settings["answers"][folder])
        own = ["--corpus", str(corpus), "--target", str(target), "--limit-tokens", limit]
        made.append(_work(f"{folder} answers", "regenerate", answers, [*own, *_options(settings["regenerate"])]))
        # the target goes over each text once for all drafters, not once for each
        own = ["--examples", str(answers), "--target", str(target)]
        made.append(
            _work(f"{folder} states", "capture", out / f"{folder}-states", [*own, *_options(settings["capture"])])
        )
    for family, choice in settings["families"].items():
        for method, own in settings["methods"].items():
            start = (
                [] if "start" not in choice else ["--start", str(out / f"{choice['start']}-{method}" / "checkpoint")]
            )
            words = [*start, "--mix", choice["mix"], *_examples(out, choice["examples"])]
            words += _states(out, choice["examples"])
            made.append(_train(f"{family}-{method}", {"method": method, **own}, settings, target, out, words))
    everything = settings["families"]["adapted"]
    for name, own in settings["shared"].items():
        words = ["--mix", everything["mix"], *_examples(out, everything["examples"])]
        words += [] if own["method"] == "ngram" else _states(out, everything["examples"])  # it counts tokens alone
        made.append(_train(name, own, settings, target, out, words))
    return made


def _train(
    name: str, own: Mapping[str, Any], settings: Mapping[str, Any], target: Path, out: Path, words: Sequence[str]
) -> Work:
    # a start checkpoint brings its own shapes; the number of tokens is told all the same
    told = {key: value for key, value in own.get("set", {}).items() if "--start" not in words or key == "num_tokens"}
    options = {key: value for key, value in own.items() if key != "set"}
    sets = [word for key, value in told.items() for word in ("--set", f"{key}={value}")]
    common = {} if own["method"] == "ngram" else settings["train"]
    arguments = ["--target", str(target), *words, *sets, *_options({**common, **options})]
    return _work(name, "train", out / name, arguments)


def _work(name: str, stage: str, out: Path, arguments: Sequence[str]) -> Work:
    return Work(name, out, (stage, *arguments, "--out", str(out)))


def _examples(out: Path, folders: Sequence[str]) -> list[str]:
    return [word for folder in folders for word in ("--examples", str(out / f"{folder}-answers"))]


def _states(out: Path, folders: Sequence[str]) -> list[str]:
    return [word for folder in folders for word in ("--features", str(out / f"{folder}-states"))]


def _options(options: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for key, value in options.items():
        words += [f"--{key}", *map(str, value if isinstance(value, list) else [value])]
    return words


def collect(settings: Mapping[str, Any], out: Path) -> list[str]:
    """Copy every finished checkpoint to ``OUT/drafters``, each as a whole in place of what was there; returns the names.

    Raises StageError for a checkpoint that is not what its manifest says, or that does not fit on the disk.
    """
    names = [f"{family}-{method}" for family in settings["families"] for method in settings["methods"]]
    finished = [name for name in [*names, *settings["shared"]] if (out / name / MANIFEST).is_file()]
    folder = out / "drafters"
    folder.mkdir(parents=True, exist_ok=True)
    lock = lock_of(out.resolve())
    lock.take(wait=True)  # two runs with --only may end at once
    try:
        for name in finished:
            counts = read_manifest(out / name, "train").counts
            _replace(folder / name, out / name / "checkpoint", _told(counts))
    except OSError as error:
        raise StageError(f"{folder} cannot be written ({error}); free some space and run the command again") from error
    finally:
        lock.free()
    return finished


def _told(counts: Mapping[str, Any]) -> dict[str, Any]:
    """What the model card says of a training: method, tokens, and the held-out forecast, whole and by language."""
    if "held_out_after" not in counts:
        return {key: counts[key] for key in ("method",) if key in counts}
    after = counts["held_out_after"]
    return {
        "method": counts["method"],
        "tokens": counts["tokens"],
        "acceptance_length": after["judged"]["acceptance_length"],
        "by_language": {name: group["acceptance_length"] for name, group in sorted(after["by_language"].items())},
    }


def _replace(folder: Path, source: Path, told: Mapping[str, Any]) -> None:
    """Make ``folder`` a copy of ``source``, with ``told`` beside it. A kill leaves the old one, none or the new one, and
    nothing in between."""
    new, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(source, new)
    if told:
        (new / TRAINING).write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; ends with the exit code of the first stage that fails."""
    parser = argparse.ArgumentParser(prog="python -m drafters.training.reference.families", description=__doc__)
    parser.add_argument(
        "--prompts", type=Path, required=True, help="folder that drafters.training.reference.prompts wrote"
    )
    parser.add_argument("--target", type=Path, required=True, help="the reference target's Hugging Face folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--settings", type=Path, default=SETTINGS)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these stages alone, for example public-mtp")
    options = parser.parse_args(arguments)
    settings = yaml.safe_load(options.settings.read_text("utf-8"))
    works = plan(settings, options.prompts, options.target, options.out)
    if unknown := set(options.only or ()) - {work.name for work in works}:
        parser.error(f"unknown {sorted(unknown)}; allowed: {', '.join(repr(work.name) for work in works)}")
    chosen = [work for work in works if not options.only or work.name in options.only]
    options.out.mkdir(parents=True, exist_ok=True)
    for index, work in enumerate(chosen, start=1):
        started = time.monotonic()
        sys.stderr.write(f"[{index}/{len(chosen)}] {work.name}: drafters {' '.join(work.arguments)}\n")
        code = subprocess.run([sys.executable, "-m", "drafters.cli", *work.arguments], check=False).returncode
        if code:
            sys.stderr.write(f"{work.name} ended with {code}; the same command goes on here\n")
            return code
        sys.stderr.write(f"[{index}/{len(chosen)}] {work.name}: {time.monotonic() - started:.0f} s\n")
    try:
        there = collect(settings, options.out)
    except StageError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stderr.write(f"checkpoints in {options.out / 'drafters'}: {', '.join(there)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
