"""What an evaluation is given, checked before anything is written: target, drafters, workload files. Imports no torch.

Of a workload's file its own engine, arms, thresholds and objectives are replaced; what it asks and how stays.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from drafters import reference
from drafters.engine.config import ServedDrafter
from drafters.specs import SpecError, parse_spec, split_spec
from drafters.training.stage import StageError

__all__ = [
    "BASELINE",
    "FILES",
    "check_served",
    "context_tokens",
    "input_files",
    "read_arms",
    "read_workloads",
    "target_folder",
]

BASELINE = "baseline"
FILES = ("model", "corpus")  # options of a drafter that name a file or folder
LEAST_CONTEXT = 4096  # where neither file nor target says another
FORM = "give a YAML file of workloads/README.md's form"


def target_folder(given: Path) -> Path:
    """Return the target's folder: the one given, or that of a shipped model by its name.

    Raises StageError where this installation has no such model.
    """
    if str(given) != reference.TARGET or (given / "config.json").is_file():
        return given.resolve()
    try:
        return reference.target()
    except reference.MissingReference as error:
        raise StageError(f"--target {given}: {error}") from error


def read_arms(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the arms that ``--drafter`` describes, their files as absolute paths.

    Raises StageError for a name that is taken and a file that is not there, SpecError for a drafter that cannot be.
    """
    arms: list[dict[str, Any]] = []
    for text in texts:
        name, method, options = split_spec(text)
        if name == BASELINE or name in [arm["name"] for arm in arms]:
            raise StageError(
                f"--drafter {text!r}: the name {name!r} is taken; give each drafter another one than {BASELINE}"
            )
        for key in FILES:
            if options.get(key) is not None:
                options[key] = str(_located(str(options[key]), text))
        try:
            check_served({**options, "method": method})
        except SpecError as error:
            raise SpecError(f"--drafter {text!r}: {error}") from error
        arms.append({"name": name, "method": method, "options": options})
    return arms


def check_served(drafter: Mapping[str, Any]) -> None:
    """Raise SpecError for a drafter that cannot be: keys of its spec, and ``lengths``."""
    spec = parse_spec({key: value for key, value in drafter.items() if key != "lengths"})
    lengths = drafter.get("lengths", "fixed")
    try:
        ServedDrafter(spec=spec, lengths=lengths)
    except ValidationError as error:
        raise SpecError(
            f"lengths is {lengths!r:.80}; allowed: fixed, goodput, or a table from the smallest number of sequences to the "
            "draft length from there on, such as {1: 8, 4: 3}"
        ) from error


def _located(given: str, drafter: str) -> Path:
    if given.startswith(reference.PREFIX):
        try:
            return reference.drafter(given)
        except reference.MissingReference as error:
            raise StageError(f"--drafter {drafter!r}: {error}") from error
    try:
        path = Path(given).expanduser().resolve()
        there = path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise StageError(f"--drafter {drafter!r:.200}: {given!r:.80} is no path ({error}); give one that is") from error
    if not there:
        raise StageError(f"--drafter {drafter!r}: {path} does not exist; give the path of one that does")
    return path


def context_tokens(target: Path) -> int | None:
    """Return the target's own room of one request, ``None`` where it does not tell.

    Raises StageError for a folder that is no Hugging Face folder.
    """
    try:
        config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StageError(
            f"{target} is no Hugging Face folder: config.json cannot be read ({error}); give one that is"
        ) from error
    if not isinstance(config, dict):
        raise StageError(f"{target} is no Hugging Face folder: config.json holds no object; give one that is")
    room = config.get("max_position_embeddings")
    return room if _is_whole(room) else None


def read_workloads(
    paths: Sequence[Path], options: argparse.Namespace, target: Path, arms: Sequence[Mapping[str, Any]]
) -> dict[Path, dict[str, Any]]:
    """Return the content of each workload file, with the builtin engine, these arms and absolute task files.

    Raises StageError for a file that is no workload, and for two of one name: they are written side by side.
    """
    own = context_tokens(target) if options.context_tokens is None else None
    contents: dict[Path, dict[str, Any]] = {}
    for path in paths:
        if path in contents:
            raise StageError(f"the workload {path} is given twice; leave one out")
        if path.name in {other.name for other in contents if other != path}:
            raise StageError(f"two workload files are called {path.name}; rename one")
        contents[path] = _workload(path, options, target, arms, own)
    return contents


def input_files(
    target: Path, contents: Mapping[Path, Mapping[str, Any]], arms: Sequence[Mapping[str, Any]]
) -> dict[str, Path]:
    """Return every file and folder that decides the outcome, by a name that no two share and that tells no place."""
    found = {"target": target}
    for path, content in contents.items():
        found[f"workload {path.name}"] = path
        for number, item in enumerate(content["tasks"], start=1):
            found[f"tasks {number} of {path.name}: {Path(item['file']).name}"] = Path(item["file"])
    for arm in arms:
        for key in FILES:
            if arm.get("options", {}).get(key) is not None:
                found[f"drafter {arm['name']}: {key}"] = Path(arm["options"][key])
    return found


def _workload(
    path: Path, options: argparse.Namespace, target: Path, arms: Sequence[Mapping[str, Any]], room: int | None
) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())  # YAML tells it in several lines
        raise StageError(f"{path} cannot be read as a workload ({reason}); {FORM}") from error
    if not isinstance(content, dict) or "tasks" not in content:
        raise StageError(f"{path} is no workload: it has no key 'tasks'; {FORM}")
    given = _mapping(path, content, "engine")
    asked = given.get("context_tokens", LEAST_CONTEXT)
    if not _is_whole(asked):
        raise StageError(f"{path}: engine.context_tokens is {asked!r:.80}; give a whole number of tokens")
    replay = _mapping(path, content, "replay") | ({"tool_wait": options.tool_wait} if options.tool_wait else {})
    model = _model(target)
    engine: dict[str, Any] = {
        "kind": "builtin",
        "model": model,
        "threads": options.threads,
        "context_tokens": options.context_tokens or (asked if room is None else min(asked, room)),
        **{key: given[key] for key in ("start_timeout_s", "request_timeout_s") if key in given},
        "options": {
            key: value for key in ("weights", "dtype", "device") if (value := getattr(options, key)) is not None
        },
    }
    # thresholds and objectives belong to the file's own arms and engine
    kept = {key: value for key, value in content.items() if key not in ("thresholds", "slo")}
    return {
        **kept,
        "tasks": list(_tasks(path, content)),
        "engine": engine,
        # on any other target a run leaves out what is named as a drafter of the shipped one; here it was asked for
        "arms": [_named(arm) if model == reference.TARGET else dict(arm) for arm in arms],
        "replay": replay,
    }


def _tasks(path: Path, content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    given = content["tasks"]
    sources = [{"file": given}] if isinstance(given, str) else given
    if not isinstance(sources, list) or not sources:
        raise StageError(f"{path}: tasks is {given!r:.80}; give a file, or a list of file and take")
    for source in sources:
        if not isinstance(source, dict) or not isinstance(source.get("file"), str):
            raise StageError(f"{path}: tasks has {source!r:.80}; give a file, or a list of file and take")
        try:
            yield {**source, "file": str((path.parent / source["file"]).resolve())}
        except (OSError, RuntimeError, ValueError) as error:
            raise StageError(f"{path}: tasks has {source['file']!r:.80}, which is no path; give a file") from error


def _mapping(path: Path, content: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise StageError(f"{path}: {key} is {value!r:.80}; give a mapping of its settings, or leave it out")
    return value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _named(arm: Mapping[str, Any]) -> dict[str, Any]:
    """Return an arm whose shipped drafters are told by their names, so that a run tells which they were."""
    options = arm.get("options", {})
    names = {key: reference.name_of(Path(options[key])) for key in FILES if options.get(key) is not None}
    shipped = {key: name for key, name in names.items() if name is not None}
    return {**arm, "options": {**options, **shipped}} if shipped else dict(arm)


def _model(target: Path) -> str:
    """Return how a workload names the target: a shipped one by its name, so that a run tells which it was."""
    try:
        return reference.TARGET if reference.target() == target else str(target)
    except reference.MissingReference:
        return str(target)
