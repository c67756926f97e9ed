"""A run folder: the only place that knows its file names. Append while running, read back afterwards, resume after a kill.

``manifest.json`` what was run and on what · ``steps.jsonl`` one flat row a step, appended as each step ends · ``rounds.jsonl`` the
propose→verify rounds of a step, where the engine tells them · ``outputs.jsonl`` each distinct output text once, by hash ·
``cells.jsonl`` one row a finished or failed cell. Everything else in the folder is derived from these.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

import orjson

from harness.damage import cell_of, check_manifest, check_readable, read_manifest, step_of
from harness.errors import RunFolderError
from harness.records import CellKey, CellRecord, Round, StepRecord

Made = TypeVar("Made")
FORMAT = 1
LOCK = ".lock"
MANIFEST, STEPS, ROUNDS, OUTPUTS, CELLS = "manifest.json", "steps.jsonl", "rounds.jsonl", "outputs.jsonl", "cells.jsonl"


@dataclass(frozen=True, slots=True)
class Output:
    """One distinct output text; ``token_ids`` are the engine's own tokens of it, ``None`` where it cannot tell."""

    sha256: str
    text: str
    token_ids: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class StepRounds:
    """The rounds of one step in order, and which step that was."""

    cell: CellKey
    attempt: int
    instance: int
    step_index: int
    task_id: str
    rounds: tuple[Round, ...]


@dataclass(slots=True)
class RunFolder:
    """A run folder opened for appending and reading. Each append is on disk (in the page cache) when the call returns."""

    path: Path
    manifest: dict[str, Any]
    _files: dict[str, BinaryIO] = field(default_factory=dict)
    _known_outputs: set[str] = field(default_factory=set)
    _lock: IO[str] | None = None

    @classmethod
    def create(cls, path: Path, manifest: Mapping[str, Any]) -> RunFolder:
        """Make the folder and write its manifest.

        Raises:
            RunFolderError: if the folder already holds a run or cannot be written.
        """
        if (path / MANIFEST).exists():
            raise RunFolderError(
                f"{path} already holds a run; choose another --out, or continue it with --resume {path}"
            )
        run = cls(path, {"format": FORMAT, **manifest})
        try:
            path.mkdir(parents=True, exist_ok=True)
            run.lock()
            if (path / MANIFEST).exists():  # another run was faster
                raise RunFolderError(f"{path} already holds a run; choose another --out")
            run.write_manifest()
        except OSError as error:
            raise RunFolderError(
                f"cannot write to {path}: {error.strerror}; choose another folder with --out"
            ) from error
        return run

    @classmethod
    def open(cls, path: Path, *, append: bool = True) -> RunFolder:
        """Open an existing run for reading, or, with ``append``, also for appending after a kill.

        Raises:
            RunFolderError: if there is no manifest, it or a line of the outputs is damaged, it was written by another format, or
                what stands under the name of a line file cannot be read as one.
        """
        file = path / MANIFEST
        try:
            manifest = read_manifest(file)
        except OSError as error:
            raise RunFolderError(
                f"{path} is no run folder ({MANIFEST}: {error.strerror}); give a folder that harness run wrote"
            ) from error
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            given = manifest.get("format") if isinstance(manifest, dict) else None
            raise RunFolderError(
                f"{file}: format {given!r}, this version reads format {FORMAT}; use the version that wrote it"
            )
        check_manifest(file, manifest)
        check_readable(path / name for name in (STEPS, ROUNDS, OUTPUTS, CELLS))
        run = cls(path, manifest)
        run._known_outputs = {output.sha256 for output in run.outputs()} if append else set()
        return run

    def need(self, *keys: str) -> None:
        """Check that the manifest has what continuing the run needs.

        Raises:
            RunFolderError: naming what it lacks.
        """
        lacking = [key for key in keys if key not in self.manifest]
        if lacking:
            raise RunFolderError(
                f"{self.path / MANIFEST} lacks {', '.join(lacking)}, so the run cannot be continued; restore the file or start a new run"
            )

    def lock(self) -> None:
        """Keep other processes from writing to the folder until this one closes it or ends.

        Raises:
            RunFolderError: if another process is writing to it.
        """
        lock = (self.path / LOCK).open("a", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise RunFolderError(
                f"{self.path} is in use by a run that goes on; wait for it or stop it first"
            ) from error
        self._lock = lock

    def write_manifest(self) -> None:
        """Replace ``manifest.json`` in one move, so that a kill never leaves half of it."""
        temporary = self.path / (MANIFEST + ".tmp")
        temporary.write_text(json.dumps(self.manifest, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        temporary.replace(self.path / MANIFEST)

    def begun(self) -> bool:
        """Tell whether a step was written down: there is something to continue."""
        return next(self.rows(STEPS), None) is not None

    def discard(self) -> bool:
        """Make the folder no run any more, after it was closed and before anything was measured; what engines wrote stays.

        Returns whether something was left in it.
        """
        for name in (MANIFEST, LOCK):
            (self.path / name).unlink(missing_ok=True)
        left = any(self.path.iterdir())
        if not left:
            self.path.rmdir()
        return left

    def repair(self) -> int:
        """Cut a half-written last line off every file before appending again; return how many files had one."""
        repaired = 0
        for name in (STEPS, ROUNDS, OUTPUTS, CELLS):
            file = self.path / name
            if not file.exists():
                continue
            with file.open("r+b") as stream:
                data = stream.read()
                end = data.rfind(b"\n") + 1
                if end != len(data):
                    stream.truncate(end)
                    repaired += 1
        return repaired

    def append_step(self, record: StepRecord, text: str | None = None, rounds: Sequence[Round] | None = None) -> None:
        """Append one step, its output text (stored once by ``record.output_sha256``) and its rounds."""
        if text is not None and record.output_sha256 is not None and record.output_sha256 not in self._known_outputs:
            self.append_output(Output(record.output_sha256, text, None))
        if rounds is not None:
            cell = record.cell
            place = [
                cell.workload,
                cell.arm,
                cell.concurrency,
                cell.repeat,
                record.attempt,
                record.instance,
                record.step_index,
            ]
            self._append(ROUNDS, {"step": place, "task_id": record.task_id, "rounds": [r.to_row() for r in rounds]})
        self._append(STEPS, record.to_row())

    def append_output(self, output: Output) -> None:
        """Append one distinct output; a later line of the same hash (with token ids) supersedes an earlier one."""
        self._known_outputs.add(output.sha256)
        ids = None if output.token_ids is None else list(output.token_ids)
        self._append(OUTPUTS, {"sha256": output.sha256, "text": output.text, "token_ids": ids})

    def append_cell(self, record: CellRecord) -> None:
        """Append a cell; only cells written here count as finished."""
        self._append(CELLS, record.to_row())

    def close(self) -> None:
        """Put everything on disk, close the files that were appended to and let others write."""
        try:
            for stream in self._files.values():
                os.fsync(stream.fileno())
                stream.close()
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            self._files.clear()
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def steps(self) -> Iterator[StepRecord]:
        """Yield every step that was written, of unfinished attempts too."""
        return self._records(STEPS, step_of)

    def cells(self) -> Iterator[CellRecord]:
        """Yield every finished or failed cell."""
        return self._records(CELLS, cell_of)

    def outputs(self) -> Iterator[Output]:
        """Yield every stored output line; where a hash appears twice the later one has more."""
        return self._records(OUTPUTS, _output)

    def rounds(self) -> Iterator[StepRounds]:
        """Yield the rounds of every step whose engine told them, of unfinished attempts too."""
        return self._records(ROUNDS, _step_rounds)

    def round_places(self) -> Iterator[tuple[str, str, int, int, int, int, int]]:
        """Yield of which steps there are rounds: workload, arm, concurrency, repeat, attempt, instance, step index."""
        return self._records(ROUNDS, _round_place)

    def done_cells(self) -> dict[CellKey, int]:
        """Return the finished cells with the attempt that finished them."""
        return {cell.cell: cell.attempt for cell in self.cells() if cell.status == "done"}

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of one of the folder's line files; a half-written last line is left out.

        Raises:
            RunFolderError: if any other line is damaged.
        """
        return self._records(name, lambda row: row)

    def steps_file(self) -> Path:
        """The file of flat step rows, for readers that scan columns."""
        return self.path / STEPS

    def rounds_file(self) -> Path:
        """The file of rounds, for readers that scan columns."""
        return self.path / ROUNDS

    def derived(self, name: str) -> Path:
        """The path of a file that is computed from the records and may be written again at any time."""
        return self.path / name

    def _records(self, name: str, make: Callable[[Any], Made]) -> Iterator[Made]:
        """Yield what ``make`` makes of each row; it raises ``ValueError`` (or fails over a key or a type) at one that is none."""
        file = self.path / name
        if not file.exists():
            return
        with file.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.endswith(b"\n"):
                    return
                try:
                    found = make(orjson.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    why = f"key {error} is missing" if isinstance(error, KeyError) else error
                    raise RunFolderError(
                        f"{file}:{number}: damaged line ({why}); cut the file before it or run again"
                    ) from error
                yield found

    def _append(self, name: str, value: Mapping[str, Any]) -> None:
        try:
            stream = self._files.get(name)
            if stream is None:
                stream = self._files[name] = (self.path / name).open("ab")
            stream.write(orjson.dumps(value) + b"\n")
            stream.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> RunFolderError:
        return RunFolderError(
            f"cannot write to {self.path}: {error.strerror}; make room, then continue with: harness run --resume {self.path}"
        )


def _output(row: Any) -> Output:
    ids = row["token_ids"]
    if not isinstance(row["sha256"], str) or not isinstance(row["text"], str):
        raise ValueError("sha256 and text are no texts")
    if ids is not None and not (isinstance(ids, list) and all(type(item) is int for item in ids)):
        raise ValueError("token_ids are no whole numbers")
    return Output(row["sha256"], row["text"], None if ids is None else tuple(ids))


def _round_place(row: Any) -> tuple[str, str, int, int, int, int, int]:
    place = row["step"]
    if not isinstance(place, list) or [type(item) for item in place] != [str, str, int, int, int, int, int]:
        raise ValueError("step is no place of a step")
    return tuple(place)


def _step_rounds(row: Any) -> StepRounds:
    workload, arm, concurrency, repeat, attempt, instance, step_index = _round_place(row)
    cell = CellKey(workload, arm, concurrency, repeat)
    found = tuple(Round.from_row(item) for item in row["rounds"])
    return StepRounds(cell, attempt, instance, step_index, row["task_id"], found)


def text_sha256(text: str) -> str:
    """Return the hash under which an output text is stored."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
