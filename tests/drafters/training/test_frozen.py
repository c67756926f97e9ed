"""The target as training sees it, against the engine's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from drafters.engine.target import DecoderModel, Span
from drafters.training.frozen import FrozenTarget
from tests.drafters.models import reference

TOKENS = [(7 * place) % 50 for place in range(30)]


@pytest.mark.parametrize("family", ["llama-untied-bias-rope3", "qwen3", "qwen3-moe"])
@pytest.mark.parametrize("weights", ["plain", "rtn4", "nf4"])
def test_training_sees_the_logits_of_the_engine(family: str, weights: Any) -> None:
    """In float64 and in four bits too, a mixture's experts among them; its router, norms and head stay plain in both."""
    frozen = FrozenTarget(copy.deepcopy(reference(family)), None, weights)
    engine = DecoderModel(reference(family), weights=weights)
    states = frozen.hidden_states(torch.tensor([TOKENS]), [len(TOKENS)], [frozen.num_layers])[0, :, 0]
    expected = engine.forward([Span(0, 0, TOKENS, len(TOKENS))], engine.new_cache(len(TOKENS))).logits
    torch.testing.assert_close(frozen.head(states), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("weights", ["rtn4", "nf4"])
def test_every_expert_is_put_into_four_bits(weights: Any) -> None:
    """Each one's matrices change, and the router's does not."""
    plain: Any = reference("qwen3-moe").model.layers[0].mlp
    model = copy.deepcopy(reference("qwen3-moe"))
    FrozenTarget(model, None, weights)
    mlp = model.model.layers[0].mlp
    for name in ("gate_up_proj", "down_proj"):
        before, after = getattr(plain.experts, name), getattr(mlp.experts, name)
        assert [bool((one != other).any()) for one, other in zip(before, after, strict=True)] == [True] * 6
    assert torch.equal(plain.gate.weight, mlp.gate.weight)
