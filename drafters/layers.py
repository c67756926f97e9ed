"""Blocks of a decoder that the target and the neural drafters share: projections, rotary positions, grouped attention.

Rows are flat: all tokens of all sequences of a pass stand in one dimension, so ragged lengths need no padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention

__all__ = [
    "Dense",
    "Packed",
    "Projection",
    "Rotary",
    "attend",
    "causal_block",
    "lookback_mask",
    "project",
    "tree_block",
]

# Up to this many query rows the heads of a group are folded into the rows, which spares expanding K/V; beyond it the folded
# mask (rows × group × context) would be the larger cost.
FOLDED_ROWS = 32


class Projection(Protocol):
    """A linear map over the last dimension: dense, quantized or in a layout of its own."""

    def __call__(self, rows: Tensor) -> Tensor:
        """[n, in] → [n, out]."""
        ...


class Dense:
    """Weights as they are: ``weight`` [out, in], ``bias`` [out] or None."""

    __slots__ = ("bias", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, rows: Tensor) -> Tensor:
        """[n, in] → [n, out]."""
        return linear(rows, self.weight, self.bias)


class Packed:
    """Weights in the blocked layout of oneDNN, for CPUs.

    With weights as they are, 2 to 16 rows cost torch's CPU product twice the time of one row; in this layout they cost
    about the same, which is what verification lives on. The values are those of `Dense` up to the order of summation.
    """

    __slots__ = ("_bias", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        # The number of rows is a hint to the choice of the layout only; any number may be multiplied.
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 8)
        self._bias = bias

    def __call__(self, rows: Tensor) -> Tensor:
        """[n, in] → [n, out]."""
        made: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return made

    @staticmethod
    def suits(weight: Tensor) -> bool:
        """Whether this build of torch can pack weights of this type and place."""
        return (
            weight.device.type == "cpu"
            and weight.dtype in (torch.float32, torch.bfloat16)
            and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        )


def project(weight: Tensor, bias: Tensor | None = None) -> Projection:
    """Return the fastest projection for ``weight`` [out, in] where it is."""
    return Packed(weight, bias) if Packed.suits(weight) else Dense(weight, bias)


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


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Grouped-query attention of one sequence.

    ``query`` [rows, heads, head_dim]; ``key`` and ``value`` [length, kv_heads, head_dim], views of a cache as a rule;
    ``mask`` [rows, length] is added to the scores, ``None`` lets every row see everything. Returns [rows, heads ·
    head_dim].
    """
    rows, heads, head_dim = query.shape
    kv_heads = key.shape[1]
    keys, values = (
        key.transpose(0, 1).unsqueeze(0),
        value.transpose(0, 1).unsqueeze(0),
    )  # [1, kv_heads, length, head_dim]
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
