"""The DFlash network as a module with gradients: many blocks of many sequences in one packed pass.

The twin of `drafters.dflash_backbone`, which runs a block a sequence over cached K/V. Parameters carry the published
names, so ``state_dict`` is the checkpoint's tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

from drafters.checkpoint import Shapes
from drafters.dflash_backbone import Sublayer, rotary
from drafters.dflash_config import DFlashConfig
from drafters.layers import Rotary

__all__ = ["DFlashNetwork", "filled", "fresh", "sight"]

Wrap = Callable[[], nn.Module]
"""Makes what stands around a sublayer: called with (normed rows, sublayer), it returns what is added to the residual."""
_Angles = tuple[Tensor, Tensor]


class RmsNorm(nn.Module):
    """Root-mean-square norm over the last dimension in the type of its weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, rows: Tensor) -> Tensor:
        """[..., size] → the same."""
        rows = rows.to(self.weight.dtype)
        return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + self.eps) * self.weight


class _Attention(nn.Module):
    """Queries of the blocks over keys and values of context and blocks."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        hidden, heads, kv_heads, size = config.hidden_size, config.num_heads, config.num_kv_heads, config.head_dim
        self.q_proj = nn.Linear(hidden, heads * size, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * size, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * size, bias=False)
        self.o_proj = nn.Linear(heads * size, hidden, bias=False)
        self.q_norm, self.k_norm = RmsNorm(size, config.rms_norm_eps), RmsNorm(size, config.rms_norm_eps)
        self._head_dim = size

    def forward(self, blocks: Tensor, context: Tensor, angles: tuple[_Angles, _Angles], mask: Tensor) -> Tensor:
        """``blocks`` [rows, positions, hidden], ``context`` [rows, length, hidden], ``angles`` of both in that order,
        ``mask`` [rows, 1, positions, length + positions] true where a query sees a key; returns the shape of
        ``blocks``."""
        own, before = angles
        both = torch.cat((context, blocks), dim=1)
        values = self.v_proj(both).unflatten(-1, (-1, self._head_dim))  # [rows, all, kv_heads, head_dim]
        normed = self.k_norm(self.k_proj(both).unflatten(-1, (-1, self._head_dim)))
        length = context.shape[1]
        keys = torch.cat((_turned(normed[:, :length], before), _turned(normed[:, length:], own)), dim=1)
        queries = _turned(self.q_norm(self.q_proj(blocks).unflatten(-1, (-1, self._head_dim))), own)
        out = scaled_dot_product_attention(
            queries.transpose(1, 2),
            keys.transpose(1, 2),
            values.to(keys.dtype).transpose(1, 2),
            attn_mask=mask,
            enable_gqa=queries.shape[2] != keys.shape[2],
        )
        projected: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return projected


class _Mlp(nn.Module):
    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        made: Tensor = self.down_proj(silu(self.gate_proj(rows)) * self.up_proj(rows))
        return made


class _Layer(nn.Module):
    def __init__(self, config: DFlashConfig, wrap: Wrap | None) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = _Attention(config)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = _Mlp(config)
        self.attention_conv = None if wrap is None else wrap()
        self.mlp_conv = None if wrap is None else wrap()

    def forward(self, rows: Tensor, context: Tensor, angles: tuple[_Angles, _Angles], mask: Tensor) -> Tensor:
        def attention(normed: Tensor) -> Tensor:
            made: Tensor = self.self_attn(normed, context, angles, mask)
            return made

        rows = rows + _around(self.attention_conv, self.input_layernorm(rows), attention)
        return rows + _around(self.mlp_conv, self.post_attention_layernorm(rows), self.mlp)


class DFlashNetwork(nn.Module):
    """All layers; ``wrap``, called twice a layer, makes what stands around attention and MLP (DFlash 2)."""

    def __init__(self, config: DFlashConfig, wrap: Wrap | None = None) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(len(config.target_layer_ids) * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.layers = nn.ModuleList(_Layer(config, wrap) for _ in range(config.num_layers))
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self._rotary: dict[tuple[torch.dtype, torch.device], Rotary] = {}

    def forward(self, features: Tensor, anchors: Tensor, embeddings: Tensor) -> Tensor:
        """Run blocks that each see their row's context before their anchor, and themselves.

        ``features`` [rows, length, layers, hidden] from position 0 on, ``anchors`` [rows, blocks] positions within the
        length, ``embeddings`` [rows, blocks, block_size, hidden] of anchor and masks. Returns hidden states after the
        final norm, of the shape of ``embeddings``.
        """
        rows, blocks, size, hidden = embeddings.shape
        dtype = self.norm.weight.dtype
        context = self.hidden_norm(self.fc(features.to(dtype).flatten(2)))  # once for all layers
        length = context.shape[1]
        positions = (anchors.unsqueeze(2) + torch.arange(size, device=anchors.device)).view(rows, -1)
        angles = self._angles(length + size, dtype, context.device)
        before = angles.at(torch.arange(length, device=context.device).expand(rows, -1).flatten())
        own = angles.at(positions.flatten())
        masks = {kind: sight(anchors, length, size, *kind) for kind in set(self.config.kinds())}
        states = embeddings.to(dtype).reshape(rows, blocks * size, hidden)
        for layer, kind in zip(self.layers, self.config.kinds(), strict=True):
            states = layer(states, context, (own, before), masks[kind])
        normed: Tensor = self.norm(states)
        return normed.view(embeddings.shape)

    def _angles(self, positions: int, dtype: torch.dtype, device: torch.device) -> Rotary:
        kept = self._rotary.get((dtype, device))
        if kept is None or kept.max_positions < positions:
            kept = self._rotary[dtype, device] = rotary(self.config, max(512, 2 * positions), dtype, device)
        return kept


def sight(anchors: Tensor, length: int, size: int, window: int | None = None, causal: bool = False) -> Tensor:
    """Mask [rows, 1, blocks · size, length + blocks · size], true where a query sees a key.

    A block at ``anchors`` [rows, blocks] sees the positions of the context before its anchor — the anchor's own feature
    does not exist yet when the engine drafts — and itself, nothing of other blocks. ``window`` and ``causal`` as in
    `DFlashConfig.kinds`.
    """
    rows, blocks = anchors.shape
    device = anchors.device
    offsets = torch.arange(size, device=device)
    column = torch.arange(length, device=device)
    before = (column < anchors.view(rows, blocks, 1, 1)).expand(rows, blocks, size, length)
    own = torch.ones((size, size), dtype=torch.bool, device=device)
    if causal:
        own = own.tril()
    if window is not None:
        position = (anchors.unsqueeze(2) + offsets).unsqueeze(3)  # [rows, blocks, size, 1]
        before = before & (position - column < window)
        own = own & ((offsets.unsqueeze(1) - offsets).abs() < window)
    same = torch.eye(blocks, dtype=torch.bool, device=device).view(blocks, 1, blocks, 1)
    among = (same & own.view(1, size, 1, size)).view(blocks * size, blocks * size)
    return torch.cat((before.reshape(rows, blocks * size, length), among.expand(rows, -1, -1)), dim=2).unsqueeze(1)


def fresh(shapes: Shapes, num_layers: int, seed: int) -> dict[str, Tensor]:
    """Weights to start training from, float32: norms 1, matrices of variance 1 / inputs, what is added to the residual
    smaller with the number of additions."""
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            made[name] = torch.ones(shape)
            continue
        scale = shape[-1] ** -0.5
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            scale *= (2 * num_layers) ** -0.5
        made[name] = scale * torch.randn(shape, generator=generator)
    return made


def filled(build: Callable[[], nn.Module], tensors: Mapping[str, Tensor]) -> Any:
    """The module that ``build`` makes, with these tensors as its parameters; nothing is drawn on the way."""
    with torch.device("meta"):
        module = build()
    module.load_state_dict(dict(tensors), strict=True, assign=True)
    return module


def _around(wrap: nn.Module | None, normed: Tensor, sublayer: Sublayer) -> Tensor:
    made: Tensor = sublayer(normed) if wrap is None else wrap(normed, sublayer)
    return made


def _turned(heads: Tensor, angles: _Angles) -> Tensor:
    """``heads`` [rows, positions, heads, head_dim], ``angles`` of rows · positions."""
    return Rotary.turn(heads.flatten(0, 1), angles).view(heads.shape)
