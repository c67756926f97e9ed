"""What a run writes down about a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A checked GGUF file; ``kind`` is the type most of its weights have (``F32``, ``Q4_K`` …), ``licence`` may be unknown.

    ``sha256`` is ``None`` for a file that is still to be made. ``source_sha256`` is that of the weights it was written from, where
    the file tells it (``drafters export`` does): the hash by which the builtin engine knows the same model.
    """

    path: Path
    sha256: str | None
    name: str
    licence: str | None
    kind: str
    source_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model as a Hugging Face folder; ``source_sha256`` is that of the GGUF file it was made from, ``None`` where it was given."""

    path: Path
    name: str
    licence: str | None
    source_sha256: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    """One line of ``harness models list``; ``path`` is ``None`` until the model is pulled.

    ``shipped``: it comes with the package and is never fetched.
    """

    name: str
    description: str
    licence: str
    path: Path | None
    shipped: bool = False
