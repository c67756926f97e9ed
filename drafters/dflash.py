"""DFlash: a block of tokens in one pass, with the target's features in every layer's K/V (arXiv 2602.06036).

Checkpoint: that of the published models, ``architectures`` DFlashDraftModel; tensors ``fc``, ``hidden_norm``,
``layers.{i}.*`` under Qwen3's names and ``norm``. Embedding and head are the target's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from drafters.base import Commit, Draft, DraftRequest, Target
from drafters.checkpoint import Checkpoint, drawn
from drafters.dflash_backbone import Backbone
from drafters.dflash_config import DFlashConfig
from drafters.sampling import distribution, pick
from drafters.specs import DFlashSpec

__all__ = ["DFlash", "untrained"]


def untrained(
    target: Target, block_size: int = 8, num_layers: int = 5, seed: int = 0, mask_token_id: int | None = None
) -> Checkpoint:
    """Random weights for ``target``; ``mask_token_id`` is the vocabulary's last id unless given."""
    config = DFlashConfig.for_target(target, block_size, num_layers, mask_token_id)
    return Checkpoint(config.to_json() | {"dtype": "float32"}, drawn(config.shapes(), seed))


class DFlash:
    """Drafts chains of up to ``num_tokens`` tokens, and never more than the block has behind its anchor.

    Greedy requests get each position's best token. Requests that sample get each position's token drawn on its own from
    that position's distribution under the request's temperature, top-k and top-p, which is the draft's ``probs`` as it
    stands: within a pass no position depends on what another one drew.
    """

    tree = False

    def __init__(self, checkpoint: Checkpoint, target: Target, cache_tokens: int, num_tokens: int = 7) -> None:
        """Raises SpecError for a checkpoint of another target or architecture."""
        config = DFlashConfig.from_json(checkpoint.config)
        config.check(target)
        weights = checkpoint.fitted(config.shapes(), target.dtype, target.device)
        self.max_nodes = min(num_tokens, config.block_size - 1)
        self.backbone = Backbone(config, weights, target, cache_tokens)
        self.feature_layers = self.backbone.feature_layers
        self._target = target

    @classmethod
    def from_spec(cls, spec: DFlashSpec, target: Target, cache_tokens: int) -> DFlash:
        """Load the checkpoint, or draw weights from the spec's seed."""
        if spec.model is not None:
            checkpoint = Checkpoint.load(spec.model)
        else:
            checkpoint = untrained(target, spec.block_size, spec.num_layers, spec.seed, spec.mask_token_id)
        return cls(checkpoint, target, cache_tokens, spec.num_tokens)

    def open(self, sequence_id: int, max_length: int) -> None:
        """Reserve the sequence's context."""
        self.backbone.open(sequence_id, max_length)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One pass for all; a sequence for which there was no room gets an empty draft."""
        drafts = [Draft(())] * len(requests)
        going, hidden = self.backbone.blocks(requests)
        if not going:
            return drafts
        lengths = [min(requests[index].num_tokens, self.max_nodes) for index in going]
        rows = torch.cat([block[1 : length + 1] for block, length in zip(hidden.unbind(), lengths, strict=True)])
        logits = self._target.head(rows)  # [sum of lengths, vocab]
        for index, own in zip(going, torch.split(logits, lengths), strict=True):
            drafts[index] = _draft(requests[index], own)
        return drafts

    def commit(self, commits: Sequence[Commit]) -> None:
        """Append what the target now knows to the contexts."""
        self.backbone.commit(commits)

    def release(self, sequence_id: int) -> None:
        """Free the sequence's context."""
        self.backbone.release(sequence_id)


def _draft(request: DraftRequest, logits: Tensor) -> Draft:
    """``logits`` [len, vocab], of one sequence."""
    sampling = request.sampling
    if sampling.greedy:
        return Draft(tuple(logits.argmax(dim=-1).tolist()))
    probs = distribution(logits, sampling.temperature, sampling.top_k, sampling.top_p)
    uniforms = torch.rand(len(probs), generator=request.generator, dtype=torch.float64)
    return Draft(tuple(pick(probs, uniforms.to(probs.device)).tolist()), probs)
