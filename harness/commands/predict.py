"""`harness predict`: its arguments, and from a run folder to predictions and their files. The command line prints what comes back."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.analysis.roofline import Target

LEAST, MOST = 1e-3, 1e6  # of weights in GB and of parameters in billions: a mistyped unit is no model
MOST_CACHE = 1e9  # bytes of K/V a token


@dataclass(frozen=True, slots=True)
class Predicted:
    """What the command line says at the end: tables and sentences, the page, the first sentence."""

    text: str
    page: Path
    verdict: str


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    command.add_argument("folder", type=Path, metavar="RUN", help="a folder that harness run wrote")
    command.add_argument(
        "--hardware", action="append", default=[], metavar="NAME,…",
        help="carry the run over to hardware of the catalogue (harness/hardware.yaml) or of --hardware-file",
    )  # fmt: skip
    command.add_argument(
        "--hardware-file", type=Path, metavar="FILE.yaml", help="own rows of hardware, in the same form"
    )
    command.add_argument(
        "--weights-gb",
        metavar="GB",
        help="bytes of the target's weights there, in 10^9 (default: those of the run, where it tells them)",
    )
    command.add_argument(
        "--parameters-b", metavar="N", help="parameters that a token goes through, in 10^9 (default: those of the run)"
    )
    command.add_argument(
        "--kv-bytes-per-token",
        metavar="BYTES",
        help="K/V bytes of one token of context (default 0: left out)",
    )
    command.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: the run folder)")
    command.add_argument("--lang", choices=("ko", "en"), help="language of the report (default: that of the run)")


def predict(args: argparse.Namespace) -> Predicted:
    """Predict, write the files and return what is to be said.

    Raises:
        UsageError: if hardware is unknown, a number is none, or nothing can be predicted from the run.
        RunFolderError: if the folder is no run, is damaged, or cannot be written.
    """
    from harness.analysis.elsewhere import break_even_elsewhere, limits_of, predicted_elsewhere, rooflines
    from harness.analysis.loading import read_records
    from harness.analysis.predicted import predict as fit
    from harness.analysis.run import analyse
    from harness.hardware import catalogue, choose
    from harness.store import RunFolder
    from reports import forecast

    names = [name.strip() for text in args.hardware for name in text.split(",") if name.strip()]
    carrying = (args.hardware_file, args.weights_gb, args.parameters_b, args.kv_bytes_per_token)
    if any(given is not None for given in (*carrying, *args.hardware)) and not names:
        raise UsageError(
            "--hardware is missing: say to which hardware the run is to be carried over, for example --hardware h100"
        )
    rows = choose(names, catalogue(args.hardware_file)) if names else []
    folder = RunFolder.open(args.folder)
    target = _target(args, folder.manifest) if rows else None
    analysis = analyse(folder)
    records = read_records(folder)
    found = fit(folder, records, analysis.break_even)
    if found.predicted.is_empty() and not rows:
        raise UsageError(
            f"{args.folder}: nothing can be predicted; it needs finished cells of a baseline and of an arm whose engine tells its rounds "
            "or its decode passes, and how each position of its drafts was accepted"
        )
    methods = {arm: method for plan in records.plans for arm, method in plan.methods.items()}
    lines = [] if target is None else rooflines(rows, target, found, methods)
    elsewhere, ends = predicted_elsewhere(lines, found), break_even_elsewhere(lines, found)
    hardware = None if target is None else limits_of(rows, target)
    lang = args.lang or folder.manifest.get("lang") or "en"
    out = args.out or folder.path
    carried = forecast.Carried(elsewhere, ends, hardware, rows, target)
    page = forecast.write_all(analysis, carried, out, lang)
    return Predicted(forecast.console(analysis, carried, lang), page, forecast.headline(analysis, carried, lang))


def _target(args: argparse.Namespace, manifest: Mapping[str, Any]) -> Target:
    from harness.analysis.roofline import Target

    model = (manifest.get("engine") or {}).get("model") or {}
    weights = _positive(args.weights_gb, "--weights-gb", 1e9, model.get("weight_bytes"))
    parameters = _positive(args.parameters_b, "--parameters-b", 1e9, model.get("parameters"))
    cache = args.kv_bytes_per_token
    return Target(weights, parameters, 0.0 if cache is None else _number(cache, "--kv-bytes-per-token", MOST_CACHE))


def _positive(text: str | None, option: str, unit: float, known: Any) -> float:
    if text is None:
        if not isinstance(known, int | float) or known <= 0:
            raise UsageError(
                f"{option} is missing: the run does not tell it, and nothing can be carried over without it"
            )
        return float(known)
    value = _number(text, option, MOST)
    if value < LEAST:
        raise UsageError(f"{option} {text}: give a number from {LEAST:g} to {MOST:,.0f}")
    return value * unit


def _number(text: str, option: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"{option} {text!r} is no number; for example {option} 16") from None
    if not math.isfinite(value) or value < 0:
        raise UsageError(f"{option} {text}: give a finite number that is not negative")
    if value > most:
        raise UsageError(f"{option} {text}: give at most {most:,.0f}")
    return value
