"""What the tests of the block drafters share: weights in which nothing is small, sequences told by hand, and the DFlash
network written out for one sequence, without a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import silu

from drafters.base import Commit, Drafter, Target
from drafters.checkpoint import Shapes
from drafters.dflash_config import DFlashConfig

__all__ = ["features", "slow_block", "tell", "wide"]


def wide(shapes: Shapes, seed: int = 0) -> dict[str, Tensor]:
    """Weights in float64 that make every part matter: matrices far from 0, norms away from 1."""
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        noise = 0.3 * torch.randn(shape, generator=generator, dtype=torch.float64)
        made[name] = 1 + noise if name.endswith("norm.weight") else noise
    return made


def features(seed: int, length: int, layers: int = 2, hidden: int = 32) -> Tensor:
    """[length, layers, hidden]: hidden states as a target might give them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((length, layers, hidden), generator=generator, dtype=torch.float64)


def tell(drafter: Drafter, sequence_id: int, tokens: Sequence[int], given: Tensor, known: int = 0) -> None:
    """Commit what stands behind the first ``known`` tokens; ``given`` [at least len(tokens) - 1, layers, hidden] are
    the features of the sequence from its start."""
    first = max(known - 1, 0)
    drafter.commit([Commit(sequence_id, known, tuple(tokens[known:]), given[first : len(tokens) - 1])])


def slow_block(
    config: DFlashConfig, weights: Mapping[str, Tensor], target: Target, given: Tensor, anchor: int
) -> Tensor:
    """[block_size, hidden] after the final norm, of one block behind the features ``given`` [s, layers, hidden]."""
    size, heads, kv_heads, head_dim = config.block_size, config.num_heads, config.num_kv_heads, config.head_dim
    context = _norm(torch.cat(list(given.unbind(1)), dim=-1) @ weights["fc.weight"].T, weights["hidden_norm.weight"])
    rows = target.embed(torch.tensor([anchor] + [config.mask_token_id] * (size - 1)))
    positions = torch.arange(len(context) + size)
    for index in range(config.num_layers):
        own = {
            name.removeprefix(f"layers.{index}."): tensor
            for name, tensor in weights.items()
            if name.startswith(f"layers.{index}.")
        }
        normed = _norm(rows, own["input_layernorm.weight"])
        both = torch.cat((context, normed))
        query = (normed @ own["self_attn.q_proj.weight"].T).view(size, heads, head_dim)
        key = (both @ own["self_attn.k_proj.weight"].T).view(-1, kv_heads, head_dim)
        value = (both @ own["self_attn.v_proj.weight"].T).view(-1, kv_heads, head_dim)
        query = _turned(_norm(query, own["self_attn.q_norm.weight"]), positions[-size:], config.rope["rope_theta"])
        key = _turned(_norm(key, own["self_attn.k_norm.weight"]), positions, config.rope["rope_theta"])
        seen = []
        for head in range(heads):
            of = head // (heads // kv_heads)
            seen.append(torch.softmax(query[:, head] @ key[:, of].T / head_dim**0.5, dim=-1) @ value[:, of])
        rows = rows + torch.cat(seen, dim=-1) @ own["self_attn.o_proj.weight"].T
        normed = _norm(rows, own["post_attention_layernorm.weight"])
        gated = silu(normed @ own["mlp.gate_proj.weight"].T) * (normed @ own["mlp.up_proj.weight"].T)
        rows = rows + gated @ own["mlp.down_proj.weight"].T
    return _norm(rows, weights["norm.weight"])


def _norm(rows: Tensor, weight: Tensor) -> Tensor:
    return rows / (rows.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def _turned(heads: Tensor, positions: Tensor, theta: float) -> Tensor:
    half = heads.shape[-1] // 2
    angles = positions.unsqueeze(1).double() * torch.pow(theta, -torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
    left, right = heads[..., :half], heads[..., half:]
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)
