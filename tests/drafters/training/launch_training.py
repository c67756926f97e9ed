"""Runs trainings as ``torchrun`` starts them, whole and with one part of the reduction taken out, to see that it shows.

``python -m tests.drafters.training.launch_training FOLDER OPTIONS…`` trains into ``FOLDER/none``, into
``FOLDER/unshared``, where every process takes all parts, and into ``FOLDER/unsummed``, where each keeps its own gradients.
With `CHANCE` as further options it trains a drafter that draws anchors into ``FOLDER/dflash``, and into
``FOLDER/unplaced``, where each process counts its parts from 0. At last the first process fails alone, and
``FOLDER/failed.RANK`` tells what each one raised.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from drafters.training import train_stage
from drafters.training.distributed import World
from drafters.training.stage import StageError

CHANCE: Sequence[str] = (
    *("--method", "dflash", "--set", "block_size=3", "--set", "num_layers=1", "--set", "target_layer_ids=[0,1]"),
    *("--set", "anchors=2"),
)


def _fail() -> None:
    raise OSError("no room")


BREAKAGES: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "none": ("share", World.share),
    "unshared": ("share", lambda self, parts: list(enumerate(parts))),
    "unsummed": ("sum_gradients", lambda self, parameters: None),
    "dflash": ("share", World.share),
    "unplaced": ("share", lambda self, parts: list(enumerate(parts[self.rank :: self.size]))),
}


def main(folder: str, given: list[str]) -> int:
    """Train with each breakage in turn, in one set of processes: starting them takes longer than all of it."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    train_stage.add_arguments(parser)
    world, failed = World.join(), 0
    with patch.object(World, "join", lambda: world), patch.object(World, "leave", lambda self: None):
        for name, (method, replaced) in BREAKAGES.items():
            more = CHANCE if name in ("dflash", "unplaced") else ()
            options = parser.parse_args([*given, *more, "--out", f"{folder}/{name}"])
            with patch.object(World, method, replaced):
                failed += train_stage.run(options, lambda line: None)
    try:
        world.first(_fail)
    except (OSError, StageError) as error:
        Path(folder, f"failed.{world.rank}").write_text(f"{type(error).__name__}: {error}", "utf-8")
    world.leave()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
