"""DFlash 2: the DFlash backbone with dynamic causal convolutions, and a selector that walks over candidates.

Published as inference code and weights by the authors of DFlash (August 2026); there is no paper. Checkpoint: that of DFlash,
``architectures`` DFlash2DraftModel, with ``layers.{i}.{attention_conv,mlp_conv}.{base_kernel,kernel_projection.weight}`` and
``candidate_selector.{predecessor_codebook,successor_codebook,hidden_projection.weight}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import gcd
from typing import Any

import torch
from torch import Tensor

from drafters.base import Commit, Draft, DraftRequest, Target
from drafters.checkpoint import Checkpoint, drawn
from drafters.dflash_backbone import Around, Backbone, Sublayer
from drafters.dflash_config import DFlashConfig, draft_integer
from drafters.projections import Projection, project
from drafters.sampling import distribution, pick
from drafters.specs import DFlash2Spec, SpecError

__all__ = ["CandidateSelector", "DFlash2", "DFlash2Config", "GroupedDynamicCausalConv", "untrained"]

ARCHITECTURE = "DFlash2DraftModel"
CONVS = ("attention_conv", "mlp_conv")


@dataclass(frozen=True, slots=True)
class DFlash2Config:
    """A DFlash configuration and what DFlash 2 adds, under the published names."""

    backbone: DFlashConfig
    conv_kernel_size: int = 2
    conv_group_size: int = 16
    selector_rank: int = 256
    selector_top_k: int = 16

    def __post_init__(self) -> None:
        if self.conv_group_size < 1 or self.backbone.hidden_size % self.conv_group_size:
            raise SpecError(
                f"conv_group_size is {self.conv_group_size}; allowed: a divisor of the hidden size "
                f"{self.backbone.hidden_size}"
            )
        for name in ("conv_kernel_size", "selector_rank", "selector_top_k"):
            if getattr(self, name) < 1:
                raise SpecError(f"{name} is {getattr(self, name)}; allowed: 1 or more")

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> DFlash2Config:
        """Read a published configuration. Raises SpecError for what is missing or not carried out here."""
        return cls(
            DFlashConfig.from_json(raw, ARCHITECTURE),
            draft_integer(raw, "conv_kernel_size"),
            draft_integer(raw, "conv_group_size"),
            draft_integer(raw, "selector_rank"),
            draft_integer(raw, "selector_top_k"),
        )

    def to_json(self) -> dict[str, Any]:
        """The published form."""
        made = self.backbone.to_json(ARCHITECTURE)
        made["dflash_config"] |= {
            "conv_kernel_size": self.conv_kernel_size,
            "conv_group_size": self.conv_group_size,
            "selector_rank": self.selector_rank,
            "selector_top_k": self.selector_top_k,
        }
        return made

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the file, those of the backbone first. The codebooks are bare, without ``.weight``."""
        base, rank = self.backbone, self.selector_rank
        hidden, taps = base.hidden_size, self.conv_kernel_size
        made = base.shapes()
        for index in range(base.num_layers):
            for conv in CONVS:
                name = f"layers.{index}.{conv}"
                made[f"{name}.base_kernel"] = (2, taps, hidden)
                made[f"{name}.kernel_projection.weight"] = (2 * taps * (hidden // self.conv_group_size), hidden)
        made["candidate_selector.hidden_projection.weight"] = (rank, hidden)
        made["candidate_selector.predecessor_codebook"] = (base.vocab_size, rank)
        made["candidate_selector.successor_codebook"] = (base.vocab_size, rank)
        return made


class GroupedDynamicCausalConv:
    """Mixes each position of a block with those before it, once before a sublayer and once after.

    A position's kernel is ``base_kernel`` [2, taps, hidden] (before and after; tap o reaches o positions back) plus
    what ``projection`` (hidden → 2 · taps · groups) makes of the sublayer's normed input at that position, one number
    for each group of neighbouring channels. Before the block's first position stand zeros. An `Around`.
    """

    def __init__(self, base_kernel: Tensor, projection: Projection, group_size: int, block_size: int) -> None:
        _, self._taps, hidden = base_kernel.shape
        self._groups = hidden // group_size
        self._base = base_kernel.view(2, self._taps, self._groups, group_size)
        self._projection = projection
        self._block_size = block_size

    def __call__(self, rows: Tensor, sublayer: Sublayer) -> Tensor:
        """``rows`` [blocks · block_size, hidden], the normed input; returns the same shape, without the residual."""
        # [blocks, block_size, before and after, taps, groups, 1]
        dynamic = self._projection(rows).view(-1, self._block_size, 2, self._taps, self._groups, 1)
        return self._mix(sublayer(self._mix(rows, 0, dynamic)), 1, dynamic)

    def _mix(self, rows: Tensor, side: int, dynamic: Tensor) -> Tensor:
        kernel = self._base[side] + dynamic[:, :, side]  # [blocks, block_size, taps, groups, group_size]
        blocks = rows.view(-1, self._block_size, *self._base.shape[2:])  # [blocks, block_size, groups, group_size]
        mixed = kernel[:, :, 0] * blocks
        for tap in range(1, min(self._taps, self._block_size)):
            mixed[:, tap:] += kernel[:, tap:, tap] * blocks[:, :-tap]
        return mixed.view_as(rows)


class CandidateSelector:
    """Chooses among the best candidates of each position by how they follow the token chosen before.

    The score of candidate v at position j after token x is logit_j(v) + ⟨A[x] ⊙ (P h_j), S[v]⟩ with the codebooks A
    ``predecessor`` and S ``successor`` [vocab, rank] and P ``projection`` (hidden → rank).
    """

    def __init__(self, predecessor: Tensor, successor: Tensor, projection: Projection, top_k: int) -> None:
        self._predecessor = predecessor
        self._successor = successor
        self._projection = projection
        self._top_k = top_k

    def walk(
        self,
        anchors: Tensor,
        lengths: Sequence[int],
        hidden: Tensor,
        logits: Tensor,
        temperatures: Sequence[float],
        uniforms: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Walk from each anchor [n] over the positions of its draft, all drafts at once, left to right.

        ``hidden`` [rows, hidden] and ``logits`` [rows, vocab] are those of ``lengths[0]`` positions of the first draft,
        then the second's, and so on. ``temperatures[i]`` 0 takes the best candidate, the lowest id of equal ones; above
        it a candidate is drawn from softmax(score / temperature) by ``uniforms`` [n, longest]. Returns the tokens
        [rows] and the distribution each came from, spread over the vocabulary [rows, vocab].
        """
        unary, candidates, gate = self._candidates(hidden, logits)
        starts = [end - length for end, length in zip(accumulate(lengths), lengths, strict=True)]
        before = anchors.clone()
        tokens = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
        probs = torch.zeros(logits.shape, dtype=unary.dtype, device=logits.device)
        for depth in range(max(lengths, default=0)):
            going = [draft for draft, length in enumerate(lengths) if length > depth]
            draft = torch.tensor(going, device=logits.device)
            row = torch.tensor([starts[index] + depth for index in going], device=logits.device)
            ids = candidates[row]  # [going, top_k]
            link = self._predecessor[before[draft]].to(unary.dtype) * gate[row]  # [going, rank]
            scores = unary[row] + (self._successor[ids].to(unary.dtype) @ link.unsqueeze(2)).squeeze(2)
            drawn_from = distribution(scores, [temperatures[index] for index in going])  # temperature 0: one-hot
            chosen = pick(drawn_from, uniforms[draft, depth]).unsqueeze(1)
            before[draft] = tokens[row] = ids.gather(1, chosen).squeeze(1)
            probs[row] = torch.zeros_like(probs[row]).scatter_(1, ids, drawn_from)
        return tokens, probs

    def best(self, anchors: Tensor, lengths: Sequence[int], hidden: Tensor, logits: Tensor) -> Tensor:
        """The tokens [rows] of `walk` at temperature 0, without the distributions: a third of its time for one draft."""
        unary, candidates, gate = self._candidates(hidden, logits)
        successors = self._successor[candidates].to(unary.dtype)  # [rows, top_k, rank]
        starts = [end - length for end, length in zip(accumulate(lengths), lengths, strict=True)]
        tokens = torch.empty(len(logits), dtype=torch.long, device=logits.device)
        before = anchors.clone()
        for depth in range(max(lengths, default=0)):
            drafts: slice | Tensor = slice(None)
            rows: slice | Tensor = slice(depth, None, lengths[0])  # of drafts of one length
            if min(lengths) < max(lengths):
                going = [draft for draft, length in enumerate(lengths) if length > depth]
                drafts = torch.tensor(going, device=logits.device)
                rows = torch.tensor([starts[draft] + depth for draft in going], device=logits.device)
            link = self._predecessor[before[drafts]].to(unary.dtype) * gate[rows]  # [going, rank]
            scores = unary[rows] + (successors[rows] @ link.unsqueeze(2)).squeeze(2)
            chosen = candidates[rows].gather(1, scores.argmax(dim=1, keepdim=True)).squeeze(1)
            before[drafts] = tokens[rows] = chosen
        return tokens

    def _candidates(self, hidden: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best candidates' logits and ids [rows, top_k], and the gates [rows, rank]. The ids ascend, so that of equal
        scores the lowest is the first."""
        unary = logits if logits.dtype == torch.float64 else logits.float()
        candidates = unary.topk(min(self._top_k, unary.shape[1]), dim=-1, sorted=False).indices.sort(dim=-1).values
        return unary.gather(1, candidates), candidates, self._projection(hidden).to(unary.dtype)


class DFlash2:
    """Drafts chains of up to ``num_tokens`` tokens, and never more than the block has behind its anchor.

    Requests that sample draw from softmax(score / temperature) over the candidates, which is the draft's ``probs``; the
    request's top-k and top-p filter the target alone.
    """

    tree = False

    def __init__(self, checkpoint: Checkpoint, target: Target, cache_tokens: int, num_tokens: int = 7) -> None:
        """Raises SpecError for a checkpoint of another target or architecture."""
        config = DFlash2Config.from_json(checkpoint.config)
        base = config.backbone
        base.check(target)
        if base.vocab_size < target.vocab_size:
            raise SpecError(
                f"the drafter's codebooks have {base.vocab_size} entries, the target's vocabulary {target.vocab_size}; "
                "give a drafter of this target"
            )
        weights = checkpoint.fitted(config.shapes(), target.dtype, target.device)
        convs = [
            GroupedDynamicCausalConv(
                weights[f"layers.{layer}.{name}.base_kernel"],
                project(weights[f"layers.{layer}.{name}.kernel_projection.weight"]),
                config.conv_group_size,
                base.block_size,
            )
            for layer in range(base.num_layers)
            for name in CONVS
        ]
        around: list[tuple[Around, Around]] = list(zip(convs[::2], convs[1::2], strict=True))
        self.max_nodes = min(num_tokens, base.block_size - 1)
        self.backbone = Backbone(base, weights, target, cache_tokens, around)
        self.feature_layers = self.backbone.feature_layers
        self._selector = CandidateSelector(
            weights["candidate_selector.predecessor_codebook"],
            weights["candidate_selector.successor_codebook"],
            project(weights["candidate_selector.hidden_projection.weight"]),
            config.selector_top_k,
        )
        self._target = target

    @classmethod
    def from_spec(cls, spec: DFlash2Spec, target: Target, cache_tokens: int) -> DFlash2:
        """Load the checkpoint, or draw weights from the spec's seed."""
        if spec.model is not None:
            checkpoint = Checkpoint.load(spec.model)
        else:
            config = DFlash2Config(
                DFlashConfig.for_target(target, spec.block_size, spec.num_layers, spec.mask_token_id),
                conv_group_size=gcd(target.hidden_size, 16),
                selector_rank=spec.selector_rank,
                selector_top_k=spec.selector_top_k,
            )
            checkpoint = untrained(config, spec.seed)
        return cls(checkpoint, target, cache_tokens, spec.num_tokens)

    def open(self, sequence_id: int, max_length: int) -> None:
        """Reserve the sequence's context."""
        self.backbone.open(sequence_id, max_length)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One pass for all, then the walk; a sequence for which there was no room gets an empty draft."""
        drafts = [Draft(())] * len(requests)
        going, blocks = self.backbone.blocks(requests)
        if not going:
            return drafts
        asking = [requests[index] for index in going]
        lengths = [min(request.num_tokens, self.max_nodes) for request in asking]
        hidden = torch.cat([block[1 : length + 1] for block, length in zip(blocks.unbind(), lengths, strict=True)])
        anchors = torch.tensor([request.token_ids[-1] for request in asking], device=hidden.device)
        logits = self._target.head(hidden)
        probs: Tensor | None = None
        if all(request.sampling.greedy for request in asking):
            tokens = self._selector.best(anchors, lengths, hidden, logits)
        else:
            temperatures = [request.sampling.temperature for request in asking]
            uniforms = _uniforms(asking, lengths).to(hidden.device)
            tokens, probs = self._selector.walk(anchors, lengths, hidden, logits, temperatures, uniforms)
        ends = list(accumulate(lengths))
        chosen: list[int] = tokens.tolist()
        for index, request, end, length in zip(going, asking, ends, lengths, strict=True):
            own = slice(end - length, end)
            drafts[index] = Draft(tuple(chosen[own]), None if probs is None or request.sampling.greedy else probs[own])
        return drafts

    def commit(self, commits: Sequence[Commit]) -> None:
        """Append what the target now knows to the contexts."""
        self.backbone.commit(commits)

    def release(self, sequence_id: int) -> None:
        """Free the sequence's context."""
        self.backbone.release(sequence_id)


def untrained(config: DFlash2Config, seed: int = 0) -> Checkpoint:
    """Random weights. The backbone's are those of DFlash with the same seed, and the convolutions start as the
    identity, as in the published model."""
    weights = drawn(config.shapes(), seed)
    for name, tensor in weights.items():
        if name.endswith("base_kernel"):
            tensor.zero_()
            tensor[:, 0] = 1.0
        elif name.endswith("kernel_projection.weight"):
            tensor.zero_()
    return Checkpoint(config.to_json() | {"dtype": "float32"}, weights)


def _uniforms(requests: Sequence[DraftRequest], lengths: Sequence[int]) -> Tensor:
    """[n, longest]: so many of each request's own chances as it has positions; 0 where nothing is drawn."""
    made = torch.zeros((len(requests), max(lengths)), dtype=torch.float64)
    for row, (request, length) in enumerate(zip(requests, lengths, strict=True)):
        if not request.sampling.greedy:
            made[row, :length] = torch.rand(length, generator=request.generator, dtype=torch.float64)
    return made
