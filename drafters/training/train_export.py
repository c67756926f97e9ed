"""The end of a training: ``checkpoint/`` from the best weights, as the engine loads it, and the manifest beside it."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from safetensors import SafetensorError

from drafters.checkpoint import Checkpoint
from drafters.training.evaluation import held_out_report
from drafters.training.loop import STATE, Training
from drafters.training.method import Method
from drafters.training.stage import StageError, finish
from drafters.training.train_options import CHECKPOINT

__all__ = ["export_best"]

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


def export_best(
    options: argparse.Namespace,
    training: Training,
    counts: dict[str, Any],
    say: Callable[[str], None],
    reload: Callable[[Checkpoint], Method],
) -> None:
    """Write ``checkpoint/`` from the best weights, evaluate what was written, then declare the folder whole."""
    world, best = training.world, training.best
    assert best is not None  # the evaluation before the first step is the best until another one is
    training.use_best()
    saved = world.first(lambda: _write_checkpoint(options, training.method))
    say("evaluating the written checkpoint on the held-out examples")
    method = reload(saved)
    method.module.to(training.target.device)
    found = training.held_out.evaluate(method, training.target, training.features, world)
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
            "places_learnt": dict(training.sampler.learnt),
            "rounds": dict(training.sampler.rounds),
            "held_out_before": training.first,
            "held_out_after": after,
            "loop": asdict(training.settings),
        },
    )
    (options.out / STATE).unlink(missing_ok=True)
    assert training.first is not None
    lengths = [report["judged"]["acceptance_length"] for report in (training.first, after)]
    before, now = ("unknown" if length is None else f"{length:.3f}" for length in lengths)
    say(f"{folder} is written (step {best['step']}); held-out acceptance length {before} -> {now}, {after['note']}")
    if best["step"] == 0 and training.step:
        say(
            f"no evaluation was better than that before the first step: {folder} holds the weights that it began with; train on more "
            "answers, at a lower --rate, or keep the last weights with --stop-on nothing"
        )


def _write_checkpoint(options: argparse.Namespace, method: Method) -> Checkpoint:
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
