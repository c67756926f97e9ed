"""Drafters as GGUF: those that llama.cpp can run beside a plain target.

DFlash and DFlash 2 are llama.cpp's architecture ``dflash``, EAGLE-3 is ``eagle3``; a draft model is a model as any other.
Embedding and head of DFlash come from the target at run time. llama.cpp counts target layers by their inputs, which is
the published id of DFlash plus one and the index into transformers' ``hidden_states``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafters.checkpoint import Checkpoint
from drafters.export.gguf_file import GgufFile
from drafters.export.target import KINDS, About, block_name, model_file, paired, rope_base, sizes
from drafters.export.tokenizer import tokenizer_keys
from drafters.specs import SpecError
from drafters.training.stage import StageError

if TYPE_CHECKING:
    from drafters.dflash_config import DFlashConfig

__all__ = ["drafter_file"]

OUTER = {"fc.weight": "fc.weight", "hidden_norm.weight": "enc.output_norm.weight", "norm.weight": "output_norm.weight"}
SELECTOR = {
    "candidate_selector.predecessor_codebook": "selector_predecessor.weight",
    "candidate_selector.successor_codebook": "selector_successor.weight",
    "candidate_selector.hidden_projection.weight": "selector_hidden.weight",
}
CONVS = {"attention_conv": "attn", "mlp_conv": "ffn"}


def drafter_file(drafter: Path, target: Path, about: About) -> GgufFile:
    """Return the GGUF form of a drafter's checkpoint folder for the target in the folder ``target``.

    Raises StageError for a checkpoint that is damaged, of another target, or of a method that llama.cpp cannot run.
    """
    if (drafter / "corpus.txt").is_file() and not (drafter / "config.json").is_file():
        raise StageError(
            f"{drafter} is a table of n-grams; llama.cpp reads none, its own n-gram methods count the request's tokens"
        )
    try:
        checkpoint = Checkpoint.load(drafter)
        model = Checkpoint.load(target, prefix="model.embed_tokens")
        named = [str(name) for name in checkpoint.config.get("architectures") or []]
        for name in named:
            if name in KINDS:
                own = (drafter / "tokenizer.json").is_file()
                return model_file(drafter, about, drafter if own else target)
            if name in ("DFlashDraftModel", "DFlash2DraftModel"):
                return _dflash(checkpoint, drafter, model, target, about)
            if name in ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM"):
                return _eagle3(checkpoint, drafter, model, target, about)
    except SpecError as error:
        raise StageError(f"{drafter}: {error}") from error
    kind = "medusa" if "medusa_num_heads" in checkpoint.config else ", ".join(named) or "unnamed"
    raise StageError(
        f"{drafter} holds a drafter of the kind {kind!r}, which llama.cpp (b11549) cannot run beside a plain model: it has no "
        "Medusa heads, and reads MTP layers only inside the files of models that were trained with them. Allowed: dflash, "
        "dflash2, eagle3, draft_model; run the others on the builtin engine"
    )


def _shared_keys(kind: str, drafter: Path, model: Checkpoint, target: Path, about: About) -> dict[str, Any]:
    """What every draft file has: about itself, and the target's tokenizer."""
    keys = about.keys(drafter)
    return (
        keys | {f"{kind}.vocab_size": model.number("vocab_size")} | tokenizer_keys(target, model.number("vocab_size"))
    )


def _dflash(checkpoint: Checkpoint, drafter: Path, model: Checkpoint, target: Path, about: About) -> GgufFile:
    from drafters.dflash_config import DFlashConfig

    second = "DFlash2DraftModel" in checkpoint.config["architectures"]
    extra: dict[str, Any] = {}
    if second:
        from drafters.dflash2 import DFlash2Config

        whole = DFlash2Config.from_json(checkpoint.config)
        config, shapes = whole.backbone, whole.shapes()
        extra = {
            "dflash.conv_kernel_size": whole.conv_kernel_size,
            "dflash.conv_group_size": whole.conv_group_size,
            "dflash.selector_rank": whole.selector_rank,
            "dflash.selector_top_k": whole.selector_top_k,
        }
        needed = whole.selector_top_k * (whole.selector_top_k + 1)
        if config.hidden_size < needed:
            raise StageError(
                f"{drafter}: llama.cpp passes {whole.selector_top_k} candidates on only with a hidden size of {needed} or more; "
                f"this one is {config.hidden_size}. Allowed: fewer candidates (selector_top_k), or the builtin engine"
            )
    else:
        config = DFlashConfig.from_json(checkpoint.config)
        shapes = config.shapes()
    _check_dflash(config, drafter, model, target)
    import torch

    tensors = checkpoint.fitted(shapes, torch.float32, torch.device("cpu"))
    fields: dict[str, Any] = {
        **checkpoint.config,
        "max_position_embeddings": model.number("max_position_embeddings"),
        "rope_parameters": dict(config.rope),
    }
    keys: dict[str, Any] = {
        **_shared_keys("dflash", drafter, model, target, about),
        **sizes("dflash", fields, config.head_dim),
        "dflash.block_size": config.block_size,
        "dflash.target_layers": [layer + 1 for layer in config.target_layer_ids],
        "dflash.attention.causal": bool(config.is_causal),
        "tokenizer.ggml.mask_token_id": config.mask_token_id,
        **extra,
    }
    return GgufFile("dflash", keys, {_dflash_name(name): tensors[name] for name in shapes})


def _check_dflash(config: DFlashConfig, drafter: Path, model: Checkpoint, target: Path) -> None:
    layers = model.number("num_hidden_layers")
    if config.hidden_size != model.number("hidden_size") or config.num_target_layers not in (None, layers):
        raise StageError(
            f"{drafter} is a drafter for {config.num_target_layers} layers of width {config.hidden_size}; {target} has {layers} of "
            f"width {model.number('hidden_size')}. Give the drafter's own target"
        )
    if max(config.target_layer_ids) + 1 >= layers:
        raise StageError(
            f"{drafter} reads the target's last output, behind the final norm; llama.cpp gives a drafter the inputs of layers "
            f"alone. Allowed: target_layer_ids up to {layers - 2}"
        )
    if any(window is not None for window, _ in config.kinds()):
        raise StageError(f"{drafter}: layers with a sliding window are not exported; give a drafter without")
    if config.rope.get("rope_type", "default") != "default":
        raise StageError(f"{drafter}: rope type {config.rope['rope_type']!r} is not exported; allowed: 'default'")


def _dflash_name(name: str) -> str:
    if name in OUTER or name in SELECTOR:
        return OUTER.get(name) or SELECTOR[name]
    _, layer, rest = name.split(".", 2)
    for theirs, ours in CONVS.items():
        if rest == f"{theirs}.base_kernel":
            return f"blk.{layer}.{ours}_conv_base"
        if rest == f"{theirs}.kernel_projection.weight":
            return f"blk.{layer}.{ours}_conv_proj.weight"
    given = block_name(int(layer), rest)
    assert given is not None, name  # shapes() names no others
    return given


def _eagle3(checkpoint: Checkpoint, drafter: Path, model: Checkpoint, target: Path, about: About) -> GgufFile:
    import torch

    from drafters.eagle3 import LAYER, layer_ids, midlayer, target_ids, tensor_shapes

    shape = checkpoint.layer_shape(attention_width=2)
    vocabulary, layers = model.number("vocab_size"), model.number("num_hidden_layers")
    if shape.hidden_size != model.number("hidden_size") or checkpoint.number("vocab_size") != vocabulary:
        raise StageError(
            f"{drafter} is a drafter for a width of {shape.hidden_size} and {checkpoint.number('vocab_size')} tokens; {target} "
            f"has {model.number('hidden_size')} and {vocabulary}. Give the drafter's own target"
        )
    features = layer_ids(checkpoint.config, layers)
    if max(features) >= layers:
        raise StageError(
            f"{drafter} reads the target's last output, behind the final norm; llama.cpp gives a drafter the inputs of layers "
            f"alone. Allowed: layers up to {layers - 1}"
        )
    shapes = tensor_shapes(shape, checkpoint.number("draft_vocab_size"), vocabulary)
    tensors = midlayer(checkpoint).fitted(shapes, torch.float32, torch.device("cpu"))
    ids = target_ids(tensors.pop("d2t"), tensors.pop("t2d"), vocabulary)
    fields: Mapping[str, Any] = {
        **checkpoint.config,
        "max_position_embeddings": model.number("max_position_embeddings"),
    }
    keys: dict[str, Any] = {
        **_shared_keys("eagle3", drafter, model, target, about),
        **sizes("eagle3", {**fields, "num_hidden_layers": 1}, shape.head_dim),
        "eagle3.rope.freq_base": rope_base(fields),
        "eagle3.target_layers": list(features),
        "eagle3.target_hidden_size": shape.hidden_size,
        "eagle3.norm_before_residual": bool(checkpoint.config.get("norm_before_residual", False)),
    }
    named = {
        "fc.weight": tensors["fc.weight"],
        "output_norm.weight": tensors["norm.weight"],
        "output.weight": tensors["lm_head.weight"],
        "d2t": ids,  # llama.cpp takes the ids themselves, the checkpoint has offsets
        "blk.0.attn_norm_2.weight": tensors[f"{LAYER}hidden_norm.weight"],
    }
    for name, tensor in tensors.items():
        given = block_name(0, name.removeprefix(LAYER)) if name.startswith(LAYER) else None
        if given is not None:
            named[given] = tensor
    # llama.cpp rotates neighbours here, as it does for Llama; its architecture dflash rotates halves, as transformers does.
    for projection, heads in (("attn_q", shape.heads), ("attn_k", shape.kv_heads)):
        named[f"blk.0.{projection}.weight"] = paired(named[f"blk.0.{projection}.weight"], heads)
    return GgufFile("eagle3", keys, named)
