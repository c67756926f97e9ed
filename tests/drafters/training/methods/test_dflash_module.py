"""The DFlash network with gradients is the engine's, for any number of blocks at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from drafters.dflash2 import DFlash2Config
from drafters.dflash_config import DFlashConfig
from drafters.training.methods.anchors import Anchors
from drafters.training.methods.dflash import DFlashMethod, draft_blocks
from drafters.training.methods.dflash2 import DFlash2Method, DFlash2Network
from drafters.training.methods.dflash_module import DFlashNetwork, filled, sight
from tests.drafters.record_dflash import ANCHOR, BLOCK, CASES
from tests.drafters.test_dflash_parity import recorded
from tests.drafters.training.methods.block_batches import (
    config,
    config2,
    engine_block,
    engine_drafter,
    frozen,
    text_batch,
    trained,
)

# float64 keeps 15 digits; sums of up to 64 products of wide weights, in another order, through two layers.
CLOSE = 1e-10
SLIDING: dict[str, Any] = {"layer_types": ("sliding_attention", "full_attention"), "sliding_window": 5}
CONFIGS: dict[str, DFlashConfig | DFlash2Config] = {
    "full": config(),
    "small-block": config(block_size=3),
    "causal": config(is_causal=True),
    "causal-window": config(**SLIDING, is_causal=None),
    "open-window": config(**SLIDING),
    "second": config2(),
    "second-three-taps": config2(conv_kernel_size=3, backbone=config(block_size=4)),
}


def backbone(method: DFlashMethod | DFlash2Method) -> DFlashNetwork:
    """The part that makes hidden states."""
    return method.network.backbone if isinstance(method.network, DFlash2Network) else method.network


@pytest.mark.parametrize("name", CONFIGS)
def test_a_packed_block_is_the_block_that_the_engine_drafts(name: str) -> None:
    """Hidden states of seven blocks in three rows, each against a sequence of its own over cached K/V."""
    method, drafter = trained(CONFIGS[name]), engine_drafter(CONFIGS[name])
    batch = text_batch(method.feature_layers)
    starts = torch.tensor([[6, 13, 21], [4, 7, 10], [9, 10, 14]])
    blocks = draft_blocks(backbone(method), frozen(), batch, Anchors(starts, torch.ones_like(starts, dtype=torch.bool)))
    size, seen = backbone(method).config.block_size, 0
    for row in range(3):
        for number, anchor in enumerate(starts[row].tolist()):
            own = int(blocks.kept[row, number].sum())
            want, _ = engine_block(drafter, batch, row, anchor)
            torch.testing.assert_close(blocks.hidden[seen : seen + own], want[1 : own + 1], rtol=0, atol=CLOSE)
            logits = blocks.logits[seen : seen + own]
            torch.testing.assert_close(logits, frozen().head(want[1 : own + 1]), rtol=0, atol=10 * CLOSE)
            assert 1 <= own < size
            seen += own
    assert seen == len(blocks.labels)


@pytest.mark.parametrize("name", CASES)
def test_hidden_states_are_those_of_the_published_class(name: str) -> None:
    """What the published code computed from the same weights; twice in a pass, to have a neighbour."""
    checkpoint, tensors = recorded(name)
    given = CASES[name][0]
    if isinstance(given, DFlash2Config):
        named = {
            key if key.startswith("candidate_selector") else f"backbone.{key}": value
            for key, value in checkpoint.tensors.items()
        }
        network = filled(lambda: DFlash2Network(given), named).backbone
    else:
        network = filled(lambda: DFlashNetwork(given), checkpoint.tensors)
    length = len(tensors["features"])
    block = tensors["embedding"][torch.tensor([ANCHOR] + [3] * (BLOCK - 1))]
    with torch.no_grad():
        hidden = network(tensors["features"].unsqueeze(0), torch.tensor([[length, length]]), block.expand(1, 2, -1, -1))
    for number in range(2):
        # Float32 sums of eight products in another order.
        torch.testing.assert_close(hidden[0, number], tensors["hidden"], rtol=0, atol=1e-5)


def test_a_block_sees_what_is_before_its_anchor_and_itself() -> None:
    """Anchors 1 and 3 of four positions, blocks of two: the anchor's own position is not among the context."""
    mask = sight(torch.tensor([[1, 3]]), 4, 2)[0, 0].int().tolist()
    assert mask == [
        [1, 0, 0, 0, 1, 1, 0, 0],
        [1, 0, 0, 0, 1, 1, 0, 0],
        [1, 1, 1, 0, 0, 0, 1, 1],
        [1, 1, 1, 0, 0, 0, 1, 1],
    ]


def test_a_window_and_a_causal_block_see_less() -> None:
    """Window 2 at anchor 3: position 2 is the only one that the anchor sees, the position behind it sees none."""
    mask = sight(torch.tensor([[3]]), 4, 2, window=2, causal=True)[0, 0].int().tolist()
    assert mask == [[0, 0, 1, 0, 1, 0], [0, 0, 0, 0, 1, 1]]


def test_the_feature_of_the_anchor_is_unknown_to_its_block() -> None:
    """Another feature at the anchor changes nothing; one position before, it does."""
    method = trained(config())
    batch = text_batch(method.feature_layers)
    anchors = Anchors(torch.tensor([[12], [6], [11]]), torch.ones((3, 1), dtype=torch.bool))
    before = draft_blocks(backbone(method), frozen(), batch, anchors).hidden
    for back, same in ((0, True), (1, False)):
        batch = text_batch(method.feature_layers)
        for row, anchor in enumerate((12, 6, 11)):
            batch.features[row, anchor - back] += 1
        after = draft_blocks(backbone(method), frozen(), batch, anchors).hidden
        assert torch.equal(after, before) is same


@pytest.mark.parametrize("name", ["full", "second"])
def test_a_block_does_not_know_its_neighbours_or_the_padding(name: str) -> None:
    """Alone, beside two others, and in a longer row whose padding holds no numbers: the same block."""
    method = trained(CONFIGS[name])
    there = torch.ones((3, 1), dtype=torch.bool)
    batch = text_batch(method.feature_layers)
    starts = torch.tensor([[12], [6], [11]])
    alone = draft_blocks(backbone(method), frozen(), batch, Anchors(starts, there))
    longer = text_batch(method.feature_layers, longest=40)
    for row, length in enumerate((26, 15, 20)):
        longer.features[row, length:] = float("nan")
    three = torch.cat((starts - 2, starts, starts + 3), dim=1)
    among = draft_blocks(backbone(method), frozen(), longer, Anchors(three, there.expand(3, 3)))
    middle = torch.zeros_like(among.kept)
    middle[:, 1] = True
    torch.testing.assert_close(among.hidden[middle[among.kept]], alone.hidden, rtol=0, atol=CLOSE)
    assert torch.equal(among.labels[middle[among.kept]], alone.labels)


@pytest.mark.parametrize("name", ["full", "second"])
def test_every_weight_learns(name: str) -> None:
    """A gradient that is not zero reaches each parameter."""
    method = trained(CONFIGS[name])
    losses = method.losses(text_batch(method.feature_layers), torch.Generator().manual_seed(0))
    losses.total.backward()  # type: ignore[no-untyped-call]
    module: nn.Module = method.module
    silent = [name for name, weight in module.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert silent == []
