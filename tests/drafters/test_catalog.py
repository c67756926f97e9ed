"""From description to drafter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from drafters.base import Drafter
from drafters.catalog import build, drafter_class, methods
from drafters.checkpoint import Checkpoint
from drafters.specs import SpecError, parse_spec
from tests.drafters.models import lean


@pytest.mark.parametrize("method", ["prompt_lookup", "ngram", "synthetic"])
def test_a_description_becomes_its_drafter(method: str) -> None:
    """The length in the description is the drafter's, and the drafter is complete."""
    drafter = build(parse_spec({"method": method, "num_tokens": 3}), lean("llama"), 100)
    assert isinstance(drafter, Drafter)
    assert drafter.max_nodes == 3


def test_an_unknown_method_is_told_the_known_ones() -> None:
    """All of them, sorted."""
    with pytest.raises(SpecError, match="unknown method 'ngrams'; known: dflash, dflash2, draft_model, eagle3, "):
        drafter_class("ngrams")
    assert len(methods()) == 9


def test_a_checkpoint_that_does_not_fit_is_named(tmp_path: Path) -> None:
    """Its content alone would not tell which of several it was."""
    Checkpoint({"architectures": ["Other"]}, {"a": torch.zeros(1)}).save(tmp_path)
    with pytest.raises(SpecError, match=rf"^{tmp_path}: config\.json says architectures"):
        build(parse_spec({"method": "dflash", "model": str(tmp_path)}), lean("llama"), 100)
