"""Linear maps, each fast storage beside the plain one."""

from __future__ import annotations

import platform

import pytest
import torch

from drafters.projections import Dense, Int4, Packed, _packs, multiplies_int4, project
from drafters.quantization import Rtn4, Scheme, quantize_dequantize


@pytest.mark.parametrize("rows", [1, 2, 9, 40])
@pytest.mark.parametrize("biased", [False, True])
# Sums of 33 products near 1 in another order: six digits agree in float32, two in bfloat16.
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_packed_weights_multiply_like_plain_ones(rows: int, biased: bool, dtype: torch.dtype, close: float) -> None:
    """Any number of rows, with and without a bias."""
    torch.manual_seed(0)
    weight, given = torch.randn(70, 33, dtype=dtype), torch.randn(rows, 33, dtype=dtype)
    bias = torch.randn(70, dtype=dtype) if biased else None
    if not Packed.suits(weight):
        # What the engine lives on with float32 on such processors must not go missing unseen.
        assert (dtype, platform.machine()) != (torch.float32, "x86_64")
        pytest.skip(f"torch {torch.__version__} packs no {dtype} weights on this {platform.machine()} processor")
    torch.testing.assert_close(Packed(weight, bias)(given), Dense(weight, bias)(given), rtol=close, atol=close)


def test_float64_is_not_packed() -> None:
    """The type of exactness tests stays in the plain layout."""
    assert isinstance(project(torch.zeros(4, 4, dtype=torch.float64)), Dense)


@pytest.mark.parametrize("error", [AttributeError, RuntimeError])
def test_a_build_whose_operators_are_gone_or_fail_packs_nothing(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one small product raises is taken for a no, so that the plain layout is used."""

    def refuse(packed: Packed, rows: torch.Tensor) -> torch.Tensor:
        raise error("no such product")

    monkeypatch.setattr(Packed, "__call__", refuse)
    assert not _packs.__wrapped__(torch.float32)


@pytest.mark.parametrize("rows", [1, 9, 64])
@pytest.mark.parametrize("biased", [False, True])
# Sums of 96 products near 1: six digits in float32, two in bfloat16, which rounds the bias apart.
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-4), (torch.bfloat16, 0.2)])
def test_int4_products_are_those_of_the_dequantized_weights(
    rows: int, biased: bool, dtype: torch.dtype, close: float
) -> None:
    """Any number of rows, with and without a bias."""
    if not multiplies_int4(torch.device("cpu")):
        pytest.skip(
            f"torch {torch.__version__} has no int4 product for this processor; the engine takes none on a CPU either"
        )
    torch.manual_seed(0)
    quantized = Rtn4.of(torch.randn(48, 96, dtype=dtype))
    given, bias = torch.randn(rows, 96, dtype=dtype), torch.randn(48, dtype=dtype) if biased else None
    want = Dense(quantized.dequantized(), bias)(given)
    torch.testing.assert_close(Int4(quantized, bias)(given), want, rtol=0.02, atol=close)


def test_int4_holds_five_bits_a_weight() -> None:
    """4 and, for each 32, two numbers of 16 bits: 48 · 96 weights take 2,880 bytes, and a bias of 48 another 96."""
    quantized = Rtn4.of(torch.randn(48, 96, dtype=torch.bfloat16))
    assert Int4(quantized).weight_bytes == 2880
    assert Int4(quantized, torch.zeros(48, dtype=torch.bfloat16)).weight_bytes == 2976


@pytest.mark.parametrize("weights", ["rtn4", "nf4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_without_a_product_that_serves_weights_are_dequantized(weights: Scheme, dtype: torch.dtype) -> None:
    """On a CPU the projection is the one of plain weights, with quantized numbers and no memory saved."""
    torch.manual_seed(0)
    weight, given = torch.randn(16, 64, dtype=dtype), torch.randn(3, 64, dtype=dtype)
    made, want = project(weight, weights=weights), project(quantize_dequantize(weight, weights))
    assert type(made) is type(want)
    assert torch.equal(made(given), want(given))
    assert made.weight_bytes == weight.nbytes


def test_the_int4_product_is_tried_before_it_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right here; one that raises or gives other numbers is taken for none."""
    device = torch.device("cpu")
    assert multiplies_int4.__wrapped__(device)
    monkeypatch.setattr(Int4, "__call__", lambda packed, rows: torch.zeros(len(rows), 32, dtype=rows.dtype))
    assert not multiplies_int4.__wrapped__(device)

    def refuse(packed: Int4, rows: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    monkeypatch.setattr(Int4, "__call__", refuse)
    assert not multiplies_int4.__wrapped__(device)
