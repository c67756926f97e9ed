"""A causal model's Hugging Face folder as GGUF: Qwen 3, Qwen 2 and Llama, weights as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafters.checkpoint import Checkpoint
from drafters.convert import ARCHITECTURES, INNER, OUTER
from drafters.engine.assembly import weights_digest
from drafters.export.gguf_file import GgufFile
from drafters.export.tokenizer import tokenizer_keys
from drafters.specs import SpecError
from drafters.training.stage import StageError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SOURCE_KEY", "About", "block_name", "model_file", "paired", "rope_base", "sizes"]

KINDS = {architecture: kind for kind, architecture in ARCHITECTURES.items()}
OUTER_NAMES = {theirs: ours for ours, theirs in OUTER.items()}
BLOCK_NAMES = {theirs: ours for ours, theirs in INNER.items()}
SOURCE_KEY = "drafters.source.sha256"
"""GGUF key of the hash of the weights: every file that is written here has it."""


@dataclass(frozen=True, slots=True)
class About:
    """What the file says of itself; ``licence`` as an SPDX name, ``source`` an address or a sentence. Each may be unknown."""

    name: str
    licence: str | None = None
    source: str | None = None
    description: str | None = None

    def keys(self, folder: Path) -> dict[str, str]:
        """The ``general.*`` keys, and the hash of the weights that the file was made of, by which the builtin engine names them too."""
        made = {
            "general.name": self.name,
            "general.license": self.licence,
            "general.source": self.source,
            "general.description": self.description,
            SOURCE_KEY: weights_digest(folder)[0],
        }
        return {key: value for key, value in made.items() if value is not None}


def model_file(folder: Path, about: About, tokenizer: Path | None = None) -> GgufFile:
    """Return the GGUF form of a model; its tokenizer is that of the folder ``tokenizer``, else its own.

    Raises StageError for a folder that is no model, and for what llama.cpp would run otherwise than it is meant.
    """
    try:
        checkpoint = Checkpoint.load(folder)
        layer = checkpoint.layer_shape()
        vocabulary = checkpoint.number("vocab_size")
    except SpecError as error:
        raise StageError(str(error).replace("give a drafter's checkpoint folder", "give a model's folder")) from error
    config = checkpoint.config
    named = [KINDS[name] for name in config.get("architectures") or [] if name in KINDS]
    if not named:
        raise StageError(
            f"{folder / 'config.json'} says architectures {config.get('architectures')!r}; allowed: {', '.join(sorted(KINDS))}"
        )
    kind = named[0]
    if config.get("use_sliding_window"):
        raise StageError(f"{folder}: layers with a sliding window are not exported; give a model without")
    keys: dict[str, Any] = {
        **about.keys(folder),
        **sizes(kind, config, layer.head_dim),
        f"{kind}.vocab_size": vocabulary,
        **({f"{kind}.rope.dimension_count": layer.head_dim} if kind == "llama" else {}),
        **tokenizer_keys(tokenizer or folder, vocabulary),
    }
    tensors = dict(_tensors(folder, checkpoint, kind))
    return GgufFile(kind, keys, tensors)


def sizes(kind: str, config: Mapping[str, Any], head_dim: int) -> dict[str, Any]:
    """The keys that every decoder has, out of a transformers configuration. Raises StageError for one that lacks a size."""
    heads = _number(config, "num_attention_heads")
    return {
        f"{kind}.context_length": _number(config, "max_position_embeddings"),
        f"{kind}.embedding_length": _number(config, "hidden_size"),
        f"{kind}.block_count": _number(config, "num_hidden_layers"),
        f"{kind}.feed_forward_length": _number(config, "intermediate_size"),
        f"{kind}.attention.head_count": heads,
        f"{kind}.attention.head_count_kv": int(config.get("num_key_value_heads") or heads),
        f"{kind}.attention.key_length": head_dim,
        f"{kind}.attention.value_length": head_dim,
        f"{kind}.attention.layer_norm_rms_epsilon": float(config.get("rms_norm_eps", 1e-6)),
        f"{kind}.rope.freq_base": rope_base(config),
    }


def _number(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StageError(
            f"config.json has {value!r} for {key!r}; allowed: a whole number above 0. Give a whole model's folder"
        )
    return value


def rope_base(config: Mapping[str, Any]) -> float:
    """The base of the rotation, from either place where configurations have it."""
    rope = config.get("rope_parameters") or {}
    return float(rope.get("rope_theta", config.get("rope_theta", 10000.0)))


def block_name(layer: int, rest: str) -> str | None:
    """llama.cpp's name of a decoder layer's tensor (``self_attn.q_proj.weight`` …), ``None`` for one it has none for."""
    part, _, ending = rest.rpartition(".")
    return None if part not in BLOCK_NAMES else f"blk.{layer}.{BLOCK_NAMES[part]}.{ending}"


def _tensors(folder: Path, checkpoint: Checkpoint, kind: str) -> list[tuple[str, Tensor]]:
    made: list[tuple[str, Tensor]] = []
    for name in sorted(checkpoint.tensors, key=_place):
        tensor = checkpoint.tensors[name]
        if name == "lm_head.weight" and checkpoint.config.get("tie_word_embeddings"):
            continue
        part, _, ending = name.rpartition(".")
        given: str | None
        if part in OUTER_NAMES:
            given = f"{OUTER_NAMES[part]}.{ending}"
        else:
            _, _, layer, rest = [*name.split(".", 3), "", "", ""][:4]
            given = block_name(int(layer), rest) if layer.isdigit() else None
        if given is None:
            raise StageError(f"{folder}: llama.cpp has no place for the tensor {name!r} of a {kind} model")
        if kind == "llama" and ".attn_q." in given:
            tensor = paired(tensor, int(checkpoint.config["num_attention_heads"]))
        elif kind == "llama" and ".attn_k." in given:
            tensor = paired(tensor, int(checkpoint.config["num_key_value_heads"]))
        made.append((given, tensor))
    return made


def _place(name: str) -> tuple[int, str]:
    """Layers in the order of their numbers, 10 after 9."""
    pieces = name.split(".")
    return (int(pieces[2]) if len(pieces) > 2 and pieces[2].isdigit() else -1, name)


def paired(tensor: Tensor, heads: int) -> Tensor:
    """Rows [heads · head_dim, …] in llama.cpp's order for Llama, which rotates neighbours; transformers rotates halves."""
    halves = tensor.view(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape)
