"""What is damaged in the files of a run folder, with file and line: a manifest or a record that is not as a run writes it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import RunFolderError
from harness.records import CellRecord, StepRecord

Place = tuple[str | int, ...]
Record = TypeVar("Record", StepRecord, CellRecord)


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Arm(_Part):
    name: str
    method: str
    options: dict[str, Any] | None = None


class _Sampling(_Part):
    temperature: float


class _Replay(_Part):
    history: str


class _Workload(_Part):
    name: str
    path: str
    path_from_run: str | None = None
    tasks_sha256: str
    task_ids: list[str] = []
    arms: list[_Arm]
    concurrency: list[int]
    repeats: int
    sampling: _Sampling
    replay: _Replay
    slo: dict[str, str]
    thresholds: list[str]
    engine: dict[str, Any] | None = None
    genres: dict[str, str] | None = None
    task_sha256: dict[str, str] | None = None


class _Engine(_Part):
    arms: dict[str, dict[str, Any] | None] | None = None  # None: the arm's server had not been up yet
    model: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None


class _Manifest(_Part):
    created: str | None = None
    argv: list[str] | None = None
    lang: str | None = None
    workloads: list[_Workload] | None = None
    engine: _Engine | None = None
    versions: dict[str, str | None] | None = None
    machine: dict[str, Any] | None = None
    git: dict[str, Any] | None = None
    status: str | None = None
    salt: str | None = None
    overrides: dict[str, Any] | None = None


def check_readable(files: Iterable[Path]) -> None:
    """Check that each of these files that is there can be read.

    Raises:
        RunFolderError: naming the first that cannot, or that is no file (a folder, a pipe).
    """
    for file in files:
        try:
            if file.exists():
                if not file.is_file():
                    raise RunFolderError(f"{file} is no file; put back the one that the run wrote, or run again")
                file.open("rb").close()
        except OSError as error:
            raise RunFolderError(
                f"{file} cannot be read ({error.strerror}); put back the one that the run wrote, or run again"
            ) from error


def read_manifest(file: Path) -> Any:
    """Return what a manifest holds; of its keys those that there are have the right form.

    Raises:
        OSError: if it cannot be read.
        RunFolderError: if it is damaged, with file and line.
    """
    raw = file.read_bytes()
    try:
        text = raw.decode("utf-8")
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise _damaged(file, error.lineno, error.msg) from error
    except UnicodeDecodeError as error:
        raise _damaged(file, raw[: error.start].count(b"\n") + 1, "not UTF-8") from error
    except (ValueError, RecursionError) as error:  # a number without end, nesting without end
        raise _damaged(file, 1, str(error)) from error
    return value


def check_manifest(file: Path, value: Mapping[str, Any]) -> None:
    """Check the form of a manifest's keys; those that it lacks are for whoever needs them.

    Raises:
        RunFolderError: on the first fault, with file and line.
    """
    try:
        _Manifest.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = tuple(first["loc"])
        what = ".".join(map(str, place))
        message = f"{what}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        raise _damaged(file, _line(file.read_text(encoding="utf-8"), place), message) from error


def _damaged(file: Path, line: int, why: str) -> RunFolderError:
    return RunFolderError(f"{file}:{line}: damaged ({why}); restore the file or run again")


def _line(text: str, place: Place) -> int:
    """Return the line of a key, or of the nearest enclosing one that is there; JSON is YAML too, and YAML's reader tells lines."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return 1
    line = 1
    for part in place:
        found: tuple[int, yaml.Node] | None = None
        if isinstance(node, yaml.MappingNode):
            found = next(((key.start_mark.line + 1, item) for key, item in node.value if key.value == part), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            found = (node.value[part].start_mark.line + 1, node.value[part])
        if found is None:
            break
        line, node = found
    return line


def step_of(row: Any) -> StepRecord:
    """Return the step of a row.

    Raises:
        ValueError: if the row is none, saying what is wrong with it.
    """
    return _checked(StepRecord, row)


def cell_of(row: Any) -> CellRecord:
    """Return the cell of a row.

    Raises:
        ValueError: if the row is none, saying what is wrong with it.
    """
    return _checked(CellRecord, row)


def _checked(kind: type[Record], row: Any) -> Record:
    if not isinstance(row, Mapping):
        raise ValueError(f"{row!r:.80} is no object with keys")
    try:
        record = kind.from_row(row)
    except KeyError as error:
        raise ValueError(f"key {error} is missing") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error
    for fault in _faults(record):
        raise ValueError(fault)
    return record


def _faults(record: Any) -> Iterator[str]:
    kind: type = type(record)
    for name, allowed in _types(kind).items():
        value = getattr(record, name)
        if is_dataclass(value):
            yield from _faults(value)
        elif not _fits(value, allowed):
            yield f"{name} is {value!r:.80}"


@cache
def _types(kind: type) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {item.name: hints[item.name] for item in fields(kind)}


def _fits(value: Any, allowed: Any) -> bool:
    origin = get_origin(allowed)
    if origin in (Union, UnionType):
        return any(_fits(value, item) for item in get_args(allowed))
    if origin is Literal:
        return value in get_args(allowed)
    if origin is tuple:  # of one type, however long
        return isinstance(value, Sequence) and all(_fits(item, get_args(allowed)[0]) for item in value)
    if allowed is NoneType:
        return value is None
    return type(value) is allowed
