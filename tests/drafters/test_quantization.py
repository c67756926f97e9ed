"""Four-bit weights: the levels, who gets which, and what is lost."""

from __future__ import annotations

import pytest
import torch

from drafters.quantization import Nf4, Rtn4, Scheme, nf4_levels, pack_pairs, quantize_dequantize

SCHEMES: tuple[Scheme, ...] = ("rtn4", "nf4")
# Table of QLoRA's appendix E, to four digits.
PUBLISHED = [
    -1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0,
    0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.7230, 1.0,
]  # fmt: skip


def test_sixteen_even_steps_are_kept_as_they_are() -> None:
    """A group of 32 that holds 3, 5, 7 … 33 twice has steps of 2 and loses nothing; its zero is that of code 8."""
    weight = torch.arange(3.0, 34.0, 2.0).repeat(2).unsqueeze(0)
    quantized = Rtn4.of(weight)
    assert quantized.codes[0].tolist() == [*range(16), *range(16)]
    assert (quantized.scales.tolist(), quantized.zeros.tolist()) == ([[2.0]], [[19.0]])
    assert torch.equal(quantized.dequantized(), weight)


def test_a_weight_between_two_steps_takes_the_nearer_one() -> None:
    """From 0 to 15 in steps of 1: 6.4 becomes 6 and 6.6 becomes 7."""
    weight = torch.zeros(1, 32)
    weight[0, :3] = torch.tensor([15.0, 6.4, 6.6])
    assert quantize_dequantize(weight, "rtn4")[0, :4].tolist() == [15.0, 6.0, 7.0, 0.0]


def test_groups_have_levels_of_their_own() -> None:
    """32 large weights do not coarsen the next 32; the last group may be shorter, here of 6."""
    weight = torch.cat((torch.linspace(-150, 150, 32), torch.linspace(-1.5, 1.5, 32), torch.linspace(0, 0.015, 6)))
    lost = (quantize_dequantize(weight.unsqueeze(0), "rtn4")[0] - weight).abs()
    # Half a step of 300 / 15, 3 / 15 and 0.015 / 15, and float32's rounding on top.
    for part, half in zip((lost[:32], lost[32:64], lost[64:]), (10, 0.1, 0.0005), strict=True):
        assert 0 < float(part.max()) <= half * 1.001


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("value", [0.0, 0.7, -3.0])
def test_a_group_of_equal_weights_is_exact(scheme: Scheme, value: float) -> None:
    """Also of zeros, where there is no range to divide by."""
    weight = torch.full((2, 64), value)
    assert torch.equal(quantize_dequantize(weight, scheme), weight)


def test_the_levels_of_nf4_are_those_published() -> None:
    """Quantiles of the normal distribution, with an exact zero and both ends."""
    assert nf4_levels() == pytest.approx(PUBLISHED, abs=6e-5)
    assert (nf4_levels()[0], nf4_levels()[7], nf4_levels()[15]) == (-1.0, 0.0, 1.0)


def test_nf4_takes_the_nearest_level_of_the_largest_magnitude() -> None:
    """With a largest weight of -2 the levels around 0 are -0.182, 0 and 0.159: 0.07 falls to 0, 0.09 rises."""
    weight = torch.zeros(1, 70)
    weight[0, :4] = torch.tensor([-2.0, 0.07, 0.09, 2.0])
    weight[0, 64:] = 0.5  # a block of 6 with a magnitude of its own
    quantized = Nf4.of(weight)
    assert quantized.codes[0, :5].tolist() == [0, 7, 8, 15, 7]
    assert quantized.scales.tolist() == [[2.0, 0.5]]
    assert quantized.dequantized(torch.float32)[0, [0, 1, 3, 69]].tolist() == [-2.0, 0.0, 2.0, 0.5]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_normal_weights_lose_less_than_a_tenth(scheme: Scheme, dtype: torch.dtype) -> None:
    """At most 16 values a group, of the weights' own type, near the ones that were given."""
    weight = torch.randn((8, 128), generator=torch.Generator().manual_seed(0)).to(dtype)
    made = quantize_dequantize(weight, scheme)
    assert (made.dtype, made.shape) == (dtype, weight.shape)
    assert all(len(group.unique()) <= 16 for group in made.view(-1, 32))
    lost = (made - weight).double().norm() / weight.double().norm()
    assert 0.01 < float(lost) < 0.1


@pytest.mark.parametrize("scheme", SCHEMES)
def test_fused_weights_are_quantized_as_if_alone(scheme: Scheme) -> None:
    """Groups lie along the input: what stands above or below changes nothing."""
    first, second = (torch.randn((5, 72), generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    both = quantize_dequantize(torch.cat((first, 100 * second)), scheme)
    assert torch.equal(both[:5], quantize_dequantize(first, scheme))


def test_two_codes_go_into_a_byte() -> None:
    """1 and 2 make 0x12, 15 and 0 make 0xF0; three cannot be paired."""
    codes = torch.tensor([[1, 2, 15, 0]], dtype=torch.uint8)
    assert pack_pairs(codes).tolist() == [[0x12, 0xF0]]
    with pytest.raises(ValueError, match="3 codes a row; allowed: an even number"):
        pack_pairs(codes[:, :3])


def test_an_unknown_scheme_is_refused() -> None:
    """With the known ones named."""
    with pytest.raises(ValueError, match="scheme is 'int3'; allowed: rtn4, nf4"):
        quantize_dequantize(torch.zeros(1, 1), "int3")  # type: ignore[arg-type]
