"""Blocks of a decoder, each fast way beside its slow twin."""

from __future__ import annotations

import pytest
import torch

from drafters.layers import Dense, Packed, _packs, attend, causal_block, lookback_mask, project


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
        pytest.skip("this build of torch packs no weights")
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


@pytest.mark.parametrize("rows", [1, 5, 32, 33, 40])
@pytest.mark.parametrize("group", [1, 3])
def test_grouped_attention_is_softmax_over_what_the_mask_shows(rows: int, group: int) -> None:
    """Few rows are folded, many are not, one has no mask: always the sum written out head by head."""
    torch.manual_seed(1)
    past, kv_heads, head_dim = 6, 2, 4
    query = torch.randn(rows, kv_heads * group, head_dim, dtype=torch.float64)
    key, value = (torch.randn(past + rows, kv_heads, head_dim, dtype=torch.float64) for _ in range(2))
    mask = lookback_mask(causal_block(rows, torch.float64, torch.device("cpu")), past)
    got = attend(query, key, value, None if rows == 1 else mask).view(rows, kv_heads * group, head_dim)
    for head in range(kv_heads * group):
        for row in range(rows):
            seen = slice(0, past + row + 1)
            scores = key[seen, head // group] @ query[row, head] / 2  # the square root of head_dim
            want = torch.softmax(scores, dim=0) @ value[seen, head // group]
            torch.testing.assert_close(got[row, head], want, rtol=0, atol=1e-12)
