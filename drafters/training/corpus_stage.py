"""``drafters corpus``: the owner's documents, conversations and tasks → masked conversations with tags and a split.

Documents become work for the target: a request about each piece, and a beginning to be continued. Recorded answers stay
as they were given; ``drafters regenerate`` rewrites them. Nothing is written before it is masked.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from drafters.masking import Masker, MaskingUnavailable, fingerprint, tape_scanner
from drafters.training.conversations import Conversation
from drafters.training.corpus.choosing import Choice, choose
from drafters.training.corpus.collecting import Inputs, collect, learn
from drafters.training.corpus.documents import MIN_CHARACTERS
from drafters.training.corpus.pieces import beginning, cut, request_for
from drafters.training.corpus.sources import LeftOut, parse_given
from drafters.training.stage import StageError, begin, check_apart, finish, write_whole

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "corpus"
HELP = "documents, conversations and tasks → masked conversations with language tags and a held-out share"
OUTPUTS = ("conversations.jsonl", "masking.json", "report.json")
WORK = ".masked.jsonl"
MIN_KEY_BYTES = 16
SHOWN = 3
NAMED = 20
LIMITS = (
    "Names are found beside a key, a head, a title or another cue, and then everywhere. A name that stands nowhere but in "
    "running text, most of all a foreign one, a nickname, passwords and keys of programs are not looked for: read a sample of "
    "conversations.jsonl before it leaves the house."
)
"""What masking does not do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the stage's options."""
    tags = "PATH or PATH=language/text_type"
    parser.add_argument(
        "--documents", nargs="+", action="extend", default=[], metavar=tags, help="folders of documents"
    )
    parser.add_argument(
        "--conversations", nargs="+", action="extend", default=[], metavar=tags, help=".jsonl files or folders"
    )
    parser.add_argument(
        "--tasks", nargs="+", action="extend", default=[], metavar=tags, help="recorded tasks, tasks.jsonl"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--mask", choices=("surrogate", "label", "none"), default="surrogate", help="default: %(default)s"
    )
    parser.add_argument(
        "--key-file",
        type=Path,
        metavar="FILE",
        help="secret that ties surrogates to values, made if it does not exist; without it a key is used once and forgotten",
    )
    parser.add_argument("--held-out", type=float, default=0.1, metavar="SHARE", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--max-characters", type=int, default=2000, metavar="N", help="of a piece of a document; default: %(default)s"
    )
    parser.add_argument(
        "--limit", type=int, metavar="N", help="at most so many documents and conversations, for a trial"
    )


def run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Build the corpus. Raises StageError."""
    _check(options)
    inputs = Inputs(
        *([parse_given(value) for value in getattr(options, kind)] for kind in ("documents", "conversations", "tasks"))
    )
    out: Path = options.out
    read = [given.path for _, _, given in inputs.named()]
    check_apart(out, read)
    _once(inputs)
    key = _key(options.key_file, out, read, say) if options.mask != "none" else b""
    if options.mask == "none":
        say(
            f"--mask none: names, numbers and addresses will stand in {out} as they are; it is as secret as what is read"
        )
    settings = {
        "tags": {name: f"{given.language or ''}/{given.text_type or ''}" for name, _, given in inputs.named()},
        "mask": options.mask,
        "key": fingerprint(key) if options.mask != "none" and options.key_file else None,
        **{name: getattr(options, name) for name in ("held_out", "seed", "max_characters", "limit")},
    }
    try:
        done = begin(out, NAME, {name: given.path for name, _, given in inputs.named()}, settings)
        if done:
            say(f"{out} is done already: {done.counts.get('conversations')} conversations")
            return 0
        return _build(inputs, _masker(options.mask, key), options, say)
    except OSError as error:
        raise StageError(_disk(error, out)) from error


def _build(inputs: Inputs, masker: Masker, options: argparse.Namespace, say: Callable[[str], None]) -> int:
    out: Path = options.out
    work = out / WORK
    keep = learn(inputs, masker, options.limit, options.seed, say)
    records, left_out = collect(inputs, masker, keep, options.max_characters, work, say)
    if not records:
        raise StageError(f"no text to work with{_why(left_out)}")
    choice = choose(records, options.held_out, options.seed)
    counts = _write(work, out / OUTPUTS[0], choice, options)
    report = {
        "taken": len(records),
        "written": counts,
        "duplicates": {
            "beginnings of a longer conversation": choice.contained,
            "near-duplicates within train": choice.repeated_in_train,
            "near-duplicates within heldout": choice.repeated_in_heldout,
            "near-duplicates of heldout, removed from train": choice.repeats_of_heldout,
        },
        "pieces of heldout, removed from documents of train": sum(map(len, choice.without.values())),
        "limits": LIMITS if masker.mode != "none" else "nothing is masked: what was read stands there as it is",
        "left_out": [{"file": one.file, "reason": one.reason} for one in left_out],
    }
    masking = {
        "mode": masker.mode,
        "kinds": dict(sum(masker.counts.values(), Counter[str]())),
        "distinct_values": dict(masker.distinct),
        "finds_left_as_they_are": dict(masker.left),
        "files": _by_file(masker),
    }
    write_whole(out / OUTPUTS[1], json.dumps(masking, ensure_ascii=False, indent=2) + "\n")
    write_whole(out / OUTPUTS[2], json.dumps(report, ensure_ascii=False, indent=2) + "\n")
    work.unlink()
    total = sum(group["conversations"] + group["texts"] for side in counts.values() for group in side.values())
    finish(out, OUTPUTS, {"conversations": total, "taken": len(records), "left_out": len(left_out)})
    _tell(report, masking, total, left_out, say)
    return 0


def _write(work: Path, path: Path, choice: Choice, options: argparse.Namespace) -> dict[str, dict[str, Counter[str]]]:
    """Write the conversations that stay; returns counts by split and by language/text type."""
    counts: dict[str, dict[str, Counter[str]]] = {"train": {}, "heldout": {}}
    partial = path.with_name(f".{path.name}.partial")
    with work.open(encoding="utf-8") as lines, partial.open("w", encoding="utf-8") as file:
        for number, line in enumerate(lines):
            side = choice.sides.get(number)
            if side is None:
                continue
            value = json.loads(line)
            group = counts[side].setdefault(
                f"{value['language']}/{value['text_type']}", Counter(conversations=0, texts=0, characters=0)
            )
            without = choice.without.get(number, frozenset[int]())
            for made in _work_for_the_target(value, side, without, options.max_characters, options.seed):
                file.write(made.to_json() + "\n")
                group["texts" if made.text is not None else "conversations"] += 1
                group["characters"] += len(made.text or "") + sum(len(message["content"]) for message in made.messages)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return counts


def _work_for_the_target(
    value: Mapping[str, Any], side: Any, without: Set[int], limit: int, seed: int
) -> Iterator[Conversation]:
    shared = {name: value[name] for name in ("source", "language", "text_type")}
    if value["text"] is None:
        messages, tools = tuple(value["messages"]), tuple(value["tools"])
        yield Conversation(id=value["id"], split=side, messages=messages, tools=tools, **shared)
        return
    for number, piece in enumerate(cut(value["text"], limit)):
        if number in without or (number and len(piece) < MIN_CHARACTERS):
            continue
        name, subject = f"{value['id']}-{number}", f"{seed} {number} {piece}"
        asked = request_for(piece, value["language"], value["text_type"], subject)
        turns = ({"role": "user", "content": asked}, {"role": "assistant", "content": ""})
        yield Conversation(id=f"{name}-request", split=side, messages=turns, **shared)
        start = beginning(piece, subject)
        if start:
            yield Conversation(id=f"{name}-text", split=side, text=start, **shared)


def _check(options: argparse.Namespace) -> None:
    if not (options.documents or options.conversations or options.tasks):
        raise StageError("nothing given to read; give --documents FOLDER, --conversations FILE or --tasks FILE")
    if not 0 <= options.held_out <= 0.5:
        raise StageError(f"--held-out {options.held_out}; allowed: a share from 0 to 0.5")
    if options.max_characters < 200:
        raise StageError(f"--max-characters {options.max_characters}; allowed: 200 or more")
    if options.limit is not None and options.limit < 1:
        raise StageError(f"--limit {options.limit}; allowed: 1 or more")


def _once(inputs: Inputs) -> None:
    """Raise StageError where a file would be read twice by one reader: which tags are meant could not be told."""
    for kind in ("documents", "conversations", "tasks"):
        paths = [(given.path, given.path.resolve()) for given in getattr(inputs, kind)]
        for index, (path, place) in enumerate(paths):
            for other, whole in (one for number, one in enumerate(paths) if number != index):
                if place == whole or (place.is_relative_to(whole) and whole.is_dir()):
                    twice = "is given twice" if place == whole else f"lies in {other}, which is given too"
                    raise StageError(f"--{kind}: {path} {twice}; give each folder and file once")


def _key(path: Path | None, out: Path, read: Sequence[Path], say: Callable[[str], None]) -> bytes:
    """Read the key, or make the file. Raises StageError where it lies in the output, in what is read, or is too short."""
    if path is None:
        return secrets.token_bytes(32)
    if path.resolve().is_relative_to(out.resolve()):
        raise StageError(f"{path} lies in the output folder; keep the key apart from what it protects")
    inside = next((given for given in read if path.resolve().is_relative_to(given.resolve())), None)
    if inside is not None:
        raise StageError(f"{path} lies in {inside}, which is read; keep the key apart from what it protects")
    try:
        if not path.exists():
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(secrets.token_hex(32) + "\n")
            say(f"made the key {path}; keep it to give the same values the same surrogates again, and keep it secret")
        key = path.read_bytes().strip()
    except OSError as error:
        raise StageError(f"{path} cannot be read or made: {error.strerror}; give a key file that can") from error
    if len(key) < MIN_KEY_BYTES:
        raise StageError(
            f"{path} holds {len(key)} bytes; a key needs at least {MIN_KEY_BYTES}. Name a new file to have one made"
        )
    return key


def _masker(mode: Any, key: bytes) -> Masker:
    try:
        return Masker(mode, key, tape_scanner() if mode != "none" else None)
    except MaskingUnavailable as error:
        raise StageError(str(error)) from error


def _by_file(masker: Masker) -> dict[str, dict[str, int]]:
    files: dict[str, Counter[str]] = {}
    for scope, counts in list(masker.counts.items()):
        if counts:
            name, _, file = scope.partition(": ")
            files.setdefault(f"{name}: {masker.mask_path(file, scope)}", Counter()).update(counts)
    return {name: dict(counts) for name, counts in files.items()}


def _disk(error: OSError, out: Path) -> str:
    """Say whether it was an input that could not be read or the output that could not be written."""
    name = error.filename
    if isinstance(name, str) and not Path(name).resolve().is_relative_to(out.resolve()):
        return f"{name} cannot be read: {error.strerror}; give files that can, or move it out of the folder"
    return f"{out} cannot be written: {error.strerror}; free some space or give another folder"


def _why(left_out: Sequence[LeftOut]) -> str:
    if not left_out:
        return ": the folders hold no files; give folders with text files"
    shown = "; ".join(f"{one.known_as or one.file}: {one.reason}" for one in left_out[:SHOWN])
    more = f"; and {len(left_out) - SHOWN} more" if len(left_out) > SHOWN else ""
    return f", all {len(left_out)} were left out ({shown}{more})"


def _tell(
    report: Mapping[str, Any],
    masking: Mapping[str, Any],
    total: int,
    left_out: Sequence[LeftOut],
    say: Callable[[str], None],
) -> None:
    for one in left_out[:NAMED]:
        say(f"left out {one.known_as or one.file}: {one.reason}")
    if len(left_out) > NAMED:
        say(
            f"left out {len(left_out) - NAMED} more; report.json has them all, with unknown words of their names masked"
        )
    removed = sum(report["duplicates"].values())
    masked = sum(masking["kinds"].values())
    say(
        f"{report['taken']} texts and conversations, {removed} of them repeat others; {masked} personal values masked; {total} written"
    )
    if masking["mode"] != "none":
        say("a name with nothing beside it that points to a person may have stayed; read a sample before sharing")
