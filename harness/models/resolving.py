"""From a name or a path to a checked model."""

from __future__ import annotations

import difflib
from pathlib import Path

from drafters import reference
from harness.errors import ModelError
from harness.gguf_header import read_header, source_sha256
from harness.models import shipped
from harness.models.cache import Progress, cache_folder, file_sha256, silent
from harness.models.catalogue import CATALOGUE, known
from harness.models.making import make_folder
from harness.models.pulling import pull
from harness.models.records import Listing, ModelFile, ModelFolder


def installed(cache: Path | None = None) -> tuple[Listing, ...]:
    """Return the model that comes with the package, then the catalogue, each model with its file if it was pulled."""
    folder = cache or cache_folder()
    files = [(item, folder / item.float32_file) for item in CATALOGUE]
    pulled = tuple(
        Listing(item.name, item.description, item.licence, path if path.is_file() else None) for item, path in files
    )
    return shipped.listing(), *pulled


def resolve(
    model: str, *, fetch: bool = True, progress: Progress | None = None, cache: Path | None = None
) -> ModelFile:
    """Return the file behind a catalogue name or a path, checked. A name is pulled if needed, unless ``fetch`` is false.

    With ``fetch=False`` a name that is not pulled yet is only looked up: its record carries the path and hash it will have.

    Raises:
        ModelError: if there is no such name or file, or the file is damaged.
    """
    if shipped.is_shipped(model):
        return shipped.file(model, fetch=fetch, progress=progress, cache=cache)
    entry = known(model)
    if entry is not None:
        path = (cache or cache_folder()) / entry.float32_file
        if fetch:
            path = pull(model, progress=progress, cache=cache)
        return ModelFile(path, entry.float32_sha256, entry.name, entry.licence, "F32")
    path = Path(model).expanduser()
    if path.is_dir():
        raise ModelError(
            f"{model} is a folder; llama.cpp reads one GGUF file: give its path (make it with 'drafters export --target FOLDER "
            "[--drafter CHECKPOINT] --out FILE.gguf'), or run the folder on the builtin engine (kind: builtin, --engine builtin)"
        )
    if not path.is_file():
        raise ModelError(_no_model(model, "a .gguf file"))
    header = read_header(path)
    text = {key: value for key, value in header.metadata.items() if isinstance(value, str)}
    name, licence = text.get("general.name", path.stem), text.get("general.license")
    sha256 = file_sha256(path.resolve(), cache)
    return ModelFile(path.resolve(), sha256, name, licence, header.weight_type, source_sha256(header))


def resolve_folder(
    model: str, *, fetch: bool = True, progress: Progress | None = None, cache: Path | None = None
) -> ModelFolder:
    """Return the Hugging Face folder behind a catalogue name or a path. The folder of a name is made once, from its GGUF file.

    With ``fetch=False`` nothing is fetched or made: a name's record carries the path that its folder will have.

    Raises:
        ModelError: if there is no such name or folder, or it cannot be made.
    """
    if shipped.is_shipped(model):
        return shipped.folder(model)
    entry = known(model)
    if entry is not None:
        folder = (cache or cache_folder()) / f"{Path(entry.float32_file).stem}.hf"
        if fetch and not (folder / "config.json").is_file():
            source = pull(model, progress=progress, cache=cache)
            make_folder(source, folder, progress or silent)
        return ModelFolder(folder, entry.name, entry.licence, entry.float32_sha256)
    path = Path(model).expanduser()
    if path.is_file():
        raise ModelError(
            f"{model} is a file; the builtin engine reads a Hugging Face folder: make one of a GGUF file with "
            f"'python -m drafters.convert {model} FOLDER' and give that folder, or let llama.cpp run it: --engine llamacpp"
        )
    if not path.is_dir():
        raise ModelError(_no_model(model, "a Hugging Face folder"))
    if not (path / "config.json").is_file() or not any(path.glob("*.safetensors")):
        raise ModelError(
            f"{model} is no Hugging Face folder: it needs config.json, *.safetensors and tokenizer.json; name the folder that has them"
        )
    return ModelFolder(path.resolve(), path.resolve().name, None, None)


def _no_model(model: str, path_of: str) -> str:
    names = [reference.TARGET, *(item.name for item in CATALOGUE)]
    close = difflib.get_close_matches(model, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"no model {model!r}; {hint}give a known name ({', '.join(names)}) or the path of {path_of}"
