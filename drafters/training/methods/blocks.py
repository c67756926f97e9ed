"""The decoder layer of `drafters.layers` once more, with gradients: the layer that MTP and EAGLE-3 train.

Same names, same numbers. The difference is what it runs on: rows of a batch side by side instead of ragged caches, and
keys of two kinds, those of the text and those of each chain of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from torch.utils.checkpoint import checkpoint

from drafters.layers import LayerShape, Rotary

__all__ = ["Norm", "PairBlock", "draw", "layer_config", "load_module", "shape_settings", "wide"]

ACCURATE = (torch.float32, torch.float64)


def wide(values: Tensor) -> Tensor:
    """In float32, or in float64 where it is that: what sums and exponentials are made in."""
    return values if values.dtype in ACCURATE else values.float()


class Norm(nn.Module):
    """Root-mean-square norm over the last dimension, times a weight that begins at 1."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, rows: Tensor) -> Tensor:
        """[..., size] → the same, in the type of the rows."""
        exact = wide(rows)
        scale = (exact.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (exact * scale * self.weight).to(rows.dtype)


@dataclass(frozen=True, slots=True)
class KeysValues:
    """Keys, turned by their positions, and values: each [rows, n, kv_heads, head_dim]."""

    keys: Tensor
    values: Tensor


class PairBlock(nn.Module):
    """Attention over the text's pairs and a chain of drafted ones, then a gated MLP.

    Its parameters have the names of the published layers. ``input_norms`` are norms of the hidden size that belong to
    the layer by name and are applied by the caller.
    """

    def __init__(self, shape: LayerShape, input_norms: Sequence[str]) -> None:
        super().__init__()
        self.shape = shape
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        hidden, inner = shape.hidden_size, shape.intermediate_size
        attention: dict[str, nn.Module] = {
            "q_proj": nn.Linear(shape.attention_size, queries, bias=False),
            "k_proj": nn.Linear(shape.attention_size, keys, bias=False),
            "v_proj": nn.Linear(shape.attention_size, keys, bias=False),
            "o_proj": nn.Linear(queries, hidden, bias=False),
        }
        if shape.qk_norm:
            attention |= {"q_norm": Norm(shape.head_dim, shape.eps), "k_norm": Norm(shape.head_dim, shape.eps)}
        self.self_attn = nn.ModuleDict(attention)
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(hidden, inner, bias=False),
                "up_proj": nn.Linear(hidden, inner, bias=False),
                "down_proj": nn.Linear(inner, hidden, bias=False),
            }
        )
        self.post_attention_layernorm = Norm(hidden, shape.eps)
        for name in input_norms:
            self.add_module(name, Norm(hidden, shape.eps))
        self._rotary: tuple[Rotary, tuple[torch.dtype, torch.device]] | None = None

    def keys_values(self, normed: Tensor, positions: Tensor) -> KeysValues:
        """Of ``normed`` [rows, n, attention_size] at ``positions`` [rows, n]."""
        key = self._headed(self.self_attn["k_proj"](normed), "k_norm")
        value = self._headed(self.self_attn["v_proj"](normed), None)
        return KeysValues(self._turned(key, positions), value)

    def forward(
        self,
        normed: Tensor,
        residual: Tensor,
        positions: Tensor,
        context: KeysValues,
        seen: Tensor,
        chain: Sequence[KeysValues],
    ) -> Tensor:
        """One step of all chains.

        ``normed`` [rows, chains, attention_size], ``residual`` [rows, chains, hidden], ``positions`` [rows, chains].
        ``context`` are the text's pairs, of which each chain sees what ``seen`` [rows, chains, pairs] says; ``chain``
        the pairs of the steps so far, of which each chain sees its own. Returns [rows, chains, hidden].
        """
        query = self._turned(self._headed(self.self_attn["q_proj"](normed), "q_norm"), positions)
        parts = [context.keys, context.values, *(part for own in chain for part in (own.keys, own.values))]
        # Scores take rows · heads · chains · pairs; made again on the way back, only one step's are held at a time.
        attended: Tensor
        if torch.is_grad_enabled():
            attended = checkpoint(_attend, query, seen, *parts, use_reentrant=False, preserve_rng_state=False)
        else:
            attended = _attend(query, seen, *parts)
        hidden: Tensor = residual + self.self_attn["o_proj"](attended)
        inner = self.post_attention_layernorm(hidden)
        gated = silu(self.mlp["gate_proj"](inner)) * self.mlp["up_proj"](inner)
        made: Tensor = hidden + self.mlp["down_proj"](gated)
        return made

    def _headed(self, flat: Tensor, norm: str | None) -> Tensor:
        size = self.shape.head_dim
        heads = flat.view(*flat.shape[:-1], flat.shape[-1] // size, size)
        made: Tensor = heads if norm is None or not self.shape.qk_norm else self.self_attn[norm](heads)
        return made

    def _turned(self, heads: Tensor, positions: Tensor) -> Tensor:
        """[rows, n, heads, head_dim], turned by the same angles as in `drafters.layers.DecoderLayer`."""
        dtype = wide(heads).dtype
        last = int(positions.max()) + 1 if positions.numel() else 1
        kept = self._rotary
        if kept is None or kept[1] != (dtype, heads.device) or kept[0].max_positions < last:
            with torch.inference_mode(False):  # made while evaluating, the tables must serve training too
                powers = torch.arange(0, self.shape.head_dim, 2, dtype=torch.float32, device=heads.device)
                turning = torch.pow(self.shape.rope_theta, powers / self.shape.head_dim).reciprocal()
                kept = self._rotary = Rotary(turning, 1.0, max(512, 2 * last), dtype), (dtype, heads.device)
        cos, sin = kept[0].at(positions)  # each [rows, 1, n, head_dim]
        return Rotary.turn(wide(heads), (cos.transpose(1, 2), sin.transpose(1, 2))).to(heads.dtype)


def _attend(query: Tensor, seen: Tensor, *parts: Tensor) -> Tensor:
    """``query`` [rows, chains, heads, head_dim]; ``parts`` are the context's keys and values, then those of each earlier
    step of the chains → [rows, chains, heads · head_dim]."""
    rows, chains, heads, size = query.shape
    kv_heads = parts[0].shape[2]
    grouped = query.view(rows, chains, kv_heads, heads // kv_heads, size) * size**-0.5
    scores = [torch.einsum("rckgd,rpkd->rkgcp", grouped, parts[0]).masked_fill(~seen[:, None, None], float("-inf"))]
    own = [torch.einsum("rckgd,rckd->rkgc", grouped, keys) for keys in parts[2::2]]
    scores += [score.unsqueeze(-1) for score in own]
    weights = wide(torch.cat(scores, dim=-1)).softmax(-1).to(query.dtype)
    pairs = seen.shape[-1]
    made = torch.einsum("rkgcp,rpkd->rckgd", weights[..., :pairs], parts[1])
    for index, values in enumerate(parts[3::2]):
        share = weights[..., pairs + index].permute(0, 3, 1, 2).unsqueeze(-1)  # [rows, chains, kv_heads, group, 1]
        made = made + share * values.unsqueeze(3)
    return made.reshape(rows, chains, heads * size)


def draw(module: nn.Module, seed: int) -> None:
    """Fresh weights in place, the same for one seed: matrices of variance 1 / inputs, norms 1; what is added to a
    residual begins small."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
                continue
            small = 0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
            parameter.copy_(small * torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5)


def load_module(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put a checkpoint's tensors into a module whose parameters bear the same names; the shapes have been checked."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(tensors[name])


def layer_config(config: Mapping[str, Any], **sizes: float | None) -> dict[str, Any]:
    """A drafter's configuration with those sizes that are given in the place of the usual ones."""
    return {**config, **{name: value for name, value in sizes.items() if value is not None}}


def shape_settings(layer: nn.Module) -> dict[str, Any]:
    """A layer's sizes by the names of the settings that fresh weights take them from."""
    assert isinstance(layer, PairBlock)
    shape = layer.shape
    return {
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rope_theta": shape.rope_theta,
    }
