"""Tiny random models of each family, as transformers builds them: the reference of every exactness test."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from drafters.engine.target import DecoderModel

torch.set_num_threads(1)

VOCAB = 61
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    # Wide weights: with transformers' 0.02 a tiny model repeats one token, and every draft would be right.
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
FAMILIES: dict[str, Any] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama-untied-bias-rope3": lambda: LlamaForCausalLM(
        LlamaConfig(
            **SIZES, tie_word_embeddings=False, attention_bias=True, mlp_bias=True, rope_parameters=dict(LLAMA3_ROPE)
        )
    ),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=12, tie_word_embeddings=False)),
    "qwen3-moe": lambda: Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            **SIZES,
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            norm_topk_prob=True,
            mlp_only_layers=[1],
        )
    ),
}


@cache
def reference(family: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> Any:
    """The transformers model of a family, with random weights.

    transformers rounds inside its norms to float32, whatever the weights are. They are replaced by torch's own, so that
    a float64 reference is float64 throughout and tolerances can be near its rounding.
    """
    torch.manual_seed(seed)
    model = FAMILIES[family]()
    for name, parameter in model.named_parameters():
        # Biases and norms start at 0 and 1, which would hide a forgotten one.
        if name.endswith("bias") or "norm" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                norm = nn.RMSNorm(child.weight.shape[0], eps=child.variance_epsilon)
                norm.weight = child.weight
                setattr(module, name, norm)
    # Its default kernel for experts takes no float64.
    if family == "qwen3-moe":
        model.set_experts_implementation("eager")
    model.generation_config.do_sample = False
    return model.to(dtype).eval()


@cache
def lean(family: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> DecoderModel:
    """This project's forward over the same weights."""
    return DecoderModel(reference(family, seed, dtype))


def greedy(
    family: str, prompt: Sequence[int], max_tokens: int, eos: Sequence[int] = (), dtype: torch.dtype = torch.float64
) -> list[int]:
    """What transformers generates greedily after ``prompt``, alone in its batch."""
    return list(_greedy(family, tuple(prompt), max_tokens, tuple(eos), dtype))


@cache
def _greedy(
    family: str, prompt: tuple[int, ...], max_tokens: int, eos: tuple[int, ...], dtype: torch.dtype
) -> tuple[int, ...]:
    ids = torch.tensor([prompt])
    made = reference(family, dtype=dtype).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_tokens,
        do_sample=False,
        eos_token_id=list(eos) or None,
        pad_token_id=0,
    )
    return tuple(made[0, len(prompt) :].tolist())


def prompt(seed: int, length: int) -> list[int]:
    """A prompt of random tokens that repeats a part of itself, so that looking up finds something."""
    generator = torch.Generator().manual_seed(seed)
    half = torch.randint(0, VOCAB, ((length + 1) // 2,), generator=generator).tolist()
    return (half + half)[:length]
