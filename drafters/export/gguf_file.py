"""A GGUF file to be written: keys and tensors in a fixed order, so that the same model always gives the same bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafters.training.stage import StageError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

__all__ = ["DTYPES", "GgufFile"]

DTYPES: Mapping[str, int] = {"f32": 0, "f16": 1, "bf16": 32}
"""Type of the matrices → llama.cpp's number of such a file (``general.file_type``)."""

Value = bool | int | float | str | list[int] | list[str]


@dataclass(frozen=True, slots=True)
class GgufFile:
    """``keys`` as they stand in the file, ``general.architecture`` and ``general.file_type`` aside.

    ``tensors`` by llama.cpp's names, in torch's order of dimensions. Whole numbers are written as uint32, lists of them
    as int32.
    """

    architecture: str
    keys: Mapping[str, Value]
    tensors: Mapping[str, Tensor]

    def write(self, path: Path, dtype: str = "f32") -> None:
        """Write the file whole or not at all. ``dtype`` is that of the matrices; whatever else there is stays float32.

        Raises StageError when it cannot be written.
        """
        try:
            from gguf import GGUFWriter
        except ImportError as error:
            raise StageError("writing GGUF needs the package gguf; install 'spec-harness[builtin]'") from error
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            writer = GGUFWriter(temporary, self.architecture)
            writer.add_uint32("general.file_type", DTYPES[dtype])
            for key, value in self.keys.items():
                _add(writer, key, value)
            for name, tensor in self.tensors.items():
                values, kind = _stored(name, tensor, dtype)
                writer.add_tensor(name, values, raw_dtype=kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            raise StageError(
                f"{path} cannot be written: {error.strerror or error}; free some space or give another place"
            ) from error
        finally:
            with suppress(OSError):  # where the folder is none, there is nothing to remove
                temporary.unlink(missing_ok=True)


def _add(writer: Any, key: str, value: Value) -> None:
    if isinstance(value, bool):  # before int, which it is too
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _stored(name: str, tensor: Tensor, dtype: str) -> tuple[np.ndarray, Any]:
    """The values as they go into the file, and their GGML type where it is not that of the array."""
    import numpy as np
    from gguf import GGMLQuantizationType, quants

    values: np.ndarray
    if not tensor.is_floating_point():
        values = tensor.long().contiguous().numpy()
        return values, None
    values = np.ascontiguousarray(tensor.float().numpy())
    # Only what is multiplied with as a matrix: norms and the bases of convolutions are added to and scaled in float32.
    if dtype == "f32" or values.ndim != 2 or not name.endswith(".weight"):
        return values, None
    if dtype == "f16":
        return values.astype(np.float16), None
    return quants.quantize(values, GGMLQuantizationType.BF16), GGMLQuantizationType.BF16
