"""Prints what the trained target writes at temperature 0: ``python -m drafters.training.reference.samples --out FOLDER``.

Also counts, over generated dialogues with held-out tools, how many tool calls parse, name a tool of their prompt and
fill its required arguments. ``--write FOLDER`` writes the model as a Hugging Face folder.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import Qwen3ForCausalLM

from drafters.training.checkpoints import load_checkpoint
from drafters.training.reference.model import CONTEXT_TOKENS, build_target, write_target
from drafters.training.reference.office.dialogues import Turns, scenario_dialogue, tool_request
from drafters.training.reference.tokenizer import END_OF_TEXT, TOOL_INTRODUCTION, TURN_END, TURN_START, render_chat

OPENINGS = (
    "제목: 4월 설비 점검 결과 보고\n",
    "안녕하십니까, 물류팀",
    "이 함수는",
    "To install the package,",
    "def read_lines(path",
    "첫눈이 오던 날",
)
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@dataclass(slots=True)
class CallCounts:
    """Steps that should call a tool, and what became of them; each count includes the next."""

    steps: int = 0
    called: int = 0
    parsed: int = 0
    named: int = 0
    filled: int = 0
    equal: int = 0


@torch.no_grad()
def write_on(model: Qwen3ForCausalLM, tokenizer: Tokenizer, prompt: str, max_tokens: int) -> str:
    """Continue a prompt greedily until the turn or the text ends."""
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids[-(CONTEXT_TOKENS - max_tokens) :]
    ends = {tokenizer.token_to_id(TURN_END), tokenizer.token_to_id(END_OF_TEXT)}
    written: list[int] = []
    step, cache = torch.tensor([ids]), None
    for _ in range(max_tokens):
        output = model(input_ids=step, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, token = output.past_key_values, int(output.logits[0, -1].argmax())
        if token in ends:
            break
        written.append(token)
        step = torch.tensor([[token]])
    return str(tokenizer.decode(written))


def prompt_of(turns: Turns) -> str:
    """Render turns, the assistant's next one opened."""
    return "".join(text for text, _ in render_chat(turns)) + f"{TURN_START}assistant\n"


def judge_call(answer: str, wanted: str, system: str, counts: CallCounts) -> None:
    """Add one answer to the counts; ``wanted`` is the recorded one, ``system`` the prompt with the schemas."""
    counts.steps += 1
    calls = CALL.findall(answer)
    if not calls:
        return
    counts.called += 1
    try:
        values = [json.loads(call) for call in calls]
        pairs = [(value["name"], value["arguments"]) for value in values]
        if not all(isinstance(arguments, dict) for _, arguments in pairs):
            return
    except (ValueError, KeyError, TypeError):
        return
    counts.parsed += 1
    schemas = _schemas(system)
    if not all(name in schemas for name, _ in pairs):
        return
    counts.named += 1
    if all(set(schemas[name]["parameters"]["required"]) <= set(arguments) for name, arguments in pairs):
        counts.filled += 1
        counts.equal += answer == wanted


def _schemas(system: str) -> dict[str, Any]:
    lines = system.split(TOOL_INTRODUCTION, 1)[1].split("\n")
    return {schema["name"]: schema for schema in (json.loads(line) for line in lines if line.startswith("{"))}


def held_out_calls(model: Qwen3ForCausalLM, tokenizer: Tokenizer, dialogues: int, seed: int) -> CallCounts:
    """Let the model answer the calling steps of dialogues whose tools no training saw."""
    counts = CallCounts()
    rng = random.Random(seed)
    for index in range(dialogues):
        turns = tool_request("ko" if index % 2 else "en", True, rng)
        for position, (role, content) in enumerate(turns):
            if role == "assistant" and content.startswith("<tool_call>"):
                answer = write_on(model, tokenizer, prompt_of(turns[:position]), 160)
                judge_call(answer, content, turns[0][1], counts)
    return counts


def load(checkpoint: Path) -> Qwen3ForCausalLM:
    """Read the model of a checkpoint, float32, ready to write."""
    model = build_target()
    model.load_state_dict(load_checkpoint(checkpoint)["model"])
    model.train(False)
    return model


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m drafters.training.reference.samples", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the training's folder")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--calls", type=int, default=0, help="dialogues with held-out tools to count calls in")
    parser.add_argument("--write", type=Path, help="write the model to this folder")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16", help="of --write")
    options = parser.parse_args(arguments)
    tokenizer = Tokenizer.from_file(str(options.out / "tokenizer.json"))
    model = load(options.out / "checkpoint.pt")
    for opening in OPENINGS:
        _say(f"--- {opening!r}\n{write_on(model, tokenizer, opening, options.tokens)}")
    rng = random.Random(7)
    for language in ("ko", "en"):
        turns = scenario_dialogue(language, True, rng)
        for position in [place for place, (role, _) in enumerate(turns) if role == "assistant"]:
            answer = write_on(model, tokenizer, prompt_of(turns[:position]), options.tokens)
            _say(f"--- user: {turns[position - 1][1]}\nmodel: {answer}\nrecorded: {turns[position][1]}")
    if options.calls:
        _say(f"held-out tools: {held_out_calls(model, tokenizer, options.calls, 3)}")
    if options.write:
        write_target(model, tokenizer, options.write, getattr(torch, options.dtype))
        _say(f"written: {options.write}")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
