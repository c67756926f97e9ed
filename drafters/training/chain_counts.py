"""Counting how far a chain of drafted tokens agrees with the text, as `drafters.training.method.Losses` wants it."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad

__all__ = ["ahead", "chain_counts"]


def ahead(marks: Tensor, steps: int) -> Tensor:
    """[rows, length] → the same shape: what stands ``steps`` positions later; false beyond the end."""
    return pad(marks, (0, steps))[:, steps:]


def chain_counts(right: Tensor, tried: Tensor) -> tuple[Tensor, Tensor]:
    """``right`` and ``tried`` [places, num_tokens] bool, of the i-th token drafted at each place → drafted, accepted.

    Both [num_tokens], float32: a token counts where it and all before it were tried, and as accepted where they were
    right too.
    """
    reached = tried.int().cumprod(dim=1)
    accepted = (right & tried).int().cumprod(dim=1)
    return reached.sum(dim=0).float(), accepted.sum(dim=0).float()
