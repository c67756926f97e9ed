"""`drafters export`: a target or one of its drafters as the file that llama.cpp reads."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from drafters.training.stage import StageError, check_apart

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "export"
HELP = "write a target or a drafter as GGUF, for llama.cpp"
HEAD_BYTES = 1 << 16
"""Of a GGUF file: its own keys stand before the tokenizer's tables."""


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
        "--out", type=Path, required=True, metavar="FILE.gguf", help="the file; an earlier export is replaced"
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
    _check_out(out, [folder for folder in (options.target, options.drafter) if folder is not None])
    folder: Path = options.target if options.drafter is None else options.drafter
    about = About(options.name or folder.resolve().name, options.licence, options.source)
    target, drafter = options.target, options.drafter
    made = model_file(target, about) if drafter is None else drafter_file(drafter, target, about)
    made.write(out, options.dtype)
    say(f"{out}: {made.architecture}, {len(made.tensors)} tensors, {options.dtype}, {out.stat().st_size / 1e6:.1f} MB")
    return 0


def _check_out(out: Path, read: Sequence[Path]) -> None:
    """Raise StageError for a place where something else stands, or that is read."""
    if out.is_dir():
        raise StageError(f"--out {out} is a folder; give the path of the file, such as {out / 'model.gguf'}")
    check_apart(out, read)
    if (out.exists() or out.is_symlink()) and not _is_export(out):
        raise StageError(f"--out {out} is there and is no earlier export; give another path, or remove it")


def _is_export(path: Path) -> bool:
    """Whether a file is a GGUF of this stage, which says so in its first keys."""
    from drafters.export.target import SOURCE_KEY

    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return False
    return head.startswith(b"GGUF") and SOURCE_KEY.encode() in head
