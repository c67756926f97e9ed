"""Training of DFlash 2: what the selector learns from, and what is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from drafters.training.method import Batch, Losses
from drafters.training.methods.anchors import Anchors, draw_anchors
from drafters.training.methods.dflash import Blocks, DFlashMethod, DFlashSettings, draft_blocks
from drafters.training.methods.dflash2 import DFlash2Method, DFlash2Settings, candidates_of
from tests.drafters.training.methods.block_batches import (
    config2,
    engine_block,
    engine_drafter,
    frozen,
    text_batch,
    trained,
)


def chance() -> torch.Generator:
    """A generator."""
    return torch.Generator().manual_seed(0)


def method_of(top_k: int = 5, **settings: Any) -> DFlash2Method:
    """With wide weights, in float64."""
    made = trained(config2(selector_top_k=top_k), **settings)
    assert isinstance(made, DFlash2Method)
    return made


def blocks_from(method: DFlash2Method, batch: Batch, anchors: Anchors) -> Blocks:
    """What the drafter makes of them."""
    return draft_blocks(method.network.backbone, frozen(), batch, anchors)


ONE = Anchors(torch.tensor([[6], [0], [0]]), torch.tensor([[True], [False], [False]]))


def hopeless(method: DFlash2Method) -> Batch:
    """A batch of one answer, from its only anchor 6 to the block's end, whose every token is the drafter's last choice.

    The block sees the anchor and the features before it, so writing its labels into the text does not change it.
    """
    batch = text_batch(method.feature_layers)
    answers = torch.zeros_like(batch.answers)
    answers[0, 6:14] = True
    batch = replace(batch, answers=answers)
    batch.token_ids[0, 7:14] = blocks_from(method, batch, ONE).logits.argmin(dim=-1)
    return batch


def selector_gradients(method: DFlash2Method, batch: Batch) -> tuple[Losses, list[Tensor]]:
    """Losses of a batch, and the gradients of the selector's tensors."""
    losses = method.losses(batch, chance())
    losses.total.backward()  # type: ignore[no-untyped-call]
    gradients = [weight.grad for weight in method.network.candidate_selector.parameters()]
    return losses, [gradient for gradient in gradients if gradient is not None]


@pytest.fixture
def first_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafting starts from place 6 of the first row alone."""
    monkeypatch.setattr("drafters.training.methods.anchors.draw_anchors", lambda batch, most, generator: ONE)


@pytest.mark.usefixtures("first_anchor")
def test_a_missing_token_teaches_the_selector_nothing() -> None:
    """No position lists its token: the selector's gradient is exactly zero, the backbone's is not."""
    method = method_of()
    losses, gradients = selector_gradients(method, hopeless(method))
    assert [int(losses.parts[name]) for name in ("taught", "recall@k/1", "positions/1")] == [0, 0, 1]
    assert len(gradients) == 3
    assert not any(gradient.any() for gradient in gradients)
    assert losses.parts["selector"].item() == 0
    assert method.network.backbone.fc.weight.grad is not None
    assert method.network.backbone.fc.weight.grad.any()


@pytest.mark.usefixtures("first_anchor")
def test_forced_insertion_teaches_it_all_the_same() -> None:
    """Every position teaches, and what is counted stays that of the drafter's own lists."""
    method = method_of(forced_insertion=True)
    losses, gradients = selector_gradients(method, hopeless(method))
    assert int(losses.parts["taught"]) == 7
    assert all(gradient.any() for gradient in gradients)
    assert [int(losses.parts[f"recall@k/{place}"]) for place in range(1, 8)] == [0] * 7
    assert losses.accepted.tolist() == [0] * 7


def test_a_missing_token_takes_the_place_of_the_last_candidate() -> None:
    """Logits that fall from token 9 down: of the list 7, 8, 9 the token 7 makes room; a listed token changes nothing."""
    logits = torch.arange(10.0).expand(2, 10)
    place = torch.zeros(2, dtype=torch.long)
    blocks = Blocks(torch.ones((1, 1, 2)), place, place, place, torch.tensor([4, 8]), torch.zeros((2, 4)), logits)
    found = candidates_of(blocks, 3, forced_insertion=True)
    assert found.ids.tolist() == [[7, 8, 9], [7, 8, 9]]
    assert found.listed.tolist() == [False, True]
    assert found.taught.tolist() == [[4, 8, 9], [7, 8, 9]]
    assert candidates_of(blocks, 3, forced_insertion=False).taught.tolist() == [[7, 8, 9], [7, 8, 9]]


def test_what_is_counted_is_what_the_drafter_lists() -> None:
    """Every anchor and position, counted one by one from the logits; the answers hold drafts of the engine, so that some
    are right."""
    method, drafter = method_of(anchors=99), engine_drafter(config2())
    batch = text_batch(method.feature_layers)
    for row, anchor in ((0, 9), (1, 5), (2, 12)):
        draft = engine_block(drafter, batch, row, anchor)[1]
        batch.token_ids[row, anchor + 1 : anchor + 5] = torch.tensor(draft[:4])
    losses = method.losses(batch, chance())
    blocks = blocks_from(method, batch, draw_anchors(batch, 99, chance()))
    ranks = (blocks.logits > blocks.logits.gather(1, blocks.labels.unsqueeze(1))).sum(dim=1).tolist()
    names = ("positions", "recall@1", "recall@k", "unary", "oracle")
    want = {name: [0] * 7 for name in names}
    seen = 0
    for own in blocks.kept.flatten(0, 1).sum(dim=1).tolist():
        best = listed = True
        for place, rank in enumerate(ranks[seen : seen + own]):
            best, listed = best and rank < 1, listed and rank < 5
            for name, mark in zip(names, (True, rank < 1, rank < 5, best, listed), strict=True):
                want[name][place] += mark
        seen += own
    assert {name: [int(losses.parts[f"{name}/{place}"]) for place in range(1, 8)] for name in names} == want
    assert want["recall@k"][0] > want["recall@1"][0] > 0
    assert int(losses.parts["taught"]) == sum(want["recall@k"])


def test_the_selectors_loss_is_added_with_its_factor() -> None:
    """Twice the weight adds it twice; 0 leaves the unary loss, which is the cross entropy."""
    batch = text_batch((1, 2))
    totals = []
    for weight in (0.0, 1.0, 2.0):
        losses = method_of(selector_weight=weight).losses(batch, chance())
        totals.append(losses.total.item())
        assert losses.parts["cross_entropy"].item() == pytest.approx(totals[0])
        assert losses.total.item() == pytest.approx(totals[0] + weight * losses.parts["selector"].item())
    assert totals[0] < totals[1] < totals[2]


def test_a_token_that_was_put_in_is_not_accepted() -> None:
    """With one candidate, forced insertion leaves the selector nothing but the right token; what it accepts is still that
    of the list."""
    plain, forced = (
        method_of(top_k=1, forced_insertion=flag).losses(text_batch((1, 2)), chance()) for flag in (False, True)
    )
    assert torch.equal(forced.accepted, plain.accepted)
    assert forced.accepted[0] < forced.drafted[0]


def test_a_fresh_selector_adds_nothing_and_learns() -> None:
    """Zero for any candidate after any token, and a gradient from the first step on."""
    method = DFlash2Method(frozen(), DFlash2Settings(selector_rank=8))
    selector = method.network.candidate_selector
    ids = torch.arange(60).view(3, 20)
    assert not selector(torch.ones(3, 32), torch.tensor([1, 2, 3]), ids).any()
    method.module.double()
    method.losses(text_batch(method.feature_layers), chance()).total.backward()  # type: ignore[no-untyped-call]
    assert selector.successor_codebook.grad is not None
    assert selector.successor_codebook.grad.any()


def test_fresh_weights_begin_as_dflash() -> None:
    """Convolutions are the identity: the same losses and the same counts for one seed."""
    first = DFlashMethod(frozen(), DFlashSettings(seed=3))
    second = DFlash2Method(frozen(), DFlash2Settings(seed=3))
    batch = text_batch(first.feature_layers)
    batch = replace(batch, features=batch.features.float(), hidden=batch.hidden.float())
    one, two = (method.losses(batch, chance()) for method in (first, second))
    # In float32 up to the order of additions.
    assert two.parts["cross_entropy"].item() == pytest.approx(one.total.item(), rel=1e-5)
    assert torch.equal(one.accepted, two.accepted)
    assert [int(two.parts[f"unary/{place}"]) for place in range(1, 8)] == two.accepted.tolist()


def test_the_published_names_and_fields_are_written() -> None:
    """Bare codebooks, convolutions inside the layers, sizes of both in dflash_config."""
    made = DFlash2Method(frozen(), DFlash2Settings(selector_rank=6, selector_top_k=3, conv_kernel_size=3)).checkpoint()
    assert made.config["architectures"] == ["DFlash2DraftModel"]
    nested = made.config["dflash_config"]
    assert [nested[key] for key in ("selector_rank", "selector_top_k", "conv_kernel_size")] == [6, 3, 3]
    assert nested["conv_group_size"] == 16
    assert made.tensors["candidate_selector.predecessor_codebook"].shape == (61, 6)
    assert made.tensors["layers.1.mlp_conv.base_kernel"].shape == (2, 3, 32)
    assert not any("backbone" in name for name in made.tensors)
