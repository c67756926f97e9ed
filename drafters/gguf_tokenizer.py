"""The tokenizer inside a GGUF file, as the one that transformers loads.

A GGUF file holds vocabulary and merges; how text is cut before the merges it only names (``tokenizer.ggml.pre``). Reading
the name matters: a cut that is nearly right gives other ids for digits or for runs of spaces, and nothing fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

__all__ = ["ConvertError", "tokenizer_of"]

# Types of tokens in llama.cpp.
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4

QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_WORDS = QWEN2_WORDS.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


class ConvertError(ValueError):
    """The file cannot become a model folder; the message says what was found, what is allowed and what to do."""


def tokenizer_of(fields: Mapping[str, Any]) -> Any:
    """Return a ``PreTrainedTokenizerFast`` from the file's ``tokenizer.*`` keys, chat template and special tokens
    included.

    Raises ConvertError for another kind than byte-level BPE and for a way of cutting text that is not known here.
    """
    from transformers import PreTrainedTokenizerFast

    kind = fields.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ConvertError(
            f"the file's tokenizer is {kind!r}; allowed: 'gpt2' (byte-level BPE). Get the model as a Hugging Face folder"
        )
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    types: list[int] = fields.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    name = str(fields.get("tokenizer.ggml.pre", "gpt-2"))
    llama3 = name in ("llama-bpe", "llama3", "llama-v3")
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    # Of ids that share a text, the first is the one that text becomes.
    vocabulary = {token: index for index, token in reversed(list(enumerate(tokens)))}
    broken = next((merge for merge in merges if "".join(merge) not in vocabulary), None)
    if broken is not None:
        raise ConvertError(
            f"the file's merge {' '.join(broken)!r} makes no token of its vocabulary; fetch the file again"
        )
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=llama3))
    if name == "qwen2":
        made.normalizer = normalizers.NFC()
    made.pre_tokenizer = _cutting(name)
    made.decoder = decoders.ByteLevel()
    for token, kind_of in zip(tokens, types, strict=True):
        if kind_of in (UNKNOWN, CONTROL):
            made.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        elif kind_of == USER_DEFINED:
            made.add_tokens([AddedToken(token, normalized=False)])
    special = {
        role: tokens[fields[f"tokenizer.ggml.{key}_token_id"]]
        for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if f"tokenizer.ggml.{key}_token_id" in fields
    }
    if fields.get("tokenizer.ggml.add_bos_token", llama3) and "bos" in special:
        first = special["bos"]
        made.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(
                    single=f"{first} $A", pair=f"{first} $A {first} $B", special_tokens=[(first, vocabulary[first])]
                ),
            ]
        )
    make: Any = PreTrainedTokenizerFast
    return make(
        tokenizer_object=made,
        clean_up_tokenization_spaces=False,
        chat_template=fields.get("tokenizer.chat_template"),
        **{f"{role}_token": token for role, token in special.items()},
    )


def _cutting(name: str) -> Any:
    words = {"qwen2": QWEN2_WORDS, "llama-bpe": LLAMA3_WORDS, "llama3": LLAMA3_WORDS, "llama-v3": LLAMA3_WORDS}
    if name == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "smollm":
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if name not in words:
        known = ", ".join(sorted({"gpt-2", "smollm", *words}))
        raise ConvertError(
            f"the file's text is cut as {name!r} before the merges; known: {known}. Get the model as a Hugging Face folder"
        )
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words[name]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
