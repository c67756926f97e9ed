"""Counting how far a chain of drafted tokens agrees with the text, as `drafters.training.method.Losses` wants it."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad

__all__ = ["ahead", "chain_counts"]


def ahead(marks: Tensor, steps: int) -> Tensor:
    """[rows, length] → the same shape: what stands ``steps`` positions later; false beyond the end."""
    return pad(marks, (0, steps))[:, steps:]


def chain_counts(right: Tensor, tried: Tensor, num_tokens: int | None = None) -> tuple[Tensor, Tensor]:
    """``right`` and ``tried`` [..., drafted] bool, of the i-th token drafted at each place → drafted, accepted.

    Both [num_tokens], float32, by default of all that are drafted: a token counts where it and all before it were tried,
    and as accepted where they were right too. Tokens that no place has count nothing.
    """
    length = right.shape[-1]
    reached = tried.reshape(-1, length).int().cumprod(dim=1)
    accepted = (right & tried).reshape(-1, length).int().cumprod(dim=1)
    more = 0 if num_tokens is None else num_tokens - length  # a negative one cuts
    return pad(reached.sum(dim=0).float(), (0, more)), pad(accepted.sum(dim=0).float(), (0, more))
