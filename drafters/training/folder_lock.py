"""The lock of a folder that one process at a time works in; the system frees it when that process ends, however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
from functools import cache
from pathlib import Path

__all__ = ["LOCK", "FolderLock", "lock_of"]

LOCK = ".lock"
UNKNOWN = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
"""What file systems say that know no locks; one cannot be kept out there, and that shall not stop the work."""


class FolderLock:
    """``.lock`` in a folder, which must be there."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._file: int | None = None

    def take(self, *, wait: bool = False) -> bool:
        """Take the lock, also where this process has it already; False when another process has it, unless told to
        ``wait``. Raises OSError where the folder cannot be written."""
        self.free()  # opened anew, since the folder may be another one by now
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno not in UNKNOWN:
                os.close(file)
                if isinstance(error, BlockingIOError):
                    return False
                raise
        self._file = file
        return True

    @property
    def held(self) -> bool:
        """Whether this process has the lock."""
        return self._file is not None

    def free(self) -> None:
        """Give the lock back, if this process has it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def end(self) -> None:
        """Give the lock back and remove its file, where nobody is to work in the folder again."""
        if self._file is not None:
            self._path.unlink(missing_ok=True)
        self.free()


@cache
def lock_of(folder: Path) -> FolderLock:
    """This process's lock of a folder, given by its absolute path: who begins the work and who ends it know only that."""
    return FolderLock(folder)
