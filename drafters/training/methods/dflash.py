"""Training of DFlash: random anchors in the target's answers, all their blocks in one packed pass (arXiv 2602.06036).

A block is drafted from an anchor, as in the engine: it sees the target's features before the anchor and nothing after.
Its labels are the tokens that the target wrote behind the anchor; a position's weight falls with its distance, since a
token counts only if all before it were right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from drafters.checkpoint import Checkpoint
from drafters.dflash_config import DFlashConfig, target_layers
from drafters.specs import SpecError
from drafters.training.chain_counts import chain_counts
from drafters.training.frozen import FrozenTarget
from drafters.training.method import Batch, Losses, MethodSettings
from drafters.training.methods.anchors import Anchors, anchors_of
from drafters.training.methods.dflash_module import DFlashNetwork, filled, fresh
from drafters.training.methods.teaching import taught

__all__ = [
    "Blocks",
    "DFlashMethod",
    "DFlashSettings",
    "config_for",
    "counted",
    "draft_blocks",
    "exported",
    "tokens_within",
    "unary_loss",
    "unused_token",
    "weights_of_rows",
]


class DFlashSettings(MethodSettings):
    """``num_tokens`` is what is scored, by default all that a block drafts; every position of the block is trained.

    The shape of the network is that of a checkpoint where training starts from one; a setting that says otherwise is
    refused.
    """

    num_tokens: int = Field(default=7, ge=1, le=63)
    block_size: int = Field(default=8, ge=2, le=64)
    num_layers: int = Field(default=2, ge=1, le=64)
    intermediate_size: int | None = Field(default=None, ge=1)
    """``None`` is three times the hidden size."""
    num_target_layers: int = Field(default=5, ge=2, le=64)
    """How many layers of the target are read, spread as in the published drafters."""
    target_layer_ids: tuple[int, ...] | None = None
    """These instead, outputs counted from 0."""
    mask_token_id: int | None = Field(default=None, ge=0)
    """Stands where a token is to be drafted; ``None`` takes one that no text holds (`unused_token`)."""
    anchors: int = Field(default=32, ge=1, le=4096)
    """Anchors drawn in each row, at most; they bound what a step costs. Without gradients all are taken, so many at
    once."""
    decay: float | None = Field(default=None, gt=0)
    """Positions after which a weight has fallen to 1/e; ``None`` is half a block, at most 7: published are 4, 5 and 7
    for blocks of 8, 10 and 16."""
    soft: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the loss that compares with the target's distribution (Kullback-Leibler); the rest is the cross entropy
    of the target's token."""

    @model_validator(mode="before")
    @classmethod
    def _whole_block(cls, data: Any) -> Any:
        """Score all that the block drafts unless told otherwise."""
        if not isinstance(data, Mapping) or "num_tokens" in data or "block_size" not in data:
            return data
        try:
            return {**data, "num_tokens": max(1, int(data["block_size"]) - 1)}
        except (TypeError, ValueError):
            return data  # the field's own check says what is wrong

    @model_validator(mode="after")
    def _within_the_block(self) -> DFlashSettings:
        if "block_size" in self.model_fields_set and self.num_tokens >= self.block_size:
            raise ValueError(_too_many(self.num_tokens, self.block_size))
        return self  # a block that is not given may be a checkpoint's

    @property
    def places_per_row(self) -> int | None:
        """Anchors."""
        return self.anchors

    def agree_with_config(self, method: str, config: DFlashConfig, target: FrozenTarget) -> None:
        """`agree_with` of a checkpoint's configuration."""
        found: dict[str, Any] = {
            "block_size": config.block_size,
            "num_layers": config.num_layers,
            "intermediate_size": config.intermediate_size,
            "target_layer_ids": config.target_layer_ids,
            "mask_token_id": config.mask_token_id,
        }
        if self.target_layer_ids is None:  # so many layers of a small target may be fewer
            same = target_layers(target.num_layers, self.num_target_layers) == config.target_layer_ids
            found["num_target_layers"] = self.num_target_layers if same else len(config.target_layer_ids)
        self.agree_with(method, found)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Everything that is scored, n positions behind anchors; ``kept`` [rows, blocks, block_size - 1] says which they
    are, and the others follow its order."""

    kept: Tensor
    rows: Tensor  # [n] row of the batch
    positions: Tensor  # [n] place of the label in the row
    offsets: Tensor  # [n] from 0: the first position behind the anchor
    labels: Tensor  # [n]
    hidden: Tensor  # [n, hidden] after the final norm, with gradients
    logits: Tensor  # [n, vocab] with gradients


class DFlashMethod:
    """Satisfies `Method`; the engine's class is `drafters.dflash.DFlash`."""

    settings: ClassVar[type[MethodSettings]] = DFlashSettings

    def __init__(self, target: FrozenTarget, settings: DFlashSettings, start: Checkpoint | None = None) -> None:
        """Raises SpecError for a start of another target or method, or layers that the target does not have."""
        self._target, self._settings = target, settings
        self._config = config_for(target, settings) if start is None else DFlashConfig.from_json(start.config)
        self._config.check(target)
        if start is not None:
            settings.agree_with_config("dflash", self._config, target)
        self._num_tokens = tokens_within(settings, self._config.block_size)
        shapes = self._config.shapes()
        if start is None:
            tensors = fresh(shapes, self._config.num_layers, settings.seed)
        else:
            tensors = start.fitted(shapes, torch.float32, torch.device("cpu"))
        self.network: DFlashNetwork = filled(lambda: DFlashNetwork(self._config), tensors).to(target.device)

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Outputs of the configured layers as ``hidden_states`` counts them."""
        return tuple(layer + 1 for layer in self._config.target_layer_ids)

    @property
    def module(self) -> nn.Module:
        """The network."""
        return self.network

    def losses(self, batch: Batch, generator: torch.Generator) -> Losses:
        """One packed pass, or as many as it takes. ``parts``: the cross entropy alone, weighted like the loss (without
        ``soft`` it is the loss)."""
        chosen = anchors_of(batch, self._settings.anchors, generator)
        return reduce(add, (self._losses(batch, anchors) for anchors in chosen))

    def _losses(self, batch: Batch, anchors: Anchors) -> Losses:
        blocks = draft_blocks(self.network, self._target, batch, anchors)
        total, entropy, weights = unary_loss(blocks, self._target, batch, self._config.block_size, self._settings)
        right = blocks.logits.detach().argmax(dim=-1) == blocks.labels
        drafted, accepted = counted(blocks.kept, right, self._num_tokens)
        by_row = weights_of_rows(blocks, weights, len(batch.token_ids))
        return Losses(total, by_row, drafted, accepted, {"cross_entropy": entropy})

    def checkpoint(self) -> Checkpoint:
        """As published."""
        return exported(self.network, self._config.to_json())


def tokens_within(settings: DFlashSettings, block_size: int) -> int:
    """How many tokens are scored with a block of that size. Raises SpecError for more than it drafts."""
    if settings.num_tokens < block_size:
        return settings.num_tokens
    if "num_tokens" in settings.model_fields_set:
        raise SpecError(_too_many(settings.num_tokens, block_size))
    return block_size - 1


def _too_many(num_tokens: int, block_size: int) -> str:
    return (
        f"num_tokens is {num_tokens}, but a block of {block_size} drafts at most {block_size - 1}; give less, or a larger "
        "block_size"
    )


def config_for(target: FrozenTarget, settings: DFlashSettings) -> DFlashConfig:
    """The configuration of fresh weights, its positions as fine and as many as the target's. Raises SpecError for layers
    that the target does not have."""
    base = DFlashConfig.for_target(target, settings.block_size, settings.num_layers)
    ids = settings.target_layer_ids or target_layers(target.num_layers, settings.num_target_layers)
    if wrong := [layer for layer in ids if not 0 <= layer < target.num_layers]:
        raise SpecError(f"target_layer_ids holds {wrong[0]}; allowed: 0 to {target.num_layers - 1}")
    mask = unused_token(target) if settings.mask_token_id is None else settings.mask_token_id
    intermediate = settings.intermediate_size or base.intermediate_size
    theta = (getattr(target.config, "rope_parameters", None) or {}).get("rope_theta", base.rope["rope_theta"])
    return replace(
        base,
        target_layer_ids=tuple(ids),
        mask_token_id=mask,
        intermediate_size=intermediate,
        rope={"rope_type": "default", "rope_theta": float(theta)},
        max_position_embeddings=int(getattr(target.config, "max_position_embeddings", base.max_position_embeddings)),
    )


def unused_token(target: FrozenTarget) -> int:
    """A token id that no text holds: one behind the tokenizer's, or in a byte-level vocabulary the byte 255, which
    UTF-8 never uses; the last id where neither is known."""
    last = target.vocab_size - 1
    file = None if target.folder is None else target.folder / "tokenizer.json"
    if file is None or not file.is_file():
        return last
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    if max(tokenizer.get_vocab(with_added_tokens=True).values()) < last:
        return last
    byte = tokenizer.token_to_id("\u00ff") if '"ByteLevel"' in file.read_text(encoding="utf-8") else None
    return last if byte is None else int(byte)


def draft_blocks(network: DFlashNetwork, target: FrozenTarget, batch: Batch, anchors: Anchors) -> Blocks:
    """Run the blocks of all anchors, and the target's head where there is something to score: up to the end of the
    answer that the anchor stands in."""
    size, starts = network.config.block_size, anchors.positions
    tokens = torch.full((*starts.shape, size), network.config.mask_token_id, device=starts.device)
    tokens[:, :, 0] = batch.token_ids.gather(1, starts)
    # What stands behind the last anchor is seen by no block; padding may hold anything, and 0 · NaN would spread.
    last = int(starts.max()) + 1
    seen = batch.features[:, :last].masked_fill(~batch.present[:, :last, None, None], 0.0)
    hidden = network(seen, starts, target.embed(tokens))[:, :, 1:]
    behind = starts.unsqueeze(2) + torch.arange(1, size, device=starts.device)  # [rows, blocks, size - 1]
    length = batch.token_ids.shape[1]
    inside = behind.clamp(max=length - 1).flatten(1)
    own = batch.answers.gather(1, inside).view(behind.shape) & (behind < length) & anchors.there.unsqueeze(2)
    kept = own.long().cumprod(dim=2).bool()
    rows, _, offsets = kept.nonzero(as_tuple=True)
    positions = behind[kept]
    scored = hidden[kept]
    logits = target.head(scored.to(target.dtype))
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return Blocks(kept, rows, positions, offsets, batch.token_ids[rows, positions], scored, logits)


def unary_loss(
    blocks: Blocks, target: FrozenTarget, batch: Batch, block_size: int, settings: DFlashSettings
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weighted sum of the loss, that of the cross entropy alone (detached), and the weights [n]."""
    decay = settings.decay or min(block_size / 2, 7.0)
    weights = torch.exp(-blocks.offsets / decay).to(blocks.logits.dtype)
    scores = blocks.logits.log_softmax(dim=-1)
    entropy = -scores.gather(1, blocks.labels.unsqueeze(1)).squeeze(1)
    total = (weights * entropy).sum()
    told = total.detach()
    if settings.soft:
        states = batch.hidden[blocks.rows, blocks.positions - 1]  # from which the label was predicted
        wanted = taught(target, states).to(scores.dtype).log_softmax(dim=-1)
        divergence = (wanted.exp() * (wanted - scores)).sum(dim=-1)
        total = (1 - settings.soft) * total + settings.soft * (weights * divergence).sum()
    return total, told, weights


def counted(kept: Tensor, right: Tensor, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Chains of at least 1, 2, … ``num_tokens`` tokens, and those right so far, each [num_tokens].

    ``kept`` [rows, blocks, positions] marks a beginning of each block, ``right`` [n] follows its order. Positions that
    a block does not have count nothing.
    """
    marks = torch.zeros_like(kept)
    marks[kept] = right
    return chain_counts(marks, kept, num_tokens)


def weights_of_rows(blocks: Blocks, weights: Tensor, rows: int) -> Tensor:
    """``weights`` [n] added up by row: [rows]."""
    return weights.new_zeros(rows).index_add_(0, blocks.rows, weights)


def exported(network: nn.Module, config: Mapping[str, Any]) -> Checkpoint:
    """The module's parameters as a checkpoint of that configuration, copied to the CPU in float32."""
    tensors = {
        name: tensor.detach().to("cpu", torch.float32, copy=True) for name, tensor in network.state_dict().items()
    }
    return Checkpoint({**config, "dtype": "float32"}, tensors)
