"""The models that come with this package: where their files are. Imports no torch.

``ref-koen/`` is the target, a Hugging Face folder; ``<family>-<method>/`` are its drafters' checkpoints (``public-dflash2``,
``adapted-eagle3`` …), ``draft-model/`` is a smaller model with the target's tokenizer, ``ngram/corpus.txt`` a table of token
ids. ``README.md`` is the model card.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

__all__ = [
    "DESCRIPTION",
    "LICENCE",
    "PREFIX",
    "TARGET",
    "MissingReference",
    "drafter",
    "drafters",
    "folder",
    "name_of",
    "target",
]

TARGET = "ref-koen"
DESCRIPTION = "small bilingual reference target, Korean and English office text, code and tool calls; knows nothing, for measuring"
LICENCE = "apache-2.0"
PREFIX = "ref:"
"""What a drafter's name begins with where a path could stand too: ``ref:public-dflash2``."""
ELSEWHERE = "SPEC_HARNESS_REFERENCE"
"""Environment variable that names another folder of this layout."""
CORPUS = "corpus.txt"


class MissingReference(LookupError):
    """A model that should have come with the package is not there; the message says what is."""


def folder() -> Path:
    """Where the models are."""
    given = os.environ.get(ELSEWHERE)
    return Path(given).expanduser().resolve() if given else Path(__file__).resolve().parent


def target() -> Path:
    """The target's Hugging Face folder. Raises MissingReference when this installation has none."""
    found = folder() / TARGET
    if not _is_model(found):
        raise MissingReference(
            f"{TARGET} is not in this installation ({found} holds no config.json with *.safetensors); install the package "
            f"with its models, or name a folder that has them in {ELSEWHERE}"
        )
    return found


def drafters() -> tuple[str, ...]:
    """Names of the drafters that are there, without the prefix, in alphabetical order."""
    if not folder().is_dir():
        return ()
    places = sorted(path for path in folder().iterdir() if path.is_dir() and path.name != TARGET)
    return tuple(path.name for path in places if _is_model(path) or (path / CORPUS).is_file())


def drafter(name: str) -> Path:
    """A drafter's checkpoint folder, or the file of a table of n-grams; ``name`` with the prefix or without.

    Raises MissingReference for a name that is not there.
    """
    plain, known = name.removeprefix(PREFIX), drafters()
    if plain not in known:
        close = difflib.get_close_matches(plain, known, n=1)
        hint = f"did you mean {PREFIX}{close[0]}? " if close else ""
        there = ", ".join(f"{PREFIX}{one}" for one in known) or "none"
        raise MissingReference(f"no drafter {PREFIX}{plain} in {folder()}; {hint}there: {there}")
    found = folder() / plain
    return found / CORPUS if not _is_model(found) else found


def name_of(path: Path) -> str | None:
    """The name of the drafter that lies at a path, as :func:`drafter` takes it; ``None`` for a path of somebody's own."""
    place = path.parent if path.name == CORPUS else path
    return PREFIX + place.name if place.parent == folder() and place.name in drafters() else None


def _is_model(place: Path) -> bool:
    return (place / "config.json").is_file() and any(place.glob("*.safetensors"))
