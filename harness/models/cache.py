"""The folder where models are kept: its place, hashes of its files, one writer at a time, and commands that fill it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Progress = Callable[[str, float], None]
"""Called with a stage (``wait``, ``download``, ``verify``, ``extract``, ``convert``) and its fraction from 0 to 1."""


def cache_folder() -> Path:
    """Return where models are kept: ``SPEC_HARNESS_CACHE``, else ``spec-harness/models`` in the user's cache folder."""
    given = os.environ.get("SPEC_HARNESS_CACHE")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "spec-harness" / "models"


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


def watched(command: list[str], work: Path, seen: Callable[[], None]) -> tuple[int, str]:
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


def silent(stage: str, fraction: float) -> None:
    """Report nothing."""


def holds(path: Path, sha256: str, cache: Path) -> bool:
    """Tell whether a file is there and has this hash."""
    return path.is_file() and file_sha256(path, cache) == sha256


@contextmanager
def locked(path: Path, report: Progress) -> Iterator[None]:
    """Hold the lock file ``path``; ``report`` is told where another process has it."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("wait", 0.0)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file releases the lock, and so does the end of the process, however it comes


def bytes_in(folder: Path) -> int:
    """Return the size of all files below a folder that may still change."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # pip moves its files while they are counted
    return total
