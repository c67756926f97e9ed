"""The network that DFlash drafters share and what it keeps of each sequence (arXiv 2602.06036).

The target's features of all positions before the anchor are K/V of every layer, computed once and cached. A block
[anchor, mask, mask, …] attends to them and to itself, and one pass gives hidden states for all its positions. The
block's own K/V stands behind the context's and is overwritten by whatever comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from drafters.base import Commit, DraftRequest, Target
from drafters.dflash_config import DFlashConfig
from drafters.engine.kv_cache import KvCache
from drafters.engine.slots import Slots
from drafters.layers import Rotary, attend, rms_norm
from drafters.projections import Projection, project

__all__ = ["Around", "Backbone", "Sublayer", "rotary"]

Sublayer = Callable[[Tensor], Tensor]
Around = Callable[[Tensor, Sublayer], Tensor]
"""Applies a sublayer to its normed input [blocks · block_size, hidden], and what it likes before and after; the residual
is added to what it returns."""

# A block runs ahead of each sequence, and how many sequences there will be is not known: memory for one block is added for
# every so many tokens of the bound. Sequences that are shorter on average can leave one without room; it drafts nothing.
TOKENS_PER_BLOCK = 64
# Context rows worked on at a time. A prefix copied from another sequence comes whole, and its fused features would be as
# large as the prefix is long.
CHUNK = 512


def _bare(rows: Tensor, sublayer: Sublayer) -> Tensor:
    return sublayer(rows)


@dataclass(frozen=True, slots=True)
class _Layer:
    input_norm: Tensor  # [hidden]
    query: Projection  # hidden → heads · head_dim
    key_value: Projection  # hidden → 2 · kv_heads · head_dim, for the context and for the block
    query_norm: Tensor  # [head_dim]
    key_norm: Tensor  # [head_dim]
    out: Projection
    mlp_norm: Tensor  # [hidden]
    gate_up: Projection
    down: Projection
    around_attention: Around
    around_mlp: Around

    def mlp(self, rows: Tensor) -> Tensor:
        gate, up = self.gate_up(rows).chunk(2, dim=-1)
        return self.down(silu(gate) * up)


@dataclass(slots=True)
class _Context:
    """A sequence: its K/V of the first ``length`` positions stands from ``slot`` on; ``size`` slots are its own."""

    slot: int
    size: int
    length: int = 0


@dataclass(frozen=True, slots=True)
class _Pass:
    """What all layers of a pass share. ``sights``: for each kind of layer and each block the first slot it sees, the
    end, and the mask over them."""

    angles: tuple[Tensor, Tensor]
    slots: Tensor  # [blocks · block_size]
    sights: Mapping[tuple[int | None, bool], Sequence[tuple[int, int, Tensor | None]]]


class Backbone:
    """The network with its context cache, for many sequences at once.

    ``weights`` hold what `DFlashConfig.shapes` names, in the target's type and place.
    ``cache_tokens`` bounds the tokens of all sequences open at once. ``arounds`` wraps attention and MLP of each layer.
    """

    def __init__(
        self,
        config: DFlashConfig,
        weights: Mapping[str, Tensor],
        target: Target,
        cache_tokens: int,
        arounds: Sequence[tuple[Around, Around]] | None = None,
    ) -> None:
        self.config = config
        self.feature_layers = tuple(layer + 1 for layer in config.target_layer_ids)
        self.block_size = config.block_size
        self._target = target
        self._kinds = config.kinds()
        self._fuse = project(weights["fc.weight"])  # layers · hidden → hidden
        self._context_norm = weights["hidden_norm.weight"]
        self._final_norm = weights["norm.weight"]
        wraps: Sequence[tuple[Around, Around]] = arounds or [(_bare, _bare)] * config.num_layers
        self._layers = [_layer(weights, index, *wrap) for index, wrap in enumerate(wraps)]
        capacity = cache_tokens + self.block_size * (1 + cache_tokens // TOKENS_PER_BLOCK)
        self._rotary = rotary(config, capacity, target.dtype, target.device)
        self._slots = Slots(capacity)
        self.cache = KvCache(
            config.num_layers, capacity, config.num_kv_heads, config.head_dim, target.dtype, target.device
        )
        self._contexts: dict[int, _Context] = {}

    def open(self, sequence_id: int, max_length: int) -> None:
        """Reserve room for a sequence and one block; without room it will draft nothing, since features come only
        once."""
        size = max_length + self.block_size
        slot = self._slots.reserve(size)
        if slot is not None:
            self._contexts[sequence_id] = _Context(slot, size)

    def commit(self, commits: Sequence[Commit]) -> None:
        """Append the K/V of the positions whose features have come. The block of the last draft needs no other
        rollback: its K/V stood behind the context."""
        features: list[Tensor] = []
        positions: list[int] = []
        slots: list[int] = []
        for commit in commits:
            context = self._contexts.get(commit.sequence_id)
            if context is None or commit.features is None:
                continue
            end = commit.position + len(commit.token_ids) - 1  # the last token has no feature yet
            start = end - len(commit.features)
            if start != context.length:
                raise ValueError(f"features from position {start} on given; {context.length} is the next one")
            features.append(commit.features)
            positions.extend(range(start, end))
            slots.extend(range(context.slot + start, context.slot + end))
            context.length = end
        if positions:
            device = self._target.device
            parts = (torch.cat(features), torch.tensor(positions, device=device), torch.tensor(slots, device=device))
            for some in zip(*(torch.split(part, CHUNK) for part in parts), strict=True):
                self._remember(*some)

    def release(self, sequence_id: int) -> None:
        """Give back the sequence's room; unknown ids are ignored."""
        context = self._contexts.pop(sequence_id, None)
        if context is not None:
            self._slots.release(context.slot, context.size)

    def blocks(self, requests: Sequence[DraftRequest]) -> tuple[list[int], Tensor]:
        """Run the blocks of all requests in one pass.

        Returns the indices of the requests that can draft, and their hidden states after the final norm [those,
        block_size, hidden]; offset 0 is the anchor.
        """
        going = [
            index
            for index, request in enumerate(requests)
            if request.num_tokens > 0 and request.sequence_id in self._contexts
        ]
        contexts = [self._contexts[requests[index].sequence_id] for index in going]
        for index, context in zip(going, contexts, strict=True):
            if context.length != len(requests[index].token_ids) - 1:
                raise ValueError(
                    f"{len(requests[index].token_ids)} tokens with {context.length} features; "
                    "commit all but the last token's before asking for a draft"
                )
        masks = [self.config.mask_token_id] * (self.block_size - 1)
        tokens = [token for index in going for token in (requests[index].token_ids[-1], *masks)]
        if not going:
            return going, torch.zeros((0, self.block_size, self.config.hidden_size), dtype=self._target.dtype)
        embeddings = self._target.embed(torch.tensor(tokens, device=self._target.device))
        hidden = self._run(embeddings, contexts)
        return going, hidden.view(len(going), self.block_size, -1)

    @torch.inference_mode()
    def _remember(self, features: Tensor, positions: Tensor, slots: Tensor) -> None:
        """``features`` [n, layers, hidden] become K/V of every layer at ``slots`` [n]."""
        rows = self._norm(self._fuse(features.flatten(1)), self._context_norm)  # [n, hidden]
        angles = self._rotary.at(positions)
        for index, layer in enumerate(self._layers):
            self._store(index, layer, rows, angles, slots)

    @torch.inference_mode()
    def _run(self, embeddings: Tensor, contexts: Sequence[_Context]) -> Tensor:
        """[blocks · block_size, hidden] → the same, after the final norm."""
        device = embeddings.device
        offsets = torch.arange(self.block_size, device=device)
        lengths = torch.tensor([context.length for context in contexts], device=device).unsqueeze(1)
        starts = torch.tensor([context.slot for context in contexts], device=device).unsqueeze(1)
        positions = (lengths + offsets).flatten()
        sights = {kind: [self._sight(context, *kind) for context in contexts] for kind in set(self._kinds)}
        shared = _Pass(self._rotary.at(positions), (starts + lengths + offsets).flatten(), sights)
        hidden = embeddings
        for index, layer in enumerate(self._layers):
            attention = partial(self._attention, index, layer, shared)
            hidden = hidden + layer.around_attention(self._norm(hidden, layer.input_norm), attention)
            hidden = hidden + layer.around_mlp(self._norm(hidden, layer.mlp_norm), layer.mlp)
        return self._norm(hidden, self._final_norm)

    def _attention(self, index: int, layer: _Layer, shared: _Pass, rows: Tensor) -> Tensor:
        self._store(index, layer, rows, shared.angles, shared.slots)
        query = layer.query(rows).view(len(rows), self.config.num_heads, self.config.head_dim)
        query = Rotary.turn(self._norm(query, layer.query_norm), shared.angles)
        keys, values = self.cache.keys[index], self.cache.values[index]
        size = self.block_size
        made = [
            attend(query[block * size : (block + 1) * size], keys[:, first:end], values[:, first:end], mask)
            for block, (first, end, mask) in enumerate(shared.sights[self._kinds[index]])
        ]
        return layer.out(torch.cat(made))

    def _store(self, index: int, layer: _Layer, rows: Tensor, angles: tuple[Tensor, Tensor], slots: Tensor) -> None:
        """Write one layer's K/V of ``rows`` [n, hidden], of the context or of blocks."""
        made = layer.key_value(rows).view(len(rows), 2, self.config.num_kv_heads, self.config.head_dim)
        keys = Rotary.turn(self._norm(made[:, 0], layer.key_norm), angles)
        self.cache.write(index, slots, keys, made[:, 1])

    def _sight(self, context: _Context, window: int | None, causal: bool) -> tuple[int, int, Tensor | None]:
        """First slot, end and mask [block_size, end - first] of what a block sees; ``None`` where that is all of it."""
        length, end = context.length, context.length + self.block_size
        first = 0 if window is None else max(0, length - window + 1)
        mask: Tensor | None = None
        if causal or (window is not None and end > window):
            device = self._target.device
            row = torch.arange(length, end, device=device).unsqueeze(1)
            column = torch.arange(first, end, device=device)
            hidden = torch.zeros((self.block_size, end - first), dtype=torch.bool, device=device)
            if window is not None:
                hidden |= (row - column).abs() >= window
            if causal:
                hidden |= column > row
            mask = torch.zeros(hidden.shape, dtype=self._target.dtype, device=device)
            mask.masked_fill_(hidden, float("-inf"))
        return context.slot + first, context.slot + end, mask

    def _norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(rows, weight, self.config.rms_norm_eps)


def _layer(weights: Mapping[str, Tensor], index: int, around_attention: Around, around_mlp: Around) -> _Layer:
    def get(name: str) -> Tensor:
        return weights[f"layers.{index}.{name}.weight"]

    return _Layer(
        input_norm=get("input_layernorm"),
        query=project(get("self_attn.q_proj")),
        key_value=project(torch.cat((get("self_attn.k_proj"), get("self_attn.v_proj")))),
        query_norm=get("self_attn.q_norm"),
        key_norm=get("self_attn.k_norm"),
        out=project(get("self_attn.o_proj")),
        mlp_norm=get("post_attention_layernorm"),
        gate_up=project(torch.cat((get("mlp.gate_proj"), get("mlp.up_proj")))),
        down=project(get("mlp.down_proj")),
        around_attention=around_attention,
        around_mlp=around_mlp,
    )


def rotary(config: DFlashConfig, positions: int, dtype: torch.dtype, device: torch.device) -> Rotary:
    """Angles of the first ``positions`` positions as transformers computes them for Qwen3, whatever the rope type."""
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    fields: dict[str, Any] = {
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_parameters": dict(config.rope),
    }
    made: Any = Qwen3RotaryEmbedding(Qwen3Config(**fields))
    return Rotary(made.inv_freq.to(device), made.attention_scaling, positions, dtype)
