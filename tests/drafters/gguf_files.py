"""Small GGUF files of transformers' models, written the way llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants

from tests.drafters.models import VOCAB

__all__ = ["TOKENS", "write_gguf"]

# Two marks, the printable bytes from "!" on that fit, two more letters, a blank ("Ġ") and what merges make of these.
MERGES = ["a b", "Ġ ab"]
LETTERS = [chr(code) for code in range(ord("!"), ord("!") + VOCAB - 7)]
TOKENS = ["<|start|>", "<|end|>", *LETTERS, "a", "b", "Ġ", "ab", "Ġab"]
NAMES = {
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
    "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
    "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
}  # fmt: skip


def write_gguf(
    path: Path,
    model: Any,
    kind: str,
    quantized: Mapping[str, GGMLQuantizationType] | None = None,
    extra: str | None = None,
    keys: Mapping[str, Any] | None = None,
) -> None:
    """Write ``model`` as architecture ``kind``.

    ``quantized`` names tensors to be written in another type than float32, ``extra`` one more tensor. ``keys``
    replace those of the file; a value of None leaves one out.
    """
    config = model.config
    writer = GGUFWriter(path, kind)
    written: dict[str, Any] = {
        f"{kind}.block_count": config.num_hidden_layers,
        f"{kind}.context_length": config.max_position_embeddings,
        f"{kind}.embedding_length": config.hidden_size,
        f"{kind}.feed_forward_length": config.intermediate_size,
        f"{kind}.attention.head_count": config.num_attention_heads,
        f"{kind}.attention.head_count_kv": config.num_key_value_heads,
        f"{kind}.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        f"{kind}.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3, 3, *[1] * (VOCAB - 2)],
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.chat_template": "{% for message in messages %}<|start|>{{ message.content }}<|end|>{% endfor %}",
    }
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if head_dim * config.num_attention_heads != config.hidden_size:
        written[f"{kind}.attention.key_length"] = head_dim
    for key, value in (written | dict(keys or {})).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif value is not None:
            writer.add_array(key, value)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        *rest, part, ending = name.split(".")
        block = next((f"blk.{piece}." for piece in rest if piece.isdigit()), "")
        values = tensor.detach().float().numpy()
        if kind == "llama" and part in ("q_proj", "k_proj"):
            values = _paired(values, config.num_attention_heads if part == "q_proj" else config.num_key_value_heads)
        given = f"{block}{NAMES[part]}.{ending}"
        kind_of = (quantized or {}).get(given)
        if kind_of is not None:
            values = quants.quantize(values, kind_of)
        writer.add_tensor(given, np.ascontiguousarray(values), raw_dtype=kind_of)
    if extra is not None:
        writer.add_tensor(extra, np.zeros(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _paired(values: np.ndarray, heads: int) -> np.ndarray:
    """Row i of a head's first half and row i of its second become neighbours."""
    made = np.empty_like(values)
    size = len(values) // heads
    for head in range(heads):
        own, out = values[head * size : (head + 1) * size], made[head * size : (head + 1) * size]
        out[::2], out[1::2] = own[: size // 2], own[size // 2 :]
    return made
