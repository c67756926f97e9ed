"""A Hugging Face tokenizer as the keys of a GGUF file.

llama.cpp knows ways of cutting text before the merges by name only, so the name must be that of exactly the same cut:
one that is nearly right gives other ids for digits or runs of spaces, and nothing fails. Where a tokenizer also brings
text into NFC (Qwen's does), llama.cpp does not: the ids of text that is not in NFC then differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drafters.gguf_tokenizer import CONTROL, LLAMA3_WORDS, QWEN2_WORDS, USER_DEFINED
from drafters.training.stage import StageError

__all__ = ["end_tokens", "tokenizer_keys"]

NORMAL, UNUSED = 1, 5
ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
# Which token ends a text: the first, and where a model has further ones, those of a turn and of a message.
ENDS = ("eos", "eot", "eom")
_ANY_CASE = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BOTH_CASES = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"


def tokenizer_keys(folder: Path, vocab_size: int) -> dict[str, Any]:
    """Return the ``tokenizer.*`` keys for a model of ``vocab_size`` rows, chat template included.

    Ids without a token become unused ones. Raises StageError for a folder without tokenizer or with a damaged one,
    another kind than byte-level BPE, or a way of cutting text that llama.cpp has no name for.
    """
    try:
        return _keys(folder, vocab_size)
    except StageError:
        raise
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise StageError(
            f"{folder / 'tokenizer.json'} is not as a tokenizer is written ({type(error).__name__}: {error}); copy the "
            "model's folder again"
        ) from error


def _keys(folder: Path, vocab_size: int) -> dict[str, Any]:
    tokenizer, config = _read(folder / "tokenizer.json"), _read(folder / "tokenizer_config.json", needed=False)
    model = tokenizer.get("model") or {}
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        raise StageError(f"{folder}: the tokenizer is {model.get('type')!r}; allowed: byte-level BPE")
    added = {item["content"]: item for item in tokenizer.get("added_tokens") or []}
    ids: dict[str, int] = {**model["vocab"], **{token: item["id"] for token, item in added.items()}}
    if max(ids.values()) >= vocab_size:
        raise StageError(
            f"{folder}: the tokenizer has ids up to {max(ids.values())}, the model {vocab_size} rows; "
            "give the tokenizer of this model"
        )
    tokens, types = [f"[UNUSED{index}]" for index in range(vocab_size)], [UNUSED] * vocab_size
    for token, index in ids.items():
        tokens[index], types[index] = token, NORMAL
        if token in added:
            types[index] = CONTROL if added[token].get("special") else USER_DEFINED
    keys: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": _cut_name(folder, tokenizer),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [m if isinstance(m, str) else " ".join(m) for m in model["merges"]],
    }
    for role, key in ROLES.items():
        named = config.get(role)
        text = named.get("content") if isinstance(named, Mapping) else named
        if isinstance(text, str) and text in ids:
            keys[f"tokenizer.ggml.{key}_token_id"] = ids[text]
    for key, index in zip(ENDS, end_tokens(folder), strict=False):
        keys[f"tokenizer.ggml.{key}_token_id"] = index
    keys["tokenizer.ggml.add_bos_token"] = bool(config.get("add_bos_token", False)) or _adds_bos(tokenizer)
    template = _template(folder, config)
    return keys if template is None else {**keys, "tokenizer.chat_template": template}


def end_tokens(folder: Path) -> list[int]:
    """Ids that end a text, the model's own first: those of ``generation_config.json``, else of ``config.json``.

    Raises StageError for more of them than a GGUF file has keys for.
    """
    for name in ("generation_config.json", "config.json"):
        given = _read(folder / name, needed=False).get("eos_token_id")
        ends = [given] if isinstance(given, int) else [end for end in given or [] if isinstance(end, int)]
        if len(ends) > len(ENDS):
            raise StageError(f"{folder / name} names {len(ends)} end tokens; allowed: {len(ENDS)}")
        if ends:
            return ends
    return []


def _cut_name(folder: Path, tokenizer: Mapping[str, Any]) -> str:
    """llama.cpp's name of the way in which a tokenizer cuts text."""
    pieces = tokenizer.get("pre_tokenizer") or {}
    steps = pieces.get("pretokenizers", [pieces])
    kinds = [step.get("type") for step in steps]
    plain = not any(step.get("add_prefix_space") for step in steps)
    normalizer = (tokenizer.get("normalizer") or {}).get("type")
    if plain and normalizer in (None, "NFC"):
        if kinds == ["ByteLevel"] and steps[0].get("use_regex", True) and normalizer is None:
            return "gpt-2"
        if kinds == ["Digits", "ByteLevel"] and steps[0].get("individual_digits") and normalizer is None:
            return "smollm"
        if kinds == ["Split", "ByteLevel"] and steps[0].get("behavior") == "Isolated" and not steps[1]["use_regex"]:
            words = str((steps[0].get("pattern") or {}).get("Regex")).replace(_ANY_CASE, _BOTH_CASES)
            if words == QWEN2_WORDS.replace(_ANY_CASE, _BOTH_CASES):
                return "qwen2"
            if words == LLAMA3_WORDS.replace(_ANY_CASE, _BOTH_CASES) and normalizer is None:
                return "llama-bpe"
    raise StageError(
        f"{folder}: the tokenizer cuts text in a way that is not known here ({', '.join(map(str, kinds))}, "
        f"normalizer {normalizer}); known: those of GPT-2, SmolLM, Qwen 2 and 3, Llama 3"
    )


def _adds_bos(tokenizer: Mapping[str, Any]) -> bool:
    """Whether the template puts a token before the text; one after it is another matter."""
    steps = (tokenizer.get("post_processor") or {}).get("processors", [tokenizer.get("post_processor") or {}])
    return any("SpecialToken" in piece for step in steps for piece in (step.get("single") or [])[:1])


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    given = config.get("chat_template")
    return given if isinstance(given, str) else None


def _read(path: Path, *, needed: bool = True) -> dict[str, Any]:
    if not needed and not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StageError(f"{path} cannot be read ({error}); give a whole Hugging Face folder") from error
    if not isinstance(value, dict):
        raise StageError(f"{path} holds no object of keys; give a whole Hugging Face folder")
    return value
