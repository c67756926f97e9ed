"""The reference target's tokenizer: byte-level BPE of 8,192 tokens and a chat template with tools.

It is of the kind that llama.cpp calls model ``gpt2`` with the pre-tokenizer ``qwen2``: the same split pattern, no
normalizer (llama.cpp has none), digits one by one, so that numbers are copied digit for digit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 8192
END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL = (END_OF_TEXT, TURN_START, TURN_END)
"""Control tokens; their ids are 0, 1 and 2."""
MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Whole tokens that are ordinary text: they stay in a decoded answer, where clients look for them. Ids 3 to 6."""
LLAMACPP_MODEL = "gpt2"
LLAMACPP_PRE = "qwen2"

# The pattern of Qwen 2 and 3, as llama.cpp spells it for LLAMA_VOCAB_PRE_TYPE_QWEN2.
SPLIT = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TOOL_INTRODUCTION = "Tools, one JSON object a line:"
TOOL_USAGE = 'To use a tool, answer with <tool_call>{"name": "…", "arguments": {…}}</tool_call>, one per call.'
"""The words with which the instrument writes tools into a system prompt; a test compares them, since this package may
not import it."""

CHAT_TEMPLATE = (
    "{%- set ns = namespace(open=false) -%}"
    "{%- if tools -%}"
    "{{- '<|im_start|>system\\n' -}}"
    "{%- if messages[0].role == 'system' -%}{{- messages[0].content + '\\n\\n' -}}{%- endif -%}"
    "{{- '" + TOOL_INTRODUCTION + "\\n' -}}"
    "{%- for tool in tools -%}{{- (tool.function | tojson) + '\\n' -}}{%- endfor -%}"
    "{{- '" + TOOL_USAGE + "<|im_end|>\\n' -}}"
    "{%- elif messages[0].role == 'system' -%}"
    "{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' -}}"
    "{%- endif -%}"
    "{%- for message in messages -%}"
    "{%- if message.role == 'system' and loop.first -%}"
    "{%- elif message.role == 'assistant' -%}"
    "{%- if ns.open -%}{{- '<|im_end|>\\n' -}}{%- set ns.open = false -%}{%- endif -%}"
    "{{- '<|im_start|>assistant\\n' + (message.content or '') -}}"
    "{%- for call in message.tool_calls or [] -%}"
    "{%- if message.content or not loop.first -%}{{- '\\n' -}}{%- endif -%}"
    '{{- \'<tool_call>{"name": "\' + call.function.name + \'", "arguments": \' -}}'
    "{%- if call.function.arguments is string -%}{{- call.function.arguments -}}"
    "{%- else -%}{{- call.function.arguments | tojson -}}{%- endif -%}"
    "{{- '}</tool_call>' -}}"
    "{%- endfor -%}"
    "{{- '<|im_end|>\\n' -}}"
    "{%- else -%}"
    "{%- if ns.open -%}{{- '\\n\\n' -}}{%- else -%}{{- '<|im_start|>user\\n' -}}{%- set ns.open = true -%}{%- endif -%}"
    "{%- if message.role == 'tool' -%}{{- '<tool_response>\\n' + message.content + '\\n</tool_response>' -}}"
    "{%- else -%}{{- message.content -}}{%- endif -%}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if ns.open -%}{{- '<|im_end|>\\n' -}}{%- endif -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
"""Native tools come out as the instrument's text mode writes them; neighbouring user and tool messages form one turn."""


def train_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> Tokenizer:
    """Learn the merges from texts; the same texts in the same order give the same tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    added = [AddedToken(token, special=True, normalized=False) for token in SPECIAL]
    added += [AddedToken(token, special=False, normalized=False) for token in MARKS]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=added,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # the trainer makes every one of them special; the marks must stay in decoded text
    value = json.loads(tokenizer.to_str())
    for token in value["added_tokens"]:
        token["special"] = token["content"] in SPECIAL
    return Tokenizer.from_str(json.dumps(value, ensure_ascii=False))


def write_tokenizer(tokenizer: Tokenizer, folder: Path, context_tokens: int) -> None:
    """Write the tokenizer files of a Hugging Face model folder, chat template included."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_tokens,
        "bos_token": None,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n", "utf-8")


def render_chat(messages: Iterable[tuple[str, str]]) -> list[tuple[str, bool]]:
    """Write (role, content) turns, tools already in their texts, as pieces (text, written by the model or not).

    The pieces joined are what the chat template makes of the same messages.
    """
    pieces: list[tuple[str, bool]] = []
    for role, content in messages:
        pieces.append((f"{TURN_START}{role}\n", False))
        own = role == "assistant"
        pieces.append((content + (TURN_END if own else ""), own))
        pieces.append(("\n" if own else f"{TURN_END}\n", False))
    return pieces
