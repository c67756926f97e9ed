"""The output of a server on its way into its log, with every known secret masked before it is written."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from harness.redaction import MASK

LONGEST_LINE = 1 << 16  # a longer one is written in parts


class MaskedStream:
    """Takes bytes in any pieces and gives them back masked: whole lines, and of a long line all but what may begin a secret."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # of a secret of several lines (a key in PEM) each line is one, since lines are what is seen here
        lines = {line.strip() for secret in secrets for line in (secret, *secret.splitlines()) if line.strip()}
        self._secrets = sorted((line.encode() for line in lines), key=len, reverse=True)
        self._longest = max(map(len, self._secrets), default=1)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what can be written of everything so far."""
        self._held += data
        end = max(self._held.rfind(b"\n"), self._held.rfind(b"\r")) + 1  # bars of progress end in a carriage return
        if not end and len(self._held) > LONGEST_LINE + self._longest:
            self._held = self._masked(self._held)
            end = len(self._held) - self._longest + 1
        given, self._held = self._masked(self._held[:end]), self._held[end:]
        return given

    def rest(self) -> bytes:
        """Return what is left at the end."""
        given, self._held = self._masked(self._held), b""
        return given

    def _masked(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, MASK.encode())
        return data


def copy_masked(source: int, target: int, secrets: Iterable[str]) -> threading.Thread:
    """Copy one file descriptor to another until it ends, masked, on a thread of its own; return the thread.

    Where nothing can be written (a full disk) the source is read on all the same, so that the server never waits for its log.
    """
    stream = MaskedStream(secrets)

    def copy() -> None:
        while data := os.read(source, 1 << 16):
            _write(target, stream.feed(data))
        _write(target, stream.rest())

    thread = threading.Thread(target=copy, name="masked-log", daemon=True)
    thread.start()
    return thread


def _write(target: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(target, data) :]
    except OSError:
        return  # the log is lost, the server is not
