"""Training of DFlash 2: DFlash's blocks with convolutions, and a selector that learns to choose among candidates.

The selector is trained on what it will be given: the drafter's own best candidates of each position, with the token
that the target wrote before it. Where the target's token is not among them, the selector could not have chosen it in
the engine either, and the position teaches it nothing; the unary loss alone works on such places. The published
objective is not known; forced insertion, as some re-implementations do it, is a flag for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import gcd
from operator import add
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from drafters.checkpoint import Checkpoint
from drafters.dflash2 import DFlash2Config
from drafters.dflash_backbone import Sublayer
from drafters.training.frozen import FrozenTarget
from drafters.training.method import Batch, Losses, MethodSettings
from drafters.training.methods.anchors import Anchors, anchors_of
from drafters.training.methods.dflash import (
    Blocks,
    DFlashSettings,
    config_for,
    counted,
    draft_blocks,
    exported,
    tokens_within,
    unary_loss,
    weights_of_rows,
)
from drafters.training.methods.dflash_module import DFlashNetwork, filled, fresh

__all__ = [
    "Candidates",
    "DFlash2Method",
    "DFlash2Network",
    "DFlash2Settings",
    "GroupedConv",
    "Selector",
    "candidates_of",
]


class DFlash2Settings(DFlashSettings):
    """DFlash's settings, and those of convolutions and selector."""

    conv_kernel_size: int = Field(default=2, ge=1, le=8)
    selector_rank: int = Field(default=32, ge=1, le=4096)
    selector_top_k: int = Field(default=16, ge=1, le=256)
    selector_weight: float = Field(default=1.0, ge=0.0)
    """Factor of the selector's loss beside the unary one; both fall with the position alike."""
    forced_insertion: bool = False
    """For comparison only: put a missing token in the place of the last candidate. What is counted stays as it is."""


class GroupedConv(nn.Module):
    """`drafters.dflash2.GroupedDynamicCausalConv` with gradients, over packed blocks."""

    def __init__(self, config: DFlash2Config) -> None:
        super().__init__()
        hidden, taps = config.backbone.hidden_size, config.conv_kernel_size
        self._groups, self._size, self._taps = hidden // config.conv_group_size, config.backbone.block_size, taps
        self.base_kernel = nn.Parameter(torch.zeros(2, taps, hidden))
        self.kernel_projection = nn.Linear(hidden, 2 * taps * self._groups, bias=False)

    def forward(self, rows: Tensor, sublayer: Sublayer) -> Tensor:
        """``rows`` [batch, blocks · block_size, hidden], the normed input; returns the same shape, without the
        residual."""
        base = self.base_kernel.view(2, self._taps, self._groups, -1)
        # [all blocks, block_size, before and after, taps, groups, 1]
        dynamic = self.kernel_projection(rows).view(-1, self._size, 2, self._taps, self._groups, 1)
        kernels = base + dynamic
        return self._mixed(sublayer(self._mixed(rows, kernels[:, :, 0])), kernels[:, :, 1])

    def _mixed(self, rows: Tensor, kernel: Tensor) -> Tensor:
        blocks = rows.view(-1, self._size, self._groups, rows.shape[-1] // self._groups)
        mixed = kernel[:, :, 0] * blocks
        for tap in range(1, min(self._taps, self._size)):
            # Before a block's first position stand zeros.
            back = torch.cat((torch.zeros_like(blocks[:, :tap]), blocks[:, :-tap]), dim=1)
            mixed = mixed + kernel[:, :, tap] * back
        return mixed.view(rows.shape)


class Selector(nn.Module):
    """`drafters.dflash2.CandidateSelector` with gradients: how a candidate follows the token before it."""

    def __init__(self, config: DFlash2Config) -> None:
        super().__init__()
        vocab, rank = config.backbone.vocab_size, config.selector_rank
        self.predecessor_codebook = nn.Parameter(torch.zeros(vocab, rank))
        self.successor_codebook = nn.Parameter(torch.zeros(vocab, rank))
        self.hidden_projection = nn.Linear(config.backbone.hidden_size, rank, bias=False)

    def forward(self, hidden: Tensor, before: Tensor, ids: Tensor) -> Tensor:
        """``hidden`` [n, hidden], the tokens ``before`` [n] and candidates ``ids`` [n, top_k] → what is added to the
        candidates' logits [n, top_k]."""
        link = self.predecessor_codebook[before] * self.hidden_projection(hidden)
        added: Tensor = (self.successor_codebook[ids] @ link.unsqueeze(2)).squeeze(2)
        return added


class DFlash2Network(nn.Module):
    """Backbone and selector. The published names are those of its parameters without ``backbone.``."""

    def __init__(self, config: DFlash2Config) -> None:
        super().__init__()
        self.backbone = DFlashNetwork(config.backbone, lambda: GroupedConv(config))
        self.candidate_selector = Selector(config)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The drafter's own list for each scored position, and the one that the selector learns on."""

    ids: Tensor  # [n, top_k] in ascending order, as in the engine
    listed: Tensor  # [n] bool: the label is among them
    taught: Tensor  # [n, top_k] the same unless a missing label was put in


class DFlash2Method:
    """Satisfies `Method`; the engine's class is `drafters.dflash2.DFlash2`."""

    settings: ClassVar[type[MethodSettings]] = DFlash2Settings

    def __init__(self, target: FrozenTarget, settings: DFlash2Settings, start: Checkpoint | None = None) -> None:
        """Raises SpecError for a start of another target or method, or layers that the target does not have."""
        self._target, self._settings = target, settings
        if start is None:
            self._config = DFlash2Config(
                config_for(target, settings),
                settings.conv_kernel_size,
                gcd(target.hidden_size, 16),
                settings.selector_rank,
                settings.selector_top_k,
            )
        else:
            self._config = DFlash2Config.from_json(start.config)
        base = self._config.backbone
        base.check(target)
        if start is not None:
            settings.agree_with_config("dflash2", base, target)
            names = ("conv_kernel_size", "selector_rank", "selector_top_k")
            settings.agree_with("dflash2", {name: getattr(self._config, name) for name in names})
        self._num_tokens = tokens_within(settings, base.block_size)
        if start is None:
            tensors = _fresh(self._config, settings.seed)
        else:
            tensors = start.fitted(self._config.shapes(), torch.float32, torch.device("cpu"))
        named = {_inner(name): tensor for name, tensor in tensors.items()}
        self.network: DFlash2Network = filled(lambda: DFlash2Network(self._config), named).to(target.device)

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Outputs of the configured layers as ``hidden_states`` counts them."""
        return tuple(layer + 1 for layer in self._config.backbone.target_layer_ids)

    @property
    def module(self) -> nn.Module:
        """Backbone and selector."""
        return self.network

    def losses(self, batch: Batch, generator: torch.Generator) -> Losses:
        """One packed pass, or as many as it takes.

        ``accepted`` counts what the selector's own greedy walk gets: as long as it is right, the token before is the
        text's, so the walk over the text's tokens is the engine's. ``parts``, besides the two losses (weighted like the
        total, the selector's without its factor): ``taught``, the positions that taught the selector; and by position,
        ``/1`` the first behind the anchor: of ``positions/i`` so many in which the best candidate is right
        (``recall@1/i``) and the list holds the token (``recall@k/i``); of ``drafted[i - 1]`` chains those that always
        the best candidate (``unary/i``), and a selector that is always right (``oracle/i``), would get.
        """
        chosen = anchors_of(batch, self._settings.anchors, generator)
        return reduce(add, (self._losses(batch, anchors) for anchors in chosen))

    def _losses(self, batch: Batch, anchors: Anchors) -> Losses:
        settings, num_tokens = self._settings, self._num_tokens
        blocks = draft_blocks(self.network.backbone, self._target, batch, anchors)
        size = self._config.backbone.block_size
        unary, entropy, weights = unary_loss(blocks, self._target, batch, size, settings)
        candidates = candidates_of(blocks, self._config.selector_top_k, settings.forced_insertion)
        before = batch.token_ids[blocks.rows, blocks.positions - 1]
        selected, taught = self._selector_loss(blocks, candidates, before, weights)
        with torch.no_grad():
            scores = self._scores(blocks, candidates.ids, before)
            chosen = candidates.ids.gather(1, scores.argmax(dim=-1, keepdim=True)).squeeze(1)
            best = blocks.logits.argmax(dim=-1) == blocks.labels
            drafted, accepted = counted(blocks.kept, chosen == blocks.labels, num_tokens)
            by_position = {
                "positions": _by_position(blocks, torch.ones_like(best), num_tokens),
                "recall@1": _by_position(blocks, best, num_tokens),
                "recall@k": _by_position(blocks, candidates.listed, num_tokens),
                "unary": counted(blocks.kept, best, num_tokens)[1],
                "oracle": counted(blocks.kept, candidates.listed, num_tokens)[1],
            }
        parts = {"cross_entropy": entropy, "selector": selected.detach(), "taught": taught.sum()}
        for name, counts in by_position.items():
            parts |= {f"{name}/{position}": count for position, count in enumerate(counts.unbind(), start=1)}
        by_row = weights_of_rows(blocks, weights, len(batch.token_ids))
        return Losses(unary + settings.selector_weight * selected, by_row, drafted, accepted, parts)

    def checkpoint(self) -> Checkpoint:
        """As published, the codebooks bare."""
        inner = exported(self.network, self._config.to_json())
        return Checkpoint(inner.config, {_published(name): tensor for name, tensor in inner.tensors.items()})

    def _selector_loss(
        self, blocks: Blocks, candidates: Candidates, before: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Weighted cross entropy among the candidates, and the positions [n] that it is taken at."""
        hit = candidates.taught == blocks.labels.unsqueeze(1)
        taught = hit.any(dim=1)
        scores = self._scores(blocks, candidates.taught, before)[taught]
        losses = cross_entropy(scores, hit[taught].long().argmax(dim=1), reduction="none")
        return (weights[taught] * losses).sum(), taught

    def _scores(self, blocks: Blocks, ids: Tensor, before: Tensor) -> Tensor:
        added: Tensor = self.network.candidate_selector(blocks.hidden, before, ids)
        return blocks.logits.gather(1, ids) + added


def candidates_of(blocks: Blocks, top_k: int, forced_insertion: bool) -> Candidates:
    """The best ``top_k`` of each position's unary logits."""
    ranked = blocks.logits.detach().topk(min(top_k, blocks.logits.shape[1]), dim=-1).indices
    ids = ranked.sort(dim=-1).values
    listed = (ids == blocks.labels.unsqueeze(1)).any(dim=1)
    if not forced_insertion:
        return Candidates(ids, listed, ids)
    inserted = ranked.clone()
    inserted[:, -1] = torch.where(listed, ranked[:, -1], blocks.labels)
    return Candidates(ids, listed, inserted.sort(dim=-1).values)


def _by_position(blocks: Blocks, marks: Tensor, num_tokens: int) -> Tensor:
    """How many of ``marks`` [n] there are at each offset: [num_tokens]."""
    return blocks.offsets[marks].bincount(minlength=num_tokens)[:num_tokens]


def _fresh(config: DFlash2Config, seed: int) -> dict[str, Tensor]:
    """Weights to start from: the backbone's are those of DFlash with the same seed, the convolutions are the identity,
    and the selector adds nothing yet but has a gradient."""
    base = config.backbone
    made = fresh(config.shapes(), base.num_layers, seed)
    made |= fresh(base.shapes(), base.num_layers, seed)
    for name, tensor in made.items():
        if name.endswith("base_kernel"):
            tensor.zero_()
            tensor[:, 0] = 1.0
        elif name.endswith(("kernel_projection.weight", "successor_codebook")):
            tensor.zero_()
    return made


def _inner(name: str) -> str:
    return name if name.startswith("candidate_selector.") else f"backbone.{name}"


def _published(name: str) -> str:
    return name.removeprefix("backbone.")
