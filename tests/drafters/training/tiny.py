"""A tiny target and examples on disk, for tests of the stages that take them."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from drafters.training import train_stage
from drafters.training.examples import Example
from drafters.training.frozen import FrozenTarget
from drafters.training.reference.model import build_target
from drafters.training.stage import begin, finish

VOCAB = 64
TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}


def tiny_model(seed: int = 0) -> torch.nn.Module:
    """A random target whose logits are wide apart, so that there is something to learn."""
    torch.manual_seed(seed)
    model = build_target(VOCAB, **TINY)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data *= 15.0
    return model


@cache
def tiny_target(seed: int = 0) -> FrozenTarget:
    """The target in memory."""
    return FrozenTarget(tiny_model(seed))


def write_tiny_target(folder: Path, seed: int = 0) -> Path:
    """The target's folder, with a tokenizer of as many words."""
    tiny_model(seed).save_pretrained(str(folder))  # type: ignore[operator]
    Tokenizer(WordLevel({f"t{number}": number for number in range(VOCAB)}, "t0")).save(str(folder / "tokenizer.json"))
    return folder


def tiny_examples(train: int = 24, held_out: int = 6) -> list[Example]:
    """Texts that count upwards in steps of their own, in three languages; the second half is the target's."""
    rng = random.Random(3)
    made = []
    for number in range(train + held_out):
        start, step, length = rng.randrange(VOCAB), rng.choice((1, 3)), rng.randrange(12, 25)
        token_ids = tuple((start + step * place) % VOCAB for place in range(length))
        made.append(
            Example(
                id=f"e{number}",
                language=("ko", "en", "code")[number % 3],
                text_type=("office", "chat")[number % 2],
                split="train" if number < train else "heldout",
                token_ids=token_ids,
                answers=((length // 3, length),),
            )
        )
    return made


def write_examples(folder: Path, target: Path, examples: Sequence[Example] | None = None) -> Path:
    """A finished folder of 'drafters regenerate'."""
    begin(folder, "regenerate", {"target": target}, {"temperature": 0})
    lines = "".join(example.to_json() + "\n" for example in examples or tiny_examples())
    (folder / "examples.jsonl").write_text(lines, "utf-8")
    finish(folder, ["examples.jsonl"], {})
    return folder


def train_options(target: Path, examples: Path, out: Path, *more: str, method: str = "medusa") -> argparse.Namespace:
    """Parsed options of a training of 600 tokens on the CPU, in steps of about 60, every step logged, judged by the loss:
    of six held-out examples the acceptance is chance."""
    parser = argparse.ArgumentParser()
    train_stage.add_arguments(parser)
    given = ["--method", method, "--target", str(target), "--examples", str(examples), "--out", str(out)]
    given += ["--tokens", "600", "--row-tokens", "30", "--rows", "2", "--threads", "1", "--device", "cpu"]
    given += ["--rate", "0.02", "--evaluations", "3", "--log-seconds", "0", "--checkpoint-seconds", "1e9"]
    given += ["--stop-on", "loss"]
    return parser.parse_args([*given, *more])
