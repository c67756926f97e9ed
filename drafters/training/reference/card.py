"""Writes the model card: ``python -m drafters.training.reference.card --models F --data F --run RUN_FOLDER --out README.md``.

Every figure in it is measured or read while it is written: losses on the held-out documents, calls of held-out tools,
samples, sizes and hashes of the files, and from a run of the workloads how many answers loop.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate
from tokenizers import Tokenizer
from transformers import Qwen3ForCausalLM

from drafters.training.reference.families import TRAINING
from drafters.training.reference.model import CONTEXT_TOKENS
from drafters.training.reference.packing import Part
from drafters.training.reference.pretrain import WEIGHTS, WHOLE, split_flags, token_losses
from drafters.training.reference.samples import OPENINGS, CallCounts, held_out_calls, write_on
from drafters.training.reference.sources import load_sources
from drafters.training.stage import write_whole

TARGET = "ref-koen"
PARTS = {
    "ko": "Korean manuals", "ko-code": "Korean with code", "ko-chat": "Korean chat", "en": "English manuals",
    "code": "Python", "office-ko": "Korean office documents (generated, held-out forms)",
    "essay-ko": "Korean essays (generated)", "agent-ko": "Korean agent dialogues (generated, held-out tools)",
    "agent-en": "English agent dialogues (generated, held-out tools)", "agent-code": "coding dialogues (generated)",
    "recall": "values asked back (generated)",
}  # fmt: skip

FILES = ("folder", "method", "parameters", "bytes", "forecast", "sha256 of the weights")


@torch.no_grad()
def losses(model: Qwen3ForCausalLM, data: Path, rows: int) -> dict[str, tuple[float, int]]:
    """Return nats a token and how many tokens were judged, by part, over tokens that the model is to write."""
    found = {}
    for name in WEIGHTS:
        part = Part.open(data, f"{name}.heldout", name in WHOLE)
        total, count = 0.0, 0
        for _ in range(rows):
            ids, weights = split_flags(part.next_row(CONTEXT_TOKENS)[None], 0.0)
            each = token_losses(model, ids)[weights == 1.0]
            total, count = total + float(each.sum()), count + len(each)
        found[name] = (total / max(1, count), count)
    return found


def looping(run: Path) -> tuple[int, int]:
    """Return how many answers of a run's baseline loop, and how many were judged; from its ``steps.csv``."""
    judged = [
        row["repetitive"].strip().lower()
        for path in [run / "steps.csv"]
        for row in csv.DictReader(path.read_text("utf-8-sig").splitlines())
        if row["arm"] == "baseline" and row["repetitive"] not in ("", "–")
    ]
    return sum(value in ("true", "1") for value in judged), len(judged)


def card(models: Path, data: Path, run: Path | None, rows: int, calls: int, tokens_trained: int) -> str:
    """The text of the card."""
    folder = models / TARGET
    model: Qwen3ForCausalLM = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.train(False)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    loss_rows = [
        (PARTS[name], f"{nats:.2f}", f"{math.exp(nats):.1f}", count)
        for name, (nats, count) in losses(model, data, rows).items()
    ]
    counts = held_out_calls(model, tokenizer, calls, 3)
    samples = "\n\n".join(
        f"{opening.strip()} …\n\n```\n{write_on(model, tokenizer, opening, 80)}\n```" for opening in OPENINGS
    )
    loops = "not measured" if run is None else "{} of {} answers".format(*looping(run))
    sources = [(s.file, s.origin, s.licence) for s in load_sources() if s.use == "train"]
    return f"""# The models that come with this package

`{TARGET}` is a small bilingual target (Korean, English, Python, tool calls) with its drafters, so that the whole
instrument runs on any laptop. It is Qwen 3 in shape: {model.num_parameters():,} parameters, {model.config.num_hidden_layers}
layers of {model.config.hidden_size}, context {CONTEXT_TOKENS}, its own byte-level BPE of {model.config.vocab_size:,}; trained on
{tokens_trained:,} tokens by `drafters/training/reference`. Weights in bfloat16. Licence: Apache-2.0; sources below.

**What it is not.** It knows nothing, cannot be trusted with a single fact or sum, and no figure measured on it is a
capacity figure for a real model. It writes the forms of office text, code and tool calls, which is what drafters meet.

## Held-out loss

Tokens that the model writes, in documents it never saw.

{tabulate(loss_rows, headers=("text", "nats a token", "perplexity", "tokens"), tablefmt="github")}

## Tool calls with schemas no training saw, temperature 0

{_calls(counts)}

Answers of the workloads at temperature 0 that the repetition guard flags: {loops}.

## Samples, temperature 0

{samples}

## Files

`public-…` learnt from English and code alone, `adapted-…` went on from it with Korean; all from answers that the target wrote.
Acceptance lengths here are forecasts on held-out generated text, teacher-forced, not measured in the engine: of all languages at
temperature 0, in brackets by language at all temperatures.

{tabulate(_files(models), headers=FILES, tablefmt="github")}

## What it was trained on

Generated office documents, essays and agent dialogues (`drafters/training/reference/office`), and these files; evaluation
sets and texts under strong copyleft were left out.

{tabulate(sources, headers=("file", "origin", "licence"), tablefmt="github")}
"""


def _calls(counts: CallCounts) -> str:
    def share(count: int) -> str:
        return f"{count} ({100 * count / counts.steps:.1f} %)" if counts.steps else "–"

    rows = [
        ("steps that should call a tool", counts.steps),
        ("a call was written", share(counts.called)),
        ("its JSON parses", share(counts.parsed)),
        ("it names a tool of the prompt", share(counts.named)),
        ("and fills the required arguments", share(counts.filled)),
        ("and equals the recorded call", share(counts.equal)),
    ]
    return tabulate(rows, headers=("", "count"), tablefmt="github", disable_numparse=True)


def _files(models: Path) -> list[tuple[object, ...]]:
    from safetensors import safe_open

    rows: list[tuple[object, ...]] = []
    for folder in sorted(path for path in models.iterdir() if path.is_dir() and not path.name.startswith(("_", "."))):
        weights = sorted(folder.glob("*.safetensors"))
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        parameters, digest = 0, hashlib.sha256()
        for file in weights or sorted(folder.glob("corpus.txt")):
            digest.update(file.read_bytes())
        for file in weights:
            with safe_open(str(file), "pt") as tensors:
                parameters += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
        told = folder / TRAINING
        said = json.loads(told.read_text("utf-8")) if told.is_file() else {}
        rows.append(
            (folder.name, said.get("method", "target" if folder.name == TARGET else "–"), parameters or "–", size,
             _forecast(said), digest.hexdigest()[:16])
        )  # fmt: skip
    return rows


def _forecast(said: Mapping[str, Any]) -> str:
    """All held-out text at temperature 0, and each language of it at all temperatures."""
    if said.get("acceptance_length") is None:
        return "–"
    parts = [f"{name} {value:.2f}" for name, value in said.get("by_language", {}).items() if value is not None]
    return f"{said['acceptance_length']:.2f} ({', '.join(parts)})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m drafters.training.reference.card", description=__doc__)
    parser.add_argument("--models", type=Path, required=True, help="folder of the models, as it is shipped")
    parser.add_argument("--data", type=Path, required=True, help="folder made by drafters.training.reference.data")
    parser.add_argument(
        "--run", type=Path, help="run folder of the workloads at temperature 0, for the repetition guard"
    )
    parser.add_argument("--tokens-trained", type=int, required=True)
    parser.add_argument("--rows", type=int, default=12, help="held-out rows of the context's length a part")
    parser.add_argument("--calls", type=int, default=120, help="dialogues with held-out tools")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    text = card(options.models, options.data, options.run, options.rows, options.calls, options.tokens_trained)
    write_whole(options.out, text)
    sys.stderr.write(f"{options.out}: {len(text):,} characters\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
