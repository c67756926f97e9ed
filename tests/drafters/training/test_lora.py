"""Low-rank changes of linear maps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from drafters.training.lora import adapt, merged


def net() -> nn.Module:
    """Two maps around a norm, in float64."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6, bias=False), nn.RMSNorm(6), nn.Linear(6, 3, bias=False)).double()


def test_nothing_is_changed_at_first_and_only_the_changes_are_trained() -> None:
    """The same outputs; two maps of rank 2 have 2 · (4 + 6) and 2 · (6 + 3) numbers."""
    module, rows = net(), torch.eye(4, dtype=torch.float64)
    before = module(rows)
    names = set(module.state_dict())
    adapt(module, rank=2, alpha=8.0, seed=1)
    assert torch.equal(module(rows), before)
    assert sum(parameter.numel() for parameter in module.parameters()) == 38
    assert set(merged(module)) == names


def test_merged_weights_do_the_same() -> None:
    """After the changes were given values, by alpha / rank = 4."""
    module, rows = net(), torch.eye(4, dtype=torch.float64)
    adapt(module, rank=2, alpha=8.0, seed=1)
    before = merged(module)["0.weight"].clone()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.5)
    plain = net()
    plain.load_state_dict(merged(module))
    torch.testing.assert_close(plain(rows), module(rows), rtol=0, atol=1e-12)
    torch.testing.assert_close(merged(module)["0.weight"] - before, torch.full((6, 4), 2.0, dtype=torch.float64))


def test_a_map_with_a_bias_is_refused() -> None:
    """Its bias would be left out of what is merged."""
    with pytest.raises(ValueError, match="has a bias"):
        adapt(nn.Sequential(nn.Linear(2, 2)), 1, 1.0, 0)
