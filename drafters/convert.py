"""A GGUF file becomes a Hugging Face folder: ``python -m drafters.convert GGUF FOLDER``.

Weights of any GGUF type are written as float32. Architectures: llama, qwen2, qwen3. The folder appears whole or not at
all.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafters.gguf_tokenizer import ConvertError, tokenizer_of

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ConvertError", "convert", "main"]

Progress = Callable[[float], None]
"""Called with the share of the tensors that are read, from 0 to 1."""

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(gguf: Path, folder: Path, progress: Progress | None = None) -> None:
    """Write ``folder`` from the model file ``gguf``: configuration, float32 safetensors, tokenizer, chat template and
    the end tokens of generation.

    Raises ConvertError when the file is missing, damaged or of a kind that is not known here, or the folder is taken.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConvertError(f"{folder} is there and not empty; give a new folder, or delete it first")
    if not gguf.is_file():
        raise ConvertError(f"there is no file {gguf}; give the path of a GGUF model")
    reader = _open(gguf)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    config = _config(fields, {tensor.name for tensor in reader.tensors}, len(fields.get("tokenizer.ggml.tokens", ())))
    tokenizer = tokenizer_of(fields)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as name:
        part = Path(name) / "model"
        part.mkdir()
        _save_weights(reader.tensors, config, part, progress or (lambda _: None))
        config.save_pretrained(part)
        tokenizer.save_pretrained(part)
        _generation(fields).save_pretrained(part)
        part.replace(folder)  # an empty folder that is there gives way


def _open(gguf: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ConvertError("converting needs the package gguf; install 'spec-harness[builtin]'") from error
    try:
        return GGUFReader(gguf)
    except (ValueError, OSError, IndexError, KeyError, OverflowError) as error:
        raise ConvertError(f"{gguf} cannot be read as GGUF ({error}); fetch it again") from error


def _config(fields: Mapping[str, Any], tensors: set[str], tokens: int) -> Any:
    from transformers import AutoConfig

    kind = fields.get("general.architecture")
    if kind not in ARCHITECTURES:
        raise ConvertError(f"the file holds a {kind!r} model; allowed: {', '.join(ARCHITECTURES)}")

    def need(key: str) -> Any:
        if f"{kind}.{key}" not in fields:
            raise ConvertError(f"the file does not say {kind}.{key}; it is damaged or very old, get another one")
        return fields[f"{kind}.{key}"]

    scaling = fields.get(f"{kind}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in tensors:
        raise ConvertError(
            f"the model stretches its positions (rope scaling {scaling!r}); allowed: none. "
            "Get the model as a Hugging Face folder"
        )
    heads = need("attention.head_count")
    given: dict[str, Any] = {
        "architectures": [ARCHITECTURES[kind]],
        "dtype": "float32",
        "vocab_size": fields.get(f"{kind}.vocab_size", tokens),
        "hidden_size": need("embedding_length"),
        "intermediate_size": need("feed_forward_length"),
        "num_hidden_layers": need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.get(f"{kind}.attention.head_count_kv", heads),
        "head_dim": fields.get(f"{kind}.attention.key_length", need("embedding_length") // heads),
        "max_position_embeddings": need("context_length"),
        "rms_norm_eps": need("attention.layer_norm_rms_epsilon"),
        "rope_parameters": {"rope_type": "default", "rope_theta": fields.get(f"{kind}.rope.freq_base", 10000.0)},
        "tie_word_embeddings": "output.weight" not in tensors,
        "bos_token_id": fields.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": fields.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": fields.get("tokenizer.ggml.padding_token_id"),
    }
    if kind == "llama":
        given |= {"attention_bias": "blk.0.attn_q.bias" in tensors, "mlp_bias": "blk.0.ffn_up.bias" in tensors}
    return AutoConfig.for_model(kind, **given)


def _save_weights(tensors: Sequence[Any], config: Any, folder: Path, progress: Progress) -> None:
    from safetensors.numpy import save_file

    # Loaders of transformers refuse a file that does not say its format.
    named = dict(_weights(tensors, config, progress))
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})


def _weights(tensors: Sequence[Any], config: Any, progress: Progress) -> Iterator[tuple[str, np.ndarray]]:
    """Name and values of every tensor, as transformers has them."""
    import numpy as np
    from gguf.quants import dequantize

    for index, tensor in enumerate(tensors):
        shape = [int(size) for size in reversed(tensor.shape)]
        values = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32).reshape(shape)
        name, _, ending = tensor.name.rpartition(".")
        block, _, part = name.removeprefix("blk.").partition(".")
        if name in OUTER:
            given = OUTER[name]
        elif name.startswith("blk.") and part in INNER:
            given = f"model.layers.{block}.{INNER[part]}"
        else:
            raise ConvertError(
                f"the file has a tensor {tensor.name!r} that is not known here; get a plain model of its kind"
            )
        if config.model_type == "llama" and part in ("attn_q", "attn_k"):
            heads = config.num_attention_heads if part == "attn_q" else config.num_key_value_heads
            values = _unpaired(values, heads)
        yield f"{given}.{ending}", values
        progress((index + 1) / len(tensors))


def _unpaired(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows [heads · head_dim, …] in transformers' order, which rotates halves; llama.cpp's llama rotates neighbours."""
    import numpy as np

    pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(values.shape))


def _generation(fields: Mapping[str, Any]) -> Any:
    from transformers import GenerationConfig

    make: Any = GenerationConfig
    # A chat's turn may end with another token than a text does.
    ends = [fields.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    return make(
        bos_token_id=fields.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=sorted({end for end in ends if end is not None}) or None,
        pad_token_id=fields.get("tokenizer.ggml.padding_token_id"),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code, 2 for what cannot be converted."""
    parser = argparse.ArgumentParser(
        prog="python -m drafters.convert", description="Make a Hugging Face folder of a GGUF file."
    )
    parser.add_argument("gguf", type=Path, help="the model file")
    parser.add_argument("folder", type=Path, help="the folder to make; must not be there, or be empty")
    given = parser.parse_args(arguments)
    try:
        convert(given.gguf, given.folder)
    except (ConvertError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stderr.write(f"made {given.folder}{os.sep}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
