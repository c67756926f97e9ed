"""``drafters train``: a drafter learns what its target writes.

Runs alone or under ``torchrun``; the first process alone writes. ``state.pt`` is the checkpoint that an interrupted
training goes on from; ``checkpoint/`` is what the engine loads, written when the training is over, from the weights of
the best held-out evaluation.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafters.training.loop_settings import Intervals, LoopSettings
from drafters.training.stage import MANIFEST, Manifest, StageError, begin, digest, finish

if TYPE_CHECKING:
    from drafters.checkpoint import Checkpoint
    from drafters.training.distributed import World
    from drafters.training.loop import Training
    from drafters.training.method import Method, MethodSettings

NAME = "train"
HELP = "train a drafter on the target's answers"
CHECKPOINT = "checkpoint"
NGRAM = "ngram"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
)
"""What a draft model's folder takes from the target's."""
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
    ("precision", ("bf16", "fp32"), "of the products; weights and sums stay float32"),
    ("stop_on", ("acceptance", "loss"), "which held-out number is to get better"),
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
        "--mix", help="shares of the answers' tokens, as ko=0.6,en=0.28,code=0.12; default: as they come"
    )
    parser.add_argument("--tokens", type=int, required=True, help="tokens to train on, those of the context included")
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


def run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Train, or go on. Raises StageError or SpecError for bad input, KeyboardInterrupt when asked to stop."""
    _check(options)
    if options.method == NGRAM:
        return _write_ngram(options, say)
    from drafters.training.distributed import World
    from drafters.training.train_inputs import method_settings

    settings = method_settings(options.method, options.set, options.seed)
    world = World.join()
    tell = say if world.rank == 0 else lambda line: None
    try:
        done = world.first(lambda: _begin(options, settings.model_dump(mode="json"), tell))
        if done is not None:
            tell(f"{options.out} is done: {options.method} after {done.counts.get('steps')} steps")
            return 0
        return _train(options, settings, world, tell)
    finally:
        world.leave()


def _check(options: argparse.Namespace) -> None:
    from drafters.training.methods import METHODS

    if options.method not in (*METHODS, NGRAM):
        raise StageError(f"--method {options.method!r} given; allowed: {', '.join((*sorted(METHODS), NGRAM))}")
    least = {"tokens": 1, "row_tokens": 4, "rows": 1, "evaluations": 1, "held_out_tokens": 1, "limit_bytes": 1}
    for name, smallest in {**least, "patience": 0, "threads": 1}.items():
        value = getattr(options, name)
        if value is not None and value < smallest:
            raise StageError(f"--{name.replace('_', '-')} is {value}; allowed: {smallest} or more")
    for name in ("rate", "muon_rate", "clip"):
        if not 0 < getattr(options, name) < float("inf"):
            raise StageError(f"--{name.replace('_', '-')} is {getattr(options, name)}; allowed: above 0")
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


def _begin(options: argparse.Namespace, settings: dict[str, Any], say: Callable[[str], None]) -> Manifest | None:
    """Check that everything belongs together, then open the folder."""
    from drafters.training.batches import parse_mix
    from drafters.training.train_inputs import check_target, read_finished

    mix = None if options.mix is None else parse_mix(options.mix)
    manifests = read_finished(options.examples)
    say(f"reading the files of {options.target}")
    files = digest(options.target)
    for folder, manifest in zip(options.examples, manifests, strict=True):
        check_target(folder, manifest, options.target, files)
        weights = manifest.settings.get("weights")
        if weights is not None and weights != options.weights:
            say(f"{folder} was written with --weights {weights}, the training has {options.weights}")
    inputs = {"target": options.target} | {
        f"examples/{number}": folder / MANIFEST for number, folder in enumerate(options.examples)
    }
    for number, folder in enumerate(options.features):
        if not (folder / MANIFEST).is_file():
            raise StageError(f"{folder} is no finished result of 'drafters capture'; run it again to continue it")
        inputs[f"features/{number}"] = folder / MANIFEST
    if options.start is not None:
        inputs["start"] = options.start
    asked = {"method": options.method, "set": settings, "mix": mix, "tokens": options.tokens, "seed": options.seed}
    if options.method == NGRAM:
        asked["limit_bytes"] = options.limit_bytes
    else:
        names = [name for name, *_ in (*LOOP, *CHOICES)]
        names += ["weights", "held_out_tokens", "dtype", "export_dtype"]
        asked |= {name: getattr(options, name) for name in names}
    return begin(options.out, NAME, inputs, asked)


def _write_ngram(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    from drafters.training.batches import parse_mix
    from drafters.training.ngram_table import CORPUS, write_corpus
    from drafters.training.train_inputs import load_examples, vocabulary

    if _begin(options, {}, say) is None:
        examples = load_examples(options.examples, vocabulary(options.target), None, held_out_needed=False)
        mix = None if options.mix is None else parse_mix(options.mix)
        path = options.out / CHECKPOINT / CORPUS
        counts = write_corpus(path, examples.train, mix, options.tokens, options.seed, options.limit_bytes)
        finish(options.out, [f"{CHECKPOINT}/{CORPUS}"], {"method": NGRAM, **counts})
    say(f"{options.out / CHECKPOINT / CORPUS} is what an ngram drafter's 'corpus' takes")
    return 0


def _train(options: argparse.Namespace, settings: MethodSettings, world: World, say: Callable[[str], None]) -> int:
    import torch

    from drafters.checkpoint import Checkpoint
    from drafters.training.batches import Sampler, parse_mix
    from drafters.training.evaluation import HeldOut, held_out_sample
    from drafters.training.frozen import FrozenTarget
    from drafters.training.loop import Training, run_loop
    from drafters.training.methods import method_class
    from drafters.training.train_inputs import completed, features_of, load_examples

    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(options.threads or max(1, len(os.sched_getaffinity(0)) // beside))
    device = options.device or (f"cuda:{world.local_rank}" if torch.cuda.is_available() else "cpu")
    say(f"loading {options.target}")
    target = FrozenTarget.load(options.target, options.weights, getattr(torch, options.dtype), device)
    loop = _loop_settings(options)
    longest = min(options.row_tokens, int(getattr(target.config, "max_position_embeddings", options.row_tokens)))
    examples = load_examples(options.examples, target.vocab_size, longest)
    if examples.cut:
        say(
            f"{examples.cut} examples are longer than {longest} tokens and are cut; {examples.dropped} have no answer left"
        )
    start = None if options.start is None else Checkpoint.load(options.start)
    mix = None if options.mix is None else parse_mix(options.mix)
    if start is None:
        settings = completed(settings, examples.train, mix, target.vocab_size)
    method = method_class(options.method)(target, settings, start)
    method.module.to(target.device)
    fingerprint = target.fingerprint()
    features = features_of(options.features, examples, method, target, fingerprint)
    sampler = Sampler(examples.train, mix, options.seed)
    held_out = HeldOut(
        held_out_sample(examples.held_out, options.held_out_tokens, options.seed), options.row_tokens, options.seed
    )
    training = Training(method, target, sampler, held_out, loop, features, world)
    trained = sum(parameter.numel() for parameter in training.parameters)
    say(
        f"{options.method}: {trained:,} parameters, {len(examples.train):,} training examples, "
        f"{held_out.tokens:,} held-out tokens, {world.size} process{'es' if world.size > 1 else ''}"
    )
    with _asked_to_stop() as stopped:
        done = run_loop(training, options.out, Intervals(options.log_seconds, options.checkpoint_seconds), say, stopped)
    if not done:
        say(f"stopped at step {training.step}, {training.tokens_done:,} tokens; the same command continues it")
        raise KeyboardInterrupt
    counts = {
        "method": options.method,
        "fingerprint": fingerprint,
        "processes": world.size,
        "examples": {
            "train": len(examples.train),
            "heldout": len(examples.held_out),
            "cut": examples.cut,
            "without_answer": examples.dropped,
        },
    }
    _export(options, training, counts, say, lambda saved: method_class(options.method)(target, settings, saved))
    return 0


def _loop_settings(options: argparse.Namespace) -> LoopSettings:
    return LoopSettings(tokens=options.tokens, **{name: getattr(options, name) for name, *_ in (*LOOP, *CHOICES)})


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """SIGTERM and SIGINT are noted, so that the step ends whole; a second one interrupts at once."""
    received: list[int] = []

    def note(number: int, frame: object) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _export(
    options: argparse.Namespace,
    training: Training,
    counts: dict[str, Any],
    say: Callable[[str], None],
    reload: Callable[[Checkpoint], Method],
) -> None:
    """Write ``checkpoint/`` from the best weights, evaluate what was written, then declare the folder whole."""
    from drafters.training.evaluation import held_out_report

    world, best = training.world, training.best
    assert best is not None  # the evaluation before the first step is the best until another one is
    training.use_best()
    saved = world.first(lambda: _write_checkpoint(options, training.method))
    say("evaluating the written checkpoint on the held-out examples")
    method = reload(saved)
    method.module.to(training.target.device)
    found = training.held_out.evaluate(method, training.target, training.features, training.settings.precision, world)
    after = held_out_report(found)
    if world.rank:
        return
    folder = options.out / CHECKPOINT
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    finish(
        options.out,
        ["log.jsonl", *(str(file.relative_to(options.out)) for file in files)],
        {
            **counts,
            "parameters": sum(tensor.numel() for tensor in saved.tensors.values()),
            "bytes": sum(file.stat().st_size for file in files),
            "steps": training.step,
            "tokens": training.tokens_done,
            "stopped_early": training.tokens_done < training.settings.tokens,
            "best_step": best["step"],
            "answer_tokens_drawn": dict(training.sampler.drawn),
            "rounds": dict(training.sampler.rounds),
            "held_out_before": training.first,
            "held_out_after": after,
            "loop": asdict(training.settings),
        },
    )
    (options.out / "state.pt").unlink(missing_ok=True)
    assert training.first is not None
    lengths = [report["all"]["acceptance_length"] for report in (training.first, after)]
    before, now = ("unknown" if length is None else f"{length:.3f}" for length in lengths)
    say(f"{folder} is written (step {best['step']}); held-out acceptance length {before} -> {now}, {after['note']}")


def _write_checkpoint(options: argparse.Namespace, method: Method) -> Checkpoint:
    import torch
    from safetensors import SafetensorError

    from drafters.checkpoint import Checkpoint

    made = method.checkpoint()
    dtype = getattr(torch, options.export_dtype)
    config = {
        key: options.export_dtype if key in ("dtype", "torch_dtype") else value for key, value in made.config.items()
    }
    tensors = {n: t.to(dtype) if t.is_floating_point() else t for n, t in made.tensors.items()}
    folder, temporary = options.out / CHECKPOINT, options.out / f".{CHECKPOINT}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        Checkpoint(config, tensors).save(temporary)
        if options.method == "draft_model":
            for name in TOKENIZER_FILES:
                if (options.target / name).is_file():
                    shutil.copyfile(options.target / name, temporary / name)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except (OSError, SafetensorError) as error:
        raise StageError(f"{folder} cannot be written ({error}); free some space and run the command again") from error
    return Checkpoint.load(folder)
