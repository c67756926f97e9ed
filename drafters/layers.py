"""Blocks of a decoder that the target and the neural drafters share: rotary positions, grouped attention, a layer.

Rows are flat: all tokens of all sequences of a pass stand in one dimension, so ragged lengths need no padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import scaled_dot_product_attention, silu

from drafters.engine.kv_cache import KvCache
from drafters.projections import project

__all__ = [
    "CachedRows",
    "DecoderLayer",
    "LayerShape",
    "Rotary",
    "attend",
    "causal_block",
    "lookback_mask",
    "rms_norm",
    "tree_block",
]

# Up to this many query rows the heads of a group are folded into the rows, which spares expanding K/V; beyond it the folded
# mask (rows × group × context) would be the larger cost.
FOLDED_ROWS = 32


class Rotary:
    """Rotary position embedding as transformers computes it: angles in float32, halves rotated, then the scaling
    factor.

    ``inv_freq`` [head_dim / 2]. Tables are kept for ``max_positions`` positions in ``dtype``.
    """

    def __init__(self, inv_freq: Tensor, scaling: float, max_positions: int, dtype: torch.dtype) -> None:
        angles = torch.arange(max_positions, device=inv_freq.device).float().unsqueeze(1) * inv_freq.float()
        cos, sin = angles.cos() * scaling, angles.sin() * scaling
        self.max_positions = max_positions
        self._cos = torch.cat((cos, cos), dim=-1).to(dtype)  # [positions, head_dim]
        # The sign of the rotated half is in the table, so rotating is one roll.
        self._sin = torch.cat((-sin, sin), dim=-1).to(dtype)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[n] → cos, sin, each [n, 1, head_dim], for `turn`."""
        return self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)

    @staticmethod
    def turn(heads: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate ``heads`` [n, heads, head_dim] by the angles of `at`."""
        cos, sin = angles
        return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)


def rms_norm(rows: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension, times ``weight``.

    torch's own is made of more passes over memory on a CPU (2.13: a third slower for one row, ten times for 512). It keeps
    the low precisions, where it accumulates in float32.
    """
    size = rows.shape[-1]
    if rows.dtype not in (torch.float32, torch.float64):
        return torch.nn.functional.rms_norm(rows, (size,), eps=eps) * weight
    scale = vector_norm(rows, dim=-1, keepdim=True).square_().mul_(1 / size).add_(eps).rsqrt_()
    return torch.mul(rows, scale).mul_(weight)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Grouped-query attention of one sequence.

    ``query`` [rows, heads, head_dim]; ``key`` and ``value`` [kv_heads, length, head_dim], views of a cache as a rule;
    ``mask`` [rows, length] is added to the scores, ``None`` lets every row see everything. Returns [rows, heads ·
    head_dim].
    """
    rows, heads, head_dim = query.shape
    kv_heads = key.shape[0]
    keys, values = key.unsqueeze(0), value.unsqueeze(0)  # [1, kv_heads, length, head_dim]
    if rows > FOLDED_ROWS:
        queries = query.transpose(0, 1).unsqueeze(0)  # [1, heads, rows, head_dim]
        out = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=heads != kv_heads)
        return out[0].transpose(0, 1).reshape(rows, heads * head_dim)
    group = heads // kv_heads
    if rows == 1:
        queries = query.view(1, kv_heads, group, head_dim)
        out = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return out.reshape(1, heads * head_dim)
    queries = (
        query.view(rows, kv_heads, group, head_dim).permute(1, 2, 0, 3).reshape(1, kv_heads, group * rows, head_dim)
    )
    folded = None if mask is None else mask.expand(group, rows, mask.shape[1]).reshape(group * rows, mask.shape[1])
    out = scaled_dot_product_attention(queries, keys, values, attn_mask=folded)
    return out.view(kv_heads, group, rows, head_dim).permute(2, 0, 1, 3).reshape(rows, heads * head_dim)


def causal_block(rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Mask [rows, rows] of a chain: 0 on and below the diagonal, -inf above."""
    return torch.full((rows, rows), float("-inf"), dtype=dtype, device=device).triu_(1)


def tree_block(parents: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Mask [nodes + 1, nodes + 1] of the last committed token and a draft's tree: each sees itself and its
    ancestors."""
    size = len(parents) + 1
    seen = [[False] * size for _ in range(size)]
    seen[0][0] = True
    for node, parent in enumerate(parents, start=1):
        seen[node] = list(seen[parent + 1])
        seen[node][node] = True
    visible = torch.tensor(seen, device=device)
    return torch.zeros((size, size), dtype=dtype, device=device).masked_fill_(~visible, float("-inf"))


def lookback_mask(block: Tensor, past: int) -> Tensor:
    """Mask [rows, past + rows]: all of the ``past`` tokens, and among the new rows what ``block`` [rows, rows] says."""
    mask = block.new_zeros((block.shape[0], past + block.shape[0]))
    mask[:, past:] = block
    return mask


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Sizes of a drafter's decoder layer.

    ``attention_size`` is the width that its q, k and v projections take: the hidden size, or twice that in EAGLE-3.
    ``qk_norm`` tells whether queries and keys are normed head by head, as in Qwen3. All of ``head_dim`` is rotated,
    with ``rope_theta`` and no scaling.
    """

    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    attention_size: int
    eps: float
    rope_theta: float
    qk_norm: bool = False

    def tensors(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Shape of each weight by its name in transformers, ``prefix`` before it; the norms of the layer's input are
        the caller's."""
        hidden, wide = self.hidden_size, self.intermediate_size
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "self_attn.q_proj.weight": (queries, self.attention_size),
            "self_attn.k_proj.weight": (keys, self.attention_size),
            "self_attn.v_proj.weight": (keys, self.attention_size),
            "self_attn.o_proj.weight": (hidden, queries),
            "post_attention_layernorm.weight": (hidden,),
            "mlp.gate_proj.weight": (wide, hidden),
            "mlp.up_proj.weight": (wide, hidden),
            "mlp.down_proj.weight": (hidden, wide),
        }
        if self.qk_norm:
            shapes |= {"self_attn.q_norm.weight": (self.head_dim,), "self_attn.k_norm.weight": (self.head_dim,)}
        return {prefix + name: shape for name, shape in shapes.items()}


@dataclass(frozen=True, slots=True)
class CachedRows:
    """One sequence's rows in a pass of a `DecoderLayer`: their K/V go to ``cache`` from slot ``past`` on.

    A row sees what ``mask`` [rows, past + rows] shows; ``None``, for a single row, shows all. ``positions`` are those
    of the rotation; in a tree they are not the slots.
    """

    cache: KvCache
    past: int
    positions: Sequence[int]
    mask: Tensor | None

    @classmethod
    def chain(cls, cache: KvCache, past: int, rows: int) -> CachedRows:
        """Rows that follow one another, each at the position of its slot."""
        block = None if rows == 1 else causal_block(rows, cache.keys.dtype, cache.keys.device)
        mask = None if block is None else lookback_mask(block, past)
        return cls(cache, past, range(past, past + rows), mask)


class DecoderLayer:
    """A drafter's only decoder layer: attention with K/V of its own, then a gated MLP, each added to the residual.

    What the attention reads is made and normed by the caller, so it may be wider than the residual (EAGLE-3).
    """

    def __init__(self, shape: LayerShape, weights: Mapping[str, Tensor], prefix: str) -> None:
        """``weights`` hold what `LayerShape.tensors` names."""
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        self.shape = shape
        self._qkv = project(torch.cat([weights[f"{attention}{part}_proj.weight"] for part in ("q", "k", "v")]))
        self._out = project(weights[f"{attention}o_proj.weight"])
        self._gate_up = project(torch.cat([weights[f"{mlp}{part}_proj.weight"] for part in ("gate", "up")]))
        self._down = project(weights[f"{mlp}down_proj.weight"])
        self._mlp_norm = weights[f"{prefix}post_attention_layernorm.weight"]
        self._qk_norm: Tensor | None = None
        if shape.qk_norm:
            q_norm, k_norm = weights[f"{attention}q_norm.weight"], weights[f"{attention}k_norm.weight"]
            self._qk_norm = torch.cat((q_norm.expand(shape.heads, -1), k_norm.expand(shape.kv_heads, -1)))
        self._rotary = self._turning(512)

    def new_cache(self, num_slots: int) -> KvCache:
        """Return a cache for one sequence of ``num_slots`` rows, whose positions this layer can rotate from now on."""
        if num_slots > self._rotary.max_positions:
            self._rotary = self._turning(max(num_slots, 2 * self._rotary.max_positions))
        kept = self._mlp_norm
        return KvCache(1, num_slots, self.shape.kv_heads, self.shape.head_dim, kept.dtype, kept.device)

    def __call__(self, normed: Tensor, residual: Tensor, rows: Sequence[CachedRows]) -> Tensor:
        """``normed`` [n, attention_size], ``residual`` [n, hidden], the rows of one sequence after another → [n,
        hidden]."""
        shape = self.shape
        turning = shape.heads + shape.kv_heads
        positions = torch.tensor([position for part in rows for position in part.positions], device=normed.device)
        qkv = self._qkv(normed).view(normed.shape[0], -1, shape.head_dim)
        turned = qkv[:, :turning]  # query heads, then key heads
        if self._qk_norm is not None:
            turned = rms_norm(turned, self._qk_norm, shape.eps)
        turned = Rotary.turn(turned, self._rotary.at(positions))
        made: list[Tensor] = []
        first = 0
        for part in rows:
            end, stop = first + len(part.positions), part.past + len(part.positions)
            keys, values = part.cache.keys[0], part.cache.values[0]
            keys[:, part.past : stop] = turned[first:end, shape.heads :].transpose(0, 1)
            values[:, part.past : stop] = qkv[first:end, turning:].transpose(0, 1)
            made.append(attend(turned[first:end, : shape.heads], keys[:, :stop], values[:, :stop], part.mask))
            first = end
        hidden = residual + self._out(torch.cat(made))
        gate, up = self._gate_up(rms_norm(hidden, self._mlp_norm, shape.eps)).chunk(2, dim=-1)
        return hidden + self._down(silu(gate).mul_(up))

    def _turning(self, positions: int) -> Rotary:
        kept, size = self._mlp_norm, self.shape.head_dim
        powers = torch.arange(0, size, 2, dtype=torch.float32, device=kept.device) / size
        return Rotary(torch.pow(self.shape.rope_theta, powers).reciprocal(), 1.0, positions, kept.dtype)
