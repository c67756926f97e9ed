"""The training's own attention beside torch's in float32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from drafters.training.reference import attention
from drafters.training.reference.model import build_target
from tests.drafters.training.reference.test_pretrain import TINY


def _difference(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the length of the difference as a share of the exact tensor's."""
    return float((found.detach().float() - exact).norm() / exact.norm())


@pytest.mark.parametrize(("batch", "heads", "kv_heads", "length"), [(2, 4, 2, 192), (1, 3, 3, 64), (1, 2, 1, 512)])
def test_values_and_gradients_are_those_of_torch(batch: int, heads: int, kv_heads: int, length: int) -> None:
    """Values and all three gradients equal float32's but for bfloat16's rounding; without the kernels nothing is registered."""
    if attention.kernels() is None:
        assert not attention.register()
        return
    generator = torch.Generator().manual_seed(length)
    shapes = [(batch, heads, length, 64), (batch, kv_heads, length, 64), (batch, kv_heads, length, 64)]
    inputs = [torch.randn(shape, generator=generator).bfloat16() for shape in shapes]
    slope = torch.randn(shapes[0], generator=generator).bfloat16()
    exact = [each.float().requires_grad_() for each in inputs]
    query, key, value = exact
    wanted = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.2, enable_gqa=True)
    ours = [each.requires_grad_() for each in inputs]
    values, sums = attention.attention(*ours, 0.2)
    # bfloat16 keeps 8 bits: a rounding moves a value by 0.2 % at most, and three of them stand between in and out
    assert _difference(values, wanted) < 0.005
    assert sums.shape == (batch, heads, length)
    gradients = torch.autograd.grad(values, ours, slope)
    for found, right in zip(gradients, torch.autograd.grad(wanted, exact, slope.float()), strict=True):
        assert _difference(found, right) < 0.006


def test_a_token_does_not_see_those_after_it() -> None:
    """Other keys and values behind a token leave its output as it is, to the bit."""
    if attention.kernels() is None:
        assert not attention.register()
        return
    query, key, value = (torch.randn(1, 1, 128, 64).bfloat16() for _ in range(3))
    before = attention.attention(query, key, value, 0.125)[0]
    key[:, :, 70:], value[:, :, 70:] = 3.0, -5.0
    after = attention.attention(query, key, value, 0.125)[0]
    assert torch.equal(before[:, :, :70], after[:, :, :70])
    assert not torch.equal(before[:, :, 70:], after[:, :, 70:])


def test_a_model_with_it_is_written_as_any_other(tmp_path: Path) -> None:
    """The name of the training's attention does not get into the model's folder, and rows of any length are taken."""
    model = build_target(vocabulary=300, **{**TINY, "head_dim": 64})
    ids = torch.randint(0, 300, (1, 100))
    plain = model(input_ids=ids).logits
    if attention.register():
        model.set_attn_implementation(attention.NAME)
    assert torch.allclose(model(input_ids=ids).logits, plain, atol=1e-4)
    model.save_pretrained(tmp_path)
    assert attention.NAME not in json.dumps(json.loads((tmp_path / "config.json").read_text("utf-8")))
