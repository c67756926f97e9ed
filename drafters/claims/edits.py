"""Checkpoints made from others without training: a change scaled to the size of another, a tensor emptied, layers left out.

Each is a stage with ``checkpoint/`` and a manifest, like ``drafters quantize``.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafters.training.stage import StageError, begin, finish, write_whole

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["EDITS", "add_arguments", "run"]

CHECKPOINT, WEIGHTS, CONFIG = "checkpoint", "model.safetensors", "config.json"
EDITS: Mapping[str, str] = {
    "rescale": "base + a training's change, scaled to the size of another training's",
    "blank": "a checkpoint with one tensor set to zero",
    "prune": "a target's first layers as a model of its own",
}
"""Edit → what it makes."""
LAYER = re.compile(r"model\.layers\.(\d+)\.")


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """Add the options of one edit."""
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER", help="checkpoint or Hugging Face folder")
    if name == "rescale":
        parser.add_argument("--base", type=Path, required=True, metavar="FOLDER", help="what the training started from")
        parser.add_argument(
            "--norm-of", type=Path, required=True, metavar="FOLDER", help="another training from the same base"
        )
    elif name == "blank":
        parser.add_argument("--tensor", required=True, metavar="NAME", help="name of the tensor")
    else:
        parser.add_argument("--layers", type=int, required=True, metavar="N", help="how many of the first layers stay")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the stage's folder")


def run(name: str, options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Make the checkpoint. Raises StageError or SpecError for folders that do not fit the edit."""
    folders = {key: getattr(options, key) for key in ("model", "base", "norm_of") if hasattr(options, key)}
    settings = {key: getattr(options, key) for key in ("tensor", "layers") if hasattr(options, key)}
    if begin(options.out, name, folders, settings) is not None:
        say(f"{options.out} is complete")
        return 0
    tensors, config, counts = {"rescale": _rescaled, "blank": _blank, "prune": _pruned}[name](options)
    written = _write(options.model, options.out / CHECKPOINT, tensors, config)
    finish(options.out, [f"{CHECKPOINT}/{file}" for file in written], counts)
    say(f"{options.out / CHECKPOINT}: {counts}")
    return 0


Made = tuple[dict[str, "Tensor"], dict[str, Any], dict[str, Any]]


def _rescaled(options: argparse.Namespace) -> Made:
    base, model, other = (_read(folder)[0] for folder in (options.base, options.model, options.norm_of))
    if not base.keys() == model.keys() == other.keys():
        raise StageError(
            f"{options.base}, {options.model} and {options.norm_of} differ in their tensors; give trainings of one base"
        )
    own, wanted = (_norm(base, tensors) for tensors in (model, other))
    if not own or not wanted:
        raise StageError(
            f"{options.model if not own else options.norm_of} has the weights of {options.base}; nothing was trained"
        )
    made = {}
    for name, weight in base.items():
        if weight.is_floating_point():
            change = model[name].double() - weight.double()
            made[name] = (weight.double() + change * (wanted / own)).float()
        else:
            made[name] = model[name]
    return made, {**_read(options.model)[1], "dtype": "float32"}, {"norm": own, "norm_after": wanted}


def _norm(base: Mapping[str, Tensor], model: Mapping[str, Tensor]) -> float:
    floating = (name for name, weight in base.items() if weight.is_floating_point())
    return float(sum(float((model[name].double() - base[name].double()).square().sum()) for name in floating) ** 0.5)


def _blank(options: argparse.Namespace) -> Made:
    tensors, config = _read(options.model)
    if options.tensor not in tensors:
        raise StageError(
            f"{options.model} has no tensor {options.tensor!r}; there are {', '.join(sorted(tensors))[:400]}"
        )
    return (
        {**tensors, options.tensor: tensors[options.tensor] * 0},
        config,
        {"emptied": tensors[options.tensor].numel()},
    )


def _pruned(options: argparse.Namespace) -> Made:
    tensors, config = _read(options.model)
    there = int(config.get("num_hidden_layers", 0))
    if not 1 <= options.layers <= there:
        raise StageError(f"--layers {options.layers}; {options.model} allows 1 to {there}")
    kept = {}
    for name, tensor in tensors.items():
        layer = LAYER.match(name)
        if layer is None or int(layer.group(1)) < options.layers:
            kept[name] = tensor
    config = {**config, "num_hidden_layers": options.layers}
    if isinstance(config.get("layer_types"), list):
        config["layer_types"] = config["layer_types"][: options.layers]
    return kept, config, {"layers": options.layers, "parameters": sum(tensor.numel() for tensor in kept.values())}


def _read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from drafters.checkpoint import Checkpoint

    found = Checkpoint.load(folder)
    return dict(found.tensors), dict(found.config)


def _write(model: Path, out: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> list[str]:
    from safetensors.torch import save

    out.mkdir(parents=True, exist_ok=True)
    write_whole(
        out / WEIGHTS, save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata={"format": "pt"})
    )
    write_whole(out / CONFIG, json.dumps(config, ensure_ascii=False, indent=2) + "\n")
    written = [WEIGHTS, CONFIG]
    for file in sorted(model.iterdir()):
        if (
            file.is_file()
            and file.suffix in (".json", ".jinja", ".model", ".txt")
            and file.name not in (CONFIG, "manifest.json", "request.json")
        ):
            if "index" in file.name:
                continue  # of weights in several files; here they are in one
            shutil.copyfile(file, out / file.name)
            written.append(file.name)
    return written
