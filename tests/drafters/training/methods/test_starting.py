"""Shapes are those of the checkpoint that a training starts from; a setting that says otherwise is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from drafters.specs import SpecError
from drafters.training.methods import method_class
from tests.drafters.training.tiny import tiny_target

BLOCK: Mapping[str, Any] = {"block_size": 4, "num_layers": 1, "num_target_layers": 2}
LAYER: Mapping[str, Any] = {"intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
CASES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "dflash": (BLOCK, {"block_size": 8, "num_layers": 2, "target_layer_ids": (0,), "intermediate_size": 5}),
    "dflash2": (
        {"block_size": 4, "num_layers": 1, "target_layer_ids": (0,), "selector_rank": 4, "selector_top_k": 3},
        {"num_target_layers": 2, "mask_token_id": 2, "selector_rank": 5, "selector_top_k": 4, "conv_kernel_size": 3},
    ),
    "draft_model": (
        {"hidden_size": 16, "layers": 1, "intermediate_size": 16, "heads": 2, "kv_heads": 1, "head_dim": 8},
        {"hidden_size": 24, "layers": 2, "intermediate_size": 24, "heads": 4, "kv_heads": 2, "head_dim": 16},
    ),
    "eagle3": (
        {**LAYER, "rope_theta": 500.0, "feature_layers": (0, 1, 2)},
        {**dict.fromkeys(LAYER, 2), "rope_theta": 600.0, "feature_layers": (1, 1, 2), "norm_before_residual": True},
    ),
    "medusa": ({"layers": 2, "num_tokens": 4}, {"layers": 1, "original_lm_head": False}),
    "mtp": (
        {**LAYER, "recursion": "before_norm"},
        {"intermediate_size": 8, "head_dim": 4, "rope_theta": 600.0, "recursion": "after_norm"},
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_shape_that_the_checkpoint_does_not_have_is_refused(name: str) -> None:
    """Each setting by its name with both values; the ones that the checkpoint was made with are taken, and so are
    none."""
    given, others = CASES[name]
    method = method_class(name)
    start = method(tiny_target(), method.settings.model_validate(given)).checkpoint()
    for settings in (given, {}):
        again = method(tiny_target(), method.settings.model_validate(settings), start).checkpoint()
        assert {**again.config, "dtype": None} == {**start.config, "dtype": None}
    for key, value in others.items():
        if given.get(key) == value:
            continue
        said = rf"{name}: '{key}' is .*, but the checkpoint to start from has .*; leave the setting out"
        with pytest.raises(SpecError, match=said):
            method(tiny_target(), method.settings.model_validate({key: value}), start)
