"""What 4-bit weights leave of a change: the arithmetic of codes, gain and noise."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from drafters.quantization import Scheme
from drafters.training.change_report import change_of, changes, pooled

RMS = (1e-4, 3e-4, 1e-3, 3e-3)


@pytest.fixture(scope="module")
def weight() -> Tensor:
    """512 × 512 normal weights of deviation 0.02."""
    return 0.02 * torch.randn(512, 512, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def direction() -> Tensor:
    """A change of rank 16 with root mean square 1."""
    generator = torch.Generator().manual_seed(2)
    made = torch.randn(512, 16, generator=generator) @ torch.randn(16, 512, generator=generator)
    return made / made.square().mean().sqrt()


def test_few_codes_flip_but_the_change_survives_on_average_where_the_base_is_off_the_grid(
    weight: Tensor, direction: Tensor
) -> None:
    """In groups of 128, about 1, 3, 10 and 30 % of the codes flip and the gain stays at one: the change drowns in noise
    but is not lost."""
    found = [change_of(weight, weight + rms * direction, "rtn4", group=128) for rms in RMS]

    assert [change.flipped_share for change in found] == pytest.approx([0.01, 0.03, 0.10, 0.30], rel=0.45)
    # at the smallest change some 3,000 of 262,144 codes flip, by chance of where the weights lie: a few percent of spread
    assert [change.gain for change in found] == pytest.approx([1.0] * 4, abs=0.1)
    assert [change.signal_to_noise for change in found] == pytest.approx([0.04, 0.13, 0.42, 1.27], rel=0.25)


def test_a_small_change_is_gone_where_the_base_sits_on_the_grid(weight: Tensor, direction: Tensor) -> None:
    """Added to weights that already are 4-bit values, a change far below half a step leaves nothing, a large one most."""
    found = [change_of(weight, weight + rms * direction, "rtn4", "on_the_grid", "kept", group=128) for rms in RMS]

    gains = [change.gain for change in found]
    assert gains[:2] == pytest.approx([0.0, 0.0], abs=0.01)
    assert gains[2] == pytest.approx(0.04, abs=0.02)
    assert gains[3] == pytest.approx(0.88, abs=0.06)
    assert found[0].flipped == 0


@pytest.mark.parametrize("scheme", ["rtn4", "nf4"])
def test_refitted_scales_let_the_ends_of_each_group_through(weight: Tensor, direction: Tensor, scheme: Scheme) -> None:
    """On the grid, with scales found anew, no code flips, and yet a little of the change comes through: that of the
    weights which set the scale."""
    kept, refitted = (
        change_of(weight, weight + 1e-4 * direction, scheme, "on_the_grid", scales) for scales in ("kept", "refitted")
    )

    assert kept.flipped == refitted.flipped == 0
    assert kept.gain == 0.0
    assert refitted.gain is not None
    assert 0.01 < refitted.gain < 0.1


def test_a_change_of_whole_steps_survives_whole() -> None:
    """Weights 0 to 15 are their own codes; a change of one step to a weight inside flips one code of sixteen."""
    base = torch.arange(16.0).reshape(1, 16)
    model = base.clone()
    model[0, 5] = 6.0

    change = change_of(base, model, "rtn4")

    assert (change.codes, change.flipped) == (16, 1)
    assert change.gain == 1.0
    assert change.signal_to_noise is None  # nothing is lost, so there is no noise to compare with
    assert change.norm == 1.0


def test_no_change_has_no_gain() -> None:
    """Where nothing was changed, nothing can survive: the gain is unknown, not 0 or 1."""
    change = change_of(torch.randn(4, 64), torch.zeros(4, 64), "nf4")
    same = torch.randn(4, 64)

    assert change.gain is not None
    assert change_of(same, same, "nf4").gain is None
    assert change_of(same, same, "nf4").flipped == 0


def test_tensors_add_up_before_anything_is_divided() -> None:
    """One code of 16 flips in one tensor and none of 48 in the other: one in 64 of both."""
    base = torch.arange(16.0).reshape(1, 16)
    model = base.clone()
    model[0, 5] = 6.0
    other = torch.arange(16.0).repeat(3, 1)

    rows = pooled({"a": list(changes(base, model)), "b": list(changes(other, other))})

    first = next(row for row in rows if (row.scheme, row.base, row.scales) == ("rtn4", "as_it_is", "refitted"))
    assert first.change.flipped_share == 1 / 64
    assert len(rows) == 8  # two schemes, two bases, two ways to find scales
