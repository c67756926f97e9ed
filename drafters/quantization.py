"""Four-bit weights: round-to-nearest in groups, and NF4.

``rtn4``: every 32 neighbouring inputs of an output share a scale and a zero point, and the 16 levels lie evenly between
their least and their greatest weight. 32 rather than 128, because it divides the widths of small models too (576 =
18 · 32) and the error is smaller; scale and zero in bfloat16 make it 5 bits a weight.

``nf4``: every 64 neighbouring inputs share their largest magnitude, and the levels are quantiles of a normal distribution
(QLoRA, arXiv 2305.14314). 4.5 bits a weight with the magnitude in float32.

Groups lie along the input, so an output's levels do not depend on what it is fused with; the last one may be shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = [
    "NF4_BLOCK",
    "RTN4_GROUP",
    "Nf4",
    "Rtn4",
    "Scheme",
    "Weights",
    "nf4_levels",
    "pack_pairs",
    "quantize_dequantize",
]

Scheme = Literal["rtn4", "nf4"]
Weights = Literal["plain", "rtn4", "nf4"]
"""How projections hold their weights: as they are, or by a scheme."""

RTN4_GROUP = 32
NF4_BLOCK = 64
# Of QLoRA's construction: the outermost quantile, the mean of 1 - 1/30 and 1 - 1/32.
OUTERMOST = 0.9677083


@dataclass(frozen=True, slots=True)
class Rtn4:
    """``codes`` [out, in] from 0 to 15 in uint8; ``scales`` and ``zeros`` [out, groups]. A weight is
    (code - 8) · scale + zero, which is what torch's int4 products compute."""

    codes: Tensor
    scales: Tensor
    zeros: Tensor
    group: int = RTN4_GROUP

    @classmethod
    def of(cls, weight: Tensor, group: int = RTN4_GROUP) -> Rtn4:
        """Quantize ``weight`` [out, in]. Scale and zero are rounded to its type first and codes chosen for what they
        then are, so nothing is rounded twice."""
        grouped = _grouped(weight.double(), group)
        low, high = grouped.amin(-1), grouped.amax(-1)  # [out, groups]
        scales = ((high - low) / 15).to(weight.dtype)
        scales = torch.where(scales > 0, scales, torch.ones_like(scales))  # a group of equal weights: its zero is they
        zeros = torch.where(high > low, low + 8 * scales, low).to(weight.dtype)
        steps = (grouped - zeros.double().unsqueeze(-1)) / scales.double().unsqueeze(-1)
        codes = (steps.round() + 8).clamp(0, 15).to(torch.uint8)
        return cls(codes.flatten(1)[:, : weight.shape[1]], scales, zeros, group)

    def dequantized(self) -> Tensor:
        """[out, in] in the type of the scales."""
        codes = _grouped(self.codes.to(self.scales.dtype), self.group)
        values = (codes - 8) * self.scales.unsqueeze(-1) + self.zeros.unsqueeze(-1)
        return values.flatten(1)[:, : self.codes.shape[1]].contiguous()


@dataclass(frozen=True, slots=True)
class Nf4:
    """``codes`` [out, in] from 0 to 15 in uint8, places in `nf4_levels`; ``scales`` [out, blocks] the largest
    magnitudes in float32."""

    codes: Tensor
    scales: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> Nf4:
        """Quantize ``weight`` [out, in]: each weight takes the nearest level, the lower one of two as near."""
        grouped = _grouped(weight.float(), NF4_BLOCK)
        scales = grouped.abs().amax(-1)  # [out, blocks]
        shares = grouped / torch.where(scales > 0, scales, torch.ones_like(scales)).unsqueeze(-1)
        levels = torch.tensor(nf4_levels(), device=weight.device)
        codes = torch.bucketize(shares, (levels[1:] + levels[:-1]) / 2).to(torch.uint8)
        return cls(codes.flatten(1)[:, : weight.shape[1]], scales)

    def dequantized(self, dtype: torch.dtype) -> Tensor:
        """[out, in] in ``dtype``."""
        levels = torch.tensor(nf4_levels(), device=self.codes.device)
        values = _grouped(levels[self.codes.long()], NF4_BLOCK) * self.scales.unsqueeze(-1)
        return values.flatten(1)[:, : self.codes.shape[1]].to(dtype).contiguous()


def quantize_dequantize(weight: Tensor, scheme: Scheme) -> Tensor:
    """Return ``weight`` [out, in] with every value at one of its group's levels, in its own type and place."""
    if scheme not in get_args(Scheme):
        raise ValueError(f"scheme is {scheme!r}; allowed: {', '.join(get_args(Scheme))}")
    return Rtn4.of(weight).dequantized() if scheme == "rtn4" else Nf4.of(weight).dequantized(weight.dtype)


@cache
def nf4_levels() -> tuple[float, ...]:
    """The 16 levels from -1 to 1: seven negative quantiles of a normal distribution, zero, eight positive ones.

    Both halves go in equal steps of probability to the same outermost quantile, which is scaled to 1.
    """
    normal = NormalDist()
    positive = [normal.inv_cdf(0.5 + (OUTERMOST - 0.5) * step / 8) for step in range(1, 9)]
    negative = [-normal.inv_cdf(0.5 + (OUTERMOST - 0.5) * step / 7) for step in range(7, 0, -1)]
    return tuple(level / positive[-1] for level in (*negative, 0.0, *positive))


def pack_pairs(codes: Tensor) -> Tensor:
    """Two codes a byte: [out, in] → [out, in / 2] in uint8, the earlier one in the upper half. ``in`` must be even."""
    if codes.shape[1] % 2:
        raise ValueError(f"{codes.shape[1]} codes a row; allowed: an even number, two make a byte")
    return (codes[:, ::2] << 4) | codes[:, 1::2]


def _grouped(rows: Tensor, size: int) -> Tensor:
    """[out, in] → [out, groups, size]; a shorter last group is filled up with its last value, which changes neither
    its least nor its greatest."""
    missing = -rows.shape[1] % size
    if missing:
        rows = pad(rows.unsqueeze(0), (0, missing), mode="replicate")[0]
    return rows.reshape(rows.shape[0], -1, size)
