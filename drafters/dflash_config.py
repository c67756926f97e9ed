"""The configuration of DFlash drafters, read and written as the published models spell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Any

from drafters.base import Target
from drafters.specs import SpecError

__all__ = ["ARCHITECTURE", "DFlashConfig", "draft_integer", "target_layers"]

ARCHITECTURE = "DFlashDraftModel"

# What some published drafters apply to embeddings or logits, and the value that changes nothing. No family that this engine
# runs needs it, and leaving it out silently would show as low acceptance only.
FOREIGN = {"input_embedding_scale": 1.0, "output_multiplier": 1.0, "final_logit_softcapping": 0.0}


def target_layers(num_layers: int, count: int = 5) -> tuple[int, ...]:
    """Ids of the target layers whose outputs are the context features: ``round(1 + i (n - 4) / 4)`` for i from 0 to 4,
    or as many others (``count``, at least 2) from the same first to the same last.

    Id i is the OUTPUT of layer i counted from 0, which is ``hidden_states[i + 1]``. Below eight layers the formula
    repeats itself or leaves the target: ids are then clamped to the layers there are and each is taken once, so a
    target of two layers gives both and one of four only its second.
    """
    spread = [round(1 + i * (num_layers - 4) / (count - 1)) for i in range(count)]
    return tuple(sorted({min(max(layer, 0), num_layers - 1) for layer in spread}))


@dataclass(frozen=True, slots=True)
class DFlashConfig:
    """The fields of a DFlash ``config.json`` that the network needs.

    ``target_layer_ids`` count layer outputs from 0. ``rope`` is ``rope_parameters`` as transformers spells it.
    ``layer_types`` has ``full_attention`` or ``sliding_attention`` for each layer. ``is_causal`` tells whether a row of
    the block sees only itself and what stands before it; ``None`` means in sliding layers only, as in the reference.
    """

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    block_size: int
    target_layer_ids: tuple[int, ...]
    mask_token_id: int
    num_target_layers: int | None
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 40960
    rope: Mapping[str, Any] = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 1e6})
    layer_types: tuple[str, ...] = ()
    sliding_window: int | None = None
    is_causal: bool | None = False

    def __post_init__(self) -> None:
        if self.block_size < 2:
            raise SpecError(f"block_size is {self.block_size}; allowed: 2 or more, the anchor and one mask at least")
        if not self.target_layer_ids or min(self.target_layer_ids) < 0:
            raise SpecError(f"target_layer_ids is {list(self.target_layer_ids)}; allowed: one layer or more, from 0")
        if self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads:
            raise SpecError(f"{self.num_heads} heads on {self.num_kv_heads} K/V heads; allowed: a multiple")
        if self.head_dim < 2 or self.head_dim % 2:
            raise SpecError(f"head_dim is {self.head_dim}; allowed: an even number, since halves are rotated")
        if self.rope.get("rope_type", "default") in ("dynamic", "longrope"):
            raise SpecError(
                f"rope type {self.rope['rope_type']!r} changes with the length, and cached keys would not; "
                "use a drafter with a fixed one"
            )
        if self.layer_types and len(self.layer_types) != self.num_layers:
            raise SpecError(f"{len(self.layer_types)} layer_types for {self.num_layers} layers; give one a layer")

    @classmethod
    def for_target(
        cls, target: Target, block_size: int = 8, num_layers: int = 5, mask_token_id: int | None = None
    ) -> DFlashConfig:
        """A configuration for untrained weights: the target's width, heads of up to 128 dimensions, at least four.

        ``mask_token_id`` is the last id by default, which most vocabularies leave unused; a trained drafter names its
        own.
        """
        hidden = target.hidden_size
        head_dim = gcd(hidden, 128)
        while head_dim > 2 and hidden // head_dim < 4:
            head_dim //= 2
        head_dim = max(head_dim, 2)
        heads = max(hidden // head_dim, 1)
        group = next(size for size in (4, 3, 2, 1) if heads % size == 0)
        return cls(
            hidden_size=hidden,
            intermediate_size=3 * hidden,
            num_layers=num_layers,
            num_heads=heads,
            num_kv_heads=heads // group,
            head_dim=head_dim,
            vocab_size=target.vocab_size,
            block_size=block_size,
            target_layer_ids=target_layers(target.num_layers),
            mask_token_id=target.vocab_size - 1 if mask_token_id is None else mask_token_id,
            num_target_layers=target.num_layers,
            layer_types=("full_attention",) * num_layers,
        )

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], architecture: str = ARCHITECTURE) -> DFlashConfig:
        """Read a published configuration. Raises SpecError for one of another architecture, and for what is missing,
        contradictory or not carried out here."""
        given = raw.get("architectures")
        if not isinstance(given, list) or architecture not in given:
            raise SpecError(f"config.json says architectures {given!r}; this method needs {architecture!r}")
        for key, neutral in FOREIGN.items():
            if _value(raw, key, neutral) not in (None, neutral):
                raise SpecError(f"config.json sets {key} to {_value(raw, key)}; this engine has no such step")
        if raw.get("hidden_act", "silu") != "silu":
            raise SpecError(f"config.json says hidden_act {raw['hidden_act']!r}; allowed: 'silu'")
        layers = draft_integer(raw, "num_hidden_layers")
        heads = draft_integer(raw, "num_attention_heads")
        window = raw.get("sliding_window") if raw.get("use_sliding_window") else None
        since = raw.get("max_window_layers", 28) if window is not None else layers
        types = raw.get("layer_types") or [
            "sliding_attention" if layer >= since else "full_attention" for layer in range(layers)
        ]
        ids = _value(raw, "target_layer_ids")
        if not isinstance(ids, list) or not all(isinstance(layer, int) for layer in ids):
            raise SpecError(f"config.json has target_layer_ids {ids!r}; allowed: a list of layer ids")
        hidden = draft_integer(raw, "hidden_size")
        return cls(
            hidden_size=hidden,
            intermediate_size=draft_integer(raw, "intermediate_size"),
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=draft_integer(raw, "num_key_value_heads"),
            head_dim=draft_integer(raw, "head_dim") if raw.get("head_dim") is not None else hidden // heads,
            vocab_size=draft_integer(raw, "vocab_size"),
            block_size=draft_integer(raw, "block_size"),
            target_layer_ids=tuple(ids),
            mask_token_id=draft_integer(raw, "mask_token_id"),
            num_target_layers=raw.get("num_target_layers"),
            rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
            max_position_embeddings=draft_integer(raw, "max_position_embeddings"),
            rope=_rope(raw),
            layer_types=tuple(types),
            sliding_window=window,
            is_causal=raw.get("is_causal"),
        )

    def to_json(self, architecture: str = ARCHITECTURE) -> dict[str, Any]:
        """The published form. ``block_size`` stands in both places: some readers look in one, some in the other."""
        types = self.layer_types or ("full_attention",) * self.num_layers
        made: dict[str, Any] = {
            "architectures": [architecture],
            "model_type": "qwen3",
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "tie_word_embeddings": False,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "rms_norm_eps": self.rms_norm_eps,
            "max_position_embeddings": self.max_position_embeddings,
            "rope_parameters": dict(self.rope),
            "rope_theta": self.rope["rope_theta"],  # where readers older than rope_parameters look
            "layer_types": list(types),
            "use_sliding_window": self.sliding_window is not None,
            "sliding_window": self.sliding_window,
            "block_size": self.block_size,
            "dflash_config": {
                "block_size": self.block_size,
                "target_layer_ids": list(self.target_layer_ids),
                "mask_token_id": self.mask_token_id,
            },
        }
        if self.num_target_layers is not None:
            made["num_target_layers"] = self.num_target_layers
        if self.is_causal is not None:
            made["is_causal"] = self.is_causal
        return made

    def kinds(self) -> tuple[tuple[int | None, bool], ...]:
        """Window in positions (``None`` for all) and whether the block is causal, layer by layer."""
        made: list[tuple[int | None, bool]] = []
        for kind in self.layer_types or ("full_attention",) * self.num_layers:
            sliding = kind == "sliding_attention"
            causal = sliding if self.is_causal is None else self.is_causal
            made.append((self.sliding_window if sliding else None, causal))
        return tuple(made)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the file."""
        hidden, wide = self.hidden_size, self.intermediate_size
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        layer: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (hidden,),
            "self_attn.q_proj.weight": (queries, hidden),
            "self_attn.k_proj.weight": (keys, hidden),
            "self_attn.v_proj.weight": (keys, hidden),
            "self_attn.o_proj.weight": (hidden, queries),
            "self_attn.q_norm.weight": (self.head_dim,),
            "self_attn.k_norm.weight": (self.head_dim,),
            "post_attention_layernorm.weight": (hidden,),
            "mlp.gate_proj.weight": (wide, hidden),
            "mlp.up_proj.weight": (wide, hidden),
            "mlp.down_proj.weight": (hidden, wide),
        }
        made: dict[str, tuple[int, ...]] = {
            "fc.weight": (hidden, len(self.target_layer_ids) * hidden),
            "hidden_norm.weight": (hidden,),
            "norm.weight": (hidden,),
        }
        for index in range(self.num_layers):
            made |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
        return made

    def check(self, target: Target) -> None:
        """Raise SpecError when the drafter belongs to another target."""
        if self.hidden_size != target.hidden_size:
            raise SpecError(
                f"the drafter's hidden size is {self.hidden_size}, the target's {target.hidden_size}; "
                "give a drafter of this target"
            )
        if self.num_target_layers not in (None, target.num_layers) or max(self.target_layer_ids) >= target.num_layers:
            raise SpecError(
                f"the drafter reads layers {list(self.target_layer_ids)} of a target with "
                f"{self.num_target_layers} layers; this one has {target.num_layers}. Give a drafter of this target"
            )
        if not 0 <= self.mask_token_id < target.vocab_size:
            raise SpecError(f"mask_token_id is {self.mask_token_id}; allowed: 0 to {target.vocab_size - 1}")


def _value(raw: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """A field that may stand in ``dflash_config`` or at the top. Raises SpecError when both are there and differ."""
    nested = raw.get("dflash_config") or {}
    if key in nested and key in raw and nested[key] != raw[key]:
        raise SpecError(
            f"config.json says {key} {raw[key]!r} at the top and {nested[key]!r} in dflash_config; make them agree"
        )
    return nested.get(key, raw.get(key, default))


def draft_integer(raw: Mapping[str, Any], key: str) -> int:
    """An integer field from either place. Raises SpecError when it is missing or something else."""
    value = _value(raw, key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise SpecError(f"config.json has {key} {value!r}; allowed: an integer")
    return value


def _rope(raw: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(raw.get("rope_parameters") or raw.get("rope_scaling") or {})
    made.setdefault("rope_type", made.pop("type", "default"))
    made.setdefault("rope_theta", raw.get("rope_theta"))
    if made["rope_theta"] is None:
        raise SpecError("config.json has no rope_theta; give it, in rope_parameters or at the top")
    return made
