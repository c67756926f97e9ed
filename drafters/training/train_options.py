"""The options of ``drafters train``: declared, checked, and read into settings of the loop. Imports no torch."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from drafters.training.examples import Example
from drafters.training.loop_settings import LoopSettings
from drafters.training.stage import StageError

__all__ = ["CHECKPOINT", "CHOICES", "LOOP", "NGRAM", "add_arguments", "budget", "check_options", "loop_settings"]

NGRAM = "ngram"
CHECKPOINT = "checkpoint"
"""Folder within ``--out`` that the engine loads."""
LOOP = (
    ("row_tokens", int, "longest part of a step in tokens, padding included; longer examples are cut"),
    ("rows", int, "parts of a step"),
    ("rate", float, "learning rate of AdamW"),
    ("muon_rate", float, "learning rate of Muon"),
    ("weight_decay", float, "of both"),
    ("warm_up", float, "share of the tokens over which the rate rises"),
    ("clip", float, "longest gradient"),
    ("evaluations", int, "held-out evaluations beside the one before the first step"),
    ("patience", int, "evaluations in a row without a better one that end the training; 0 never ends it early"),
    ("seed", int, "of weights, data order and chance"),
)
CHOICES = (
    ("optimizer", ("adamw", "muon"), "Muon takes the matrices, AdamW the rest"),
    ("schedule", ("cosine", "linear"), "how the rate falls to zero"),
    (
        "precision",
        ("bf16", "fp32"),
        "of the drafter's products in training; weights, sums and the target are not touched by it",
    ),
    (
        "states_precision",
        ("bf16", "fp32"),
        "of a float32 target's own pass over training examples (%(default)s); bf16 is faster, and one state in about "
        "seventy then has another likeliest token",
    ),
    (
        "stop_on",
        ("acceptance", "loss", "nothing"),
        "which held-out number is to get better, that of the lowest temperature; nothing: train to the end, keep the last weights",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the stage's options."""
    defaults = asdict(LoopSettings(tokens=0))
    parser.add_argument("--method", required=True, help="dflash, dflash2, draft_model, eagle3, medusa, mtp or ngram")
    parser.add_argument("--target", type=Path, required=True, help="the target's local Hugging Face folder")
    parser.add_argument("--weights", choices=("plain", "rtn4", "nf4"), default="plain", help="as the engine holds them")
    parser.add_argument(
        "--examples", type=Path, action="append", required=True, help="folder of 'drafters regenerate'; may repeat"
    )
    parser.add_argument(
        "--features",
        type=Path,
        action="append",
        default=[],
        help="folder of 'drafters capture', one for each --examples",
    )
    parser.add_argument("--start", type=Path, help="go on from this drafter's checkpoint folder")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting of the method")
    parser.add_argument(
        "--mix", help="shares of what is learnt from, as ko=0.6,en=0.28,code=0.12; default: as they come"
    )
    amount = parser.add_mutually_exclusive_group(required=True)
    amount.add_argument("--tokens", type=int, help="tokens to train on, those of the context included")
    amount.add_argument("--passes", type=float, help="in its place: so many times the tokens of the training examples")
    for name, kind, text in LOOP:
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=kind, default=defaults[name], help=f"{text} (%(default)s)"
        )
    for name, allowed, text in CHOICES:
        parser.add_argument(f"--{name.replace('_', '-')}", choices=allowed, default=defaults[name], help=text)
    parser.add_argument("--held-out-tokens", type=int, default=40_000, help="tokens of an evaluation (%(default)s)")
    parser.add_argument("--limit-bytes", type=int, default=8_000_000, help="size of an n-gram corpus (%(default)s)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="the target computes in it")
    parser.add_argument("--export-dtype", choices=("bfloat16", "float32"), default="bfloat16", help="of checkpoint/")
    parser.add_argument("--device", help="default: cuda where there is one, else cpu")
    parser.add_argument("--threads", type=int, help="default: all processors, shared by the processes")
    parser.add_argument("--log-seconds", type=float, default=10.0, help="between log lines (%(default)s)")
    parser.add_argument("--checkpoint-seconds", type=float, default=120.0, help="between checkpoints (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")


def check_options(options: argparse.Namespace) -> None:
    """Raise StageError for values out of range, and for options that do not go together."""
    from drafters.training.methods import METHODS

    if options.method not in (*METHODS, NGRAM):
        raise StageError(f"--method {options.method!r} given; allowed: {', '.join((*sorted(METHODS), NGRAM))}")
    least = {"tokens": 1, "row_tokens": 4, "rows": 1, "evaluations": 1, "held_out_tokens": 1, "limit_bytes": 1}
    for name, smallest in {**least, "patience": 0, "threads": 1}.items():
        value = getattr(options, name)
        if value is not None and value < smallest:
            raise StageError(f"--{name.replace('_', '-')} is {value}; allowed: {smallest} or more")
    for name in ("rate", "muon_rate", "clip", "passes"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise StageError(f"--{name.replace('_', '-')} is {value}; allowed: above 0")
    if not 0 <= options.warm_up < 1 or not options.weight_decay >= 0:
        raise StageError(
            f"--warm-up is {options.warm_up}, --weight-decay {options.weight_decay}; allowed: 0 to below 1, and 0 or more"
        )
    if options.features and len(options.features) != len(options.examples):
        raise StageError(
            f"{len(options.features)} --features for {len(options.examples)} --examples; give one for each, in the same "
            "order, or none"
        )
    if options.dtype == "bfloat16" and options.precision != "bf16":
        raise StageError("--dtype bfloat16 needs --precision bf16: the drafter multiplies with the target's head")
    if options.method == NGRAM and (options.set or options.start or options.features):
        raise StageError("--method ngram takes no --set, --start or --features; it counts tokens alone")


def budget(options: argparse.Namespace, train: Iterable[Example]) -> int:
    """The tokens to train on: as they were given, or as many passes over the training examples."""
    if options.passes is None:
        return int(options.tokens)
    passes: float = options.passes
    return max(1, round(passes * sum(len(example.token_ids) for example in train)))


def loop_settings(options: argparse.Namespace, tokens: int) -> LoopSettings:
    """What decides the course of the training."""
    return LoopSettings(tokens=tokens, **{name: getattr(options, name) for name, *_ in (*LOOP, *CHOICES)})
