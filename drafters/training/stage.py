"""A stage's folder: what went in, what came out, and whether it is whole.

Every stage of the pipeline writes one folder. ``request.json`` says what it was asked to do and is written first,
``manifest.json`` what came out and is written last: a folder without it is unfinished work, which the same stage with
the same inputs and settings may continue and no other stage reads. One process at a time works in a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from drafters.training.folder_lock import LOCK, lock_of

__all__ = [
    "Manifest",
    "StageError",
    "begin",
    "check_apart",
    "digest",
    "finish",
    "read_manifest",
    "take_back",
    "take_back_unworked",
    "write_whole",
]

REQUEST, MANIFEST = "request.json", "manifest.json"
PACKAGES = ("spec-harness", "torch", "transformers", "tokenizers", "safetensors", "maskingtape")
CHUNK_BYTES = 1 << 20
TEMPORARY = re.compile(r"\..+\.\d+")
"""What `write_whole` and checkpoints write before they rename: a dot, the file's name, the process."""
SCRATCH = frozenset({".masked.jsonl", ".conversations.jsonl.partial"})
"""What `drafters corpus` writes on its way: it never goes on from there, so nothing is lost with it."""


class StageError(ValueError):
    """Something given to a stage is wrong; the message says what was given, what is allowed and what to do."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a finished stage left. ``inputs`` and ``outputs`` map names to SHA-256, outputs by path within the folder."""

    stage: str
    inputs: Mapping[str, str]
    settings: Mapping[str, Any]
    outputs: Mapping[str, str]
    counts: Mapping[str, Any]
    versions: Mapping[str, str]


def digest(path: Path) -> str:
    """SHA-256 of a file, or of a folder's files by relative path and content, hidden ones left out.

    Raises StageError where there is nothing to read.
    """
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except OSError as error:  # a name too long, a folder that may not be entered
        raise StageError(
            f"{str(path)[:200]} cannot be read: {error.strerror}; give a file or a folder that can"
        ) from error
    if is_file:
        return _of_file(path)
    if not is_folder:
        raise StageError(f"{path} does not exist; give a file or a folder that does")
    whole = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        relative = file.relative_to(path)
        if file.is_file() and not any(part.startswith(".") for part in relative.parts):
            # a name need not be UTF-8: archives of other systems bring any bytes
            whole.update(f"{relative.as_posix()}\0{_of_file(file)}\n".encode(errors="surrogateescape"))
    return whole.hexdigest()


def begin(folder: Path, stage: str, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> Manifest | None:
    """Open a stage's folder. Returns the manifest when this very work is already done, and ``None`` when it is to be
    done or continued: then this process has the folder's lock until `finish` or its end, and what a killed one was just
    writing is gone.

    ``settings`` holds everything that decides the outcome, as JSON values. Raises StageError when the folder holds other
    work, finished or begun: nothing is overwritten. Also when another process works in it, and where it lies within an
    input: what is written would be read the next time.

    A stage that refuses its input afterwards only raises: the command line then calls `take_back_unworked`.
    """
    check_apart(folder, inputs.values())
    asked = {
        "stage": stage,
        "inputs": {name: digest(path) for name, path in inputs.items()},
        "settings": _plain(settings),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (done := _done(folder, stage, asked)) is not None:
            return done
        lock = lock_of(folder.resolve())
        if not lock.take():
            raise StageError(f"another process works in {folder}; wait for it, end it, or give another folder")
        if (done := _done(folder, stage, asked)) is not None:  # it has ended since the first look
            lock.end()
            return done
        for path in folder.rglob(".*"):
            if TEMPORARY.fullmatch(path.name) and path.is_file():
                path.unlink(missing_ok=True)
        if not (folder / REQUEST).exists():
            write_whole(folder / REQUEST, json.dumps(asked, ensure_ascii=False, indent=2) + "\n")
    except OSError as error:
        raise StageError(f"{folder} cannot be written: {error.strerror}; give a folder that can") from error
    return None


def finish(folder: Path, outputs: Iterable[str], counts: Mapping[str, Any]) -> Manifest:
    """Declare the stage's work whole. ``outputs`` are the files that count, by path within the folder."""
    asked = _read_json(folder / REQUEST)
    manifest = Manifest(
        stage=asked["stage"],
        inputs=asked["inputs"],
        settings=asked["settings"],
        outputs={name: _of_file(folder / name) for name in sorted(outputs)},
        counts=_plain(counts),
        versions=_versions(),
    )
    value = {name: getattr(manifest, name) for name in Manifest.__slots__}
    write_whole(folder / MANIFEST, json.dumps(value, ensure_ascii=False, indent=2) + "\n")
    lock_of(folder.resolve()).end()
    return manifest


def take_back(folder: Path) -> None:
    """Undo `begin` where nothing was done, so that the folder is free for other work; the stage removes its own files."""
    (folder / REQUEST).unlink(missing_ok=True)
    lock_of(folder.resolve()).end()


def take_back_unworked(folder: Path) -> bool:
    """Undo `begin` after a refusal, where nothing of worth was done; tells whether it was undone.

    Of worth is whatever is neither of `begin`, nor half a file, nor `SCRATCH`, nor empty. Where there is any, where the
    work is whole, or where this process has not begun it, everything stays.
    """
    lock = lock_of(folder.resolve())
    if not lock.held or not (folder / REQUEST).is_file() or (folder / MANIFEST).exists():
        return False
    files = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    if not all(_worthless(folder, path) for path in files):
        return False
    for path in files:
        if path not in (folder / LOCK, folder / REQUEST):
            path.unlink(missing_ok=True)
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        path.rmdir()
    take_back(folder)
    return True


def check_apart(folder: Path, inputs: Iterable[Path]) -> None:
    """Raise StageError where ``folder`` is, or lies within, a folder that is read; a finished stage is told by its manifest."""
    place = folder.resolve()
    for given in inputs:
        read = given.parent if given.name == MANIFEST else given
        if place.is_relative_to(read.resolve()):
            raise StageError(f"--out {folder} lies in {read}, which is read; give a folder outside it")


def read_manifest(folder: Path, stage: str) -> Manifest:
    """Read the manifest of a finished stage, after every output was found to be what it says.

    Raises StageError for a folder that is missing, unfinished, of another stage, or changed since.
    """
    path = folder / MANIFEST
    if not path.is_file():
        begun = (folder / REQUEST).is_file()
        problem = "was begun and is not finished; run the stage again to continue it" if begun else "is missing"
        raise StageError(f"{folder}: the result of 'drafters {stage}' {problem}")
    value = _read_json(path)
    if value.get("stage") != stage:
        raise StageError(
            f"{folder} holds the result of 'drafters {value.get('stage')}'; give that of 'drafters {stage}'"
        )
    try:
        manifest = Manifest(**value)
        _check_kinds(manifest)
    except TypeError as error:
        raise StageError(
            f"{path} is damaged or of another version ({error}); run the stage again in a new folder"
        ) from error
    for name, sha256 in manifest.outputs.items():
        file = folder / name
        if not file.is_file() or _of_file(file) != sha256:
            state = "was changed or cut short" if file.is_file() else "is missing"
            raise StageError(f"{file} {state} since the stage ended; run 'drafters {stage}' again in a new folder")
    return manifest


def write_whole(path: Path, content: str | bytes | Iterable[bytes]) -> None:
    """Write a file beside ``path``, force it to the disk, then rename: it is there whole or not at all. Content that does
    not fit into memory comes in pieces.

    Raises StageError when the disk is full or the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            whole = content.encode() if isinstance(content, str) else content
            file.writelines([whole] if isinstance(whole, bytes) else whole)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StageError(
            f"{path} cannot be written: {error.strerror}; free some space or give another folder"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _done(folder: Path, stage: str, asked: Mapping[str, Any]) -> Manifest | None:
    """The manifest of this very work. Raises StageError for other work, and for files of nobody knows whom."""
    if (folder / MANIFEST).exists():
        if (other := _read_json(folder / MANIFEST).get("stage")) != stage:
            raise StageError(f"{folder} holds the result of 'drafters {other}'; give another folder")
        done = read_manifest(folder, stage)
        _same(folder, asked, {"stage": done.stage, "inputs": dict(done.inputs), "settings": dict(done.settings)})
        return done
    request = folder / REQUEST
    if request.exists():
        _same(folder, asked, _read_json(request))
    elif any(not _of_begin(path.name) for path in folder.iterdir()):
        raise StageError(f"{folder} holds files that are not of this stage; give an empty or a new folder")
    return None


def _check_kinds(manifest: Manifest) -> None:
    for name in ("inputs", "settings", "outputs", "counts", "versions"):
        value = getattr(manifest, name)
        if not isinstance(value, dict):
            raise TypeError(f"{name} is {value!r:.80}, not an object")
        if name in ("inputs", "outputs") and not all(isinstance(sha256, str) for sha256 in value.values()):
            raise TypeError(f"{name} holds something that is no hash")


def _worthless(folder: Path, path: Path) -> bool:
    """Whether nothing is lost with a file."""
    if path.is_symlink():
        return False
    if path.parent == folder and (_of_begin(path.name) or path.name == REQUEST or path.name in SCRATCH):
        return True
    return TEMPORARY.fullmatch(path.name) is not None or path.stat().st_size == 0


def _of_begin(name: str) -> bool:
    """Whether a file is what a kill in the middle of `begin` leaves."""
    return name == LOCK or (name.startswith(f".{REQUEST}.") and TEMPORARY.fullmatch(name) is not None)


def _of_file(path: Path) -> str:
    value = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            value.update(chunk)
    return value.hexdigest()


def _same(folder: Path, asked: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    for key in ("stage", "inputs", "settings"):
        if asked[key] == found.get(key):
            continue
        if key == "stage":
            raise StageError(f"{folder} belongs to 'drafters {found.get(key)}'; give another folder")
        then, now = found.get(key), asked[key]
        if not isinstance(then, dict):
            raise StageError(f"{folder / REQUEST} is damaged ({key} is {then!r:.80}); give another folder")
        names = [name for name in sorted(then.keys() | now.keys()) if then.get(name) != now.get(name)]
        shown = "; ".join(f"{name} was {then.get(name)!r}, now {now.get(name)!r}" for name in names[:3])
        raise StageError(f"{folder} holds work with other {key} ({shown}); give another folder, or remove this one")


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """As it will be read back."""
    read: dict[str, Any] = json.loads(json.dumps(value, ensure_ascii=False, default=str))
    return read


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise StageError(f"{path} cannot be read ({error}); remove the folder and run the stage again") from error
    if not isinstance(value, dict):
        raise StageError(f"{path} holds no object; remove the folder and run the stage again")
    return value


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
