"""What the target teaches is its own, and what does not fit into memory at once comes piece by piece."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from drafters.training.batches import batch_of
from drafters.training.method import Losses, Method
from drafters.training.methods import method_class, teaching
from tests.drafters.training.tiny import VOCAB, tiny_examples, tiny_target

CHANCE = torch.Generator().manual_seed(0)
SETTINGS: dict[str, dict[str, Any]] = {
    "draft_model": {"hidden_size": 16, "layers": 1, "intermediate_size": 16, "cross_entropy": 0.5},
    "eagle3": {"num_tokens": 2, "draft_vocabulary": tuple(range(0, VOCAB, 2))},
    "medusa": {"num_tokens": 3},
    "mtp": {"num_tokens": 2},
}


def made(name: str) -> tuple[Method, Losses]:
    """A fresh method and what two examples give."""
    method = method_class(name)(tiny_target(), method_class(name).settings.model_validate(SETTINGS[name]))
    return method, method.losses(batch_of(tiny_examples()[:2], tiny_target(), method.feature_layers), CHANCE)


def gradients(method: Method, losses: Losses) -> list[torch.Tensor]:
    """Of all weights that have one."""
    losses.total.backward()  # type: ignore[no-untyped-call]
    return [parameter.grad for parameter in method.module.parameters() if parameter.grad is not None]


def test_the_targets_logits_are_not_rounded() -> None:
    """Under autocast they are those without it, to the bit."""
    hidden = torch.randn((5, 32), generator=CHANCE)
    exact = tiny_target().head(hidden)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not torch.equal(tiny_target().head(hidden).float(), exact)
        assert torch.equal(teaching.taught(tiny_target(), hidden), exact)


@pytest.mark.parametrize("name", ["medusa", "draft_model"])
def test_pieces_give_the_sums_and_gradients_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five places at a time instead of all."""
    method, whole = made(name)
    wanted = gradients(method, whole)
    monkeypatch.setattr(teaching, "LOGITS", 5 * VOCAB * (3 if name == "medusa" else 1))
    method, pieces = made(name)
    torch.testing.assert_close(pieces.total, whole.total)
    torch.testing.assert_close(pieces.weights, whole.weights)
    torch.testing.assert_close(dict(pieces.parts), dict(whole.parts))
    assert (pieces.drafted.tolist(), pieces.accepted.tolist()) == (whole.drafted.tolist(), whole.accepted.tolist())
    for one, other in zip(gradients(method, pieces), wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", ["mtp", "eagle3"])
def test_as_many_chains_are_learnt_from_as_fit_and_all_are_scored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for three chains of each of two rows: six with gradients, without them all, with the sums of the whole."""
    with torch.no_grad():
        whole = made(name)[1]
    monkeypatch.setattr(teaching, "LOGITS", 2 * 3 * 2 * VOCAB)
    assert made(name)[1].drafted[0] == 6.0 < whole.drafted[0]
    with torch.no_grad():
        pieces = made(name)[1]
    torch.testing.assert_close(pieces.total, whole.total)
    torch.testing.assert_close(pieces.weights, whole.weights)
    assert (pieces.drafted.tolist(), pieces.accepted.tolist()) == (whole.drafted.tolist(), whole.accepted.tolist())
