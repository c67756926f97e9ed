"""Checkpoints of a training: one file, replaced as a whole, so that a kill leaves the last good one."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


class CheckpointError(ValueError):
    """A checkpoint that cannot be read."""


def save_checkpoint(path: Path, value: Mapping[str, Any]) -> None:
    """Write ``value`` beside ``path``, force it to the disk, then rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            torch.save(dict(value), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        CheckpointError: if the file is missing or cut short.
    """
    try:
        value: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path} cannot be read as a checkpoint: {error}; remove it or take a copy") from error
    return value
