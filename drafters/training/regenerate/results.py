"""What has been answered so far: a file that is appended to, survives a kill, and becomes the examples in the end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from drafters.training.stage import StageError

__all__ = ["Results"]

PARTIAL = "partial.jsonl"
SYNC_EVERY_S = 1.0


class Results:
    """Records of ended conversations by id, in ``partial.jsonl`` of the stage's folder, whose lock this process has."""

    def __init__(self, folder: Path) -> None:
        """Open, with what an earlier try left; a last line that was cut short is dropped.

        Raises StageError when the file cannot be read or written.
        """
        self.path = folder / PARTIAL
        self._places: dict[str, tuple[int, int]] = {}  # first byte, bytes
        self._tokens: dict[str, int] = {}
        self._end = 0
        self._synced = time.monotonic()
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            self._recover()
            os.ftruncate(self._file, self._end)
            os.lseek(self._file, self._end, os.SEEK_SET)
        except OSError as error:
            raise self._unwritable(error) from error

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __len__(self) -> int:
        return len(self._places)

    def tokens(self, name: str) -> int:
        """Kept answer tokens of a conversation; 0 for one that is not there."""
        return self._tokens.get(name, 0)

    def append(self, record: dict[str, Any]) -> None:
        """Take the record of an ended conversation. Raises StageError when the disk is full."""
        line = json.dumps(record, ensure_ascii=False).encode() + b"\n"
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
            if time.monotonic() - self._synced >= SYNC_EVERY_S:
                os.fsync(self._file)
                self._synced = time.monotonic()
        except OSError as error:
            raise self._unwritable(error) from error
        self._note(record, self._end, len(line))

    def records(self, names: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield the records of these conversations, in order."""
        for name in names:
            place, size = self._places[name]
            yield json.loads(os.pread(self._file, size, place))

    def example_lines(self, names: Sequence[str]) -> Iterator[bytes]:
        """The lines of ``examples.jsonl`` for these conversations, ordered by id."""
        for record in self.records(sorted(names)):
            for example in record["examples"]:
                yield example.encode() + b"\n"

    def close(self) -> None:
        """Close the file; it stays for another try."""
        os.close(self._file)

    def _recover(self) -> None:
        with self.path.open("rb") as file:
            for line in file:
                try:
                    record = json.loads(line) if line.endswith(b"\n") else None
                    if not isinstance(record, dict):
                        break
                    self._note(record, self._end, len(line))
                except (ValueError, KeyError, TypeError):
                    break  # everything from a damaged line on is answered again

    def _note(self, record: dict[str, Any], place: int, size: int) -> None:
        name = str(record["id"])
        self._tokens[name] = sum(int(answer["tokens"]) for answer in record["answers"] if answer["kept"])
        self._places[name] = (place, size)
        self._end = place + size

    def _unwritable(self, error: OSError) -> StageError:
        return StageError(
            f"{self.path} cannot be written: {error.strerror}; free some space and run the stage again, it goes on from here"
        )
