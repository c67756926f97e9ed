"""Takes a target between two of its states: ``python -m drafters.training.reference.between --of A B --share S --out F``.

Unlearning loops costs some well-formed tool calls; weights on the straight line between the state before the last rounds
and the one after keep most of both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from drafters.training.checkpoints import CheckpointError, load_checkpoint, save_checkpoint


def between(first: Mapping[str, Any], second: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Return ``second`` with its model moved towards ``first``: ``share`` of the way from ``first`` is gone.

    Raises:
        CheckpointError: if the two are not states of one model.
    """
    ours, theirs = first["model"], second["model"]
    if first["tokenizer_sha256"] != second["tokenizer_sha256"] or {name: each.shape for name, each in ours.items()} != {
        name: each.shape for name, each in theirs.items()
    }:
        raise CheckpointError("the checkpoints have other tokenizers or shapes; give two states of one training")
    return {**second, "model": {name: torch.lerp(ours[name], theirs[name], share) for name in ours}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m drafters.training.reference.between", description=__doc__)
    parser.add_argument("--of", type=Path, nargs=2, required=True, metavar="RUN", help="folders of the two states")
    parser.add_argument("--share", type=float, required=True, help="of the second, 0 to 1")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    options = parser.parse_args(arguments)
    if not 0 <= options.share <= 1:
        parser.error(f"--share is {options.share}; give 0 (the first) to 1 (the second)")
    if options.out.exists():
        parser.error(f"{options.out} exists; give a new folder")
    try:
        first, second = (load_checkpoint(folder / "checkpoint.pt") for folder in options.of)
        made = between(first, second, options.share)
    except CheckpointError as error:
        parser.error(str(error))
    options.out.mkdir(parents=True)
    save_checkpoint(options.out / "checkpoint.pt", made)
    (options.out / "tokenizer.json").write_bytes((options.of[0] / "tokenizer.json").read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
