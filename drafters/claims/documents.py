"""``drafters claims documents``: generated texts to learn from and tasks to be measured on, the same for the same seed.

Nothing else than the package is needed: code dialogues are made from functions of Python's own library.
"""

from __future__ import annotations

import argparse
import json
import random
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import yaml

from drafters.training.reference.office import PARTS, generate
from drafters.training.reference.office.dialogues import Turns
from drafters.training.reference.office.kinds import KINDS, kind_dialogue
from drafters.training.reference.sources import Document
from drafters.training.stage import StageError, begin, finish, write_whole

__all__ = ["NAME", "add_arguments", "run"]

NAME = "documents"
LIBRARY = (
    "argparse.py", "ast.py", "bisect.py", "calendar.py", "cmd.py", "configparser.py", "csv.py", "difflib.py", "fileinput.py",
    "fractions.py", "ftplib.py", "gzip.py", "heapq.py", "imaplib.py", "inspect.py", "ipaddress.py", "json/decoder.py",
    "json/encoder.py", "mailbox.py", "optparse.py", "pathlib.py", "pprint.py", "random.py", "sched.py", "shutil.py", "smtplib.py",
    "statistics.py", "tarfile.py", "textwrap.py", "zipfile.py",
)  # fmt: skip
"""Files of Python's library, those that this Python has, for code dialogues."""
MAX_TOKENS = 96
KINDS_OF_STEPS = ("write", "summarize", "reply")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--part", action="append", default=[], metavar="PART=N", help=f"so many documents of {', '.join(PARTS)}"
    )
    parser.add_argument(
        "--kind",
        action="append",
        default=[],
        metavar="KIND=N",
        help=f"so many dialogues of an office: {', '.join(KINDS)}",
    )
    parser.add_argument(
        "--tasks",
        action="append",
        default=[],
        metavar="KIND=N",
        help="so many tasks of an office in held-out forms, with a workload file",
    )
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the stage's folder")


def run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Write the files. Raises StageError for a part or kind that is not known."""
    parts, kinds, tasks = _counts(options.part, PARTS), _counts(options.kind, KINDS), _counts(options.tasks, KINDS)
    if not (parts or kinds or tasks):
        raise StageError("nothing asked for; give --part, --kind or --tasks")
    library = {}
    if "agent-code" in parts:
        root = Path(sysconfig.get_paths()["stdlib"])
        library = {name: root / name for name in LIBRARY if (root / name).is_file()}
    settings = {"parts": parts, "kinds": kinds, "tasks": tasks, "seed": options.seed}
    if begin(options.out, NAME, library, settings) is not None:
        say(f"{options.out} is complete")
        return 0
    code = [path.read_text("utf-8") for path in library.values()]
    written: dict[str, int] = {}
    for part, count in parts.items():
        scale = (count + 1) / PARTS[part]
        made = generate(part, scale, options.seed, held_out=False, code=code, passages={})
        documents = [document for document, _ in zip(made, range(count), strict=False)]
        write_whole(options.out / f"{part}.jsonl", "".join(_lines(documents)))
        written[f"{part}.jsonl"] = len(documents)
    for kind, count in kinds.items():
        documents = [
            Document(f"generated/{kind}/train/{n}", turns=turns)
            for n, turns in enumerate(_dialogues(kind, count, options.seed, False))
        ]
        write_whole(options.out / f"{kind}.jsonl", "".join(_lines(documents)))
        written[f"{kind}.jsonl"] = len(documents)
    for kind, count in tasks.items():
        dialogues = list(_dialogues(kind, count, options.seed, True))
        write_whole(options.out / f"{kind}.tasks.jsonl", "".join(_tasks(kind, dialogues)))
        write_whole(options.out / f"{kind}.yaml", yaml.safe_dump(_workload(kind), allow_unicode=True, sort_keys=False))
        written |= {f"{kind}.tasks.jsonl": len(dialogues), f"{kind}.yaml": 1}
    finish(options.out, written, written)
    say(", ".join(f"{name}: {count}" for name, count in written.items()))
    return 0


def _counts(given: Sequence[str], known: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    allowed = tuple(known)
    for text in given:
        name, _, count = text.partition("=")
        if name not in allowed or not count.isdigit() or not int(count):
            raise StageError(f"{text!r}; allowed: NAME=N with a name of {', '.join(allowed)} and a number above 0")
        found[name] = int(count)
    return found


def _dialogues(kind: str, count: int, seed: int, held_out: bool) -> Iterator[Turns]:
    rng = random.Random(f"{kind}/{seed}/{held_out}")
    for _ in range(count):
        yield kind_dialogue(kind, held_out, rng)


def _lines(documents: Iterable[Document]) -> Iterator[str]:
    for document in documents:
        value: dict[str, object] = {"id": document.id}
        if document.turns is None:
            value["text"] = document.text or ""
        else:
            value["messages"] = [{"role": role, "content": content} for role, content in document.turns]
        yield json.dumps(value, ensure_ascii=False) + "\n"


def _tasks(kind: str, dialogues: Iterable[Turns]) -> Iterator[str]:
    """Lines of a ``tasks.jsonl``: one prefix, then a task a dialogue, a step an answer."""
    for number, turns in enumerate(dialogues):
        if not number:
            yield json.dumps({"prefix": kind, "system": turns[0][1], "tools": []}, ensure_ascii=False) + "\n"
        asked = [content for role, content in turns if role == "user"]
        answered = [content for role, content in turns if role == "assistant"]
        steps = [
            {
                "kind": step, "language": "ko", "messages": [{"role": "user", "content": ask}],
                "recorded": {"role": "assistant", "content": answer}, "tool_wait_s": 0.0, "max_tokens": MAX_TOKENS,
            }
            for step, ask, answer in zip(KINDS_OF_STEPS, asked, answered, strict=False)
        ]  # fmt: skip
        task = {
            "task": f"{kind}-{number:02}",
            "title": f"{kind} {number}",
            "genre": kind,
            "language": "ko",
            "prefix": kind,
        }
        yield json.dumps({**task, "steps": steps}, ensure_ascii=False) + "\n"


def _workload(kind: str) -> dict[str, object]:
    return {
        "name": kind,
        "description": f"Generated office work of one kind ({kind}), in forms that no training had.",
        "tasks": f"{kind}.tasks.jsonl",
        "engine": {"kind": "builtin", "model": "ref-koen", "context_tokens": 2048},
        "arms": [{"name": "baseline", "method": "none"}],
        "concurrency": [1],
        "warm_up": {"steps": 1},
        "replay": {"history": "recorded", "tool_wait": "none", "prompt_cache": "salt", "tools": "text"},
        "sampling": {"temperature": 0.0, "seed": 1, "max_tokens": MAX_TOKENS},
    }
