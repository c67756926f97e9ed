"""``drafters train``: a drafter learns what its target writes.

Runs alone or under ``torchrun``; the first process alone writes. ``state.pt`` is the checkpoint that an interrupted
training goes on from; ``checkpoint/`` is what the engine loads, written when the training is over, from the weights of
the best held-out evaluation.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from drafters.specs import SpecError
from drafters.training.loop_settings import Intervals
from drafters.training.stage import MANIFEST, Manifest, StageError, begin, digest, finish
from drafters.training.train_options import (
    CHECKPOINT,
    CHOICES,
    LOOP,
    NGRAM,
    add_arguments,
    budget,
    check_options,
    loop_settings,
)

if TYPE_CHECKING:
    from drafters.training.distributed import World
    from drafters.training.method import MethodSettings

__all__ = ["CHECKPOINT", "HELP", "NAME", "add_arguments", "run"]

NAME = "train"
HELP = "train a drafter on the target's answers"


def run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Train, or go on. Raises StageError or SpecError for bad input, KeyboardInterrupt when asked to stop."""
    check_options(options)
    if options.method == NGRAM:
        return _write_ngram(options, say)
    from drafters.training.distributed import World
    from drafters.training.loop import STATE
    from drafters.training.train_inputs import method_settings

    settings = method_settings(options.method, options.set, options.seed)
    # the shapes of a checkpoint are not those of fresh weights: then only what was given is written down
    told = settings.model_dump(mode="json", exclude_unset=options.start is not None)
    world = World.join()
    tell = say if world.rank == 0 else lambda line: None
    try:
        done = world.first(lambda: _begin(options, told, tell))
        if done is not None:
            if world.rank == 0:
                (options.out / STATE).unlink(missing_ok=True)  # a kill right after the manifest was written left it
            tell(f"{options.out} is done: {options.method} after {done.counts.get('steps')} steps")
            return 0
        return _train(options, settings, world, tell)
    finally:
        world.leave()


def _begin(options: argparse.Namespace, settings: dict[str, Any], say: Callable[[str], None]) -> Manifest | None:
    """Check that everything belongs together, then open the folder."""
    from drafters.training.batches import parse_mix
    from drafters.training.train_inputs import check_target, read_finished

    mix = None if options.mix is None else parse_mix(options.mix)
    if options.method != NGRAM and options.device is not None:
        from drafters.engine.assembly import check_device

        check_device(options.device)
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
    if options.passes is not None:
        asked["passes"] = options.passes
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
        counts = write_corpus(
            path, examples.train, mix, budget(options, examples.train), options.seed, options.limit_bytes
        )
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
    from drafters.training.train_export import export_best
    from drafters.training.train_inputs import completed, features_of, load_examples

    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(options.threads or max(1, len(os.sched_getaffinity(0)) // beside))
    device = options.device or (f"cuda:{world.local_rank}" if torch.cuda.is_available() else "cpu")
    say(f"loading {options.target}")
    target = FrozenTarget.load(options.target, options.weights, getattr(torch, options.dtype), device)
    longest = min(options.row_tokens, int(getattr(target.config, "max_position_embeddings", options.row_tokens)))
    examples = load_examples(options.examples, target.vocab_size, longest)
    if examples.cut:
        say(
            f"{examples.cut} examples are longer than {longest} tokens and are cut; {examples.dropped} have no answer left"
        )
    loop = loop_settings(options, budget(options, examples.train))
    start = None if options.start is None else Checkpoint.load(options.start)
    mix = None if options.mix is None else parse_mix(options.mix)
    settings = completed(settings, examples.train, mix, target.vocab_size, start, say)
    try:
        method = method_class(options.method)(target, settings, start)
    except SpecError as error:  # it knows the checkpoint's content, not where it lies
        raise SpecError(f"--start {options.start}: {error}" if options.start else str(error)) from error
    method.module.to(target.device)
    fingerprint = target.fingerprint()
    features = features_of(options.features, examples, method, target, fingerprint)
    sampler = Sampler(examples.train, mix, options.seed, settings.places_per_row)
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
    export_best(options, training, counts, say, lambda saved: method_class(options.method)(target, settings, saved))
    return 0


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
