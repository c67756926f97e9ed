"""Runs trainings as ``torchrun`` starts them, whole and with one part of the reduction taken out, to see that it shows.

``python -m tests.drafters.training.launch_training FOLDER OPTIONS…`` trains into ``FOLDER/none``, into
``FOLDER/unshared``, where every process takes all parts, and into ``FOLDER/unsummed``, where each keeps its own gradients.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

import torch

from drafters.training import train_stage
from drafters.training.distributed import World

BREAKAGES: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "none": ("share", World.share),
    "unshared": ("share", lambda self, parts: list(enumerate(parts))),
    "unsummed": ("sum_gradients", lambda self, parameters: None),
}


def main(folder: str, given: list[str]) -> int:
    """Train with each breakage in turn, in one set of processes: starting them takes longer than all of it."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    train_stage.add_arguments(parser)
    world, failed = World.join(), 0
    with patch.object(World, "join", lambda: world), patch.object(World, "leave", lambda self: None):
        for name, (method, replaced) in BREAKAGES.items():
            options = parser.parse_args([*given, "--out", f"{folder}/{name}"])
            with patch.object(World, method, replaced):
                failed += train_stage.run(options, lambda line: None)
    world.leave()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
