"""Blocks of a decoder, each fast way beside its slow twin."""

from __future__ import annotations

import pytest
import torch

from drafters.layers import attend, causal_block, lookback_mask


@pytest.mark.parametrize("rows", [1, 5, 32, 33, 40])
@pytest.mark.parametrize("group", [1, 3])
def test_grouped_attention_is_softmax_over_what_the_mask_shows(rows: int, group: int) -> None:
    """Few rows are folded, many are not, one has no mask: always the sum written out head by head."""
    torch.manual_seed(1)
    past, kv_heads, head_dim = 6, 2, 4
    query = torch.randn(rows, kv_heads * group, head_dim, dtype=torch.float64)
    key, value = (torch.randn(kv_heads, past + rows, head_dim, dtype=torch.float64) for _ in range(2))
    mask = lookback_mask(causal_block(rows, torch.float64, torch.device("cpu")), past)
    got = attend(query, key, value, None if rows == 1 else mask).view(rows, kv_heads * group, head_dim)
    for head in range(kv_heads * group):
        for row in range(rows):
            seen = slice(0, past + row + 1)
            scores = key[head // group, seen] @ query[row, head] / 2  # the square root of head_dim
            want = torch.softmax(scores, dim=0) @ value[head // group, seen]
            torch.testing.assert_close(got[row, head], want, rtol=0, atol=1e-12)
