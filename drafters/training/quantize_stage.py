"""``drafters quantize``: a target or a drafter with every projection at the values it has in four bits.

The tensors keep their names, shapes and type, so whatever reads the original reads the result, and computes what 4-bit
weights compute. Which tensors those are: of a target (``model.layers.…``) the ``*_proj`` matrices of its layers, which is
what the builtin engine quantizes; of a drafter every matrix but embeddings, codebooks, heads, convolution kernels' bases and
norms. Groups lie along the input, see `drafters.quantization`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafters.training.stage import StageError, begin, finish, write_whole

if TYPE_CHECKING:
    from torch import Tensor

    from drafters.training.change_report import Row

__all__ = ["HELP", "NAME", "add_arguments", "quantized_name", "run"]

NAME = "quantize"
HELP = "put a target or a drafter on 4-bit values; with --base, what that leaves of a change"
CHECKPOINT, REPORT = "checkpoint", "report.json"
TARGET_PROJECTION = re.compile(r"model\.layers\.\d+\..*_proj\.weight")
PLAIN_IN_DRAFTERS = re.compile(
    r"embed|codebook|lm_head|norm|base_kernel|^\d+\.\d+\.weight$"
)  # the last: Medusa's heads
FLOATING = {"F64", "F32", "F16", "BF16"}
NOT_MODELS = {"manifest.json", "request.json"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the stage's options."""
    parser.add_argument(
        "--model", type=Path, required=True, metavar="FOLDER", help="Hugging Face folder or drafter checkpoint"
    )
    parser.add_argument("--scheme", choices=("rtn4", "nf4"), required=True, help="how weights are put into four bits")
    parser.add_argument(
        "--base", type=Path, metavar="FOLDER", help="the same weights before they were trained: reports the change"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the stage's folder")


def run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Write ``checkpoint/`` and ``report.json``. Raises StageError for folders that hold no weights or other ones."""
    folders = {"model": options.model} | ({"base": options.base} if options.base else {})
    for folder in folders.values():
        _files(folder)
    _check_weights(options.model, options.base)
    if begin(options.out, NAME, folders, {"scheme": options.scheme}) is not None:
        say(f"{options.out} is complete; nothing is left to quantize")
        return 0
    written, tensors = _write(options.model, options.out / CHECKPOINT, options.scheme, say)
    report: dict[str, Any] = {"scheme": options.scheme, **_totals(tensors), "tensors": tensors}
    if options.base:
        report["change"] = _change(options.base, options.model, say)
    write_whole(options.out / REPORT, json.dumps(report, ensure_ascii=False, indent=1) + "\n")
    counts = {key: value for key, value in report.items() if key != "tensors"}
    if "change" in counts:
        counts["change"] = report["change"]["whole"]
    finish(options.out, [REPORT, *(f"{CHECKPOINT}/{name}" for name in written)], counts)
    for line in _table(report):
        say(line)
    return 0


def quantized_name(name: str, dimensions: int, target: bool) -> bool:
    """Tell whether a tensor is held in four bits: a matrix that is a projection of a target's layers, or of a drafter."""
    if dimensions != 2:
        return False
    if target:
        return TARGET_PROJECTION.fullmatch(name) is not None
    return PLAIN_IN_DRAFTERS.search(name) is None


def _files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if not files or not (folder / "config.json").is_file():
        raise StageError(
            f"{folder} lacks config.json or a .safetensors file; give a Hugging Face folder or the checkpoint folder "
            "that 'drafters train' wrote"
        )
    return files


def _names(folder: Path) -> dict[str, Path]:
    from safetensors import SafetensorError, safe_open

    found: dict[str, Path] = {}
    for file in _files(folder):
        try:
            with safe_open(file, "pt") as reader:
                found |= dict.fromkeys(reader.keys(), file)
        except (OSError, SafetensorError) as error:
            raise StageError(f"{file} cannot be read ({error}); copy it again") from error
    return found


def _check_weights(model: Path, base: Path | None) -> None:
    """Raise StageError, from what the files say of their tensors, for a model without projections and a base of another."""
    after = _shapes(model)
    target = any(name.startswith("model.layers.") for name in after)
    chosen = {
        name: shape
        for name, (kind, shape) in after.items()
        if kind in FLOATING and quantized_name(name, len(shape), target)
    }
    if not chosen:
        raise StageError(f"{model} has no projection that can be quantized; give a target or a drafter's checkpoint")
    if base is None:
        return
    before = _shapes(base)
    if before.keys() != after.keys():
        odd = sorted(before.keys() ^ after.keys())
        raise StageError(
            f"base and model differ in {len(odd)} tensors, {odd[0]} among them; give the weights that the training "
            "started from"
        )
    for name, shape in chosen.items():
        if (old := before[name][1]) != shape:
            raise StageError(
                f"{name} has shape {tuple(old)} in {base} and {tuple(shape)} in {model}; "
                "give the weights that the training started from"
            )


def _shapes(folder: Path) -> dict[str, tuple[str, list[int]]]:
    """Tensor → its type as safetensors call it, and its shape."""
    from safetensors import safe_open

    found: dict[str, tuple[str, list[int]]] = {}
    for name, file in _names(folder).items():
        with safe_open(file, "pt") as reader:
            part = reader.get_slice(name)
            found[name] = (part.get_dtype(), part.get_shape())
    return found


def _write(model: Path, out: Path, scheme: Any, say: Callable[[str], None]) -> tuple[list[str], dict[str, Any]]:
    from safetensors import safe_open
    from safetensors.torch import save

    from drafters.quantization import quantize_dequantize

    target = any(name.startswith("model.layers.") for name in _names(model))
    files = _files(model)
    out.mkdir(parents=True, exist_ok=True)
    written, report = [], {}
    for number, file in enumerate(files, start=1):
        say(f"quantizing {file.name} ({number} of {len(files)})")
        tensors: dict[str, Tensor] = {}
        with safe_open(file, "pt") as reader:
            for name in reader.keys():  # noqa: SIM118  # the reader is no mapping
                tensor = reader.get_tensor(name)
                chosen = tensor.is_floating_point() and quantized_name(name, tensor.dim(), target)
                tensors[name] = quantize_dequantize(tensor, scheme).contiguous() if chosen else tensor
                report[name] = _entry(tensor, tensors[name], scheme if chosen else None)
        write_whole(out / file.name, save(tensors, metadata={"format": "pt"}))
        written.append(file.name)
    for file in sorted(model.iterdir()):
        if file.is_file() and file not in files and not file.name.startswith(".") and file.name not in NOT_MODELS:
            try:
                shutil.copyfile(file, out / file.name)
            except OSError as error:
                raise StageError(f"{out / file.name} cannot be written: {error.strerror}; free some space") from error
            written.append(file.name)
    return written, report


def _entry(tensor: Tensor, made: Tensor, scheme: str | None) -> dict[str, Any]:
    entry = {"shape": list(tensor.shape), "plain_bytes": tensor.nbytes, "deployed_bytes": tensor.nbytes}
    if scheme is None:
        return entry | {"held_as": str(tensor.dtype).removeprefix("torch.")}
    error, weight = (made.double() - tensor.double()).square().mean(), tensor.double().square().mean()
    return entry | {
        "held_as": scheme,
        "deployed_bytes": _deployed_bytes(tensor.shape[0], tensor.shape[1], scheme),
        "rms_error": float(error.sqrt()),
        "rms_weight": float(weight.sqrt()),
        "signal_to_noise": float((weight / error).sqrt()) if error > 0 else None,
    }


def _deployed_bytes(outputs: int, inputs: int, scheme: str) -> int:
    """Codes two a byte, and for every group a bfloat16 scale and zero (rtn4) or a float32 magnitude (nf4)."""
    from drafters.quantization import NF4_BLOCK, RTN4_GROUP

    group = RTN4_GROUP if scheme == "rtn4" else NF4_BLOCK
    return (outputs * inputs + 1) // 2 + 4 * outputs * -(-inputs // group)


def _totals(tensors: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    held = [entry for entry in tensors.values() if "rms_error" in entry]
    sizes = [entry["shape"][0] * entry["shape"][1] for entry in held]
    error, weight = (
        sum(size * entry[key] ** 2 for size, entry in zip(sizes, held, strict=True))
        for key in ("rms_error", "rms_weight")
    )
    return {
        "tensors_quantized": len(held),
        "tensors_plain": len(tensors) - len(held),
        "plain_bytes": sum(entry["plain_bytes"] for entry in tensors.values()),
        "deployed_bytes": sum(entry["deployed_bytes"] for entry in tensors.values()),
        "signal_to_noise": (weight / error) ** 0.5 if error > 0 else None,
    }


def _change(base: Path, model: Path, say: Callable[[str], None]) -> dict[str, Any]:
    from drafters.training.change_report import changes, pooled

    names, before = _names(model), _names(base)
    target = any(name.startswith("model.layers.") for name in names)
    tensors: dict[str, list[Row]] = {}
    for name, old, new in _pairs(before, names):
        if not new.is_floating_point() or not quantized_name(name, new.dim(), target):
            continue
        say(f"comparing {name}")
        tensors[name] = list(changes(old, new))
    return {
        "whole": [row.to_json() for row in pooled(tensors)],
        "tensors": {name: [row.to_json() for row in rows] for name, rows in tensors.items()},
    }


def _pairs(before: Mapping[str, Path], after: Mapping[str, Path]) -> Iterator[tuple[str, Tensor, Tensor]]:
    from safetensors import safe_open

    for name in sorted(after):
        with safe_open(before[name], "pt") as old, safe_open(after[name], "pt") as new:
            yield name, old.get_tensor(name), new.get_tensor(name)


def _table(report: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{report['tensors_quantized']} tensors in {report['scheme']}, {report['tensors_plain']} plain: "
        f"{report['plain_bytes']:,} bytes become {report['deployed_bytes']:,}; "
        f"weights to error {_number(report['signal_to_noise'])}"
    )
    if "change" not in report:
        return
    yield f"{'scheme':8}{'base':14}{'scales':10}{'codes flipped':>15}{'gain':>9}{'change/noise':>14}"
    for row in report["change"]["whole"]:
        yield (
            f"{row['scheme']:8}{row['base']:14}{row['scales']:10}{row['flipped_share']:>15.2%}{_number(row['gain']):>9}"
            f"{_number(row['signal_to_noise']):>14}"
        )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
