"""`drafters export`: a target or one of its drafters as the file that llama.cpp reads."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from drafters.training.stage import StageError

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "export"
HELP = "write a target or a drafter as GGUF, for llama.cpp"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the stage's options."""
    parser.add_argument("--target", type=Path, required=True, metavar="HF_FOLDER", help="the model's folder")
    parser.add_argument(
        "--drafter",
        type=Path,
        metavar="CHECKPOINT_DIR",
        help="write this drafter of the target: dflash, dflash2, eagle3, draft_model",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE.gguf", help="the file; one that is there is replaced"
    )
    parser.add_argument(
        "--dtype",
        choices=("f32", "f16", "bf16"),
        default="f32",
        help="type of the matrices (default: f32, which loses nothing)",
    )
    parser.add_argument("--name", help="name in the file (default: that of the folder)")
    parser.add_argument("--licence", help="licence in the file, as an SPDX name")
    parser.add_argument("--source", help="where the weights come from, an address or a sentence")


def run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Write the file, whole or not at all. Raises StageError for what cannot be exported."""
    from drafters.export import About, drafter_file, model_file

    out: Path = options.out
    if out.is_dir():
        raise StageError(f"--out {out} is a folder; give the path of the file, such as {out / 'model.gguf'}")
    folder: Path = options.target if options.drafter is None else options.drafter
    about = About(options.name or folder.resolve().name, options.licence, options.source)
    target, drafter = options.target, options.drafter
    made = model_file(target, about) if drafter is None else drafter_file(drafter, target, about)
    made.write(out, options.dtype)
    say(f"{out}: {made.architecture}, {len(made.tensors)} tensors, {options.dtype}, {out.stat().st_size / 1e6:.1f} MB")
    return 0
