"""``drafters capture``: the target's hidden states of all examples, on disk, so that training need not run the target."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafters.training.examples import read_examples
from drafters.training.progress import Pace
from drafters.training.stage import MANIFEST, Manifest, StageError, begin, digest, finish, read_manifest, write_whole
from drafters.training.train_inputs import check_target

if TYPE_CHECKING:
    from torch import Tensor

    from drafters.training.capture_work import Work
    from drafters.training.frozen import FrozenTarget

NAME = "capture"
HELP = "store the target's hidden states of the examples (their size is told before)"
GIB, MIB = 1 << 30, 1 << 20
SPARE_SHARE = 0.01
"""Left free on the disk, of what is to be written: file headers and the index."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the stage's options."""
    parser.add_argument("--examples", type=Path, required=True, help="folder that 'drafters regenerate' wrote")
    parser.add_argument("--target", type=Path, required=True, help="the target's local Hugging Face folder")
    parser.add_argument("--weights", choices=("plain", "rtn4", "nf4"), default="plain", help="as the engine holds them")
    parser.add_argument(
        "--layers", required=True, help="such as 2,4,6: 0 the embeddings, i the output of layer i; the last is added"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--limit-gib", type=float, default=20.0, help="above this size --yes is asked for")
    parser.add_argument("--yes", action="store_true", help="write more than --limit-gib")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="the target computes in it")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=None, help="default: all processors of this process")
    parser.add_argument("--shard-mib", type=float, default=128.0, help="size of a file; a kill costs one at most")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="tokens that go through the target at once")


def run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Capture. Raises StageError for bad input, a full disk, and more than the limit without --yes."""
    _check_options(options)
    num_layers, hidden, vocab = _shape(options.target)
    layers = _all_layers(options.layers, num_layers, say)
    inputs = {"examples": options.examples / MANIFEST, "target": options.target}
    settings = _settings(options, layers)
    # Looked at first, since a finished folder needs no room; made last, since what is refused shall leave none.
    if (options.out / MANIFEST).is_file() and (done := begin(options.out, NAME, inputs, settings)) is not None:
        return _tell_done(options.out, done, say)
    check_target(
        options.examples, read_manifest(options.examples, "regenerate"), options.target, digest(options.target)
    )
    examples = [
        (example.id, array("i", example.token_ids))
        for example in read_examples(options.examples / "examples.jsonl", vocab)
    ]
    if not examples:
        raise StageError(f"{options.examples} holds no examples; regenerate more")
    from drafters.engine.assembly import check_device
    from drafters.training.capture_work import Work

    check_device(options.device)
    work = Work.plan(examples, layers, hidden, int(options.shard_mib * MIB))
    _tell_size(options, work, say)
    if (done := begin(options.out, NAME, inputs, settings)) is not None:  # by another process, just now
        return _tell_done(options.out, done, say)
    _capture(options, work, say)
    return 0


def _tell_done(out: Path, done: Manifest, say: Callable[[str], None]) -> int:
    say(f"{out} is done: {done.counts['tokens']:,} tokens of {done.counts['examples']:,} examples")
    return 0


def _check_options(options: argparse.Namespace) -> None:
    if not options.shard_mib > 0:
        raise StageError(f"--shard-mib is {options.shard_mib}; allowed: above 0")
    if options.batch_tokens < 1:
        raise StageError(f"--batch-tokens is {options.batch_tokens}; allowed: 1 or more")
    if options.threads is not None and options.threads < 1:
        raise StageError(f"--threads is {options.threads}; allowed: 1 or more")


def _settings(options: argparse.Namespace, layers: Sequence[int]) -> dict[str, Any]:
    return {
        "weights": options.weights,
        "layers": list(layers),
        "dtype": options.dtype,
        "shard_mib": options.shard_mib,
        "batch_tokens": options.batch_tokens,
    }


def _shape(folder: Path) -> tuple[int, int, int]:
    """Layers, hidden size and vocabulary of a target, from its configuration."""
    path = folder / "config.json"
    if not path.is_file():
        raise StageError(f"{folder} holds no config.json; give the target's local Hugging Face folder")
    try:
        config = json.loads(path.read_text("utf-8"))
        return int(config["num_hidden_layers"]), int(config["hidden_size"]), int(config["vocab_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StageError(f"{path} cannot be used ({error}); get the target again") from error


def _all_layers(given: str, last: int, say: Callable[[str], None]) -> tuple[int, ...]:
    try:
        layers = {int(part) for part in given.split(",") if part.strip()}
    except ValueError:
        layers = set()
    if not layers or min(layers) < 0 or max(layers) > last:
        raise StageError(f"--layers {given!r} given; allowed: numbers from 0 to {last}, such as 2,4,{last}")
    if last not in layers:
        say(f"layer {last}, after the final norm, is captured too: training predicts from it")
    return tuple(sorted({*layers, last}))


def _tell_size(options: argparse.Namespace, work: Work, say: Callable[[str], None]) -> None:
    from drafters.training.features import shard_name

    size = work.tokens * work.row_bytes
    say(
        f"{work.tokens:,} tokens x {len(work.layers)} layers x {work.hidden} in bf16 = {_shown(size)} "
        f"({work.row_bytes:,} bytes a token, {len(work.shards)} files)"
    )
    if size > options.limit_gib * GIB and not options.yes:
        raise StageError(
            f"the hidden states take {_shown(size)}, more than --limit-gib {options.limit_gib:g}; give --yes to write "
            "them, fewer --layers, fewer examples, or train without --features, with the target in the loop"
        )
    there = sum(
        file.stat().st_size for shard in range(len(work.shards)) if (file := options.out / shard_name(shard)).is_file()
    )
    existing = next(path for path in (options.out.absolute(), *options.out.absolute().parents) if path.exists())
    free, needed = shutil.disk_usage(existing).free, int((size - there) * (1 + SPARE_SHARE))
    if free < needed:
        raise StageError(
            f"the hidden states take {_shown(needed)}, the disk of {options.out} has {_shown(free)} free; "
            "free some, or give another folder"
        )


def _shown(size: int) -> str:
    return f"{size / GIB:.2f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"


def _capture(options: argparse.Namespace, work: Work, say: Callable[[str], None]) -> None:
    import torch

    from drafters.training.features import INDEX, shard_name
    from drafters.training.frozen import FrozenTarget

    torch.set_num_threads(options.threads or len(os.sched_getaffinity(0)))
    say(f"loading {options.target}")
    target = FrozenTarget.load(options.target, options.weights, getattr(torch, options.dtype), options.device)
    longest = max(work.examples, key=lambda example: len(example[1]))
    if len(longest[1]) > target.config.max_position_embeddings:
        raise StageError(
            f"example {longest[0]!r} has {len(longest[1])} tokens, the target reads "
            f"{target.config.max_position_embeddings}; regenerate with this target"
        )
    fingerprint = target.fingerprint()
    told = _Progress(work.tokens, say)
    for shard in range(len(work.shards)):
        file, key = options.out / shard_name(shard), f"{fingerprint}:{work.key(shard)}"
        if _whole(file, key, work.rows(shard)):
            told.skip(work.rows(shard))
            continue
        file.unlink(missing_ok=True)
        write_whole(file, _shard_bytes(target, work, shard, options.batch_tokens, key, told))
    index = {name: (place.shard, place.start, place.end) for name, place in work.places.items()}
    write_whole(options.out / INDEX, json.dumps(index, ensure_ascii=False) + "\n")
    counts = {
        "examples": len(work.examples),
        "tokens": work.tokens,
        "layers": work.layers,
        "hidden_size": work.hidden,
        "bytes": work.tokens * work.row_bytes,
        "fingerprint": fingerprint,
        "shards": len(work.shards),
    }
    finish(options.out, [INDEX, *map(shard_name, range(len(work.shards)))], counts)
    say(f"{options.out} holds the hidden states of {len(work.examples):,} examples, {work.tokens:,} tokens")


def _whole(file: Path, key: str, rows: int) -> bool:
    """Whether a shard of an earlier try is there, of these examples and this target, and not cut short."""
    from safetensors import SafetensorError, safe_open

    from drafters.training.features import TOKENS

    opener: Any = safe_open
    try:
        with opener(file, framework="pt") as found:
            return (found.metadata() or {}).get("key") == key and found.get_slice(TOKENS).get_shape() == [rows]
    except (OSError, SafetensorError):
        return False


def _shard_bytes(target: FrozenTarget, work: Work, shard: int, batch_tokens: int, key: str, told: _Progress) -> bytes:
    import torch
    from safetensors.torch import save

    from drafters.training.features import FEATURES, TOKENS

    rows = work.rows(shard)
    features = torch.empty(rows, len(work.layers), work.hidden, dtype=torch.bfloat16)
    token_ids = torch.empty(rows, dtype=torch.int32)
    for batch in work.batches(shard, batch_tokens):
        lengths = [len(work.examples[index][1]) for index in batch]
        padded = torch.zeros(len(batch), max(lengths), dtype=torch.long)
        for row, index in enumerate(batch):
            padded[row, : lengths[row]] = torch.tensor(work.examples[index][1])
        states = target.hidden_states(padded.to(target.device), lengths, work.layers).to(torch.bfloat16).cpu()
        for row, index in enumerate(batch):
            place = work.places[work.examples[index][0]]
            _check_finite(states[row, : lengths[row]], work.examples[index][0])
            features[place.start : place.end] = states[row, : lengths[row]]
            token_ids[place.start : place.end] = padded[row, : lengths[row]]
        told.more(sum(lengths))
    made: bytes = save({FEATURES: features, TOKENS: token_ids}, {"key": key})
    return made


def _check_finite(states: Tensor, name: str) -> None:
    import torch

    if not bool(torch.isfinite(states).all()):
        raise StageError(
            f"the target's hidden states of example {name!r} are not finite; its weights or --dtype cannot be used"
        )


class _Progress:
    def __init__(self, tokens: int, say: Callable[[str], None]) -> None:
        self._tokens, self._say, self._done, self._skipped = tokens, say, 0, 0
        self._pace = Pace()

    def skip(self, tokens: int) -> None:
        self._skipped += tokens

    def more(self, tokens: int) -> None:
        self._done += tokens
        if self._pace.due():
            over = self._done + self._skipped
            self._say(
                f"{over:,} of {self._tokens:,} tokens, {self._pace.per_second(self._done):,.0f}/s, "
                f"{self._pace.left(self._done, self._tokens - over)}"
            )
