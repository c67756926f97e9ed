"""What the tests of regenerating and capturing share: a corpus, tiny targets, and a stage run as its command runs it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from drafters.training import capture_stage, regenerate_stage
from drafters.training.conversations import Conversation
from drafters.training.examples import Example, read_examples
from drafters.training.stage import begin, finish, write_whole
from tests.drafters.engine.serving import fast, tokenizer

ANSWER = "abcdef.g"
"""What the target of `chain_folder` always answers; its characters are all different."""
END = 2
TOOLS: tuple[dict[str, Any], ...] = (
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}},
)


def talk(name: str, *turns: str, language: str = "ko", split: Any = "train", **more: Any) -> Conversation:
    """A conversation of user turns, each with a recorded answer that nobody should see again."""
    messages: list[dict[str, Any]] = []
    for turn in turns:
        messages += [{"role": "user", "content": turn}, {"role": "assistant", "content": "RECORDED"}]
    return Conversation(name, "hand", language, "office", split, tuple(messages), **more)


def corpus(folder: Path, conversations: Sequence[Conversation]) -> Path:
    """A finished corpus."""
    documents = folder.with_suffix(".txt")
    documents.write_text("source")
    begin(folder, "corpus", {"documents": documents}, {})
    write_whole(folder / "conversations.jsonl", "".join(made.to_json() + "\n" for made in conversations))
    finish(folder, ["conversations.jsonl"], {})
    return folder


def chain_folder(folder: Path, answer: str = ANSWER) -> Path:
    """A target that knows one answer by heart: each of its bytes follows the one before, and the end of turn the last."""
    tokens = tokenizer(merges=0)
    vocab = tokens.get_vocab_size()
    config: Any = Qwen3Config(
        vocab_size=vocab,
        hidden_size=vocab + 1,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        bos_token_id=None,
        pad_token_id=None,
        eos_token_id=END,
    )
    model: Any = Qwen3ForCausalLM(config)
    chain = [*tokens.encode(answer).ids, END]
    successor = dict(pairwise(chain))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(vocab, vocab + 1))
        model.lm_head.weight.zero_()
        for token in range(vocab):
            model.lm_head.weight[successor.get(token, chain[0]), token] = 1.0
    model.save_pretrained(folder)
    fast(tokens).save_pretrained(folder)
    return folder


def stage(module: ModuleType, *arguments: object) -> list[str]:
    """Run a stage with the arguments of its command; return what it said. Raises what the stage raises."""
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    said: list[str] = []
    assert module.run(parser.parse_args(list(map(str, arguments))), said.append) == 0
    return said


def regenerate(*arguments: object) -> list[str]:
    """Run ``drafters regenerate``, one thread."""
    return stage(regenerate_stage, *arguments, "--threads", 1)


def capture(*arguments: object) -> list[str]:
    """Run ``drafters capture``."""
    return stage(capture_stage, *arguments, "--threads", 1)


def examples_of(folder: Path) -> dict[str, Example]:
    """The examples of a finished folder, by id."""
    return {example.id: example for example in read_examples(folder / "examples.jsonl", 1 << 20)}


def answers_of(example: Example) -> Iterator[tuple[int, ...]]:
    """What the target wrote of an example."""
    for start, end in example.answers:
        yield example.token_ids[start:end]


def report_of(folder: Path) -> dict[str, Any]:
    """The report of a finished folder."""
    made: dict[str, Any] = json.loads((folder / "report.json").read_text("utf-8"))
    return made


if __name__ == "__main__":
    regenerate(*sys.argv[1:])
