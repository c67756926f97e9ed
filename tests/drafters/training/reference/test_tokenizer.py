"""The tokenizer and the chat template of the reference target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from drafters.training.reference import tokenizer as module
from drafters.training.reference.tokenizer import MARKS, SPECIAL, render_chat, train_tokenizer, write_tokenizer
from harness.replay import prompts

TEXTS = ["설비 점검 결과를 보고합니다. 금액은 12,300원입니다.\n", "def read(path):\n    return path.read_text()\n"] * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small tokenizer."""
    path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(train_tokenizer(TEXTS, 400), path, 2048)
    return path


def test_tool_words_are_those_of_the_instrument() -> None:
    """The target is trained on the very words with which the instrument writes tools into a prompt."""
    assert module.TOOL_INTRODUCTION == prompts.TOOL_INTRODUCTION
    assert module.TOOL_USAGE == prompts.TOOL_USAGE


def test_any_text_comes_back(folder: Path) -> None:
    """Byte-level tokens give back text that the training never held, line ends and rare characters included."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "뷁 ★ 𝄞 x\r\n\t  y"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_control_tokens_come_first_and_marks_stay_in_decoded_text(folder: Path) -> None:
    """Ids 0 to 2 are control tokens, 3 to 6 the marks; only the former are left out of an answer."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert [tokenizer.convert_tokens_to_ids(token) for token in (*SPECIAL, *MARKS)] == list(range(7))
    ids = tokenizer.encode("<tool_call>{}</tool_call><|im_end|>")
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<tool_call>{}</tool_call>"


def test_digits_are_single_tokens(folder: Path) -> None:
    """A number has as many tokens as digits."""
    assert len(AutoTokenizer.from_pretrained(folder).encode("123456")) == 6


def test_template_and_training_form_agree(folder: Path) -> None:
    """Text-mode messages through the chat template are the pieces that the training renders."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    turns = [("system", "s"), ("user", "질문"), ("assistant", "답"), ("user", "또")]
    messages = [{"role": role, "content": content} for role, content in turns]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False)
    assert rendered == "".join(text for text, _ in render_chat(turns))


def test_native_tools_come_out_as_the_text_mode_writes_them(folder: Path) -> None:
    """Tools, calls and results given as OpenAI fields end up as words in the same places."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tools: list[dict[Any, Any] | Callable[..., Any]] = [
        {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
    ]
    call = {"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"q": "예산"}'}}
    messages: list[Any] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
        {"role": "user", "content": "v"},
    ]
    rendered = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
    system = "\n".join(
        ["s", "", module.TOOL_INTRODUCTION, '{"name": "find", "parameters": {"type": "object"}}', module.TOOL_USAGE]
    )
    turns = [
        ("system", system),
        ("user", "u"),
        ("assistant", '<tool_call>{"name": "find", "arguments": {"q": "예산"}}</tool_call>'),
        ("user", "<tool_response>\nr\n</tool_response>\n\nv"),
    ]
    assert rendered == "".join(text for text, _ in render_chat(turns)) + "<|im_start|>assistant\n"
