"""Reads the header of a GGUF file (version 2 and 3, little-endian): metadata and tensor table, and whether the data is all there.

Source of the format: docs/gguf.md of ggml. Only the standard library is needed for it; array values are skipped, not kept.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ModelError

_MAGIC = b"GGUF"
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
# type number: name, weights a block, bytes a block (ggml-common.h); a type not listed here is only checked by its offset
_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 20: ("IQ4_NL", 32, 18), 23: ("IQ4_XS", 256, 136), 30: ("BF16", 1, 2),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says; ``metadata`` holds scalars and strings, ``weight_type`` is the type that most weights have."""

    version: int
    metadata: Mapping[str, bool | int | float | str]
    weight_type: str
    n_tensors: int


def read_header(path: Path) -> Header:
    """Read and check a GGUF file.

    Raises:
        ModelError: if it is missing, not GGUF, of another version, or shorter than its tensor table says.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size < 24 or file.read(4) != _MAGIC:
                raise ModelError(
                    f"{path} is no GGUF file ({size} bytes, and they do not start with 'GGUF'); give a .gguf file"
                )
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data, size).header()
    except OSError as error:
        raise ModelError(
            f"cannot read the model file {path}: {error.strerror}; give the path of a .gguf file"
        ) from error
    except (struct.error, UnicodeDecodeError, IndexError, MemoryError) as error:
        raise ModelError(f"{path} is damaged: its header ends early or is not GGUF inside; fetch it again") from error


def source_sha256(header: Header) -> str | None:
    """Return the hash of the weights that a file was written from, where it was ``drafters export`` that wrote it."""
    told = header.metadata.get("drafters.source.sha256")
    return told if isinstance(told, str) else None


class _Reader:
    def __init__(self, path: Path, data: mmap.mmap, size: int) -> None:
        self._path, self._data, self._size, self._at = path, data, size, 4

    def header(self) -> Header:
        version = self._number("I")
        if version not in (2, 3):
            raise ModelError(
                f"{self._path} is GGUF version {version}; versions 2 and 3 (little-endian) are read: convert it again"
            )
        n_tensors, n_values = self._number("Q"), self._number("Q")
        metadata: dict[str, bool | int | float | str] = {}
        for _ in range(n_values):
            key = self._string()
            value = self._value(self._number("I"))
            if value is not None:
                metadata[key] = value
        weights: dict[int, int] = {}
        ends: list[int] = []
        for _ in range(n_tensors):
            self._string()
            shape = [self._number("Q") for _ in range(self._number("I"))]
            kind, offset, count = self._number("I"), self._number("Q"), math.prod(shape)
            weights[kind] = weights.get(kind, 0) + count
            _, block, block_bytes = _TYPES.get(kind, ("", 1, 0))
            ends.append(offset + count // block * block_bytes)
        alignment = int(metadata.get("general.alignment", 32)) or 32
        needed = -(-self._at // alignment) * alignment + max(ends, default=0)
        if needed > self._size:
            raise ModelError(
                f"{self._path} is cut short: {self._size} bytes of at least {needed} that its tensor table needs; fetch it again"
            )
        common = max(weights, key=lambda kind: weights[kind]) if weights else None
        name = "none" if common is None else _TYPES.get(common, (f"type {common}", 0, 0))[0]
        return Header(version, metadata, name, n_tensors)

    def _number(self, code: str) -> int:
        value: int = self._unpack(code)
        return value

    def _unpack(self, code: str) -> int:
        (value,) = struct.unpack_from(f"<{code}", self._data, self._at)
        self._at += struct.calcsize(f"<{code}")
        return value  # type: ignore[no-any-return]

    def _string(self) -> str:
        start = self._skip(self._number("Q"))
        return self._data[start : self._at].decode("utf-8")

    def _skip(self, count: int) -> int:
        start = self._at
        if count > self._size - start:
            raise IndexError
        self._at += count
        return start

    def _value(self, kind: int) -> bool | int | float | str | None:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            self._skip_array()
            return None
        if kind not in _SCALARS:
            raise IndexError
        return self._unpack(_SCALARS[kind])

    def _skip_array(self) -> None:
        kind, count = self._number("I"), self._number("Q")
        if kind in _SCALARS:
            self._skip(count * struct.calcsize(f"<{_SCALARS[kind]}"))
            return
        if kind not in (_STRING, _ARRAY) or count > self._size:
            raise IndexError
        for _ in range(count):
            if kind == _STRING:
                self._skip(self._number("Q"))
            else:
                self._skip_array()
