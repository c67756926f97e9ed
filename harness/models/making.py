"""Forms of a model that are made once and kept: a Hugging Face folder of a GGUF file, a GGUF file of a folder.

Both need torch, so each is made in a process of its own.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.errors import ModelError
from harness.models.cache import Progress, bytes_in, locked, watched


def make_folder(source: Path, folder: Path, report: Progress) -> None:
    """Convert a GGUF file in a process of its own, since that needs torch; the folder appears whole, under a lock."""
    try:
        with (
            locked(folder.parent / ".lock", report),
            tempfile.TemporaryDirectory(prefix="make-", dir=folder.parent) as name,
        ):
            if (folder / "config.json").is_file():
                return  # made by another process meanwhile
            work = Path(name)
            command = [sys.executable, "-m", "drafters.convert", str(source), str(work / "model")]
            expected = source.stat().st_size  # both hold the same weights
            code, said = watched(command, work, lambda: report("convert", min(1.0, bytes_in(work) / expected)))
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


def make_file(
    what: str,
    arguments: Sequence[str],
    path: Path,
    expected_bytes: int,
    whole: Callable[[Path], bool],
    report: Progress,
) -> None:
    """Run ``drafters export`` with ``arguments`` for ``what``, under a lock, unless ``whole`` says the file is there by then.

    The file appears whole, in the place of one that is not.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            locked(path.parent / ".lock", report),
            tempfile.TemporaryDirectory(prefix="make-", dir=path.parent) as name,
        ):
            if whole(path):
                return  # made by another process meanwhile
            work = Path(name)
            made = work / path.name
            command = [sys.executable, "-m", "drafters.cli", "export", *arguments, "--out", str(made)]
            report("convert", 0.0)
            code, said = watched(command, work, lambda: report("convert", min(1.0, bytes_in(work) / expected_bytes)))
            if code != 0 or not made.is_file():
                raise ModelError(
                    f"cannot write {what} as GGUF (exit code {code}): {said or 'it said nothing'}; see whether "
                    "'spec-harness[builtin]' is installed, which this needs once"
                )
            made.replace(path)
    except OSError as error:
        raise ModelError(
            f"cannot make {path}: {error.strerror or error}; free some space (about 100 MB) or set SPEC_HARNESS_CACHE"
        ) from error
    report("convert", 1.0)
