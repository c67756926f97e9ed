"""A real model, SmolLM2-135M-Instruct, through the converter and this engine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from drafters.catalog import build
from drafters.convert import convert
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request
from drafters.engine.target import DecoderModel
from drafters.specs import PromptLookupSpec
from harness.models import resolve

pytestmark = pytest.mark.engine

ENGLISH = "The quarterly meeting of the Busan branch was moved from Monday to Thursday."
KOREAN = "하나 이상의 셀을 표시합니다. 3월 12일 회의 자료를 보내 주세요."
CODE = "def mean(values: list[float]) -> float:\n    return sum(values) / len(values)  # 100%\n"


@pytest.fixture(scope="module")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """SmolLM2, converted from the file that the harness pulls."""
    folder = tmp_path_factory.mktemp("smollm") / "model"
    convert(resolve("smollm2-135m").path, folder)
    yield folder
    shutil.rmtree(folder)  # half a gigabyte, which pytest would keep for three runs


def answers(target: DecoderModel, prompts: list[list[int]], draft: bool) -> list[list[int]]:
    """Up to 16 greedy tokens after each prompt, all together."""
    drafter = build(PromptLookupSpec(min_ngram=1), target, 1024)
    runner = Runner(target, 1024, {"lookup": drafter})
    running = [
        runner.add(Request(tuple(ids), 16, drafter="lookup" if draft else None, stop_token_ids=frozenset({2})))
        for ids in prompts
    ]
    while runner.busy:
        runner.step()
    assert (runner.counters.num_accepted_tokens > 0) == draft
    return [sequence.token_ids[len(ids) :] for sequence, ids in zip(running, prompts, strict=True)]


def test_smollm_says_what_transformers_lets_it_say(smollm: Path) -> None:
    """English, Korean and code as chats: greedy tokens of the converted folder, with and without drafting."""
    tokenizer: Any = AutoTokenizer.from_pretrained(smollm)
    model: Any = AutoModelForCausalLM.from_pretrained(smollm, dtype=torch.float32)
    prompts: list[list[int]] = []
    want: list[list[int]] = []
    for text in (ENGLISH, KOREAN, CODE):
        chat = [{"role": "user", "content": f"Copy this text:\n{text}"}]
        given = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, return_tensors="pt")
        prompts.append(given["input_ids"][0].tolist())
        made = model.generate(**given, max_new_tokens=16, do_sample=False)
        want.append(made[0, len(prompts[-1]) :].tolist())
    target = DecoderModel.load(smollm, max_positions=256)
    assert answers(target, prompts, draft=False) == want
    assert answers(target, prompts, draft=True) == want


def test_smollm_in_four_bits_says_the_same_with_drafting(smollm: Path) -> None:
    """Quantization may change what it says; drafting may not. NF4, since this model's weights come from a file with
    groups of 32 in four bits, which rtn4 gives back as they are."""
    tokenizer: Any = AutoTokenizer.from_pretrained(smollm)
    prompts = [tokenizer(text * 2)["input_ids"] for text in (ENGLISH, KOREAN, CODE)]
    target = DecoderModel.load(smollm, max_positions=256, weights="nf4")
    assert answers(target, prompts, draft=True) == answers(target, prompts, draft=False)


def test_smollm_writes_its_chat_as_published(smollm: Path) -> None:
    """Its own system message where none is given; every text comes back from its ids; one digit a token."""
    tokenizer: Any = AutoTokenizer.from_pretrained(smollm)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": KOREAN}], tokenize=False, add_generation_prompt=True
    )
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        f"<|im_start|>user\n{KOREAN}<|im_end|>\n<|im_start|>assistant\n"
    )
    for each in (text, ENGLISH, CODE, "2026-11-29 □ ※"):
        assert tokenizer.decode(tokenizer(each)["input_ids"]) == each
    assert len(tokenizer("20261129")["input_ids"]) == 8
    assert (tokenizer.eos_token, tokenizer.convert_tokens_to_ids("<|im_start|>")) == ("<|im_end|>", 1)
