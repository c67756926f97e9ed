"""The target's forward pass: Llama, Qwen2, Qwen3 and Qwen3-MoE from a local Hugging Face folder.

transformers reads the configuration and the weights and is the reference every family is tested against; the pass
itself is this project's own: fused projections, flat ragged rows, K/V written once into a preallocated cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from drafters.engine.kv_cache import KvCache
from drafters.engine.mlp import Experts, GatedMlp
from drafters.layers import Rotary, attend, causal_block, lookback_mask, rms_norm, tree_block
from drafters.projections import Int4, Packed, Projection, project
from drafters.quantization import NF4_BLOCK, RTN4_GROUP, Weights

__all__ = ["Batch", "DecoderModel", "Output", "Span", "TargetError"]

FAMILIES = ("llama", "qwen2", "qwen3", "qwen3_moe")
SCHEMES = {"rtn4": f"4-bit round-to-nearest in groups of {RTN4_GROUP}", "nf4": f"NF4 in blocks of {NF4_BLOCK}"}


class TargetError(ValueError):
    """The folder holds no model that this engine can run; the message says which are allowed."""


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence's rows in a pass: ``token_ids`` follow ``past`` tokens whose K/V stands from slot ``slot`` on.

    With ``parents`` the first row is the last committed token and the others are a tree below it (`Draft.parents`).
    ``logit_rows`` tells for how many of the last rows logits are wanted.
    """

    slot: int
    past: int
    token_ids: Sequence[int]
    logit_rows: int
    parents: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """``logits`` [wanted rows, vocab], span after span; ``features`` [all rows, layers, hidden] or None."""

    logits: Tensor
    features: Tensor | None


class Batch:
    """The tensors of a pass, built once from its spans and shared by all layers."""

    def __init__(self, spans: Sequence[Span], dtype: torch.dtype, device: torch.device) -> None:
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        wanted: list[int] = []
        self.pieces: list[
            tuple[int, int, int, int, Tensor | None]
        ] = []  # first row, end row, first slot, end slot, mask
        for span in spans:
            rows, first = len(span.token_ids), len(tokens)
            tokens.extend(span.token_ids)
            slots.extend(range(span.slot + span.past, span.slot + span.past + rows))
            if span.parents is None:
                positions.extend(range(span.past, span.past + rows))
                block = None if rows == 1 else causal_block(rows, dtype, device)
            else:
                depths = [0]
                for parent in span.parents:
                    depths.append(depths[parent + 1] + 1)
                positions.extend(span.past + depth for depth in depths)
                block = tree_block(span.parents, dtype, device)
            wanted.extend(range(first + rows - span.logit_rows, first + rows))
            mask = None if block is None else lookback_mask(block, span.past)
            self.pieces.append((first, first + rows, span.slot, span.slot + span.past + rows, mask))
        self.last_position = max(positions)
        self.token_ids = torch.tensor(tokens, device=device)
        self.positions = torch.tensor(positions, device=device)
        self.slots = torch.tensor(slots, device=device)
        self.wanted = None if len(wanted) == len(tokens) else torch.tensor(wanted, dtype=torch.long, device=device)


@dataclass(frozen=True, slots=True)
class _Layer:
    input_norm: Tensor  # [hidden]
    qkv: Projection  # hidden → (heads + 2 · kv_heads) · head_dim
    qk_norm: Tensor | None  # [heads + kv_heads, head_dim]
    out: Projection
    mlp_norm: Tensor  # [hidden]
    mlp: Projection

    @property
    def projections(self) -> list[Projection]:
        """All that quantization may change, each expert's included."""
        mlps = self.mlp.experts if isinstance(self.mlp, Experts) else (self.mlp,)
        inner = [part for mlp in mlps for part in ((mlp.gate_up, mlp.down) if isinstance(mlp, GatedMlp) else (mlp,))]
        return [self.qkv, self.out, *inner]

    @property
    def weight_bytes(self) -> int:
        norms = [norm.nbytes for norm in (self.input_norm, self.qk_norm, self.mlp_norm) if norm is not None]
        return sum(norms) + sum(part.weight_bytes for part in (self.qkv, self.out, self.mlp))


class DecoderModel:
    """A causal language model that runs flat ragged batches against a `KvCache`. Satisfies `drafters.base.Target`.

    ``max_positions`` bounds a sequence's length in tokens; the model's own limit by default. ``weights`` says how the
    projections of the layers are held, experts included. Embeddings, norms, biases, the router of a mixture and the
    head stay plain, as usual in deployed 4-bit models: they are small or sensitive, or both.
    """

    def __init__(
        self, model: Any, max_positions: int | None = None, consume: bool = False, weights: Weights = "plain"
    ) -> None:
        """Take the weights of a transformers model; ``consume`` frees its layers one by one while they are fused."""
        if weights not in get_args(Weights):
            raise TargetError(f"weights {weights!r} given; allowed: {', '.join(get_args(Weights))}")
        config = model.config
        _check(config)
        self.config = config
        self.folder: Path | None = None
        self._weights: Weights = weights
        self.embedding: Tensor = model.model.embed_tokens.weight.detach()  # [vocab, hidden]
        self.lm_head: Projection = project(model.lm_head.weight.detach())
        self.final_norm: Tensor = model.model.norm.weight.detach()
        self.eps: float = config.rms_norm_eps
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        limit = min(max_positions or config.max_position_embeddings, config.max_position_embeddings)
        rotary = model.model.rotary_emb
        if 2 * rotary.inv_freq.shape[0] != self.head_dim:
            raise TargetError(
                f"{2 * rotary.inv_freq.shape[0]} of {self.head_dim} dimensions a head are rotated; "
                "this engine runs models that rotate all"
            )
        self.rotary = Rotary(rotary.inv_freq, rotary.attention_scaling, limit, self.embedding.dtype)
        self.layers: list[_Layer] = []
        for index in range(config.num_hidden_layers):
            self.layers.append(self._fuse(model.model.layers[index]))
            if consume:
                model.model.layers[index] = nn.Identity()

    @classmethod
    def load(
        cls,
        folder: Path | str,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        max_positions: int | None = None,
        weights: Weights = "plain",
    ) -> DecoderModel:
        """Read a local folder of plain weights and quantize them if ``weights`` says so.

        Raises TargetError when it is missing, is no model folder or holds another family.
        """
        from safetensors import SafetensorError
        from transformers import AutoConfig, AutoModelForCausalLM

        if not (Path(folder) / "config.json").is_file():
            raise TargetError(f"{folder} holds no config.json; give a local Hugging Face model folder")
        loader: Any = AutoModelForCausalLM
        try:
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise TargetError(
                f"{folder}/config.json cannot be used ({_first_line(error)}); get the model again"
            ) from error
        _check(config)
        try:
            model, told = loader.from_pretrained(folder, dtype=dtype, local_files_only=True, output_loading_info=True)
        except (OSError, RuntimeError, ValueError, SafetensorError) as error:
            raise TargetError(f"{folder} cannot be loaded ({_first_line(error)}); get the model again") from error
        if missing := sorted(told["missing_keys"]):  # transformers would leave them at random values
            raise TargetError(
                f"the weights in {folder} lack {missing[0]} and {len(missing) - 1} more; get the model again"
            )
        made = cls(model.to(device).eval(), max_positions, consume=True, weights=weights)
        made.folder = Path(folder)
        return made

    def _fuse(self, layer: Any) -> _Layer:
        way = self._weights
        attention, mlp = layer.self_attn, layer.mlp
        qk_norm = None
        if hasattr(attention, "q_norm"):
            q_norm, k_norm = attention.q_norm.weight.detach(), attention.k_norm.weight.detach()
            qk_norm = torch.cat((q_norm.expand(self.heads, -1), k_norm.expand(self.kv_heads, -1)))
        feed_forward: Projection
        if hasattr(mlp, "experts"):
            gate_up, down = mlp.experts.gate_up_proj.detach(), mlp.experts.down_proj.detach()
            experts = tuple(
                GatedMlp(project(up, weights=way), project(out, weights=way))
                for up, out in zip(gate_up, down, strict=True)
            )
            feed_forward = Experts(mlp.gate.weight.detach(), experts, mlp.gate.top_k, mlp.gate.norm_topk_prob)
        else:
            feed_forward = GatedMlp(_fused(way, mlp.gate_proj, mlp.up_proj), _fused(way, mlp.down_proj))
        return _Layer(
            layer.input_layernorm.weight.detach(),
            _fused(way, attention.q_proj, attention.k_proj, attention.v_proj),
            qk_norm,
            _fused(way, attention.o_proj),
            layer.post_attention_layernorm.weight.detach(),
            feed_forward,
        )

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding and width of the logits."""
        return self.embedding.shape[0]

    @property
    def hidden_size(self) -> int:
        """Width of a hidden state."""
        return self.embedding.shape[1]

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return len(self.layers)

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights, K/V and hidden states."""
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.device

    @property
    def weight_bytes(self) -> int:
        """What one decoding step of one sequence must read of the weights, in bytes, as they are held.

        One row of the embedding and, of a mixture, the experts that one token visits.
        """
        ends = self.embedding[0].nbytes + self.final_norm.nbytes + self.lm_head.weight_bytes
        return ends + sum(layer.weight_bytes for layer in self.layers)

    @property
    def storage(self) -> str:
        """How the weights are held, in words."""
        plain = str(self.dtype).removeprefix("torch.")
        held = f"{plain}, packed for oneDNN" if isinstance(self.lm_head, Packed) else plain
        if self._weights == "plain":
            return held
        parts = [part for layer in self.layers for part in layer.projections]
        packed = sum(isinstance(part, Int4) for part in parts)
        if packed == len(parts):
            place = "packed for an int4 product"
        elif packed:
            place = f"{packed} of {len(parts)} projections packed for an int4 product, the others dequantized to {held}"
        else:
            place = f"dequantized to {held}"
        return f"{SCHEMES[self._weights]}, {place}; embeddings, norms and head plain"

    @property
    def max_positions(self) -> int:
        """Longest sequence in tokens."""
        return self.rotary.max_positions

    def new_cache(self, num_slots: int, num_feature_layers: int = 0) -> KvCache:
        """Return a cache of ``num_slots`` tokens that fits this model."""
        shape = (num_feature_layers, self.hidden_size) if num_feature_layers else None
        return KvCache(self.num_layers, num_slots, self.kv_heads, self.head_dim, self.dtype, self.device, shape)

    def embed(self, token_ids: Tensor) -> Tensor:
        """[n] → [n, hidden]."""
        return embedding(token_ids, self.embedding)

    def head(self, hidden: Tensor) -> Tensor:
        """[n, hidden], after the final norm → [n, vocab]."""
        return self.lm_head(hidden)

    @torch.inference_mode()
    def forward(self, spans: Sequence[Span], cache: KvCache, feature_layers: Sequence[int] = ()) -> Output:
        """Run all rows of all spans, write their K/V, and return logits for the rows that want them.

        ``feature_layers`` index transformers' ``hidden_states``: 0 the embeddings, i the output of layer i (from 1),
        the last one after the final norm. Raises ValueError when a row lies beyond ``max_positions``.
        """
        batch = Batch(spans, self.dtype, self.device)
        if batch.last_position >= self.max_positions:
            raise ValueError(f"position {batch.last_position} asked for; this model ends at {self.max_positions - 1}")
        angles = self.rotary.at(batch.positions)
        hidden = self.embed(batch.token_ids)  # [rows, hidden]
        taken: dict[int, Tensor] = {0: hidden}
        for index, layer in enumerate(self.layers):
            hidden = hidden + layer.out(self._attention(index, layer, hidden, batch, angles, cache))
            hidden = hidden + layer.mlp(self._norm(hidden, layer.mlp_norm))
            if index + 1 in feature_layers:
                taken[index + 1] = hidden
        if self.num_layers in feature_layers:
            hidden = taken[self.num_layers] = self._norm(hidden, self.final_norm)
            last = hidden if batch.wanted is None else hidden[batch.wanted]
        else:
            last = self._norm(hidden if batch.wanted is None else hidden[batch.wanted], self.final_norm)
        features = torch.stack([taken[index] for index in feature_layers], dim=1) if feature_layers else None
        if features is not None and cache.features is not None:
            cache.features.index_copy_(0, batch.slots, features)
        return Output(self.head(last), features)

    def _attention(
        self, index: int, layer: _Layer, hidden: Tensor, batch: Batch, angles: tuple[Tensor, Tensor], cache: KvCache
    ) -> Tensor:
        rows = hidden.shape[0]
        qkv = layer.qkv(self._norm(hidden, layer.input_norm)).view(rows, -1, self.head_dim)
        turned = qkv[:, : self.heads + self.kv_heads]  # query heads, then key heads
        if layer.qk_norm is not None:
            turned = rms_norm(turned, layer.qk_norm, self.eps)
        turned = Rotary.turn(turned, angles)
        cache.write(index, batch.slots, turned[:, self.heads :], qkv[:, self.heads + self.kv_heads :])
        query, keys, values = turned[:, : self.heads], cache.keys[index], cache.values[index]
        made = [
            attend(query[first:end], keys[:, slot:stop], values[:, slot:stop], mask)
            for first, end, slot, stop, mask in batch.pieces
        ]
        return made[0] if len(made) == 1 else torch.cat(made)

    def _norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(rows, weight, self.eps)


def _fused(weights: Weights, *linears: Any) -> Projection:
    if len(linears) == 1:
        bias = linears[0].bias
        return project(linears[0].weight.detach(), None if bias is None else bias.detach(), weights)
    weight = torch.cat([linear.weight.detach() for linear in linears])
    biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
    return project(weight, torch.cat(biases) if biases else None, weights)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _check(config: Any) -> None:
    if config.model_type not in FAMILIES:
        raise TargetError(f"model type {config.model_type!r} given; this engine runs {', '.join(FAMILIES)}")
    quantized = getattr(config, "quantization_config", None)
    if quantized:
        # A dict as read from config.json; transformers makes an object of it once the weights are loaded.
        method = (
            quantized.get("quant_method") if isinstance(quantized, dict) else getattr(quantized, "quant_method", None)
        )
        raise TargetError(
            f"the weights are quantized ({method or 'no method named'}); this engine runs plain ones, give the original model"
        )
    if config.hidden_act != "silu":
        raise TargetError(f"activation {config.hidden_act!r} given; this engine runs models with 'silu'")
    windowed = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    if windowed:
        raise TargetError("the model has sliding-window layers; this engine runs models with full attention only")
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope in ("dynamic", "longrope"):
        raise TargetError(f"rope type {rope!r} changes with the length, and cached keys would not; use a fixed one")
