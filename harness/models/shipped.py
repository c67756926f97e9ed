"""The models that come with the package, for both engines: folders as they are, and GGUF files that are made once.

The GGUF file of a model is kept under a name with the hash of what it was made of, so that it is never an older one's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from drafters import reference
from harness.errors import ModelError
from harness.gguf_header import read_header, source_sha256
from harness.models.cache import Progress, cache_folder, file_sha256, silent
from harness.models.making import make_file
from harness.models.records import Listing, ModelFile, ModelFolder

_FORM = "2"  # of the files made: raise it when the same weights give another file
_SOURCES = ("*.json", "*.jinja", "*.safetensors")
TARGET = reference.TARGET
SOURCE = "spec-harness, drafters/reference"


def is_drafter(text: str) -> bool:
    """Tell whether a text names a drafter that comes with the package (``ref:…``), be it there or not."""
    return text.startswith(reference.PREFIX)


def is_shipped(text: str) -> bool:
    """Tell whether a text names a model or drafter that comes with the package, be it there or not."""
    return text == reference.TARGET or is_drafter(text)


def drafter_name(path: Path) -> str | None:
    """Return the name (``ref:…``) of a drafter that comes with the package, ``None`` for any other path."""
    return reference.name_of(path)


def drafter_path(text: str) -> Path:
    """Return the checkpoint folder of a drafter, or the file of a table of n-grams.

    Raises:
        ModelError: if the package holds none of this name.
    """
    try:
        return reference.drafter(text)
    except reference.MissingReference as error:
        raise ModelError(str(error)) from error


def folder(name: str) -> ModelFolder:
    """Return the folder of a shipped model.

    Raises:
        ModelError: if it is not there, or is a table of n-grams.
    """
    path = _target() if name == reference.TARGET else drafter_path(name)
    if not path.is_dir():
        raise ModelError(f"{name} is a table of n-grams, no model; it is the option corpus of the method ngram")
    return ModelFolder(path, name.removeprefix(reference.PREFIX), reference.LICENCE, None)


def file(name: str, *, fetch: bool, progress: Progress | None, cache: Path | None) -> ModelFile:
    """Return the GGUF form of a shipped model or drafter; with ``fetch`` it is made if it is not in the cache yet.

    Raises:
        ModelError: if the model is not there or cannot be written as GGUF.
    """
    found, target = folder(name), _target()
    kept = cache or cache_folder()
    key = _sha256([target] if found.path == target else [target, found.path], kept)
    path = kept / f"{found.name}-{key[:16]}.F32.gguf"
    if fetch and not _whole(path):
        arguments = ["--target", str(target), "--name", found.name, "--licence", reference.LICENCE, "--source", SOURCE]
        if found.path != target:
            arguments += ["--drafter", str(found.path)]
        weights = sum(item.stat().st_size for item in found.path.glob("*.safetensors"))
        make_file(name, arguments, path, 2 * weights, _whole, progress or silent)  # from bfloat16 to float32
    if not fetch and not _whole(path):
        return ModelFile(path, None, found.name, reference.LICENCE, "F32")
    source = source_sha256(read_header(path))
    return ModelFile(path, file_sha256(path, kept), found.name, reference.LICENCE, "F32", source)


def _whole(path: Path) -> bool:
    try:
        read_header(path)
    except ModelError:
        return False  # not there, or cut short: made again
    return True


def listing() -> Listing:
    """Return the line of the target."""
    try:
        path: Path | None = reference.target()
    except reference.MissingReference:
        path = None
    names = ", ".join(f"{reference.PREFIX}{name}" for name in reference.drafters()) or "none"
    return Listing(
        reference.TARGET, f"{reference.DESCRIPTION}; its drafters: {names}", reference.LICENCE, path, shipped=True
    )


def _target() -> Path:
    try:
        return reference.target()
    except reference.MissingReference as error:
        raise ModelError(str(error)) from error


def _sha256(folders: Sequence[Path], cache: Path) -> str:
    whole = hashlib.sha256(f"form {_FORM}\n".encode())
    for place in folders:
        for path in sorted(path for pattern in _SOURCES for path in place.glob(pattern)):
            whole.update(f"{path.name}\0{file_sha256(path, cache)}\n".encode())
    return whole.hexdigest()
