"""The feed-forward half of the target's layers: a gated MLP, or a mixture of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from drafters.projections import Projection

__all__ = ["Experts", "GatedMlp"]


class GatedMlp:
    """down(silu(gate(x)) · up(x)), gate and up in one product."""

    __slots__ = ("down", "gate_up")

    def __init__(self, gate_up: Projection, down: Projection) -> None:
        self.gate_up = gate_up
        self.down = down

    @property
    def weight_bytes(self) -> int:
        """What one row reads, in bytes."""
        return self.gate_up.weight_bytes + self.down.weight_bytes

    def __call__(self, rows: Tensor) -> Tensor:
        """[n, hidden] → [n, hidden]."""
        gate, up = self.gate_up(rows).chunk(2, dim=-1)
        return self.down(silu(gate).mul_(up))


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture: ``router`` [experts, hidden] picks ``top_k`` of the ``experts`` for each row."""

    router: Tensor
    experts: tuple[GatedMlp, ...]
    top_k: int
    normalise: bool

    @property
    def weight_bytes(self) -> int:
        """What one row reads, in bytes."""
        # One row goes through the router and so many experts, which are all of one size.
        return self.router.nbytes + self.top_k * self.experts[0].weight_bytes

    def __call__(self, rows: Tensor) -> Tensor:
        """[n, hidden] → [n, hidden]."""
        # The router's softmax is float32 whatever the weights are, as in transformers.
        shares = torch.softmax(linear(rows, self.router), dim=-1, dtype=torch.float)
        weights, chosen = shares.topk(self.top_k, dim=-1)  # [n, top_k]
        if self.normalise:
            weights = weights / weights.sum(-1, keepdim=True)
        weights = weights.to(rows.dtype)
        out = torch.zeros_like(rows)
        for expert in sorted(set(chosen.flatten().tolist())):
            row, rank = torch.where(chosen == expert)
            out.index_add_(0, row, self.experts[expert](rows[row]) * weights[row, rank].unsqueeze(1))
        return out
