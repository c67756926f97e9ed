"""Linear maps, each in the storage that serves it best: plain, packed for the processor, in four bits."""

from __future__ import annotations

from functools import cache
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from drafters.quantization import RTN4_GROUP, Rtn4, Weights, pack_pairs, quantize_dequantize

__all__ = ["Dense", "Int4", "Packed", "Projection", "multiplies_int4", "project"]


class Projection(Protocol):
    """A linear map over the last dimension: dense, quantized or in a layout of its own."""

    @property
    def weight_bytes(self) -> int:
        """What a product with one row reads of the weights, in bytes."""
        ...

    def __call__(self, rows: Tensor) -> Tensor:
        """[n, in] → [n, out]."""
        ...


# oneDNN's float32 product (torch 2.13, AVX2) takes 4 to 6 rows in one pass over the weights at three quarters of the time
# that it takes for 1, and at half of that for 2; a short product is padded. Small weights stay in the processor's caches,
# where the padding costs more than it spares.
LEAST_ROWS = 4
PADDED_BYTES = 1 << 20


class Dense:
    """Weights as they are: ``weight`` [out, in], ``bias`` [out] or None."""

    __slots__ = ("bias", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    @property
    def weight_bytes(self) -> int:
        """All weights in bytes."""
        return _bytes(self.weight, self.bias)

    def __call__(self, rows: Tensor) -> Tensor:
        """[n, in] → [n, out]."""
        return linear(rows, self.weight, self.bias)


class Packed:
    """Weights in the blocked layout of oneDNN, for CPUs.

    With weights as they are, 2 to 16 rows cost torch's CPU product twice the time of one row; in this layout they cost
    about the same, which is what verification lives on. The values are those of `Dense` up to the order of summation.
    """

    __slots__ = ("_bias", "_least", "_weight", "weight_bytes")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight_bytes: int = _bytes(weight, bias)
        self._least = LEAST_ROWS if weight.dtype == torch.float32 and weight.nbytes >= PADDED_BYTES else 1
        # The number of rows is a hint to the choice of the layout only; any number may be multiplied.
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 8)
        self._bias = bias

    def __call__(self, rows: Tensor) -> Tensor:
        """[n, in] → [n, out]."""
        count = rows.shape[0]
        if count < self._least:
            rows = pad(rows, (0, 0, 0, self._least - count))
        made: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return made[:count]

    @staticmethod
    def suits(weight: Tensor) -> bool:
        """Whether this build of torch can pack weights of this type and place."""
        return weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16) and _packs(weight.dtype)


@cache
def _packs(dtype: torch.dtype) -> bool:
    # The operators are not public and not all processors have all types, so one small product is tried.
    weight, rows = torch.tensor([[1, 2], [3, 4]], dtype=dtype), torch.tensor([[1, 1]], dtype=dtype)
    try:
        made = Packed(weight)(rows)
    except (AttributeError, RuntimeError):
        return False
    return bool(torch.equal(made, Dense(weight)(rows)))  # whole numbers this small are exact in every type


class Int4:
    """Weights of `Rtn4` kept in four bits, for torch's int4 products; in bfloat16.

    Chosen on CUDA alone. Torch's product for CPUs is right as well, but a row more costs it a row's time more: at 9 rows
    it takes two to three times as long as `Packed` in bfloat16 and over fifty times as long in float32, and 9 rows are
    what verification multiplies. Having both and choosing by rows would give a decoding step other sums than the
    verification of the same token.
    """

    __slots__ = ("_bias", "_group", "_packed", "_scales_zeros", "weight_bytes")

    def __init__(self, quantized: Rtn4, bias: Tensor | None = None) -> None:
        """``quantized`` holds a multiple of 16 outputs and of its group's inputs."""
        codes = quantized.codes
        if codes.device.type == "cpu":
            self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), 1)
        else:
            # Two tiles of 16 inputs go into a step, the least there is, so that any multiple of 32 will do.
            self._packed = torch.ops.aten._convert_weight_to_int4pack(pack_pairs(codes), 2)
        self._scales_zeros = torch.stack((quantized.scales.T, quantized.zeros.T), dim=-1).contiguous()
        self._group = quantized.group
        self._bias = bias
        self.weight_bytes: int = codes.numel() // 2 + _bytes(self._scales_zeros, bias)

    def __call__(self, rows: Tensor) -> Tensor:
        """[n, in] → [n, out]."""
        multiply = (
            torch.ops.aten._weight_int4pack_mm_for_cpu
            if rows.device.type == "cpu"
            else torch.ops.aten._weight_int4pack_mm
        )
        made: Tensor = multiply(rows, self._packed, self._group, self._scales_zeros)
        return made if self._bias is None else made + self._bias

    @staticmethod
    def suits(weight: Tensor) -> bool:
        """Whether this build and device have the product for weights of this type, place and shape."""
        fits = weight.shape[0] % 16 == 0 and weight.shape[1] % RTN4_GROUP == 0
        return (
            fits and weight.device.type == "cuda" and weight.dtype == torch.bfloat16 and multiplies_int4(weight.device)
        )


@cache
def multiplies_int4(device: torch.device) -> bool:
    """Whether torch's int4 product on ``device`` gives what the dequantized weights give.

    The operators are not public and old devices lack them, so a small product is tried, for one row and for several.
    """
    generator = torch.Generator().manual_seed(0)
    weight, rows = (torch.randn((size, 64), generator=generator).to(device, torch.bfloat16) for size in (32, 9))
    quantized = Rtn4.of(weight)
    plain = Dense(quantized.dequantized())
    try:
        packed = Int4(quantized)
        # Sums of 64 products near 1, rounded to 8 bits.
        return all(torch.allclose(packed(rows[:n]), plain(rows[:n]), rtol=0.05, atol=0.2) for n in (1, 9))
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


def project(weight: Tensor, bias: Tensor | None = None, weights: Weights = "plain") -> Projection:
    """Return the fastest projection for ``weight`` [out, in] where it is, quantized as ``weights`` says.

    Where no product for quantized weights serves, they are dequantized: the numbers of quantization, not its memory.
    """
    if weights == "rtn4" and Int4.suits(weight):
        return Int4(Rtn4.of(weight), bias)
    if weights != "plain":
        weight = quantize_dequantize(weight, weights)
    return Packed(weight, bias) if Packed.suits(weight) else Dense(weight, bias)


def _bytes(*tensors: Tensor | None) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)
