"""The reference target: a Qwen 3 model small enough to be trained on two cores, and the folder it is written to."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from drafters.training.reference.tokenizer import END_OF_TEXT, TURN_END, VOCABULARY, write_tokenizer

CONTEXT_TOKENS = 2048
SHAPE: dict[str, Any] = {
    "hidden_size": 288,  # at least 16 * 17 and whole groups of 16 channels: what llama.cpp's DFlash 2 needs
    "intermediate_size": 768,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,  # of 64: every engine has kernels for that, and attention trains faster than with nine of 32
    "num_key_value_heads": 2,
    "head_dim": 64,
}


def build_target(vocabulary: int = VOCABULARY, **changes: Any) -> Qwen3ForCausalLM:
    """Make the target with fresh weights, float32; ``changes`` overrides the shape (tests use tiny ones)."""
    config = Qwen3Config(
        vocab_size=vocabulary,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        attention_bias=False,
        attention_dropout=0.0,
        initializer_range=0.02,
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
        **{**SHAPE, **changes},
    )
    model = Qwen3ForCausalLM(config)
    # outputs of the residual branches start small, so that depth does not blow up the sum
    scale = (2 * config.num_hidden_layers) ** -0.5
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(scale)
            layer.mlp.down_proj.weight.mul_(scale)
    return model


def write_target(model: Qwen3ForCausalLM, tokenizer: Tokenizer, folder: Path, dtype: torch.dtype) -> None:
    """Write a Hugging Face folder (safetensors, tokenizer, chat template), whole or not at all.

    Raises:
        FileExistsError: if the folder exists and holds something else than a model.
    """
    if folder.exists() and not (folder / "config.json").exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty and holds no model; give a new folder")
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    copy = Qwen3ForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    copy.to(dtype=dtype)  # type: ignore[call-arg]
    copy.save_pretrained(str(temporary))
    write_tokenizer(tokenizer, temporary, model.config.max_position_embeddings)
    ends = [tokenizer.token_to_id(TURN_END), tokenizer.token_to_id(END_OF_TEXT)]
    generation = {"eos_token_id": ends, "pad_token_id": ends[1], "do_sample": False}
    (temporary / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", "utf-8")
    if folder.exists():
        shutil.rmtree(folder)
    temporary.rename(folder)
