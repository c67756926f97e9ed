"""What 4-bit weights leave of a change: of the codes, of the change itself, and against quantization's own noise.

For weights W, a change Δ and quantization Q: the share of codes that differ between Q(W + Δ) and Q(W), the gain
⟨Q(W + Δ) - Q(W), Δ⟩ / ‖Δ‖² (1: the change survives on average, 0: it is gone), and the root mean square of Δ against that
of Q(W) - W. A change below half a step flips few codes either way, but where W lies anywhere between the levels the few
that flip make up for the rest, and where W already sits on the levels none does; so both are told.

Q finds its scales anew for W + Δ, as every quantizer does ("refitted"); with W's scales ("kept") only codes can carry the
change. Everything is computed from float32 weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Literal, get_args

import torch
from torch import Tensor

from drafters.quantization import NF4_BLOCK, RTN4_GROUP, Nf4, Rtn4, Scheme, nf4_levels

__all__ = ["Change", "Row", "Scales", "change_of", "changes", "pooled"]

Scales = Literal["refitted", "kept"]
Base = Literal["as_it_is", "on_the_grid"]


@dataclass(frozen=True, slots=True)
class Change:
    """Sums of one change, so that tensors add up before anything is divided."""

    codes: int
    flipped: int
    survived: float  # ⟨Q(W + Δ) - Q(W), Δ⟩
    square: float  # ‖Δ‖²
    noise: float  # ‖Q(W) - W‖², W before it was put on any grid

    def __add__(self, other: Change) -> Change:
        return Change(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Change)))

    @property
    def flipped_share(self) -> float:
        """Share of codes that differ."""
        return self.flipped / self.codes

    @property
    def gain(self) -> float | None:
        """What quantization leaves of the change in its own direction; ``None`` where nothing was changed."""
        return self.survived / self.square if self.square > 0 else None

    @property
    def signal_to_noise(self) -> float | None:
        """RMS of the change / RMS of the quantization error; ``None`` where quantization loses nothing."""
        return float((self.square / self.noise) ** 0.5) if self.noise > 0 else None

    @property
    def norm(self) -> float:
        """‖Δ‖."""
        return float(self.square**0.5)

    def to_json(self) -> dict[str, float | int | None]:
        """The ratios with the counts behind them."""
        return {
            "codes": self.codes,
            "flipped": self.flipped,
            "flipped_share": self.flipped_share,
            "gain": self.gain,
            "signal_to_noise": self.signal_to_noise,
            "norm": self.norm,
            "rms": (self.square / self.codes) ** 0.5,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """One way to look at a change. ``base`` ``on_the_grid``: Δ was added to Q(W), as when a 4-bit checkpoint is tuned."""

    scheme: Scheme
    base: Base
    scales: Scales
    change: Change

    def to_json(self) -> dict[str, object]:
        """As it stands in the report."""
        return {"scheme": self.scheme, "base": self.base, "scales": self.scales, **self.change.to_json()}


def changes(base: Tensor, model: Tensor, group: int = RTN4_GROUP) -> Iterator[Row]:
    """Yield every way to look at ``model`` - ``base`` (both [out, in]): schemes × bases × scales."""
    for scheme in get_args(Scheme):
        for where in get_args(Base):
            for scales in get_args(Scales):
                yield Row(scheme, where, scales, change_of(base, model, scheme, where, scales, group))


def change_of(
    base: Tensor,
    model: Tensor,
    scheme: Scheme,
    where: Base = "as_it_is",
    scales: Scales = "refitted",
    group: int = RTN4_GROUP,
) -> Change:
    """Compare the quantized weights before and after the change ``model`` - ``base``.

    ``group`` is that of rtn4. With ``on_the_grid`` the same change is added to the quantized base instead.
    """
    weight = base.detach().float()
    delta = model.detach().float() - weight
    quantized = _of(weight, scheme, group)
    error = _values(quantized) - weight
    if where == "on_the_grid":
        weight = _values(quantized)
        quantized = _of(weight, scheme, group)
    changed = weight + delta
    after = _of(changed, scheme, group) if scales == "refitted" else _recoded(changed, quantized)
    moved = (_values(after) - _values(quantized)).double()
    return Change(
        codes=delta.numel(),
        flipped=int((after.codes != quantized.codes).sum()),
        survived=float((moved * delta.double()).sum()),
        square=float(delta.double().square().sum()),
        noise=float(error.double().square().sum()),
    )


def pooled(tensors: Mapping[str, list[Row]]) -> list[Row]:
    """Add the rows of all tensors up, way by way."""
    found: dict[tuple[Scheme, Base, Scales], Change] = {}
    for rows in tensors.values():
        for row in rows:
            key = (row.scheme, row.base, row.scales)
            found[key] = found[key] + row.change if key in found else row.change
    return [Row(*key, change) for key, change in found.items()]


def _of(weight: Tensor, scheme: Scheme, group: int) -> Rtn4 | Nf4:
    return Rtn4.of(weight, group) if scheme == "rtn4" else Nf4.of(weight)


def _values(quantized: Rtn4 | Nf4) -> Tensor:
    return quantized.dequantized() if isinstance(quantized, Rtn4) else quantized.dequantized(torch.float32)


def _recoded(weight: Tensor, quantized: Rtn4 | Nf4) -> Rtn4 | Nf4:
    """Codes of ``weight`` under the scales that ``quantized`` has; what lies beyond its levels takes the outermost."""
    width = weight.shape[1]
    if isinstance(quantized, Rtn4):
        scales, zeros = (
            part.double().repeat_interleave(quantized.group, dim=1)[:, :width]
            for part in (quantized.scales, quantized.zeros)
        )
        codes = (((weight.double() - zeros) / scales).round() + 8).clamp(0, 15).to(torch.uint8)
        return Rtn4(codes, quantized.scales, quantized.zeros, quantized.group)
    scales = quantized.scales.repeat_interleave(NF4_BLOCK, dim=1)[:, :width]
    shares = weight / torch.where(scales > 0, scales, torch.ones_like(scales))
    levels = torch.tensor(nf4_levels(), device=weight.device)
    return Nf4(torch.bucketize(shares, (levels[1:] + levels[:-1]) / 2).to(torch.uint8), quantized.scales)
