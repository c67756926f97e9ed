"""A drafter's weights with their description, and the folder they come in: ``config.json`` beside safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drafters.layers import LayerShape
from drafters.specs import SpecError

__all__ = ["Checkpoint", "Shapes", "drawn", "untrained_sizes"]

Shapes = Mapping[str, tuple[int, ...]]
"""Published name of a tensor → its shape."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``config`` as it stands in ``config.json``; ``tensors`` by their published names."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @classmethod
    def load(cls, folder: Path, prefix: str = "") -> Checkpoint:
        """Read a folder, all its safetensors files together; of the tensors those whose names begin with ``prefix``.

        Raises SpecError for a folder that holds no checkpoint or a damaged one.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        files = sorted(folder.glob("*.safetensors"))
        if not files or not (folder / "config.json").is_file():
            raise SpecError(f"{folder} lacks config.json or a .safetensors file; give a drafter's checkpoint folder")
        tensors: dict[str, Tensor] = {}
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            for file in files:
                tensors.update(load_file(file))
        except (OSError, ValueError, SafetensorError) as error:
            raise SpecError(f"{folder} cannot be read ({error}); copy the checkpoint again") from error
        if not isinstance(config, dict):
            raise SpecError(f"{folder / 'config.json'} holds {type(config).__name__}; allowed: an object of keys")
        return cls(config, {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)})

    def save(self, folder: Path, file_name: str = "model.safetensors") -> None:
        """Write ``config.json`` and the tensors; the folder is made if it is not there."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(dict(self.config), indent=2, ensure_ascii=False)
        (folder / "config.json").write_text(text + "\n", encoding="utf-8")
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        # Loaders of transformers refuse a file that does not say its format.
        save_file(plain, folder / file_name, metadata={"format": "pt"})

    def number(self, key: str) -> int:
        """A count or size of the configuration. Raises SpecError unless it is a whole number above 0."""
        value = self.config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SpecError(f"config.json has {value!r} for {key!r}; allowed: a whole number above 0")
        return value

    def layer_shape(self, attention_width: int = 1, qk_norm: bool = False) -> LayerShape:
        """Sizes of the one decoder layer that the configuration describes in transformers' keys.

        ``attention_width``: what q, k and v take, in multiples of the hidden size. Raises SpecError for sizes that do
        not fit one another and for what `DecoderLayer` does not do.
        """
        config = self.config
        hidden, heads, kv_heads = (
            self.number(key) for key in ("hidden_size", "num_attention_heads", "num_key_value_heads")
        )
        head_dim = hidden // heads if config.get("head_dim") is None else self.number("head_dim")
        if heads % kv_heads or head_dim % 2 or not head_dim:
            raise SpecError(
                f"config.json has {heads} heads of {head_dim} on {kv_heads} key heads; "
                "allowed: a multiple of the key heads, and an even size"
            )
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        rotated = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
        if kind != "default" or rotated != 1.0:
            raise SpecError(
                f"config.json has rope type {kind!r} on {rotated} of each head; allowed for drafters: 'default' on all"
            )
        if config.get("hidden_act", "silu") != "silu":
            raise SpecError(f"config.json has activation {config['hidden_act']!r}; allowed: 'silu'")
        return LayerShape(
            hidden_size=hidden,
            intermediate_size=self.number("intermediate_size"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            attention_size=attention_width * hidden,
            eps=float(config.get("rms_norm_eps", 1e-6)),
            rope_theta=float(rope.get("rope_theta", config.get("rope_theta", 10000.0))),
            qk_norm=qk_norm,
        )

    def fitted(self, shapes: Shapes, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
        """Copies of the tensors on ``device``, floating ones in ``dtype``.

        Raises SpecError unless they are exactly those of ``shapes``: a tensor left out or ignored would show in
        nothing but a low acceptance.
        """
        _refuse("lacks", sorted(shapes.keys() - self.tensors.keys()))
        _refuse("has no use for", sorted(self.tensors.keys() - shapes.keys()))
        for name, shape in shapes.items():
            if (given := tuple(self.tensors[name].shape)) != shape:
                raise SpecError(
                    f"{name} of the checkpoint has shape {given}; its configuration and the target ask for {shape}. "
                    "Give the drafter of this target"
                )
        return {
            name: tensor.detach().to(
                device=device, dtype=dtype if tensor.is_floating_point() else tensor.dtype, copy=True
            )
            for name, tensor in self.tensors.items()
        }


def drawn(shapes: Shapes, seed: int) -> dict[str, Tensor]:
    """Untrained float32 weights, the same for one seed: matrices of variance 1 / inputs, norms near 1, biases near 0.

    No vector is exactly 1 or 0: that would hide one that is forgotten.
    """
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        values = torch.randn(shape, generator=generator)
        if len(shape) == 1:
            made[name] = 0.1 * values + (0.0 if name.endswith("bias") else 1.0)
        else:
            made[name] = values / shape[-1] ** 0.5
    return made


def untrained_sizes(hidden_size: int) -> dict[str, Any]:
    """Configuration of a decoder layer for a target of this width: at least four heads of up to 128 where it
    divides."""
    fitting = (size for size in (128, 64, 32, 16, 8) if hidden_size % size == 0 and hidden_size >= 4 * size)
    head_dim = next(fitting, 8)
    heads = max(1, hidden_size // head_dim)
    return {
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2 if heads % 2 == 0 else heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
    }


def _refuse(what: str, names: Sequence[str]) -> None:
    if names:
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        raise SpecError(
            f"the checkpoint {what} {', '.join(names[:4])}{more}; "
            "give one whose tensors are those its configuration describes"
        )
