"""DFlash 2: convolutions around the sublayers, and a selector that walks over candidates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drafters.base import Drafter, DraftRequest, Sampling
from drafters.catalog import build
from drafters.checkpoint import Checkpoint
from drafters.dflash import DFlash
from drafters.dflash2 import CandidateSelector, DFlash2, DFlash2Config, GroupedDynamicCausalConv, untrained
from drafters.dflash_config import DFlashConfig
from drafters.projections import Dense
from drafters.specs import DFlash2Spec, SpecError
from tests.drafters.blocks import features, tell, wide
from tests.drafters.models import VOCAB, lean, prompt


def configured(**changes: Any) -> DFlash2Config:
    """Two layers, block of 8, groups of 8 channels, 5 candidates, rank 4."""
    base = DFlashConfig.for_target(lean("qwen3"), 8, 2)
    return replace(DFlash2Config(base, conv_group_size=8, selector_rank=4, selector_top_k=5), **changes)


def drafter_of(config: DFlash2Config) -> DFlash2:
    """With wide weights, so that convolutions and selector change what is drafted."""
    return DFlash2(Checkpoint(config.to_json(), wide(config.shapes())), lean("qwen3"), 300)


def told(drafter: DFlash2, *texts: tuple[Sequence[int], Tensor]) -> DFlash2:
    """The drafter with sequences 0, 1, … of these tokens and features."""
    for number, (tokens, given) in enumerate(texts):
        drafter.open(number, 60)
        tell(drafter, number, tokens, given)
    return drafter


def convolution(base: Sequence[Sequence[float]], projection: Tensor) -> GroupedDynamicCausalConv:
    """Two channels in one group, blocks of three; ``base`` holds two taps before and two after, equal in both
    channels."""
    return GroupedDynamicCausalConv(torch.tensor(base).unsqueeze(-1).expand(2, 2, 2), Dense(projection), 2, 3)


def test_a_convolution_mixes_within_its_block_before_and_after() -> None:
    """Before: own value + 10 times the one before; then doubled; after: own value + the one before. Blocks 1 2 3 and
    4 5 6 do not touch."""
    conv = convolution([[1.0, 10.0], [1.0, 1.0]], torch.zeros(4, 2))
    rows = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unsqueeze(1).expand(6, 2).contiguous()
    # Before: 1, 12, 23 and 4, 45, 56. Doubled: 2, 24, 46 and 8, 90, 112.
    out = conv(rows, lambda mixed: 2 * mixed)
    assert out[:, 0].tolist() == out[:, 1].tolist() == [2, 26, 70, 8, 98, 202]


def test_a_kernel_depends_on_the_input_of_its_position() -> None:
    """The projection's four outputs are taps 0 and 1 before, then taps 0 and 1 after; the last one is the input
    itself."""
    projection = torch.zeros(4, 2)
    projection[3, 0] = 1.0
    conv = convolution([[1.0, 0.0], [1.0, 0.0]], projection)
    rows = torch.tensor([1.0, 2.0, 3.0]).unsqueeze(1).expand(3, 2).contiguous()
    # The sublayer makes 10, 20, 30; then 20 + 2 · 10 and 30 + 3 · 20.
    assert conv(rows, lambda mixed: 10 * mixed)[:, 0].tolist() == [10, 40, 90]


def selector(top_k: int) -> CandidateSelector:
    """Four tokens, rank 1: A is 1 for token 0, -1 for token 2; S is 2 for token 2; the hidden state counts as it
    is."""
    predecessor = torch.tensor([[1.0], [0.0], [-1.0], [0.0]])
    successor = torch.tensor([[0.0], [0.0], [2.0], [0.0]])
    return CandidateSelector(predecessor, successor, Dense(torch.ones(1, 1)), top_k)


def test_the_walk_goes_from_the_anchor_over_what_was_chosen() -> None:
    """After anchor 0: tokens 1 and 2 score 3 and 2 + 2, so 2; after 2: tokens 2 and 3 score 5 - 2 and 4, so 3. After
    anchor 3 nothing is added, so 1."""
    logits = torch.tensor([[1.0, 3.0, 2.0, 0.0], [0.0, 1.0, 5.0, 4.0], [1.0, 3.0, 2.0, 0.0]])
    tokens, probs = selector(2).walk(
        torch.tensor([0, 3]), [2, 1], torch.ones(3, 1), logits, [0.0, 0.0], torch.zeros(2, 2)
    )
    assert tokens.tolist() == [2, 3, 1]
    assert probs.tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0]]


@pytest.mark.parametrize("lengths", [[3], [3, 3], [3, 1, 2], [1, 3]])
def test_the_best_walk_is_the_walk_at_temperature_0(lengths: list[int]) -> None:
    """Drafts of one length and of several, with equal scores among the candidates: the lowest id, token for token."""
    generator = torch.Generator().manual_seed(len(lengths))
    rows, vocab, rank = sum(lengths), 9, 2

    def whole(*shape: int) -> torch.Tensor:
        return torch.randint(-2, 3, shape, generator=generator).float()  # so that scores are exact and often equal

    chooser = CandidateSelector(whole(vocab, rank), whole(vocab, rank), Dense(whole(rank, 3)), 6)
    anchors, hidden, logits = torch.arange(len(lengths)), whole(rows, 3), whole(rows, vocab)
    nothing = torch.zeros(len(lengths), max(lengths))
    tokens, _ = chooser.walk(anchors, lengths, hidden, logits, [0.0] * len(lengths), nothing)
    assert chooser.best(anchors, lengths, hidden, logits).tolist() == tokens.tolist()


def test_what_is_no_candidate_is_never_chosen() -> None:
    """Token 2 would score 2 + 2 after anchor 0, but with one candidate only token 1 is looked at."""
    tokens, _ = selector(1).walk(
        torch.tensor([0]), [1], torch.ones(1, 1), torch.tensor([[1.0, 3.0, 2.0, 0.0]]), [0.0], torch.zeros(1, 1)
    )
    assert tokens.tolist() == [1]


@pytest.mark.parametrize(("uniform", "token"), [(0.7, 0), (0.8, 1)])
@pytest.mark.parametrize(("temperature", "share"), [(1.0, log(3)), (2.0, 2 * log(3))])
def test_the_walk_draws_among_the_candidates(uniform: float, token: int, temperature: float, share: float) -> None:
    """Two candidates at odds of 3 to 1, at a temperature of 2 with twice the distance: three quarters and one."""
    logits = torch.tensor([[share, 0.0, -50.0, -1.0]], dtype=torch.float64)
    uniforms = torch.tensor([[uniform]], dtype=torch.float64)
    tokens, probs = selector(2).walk(
        torch.tensor([1]), [1], torch.ones(1, 1, dtype=torch.float32), logits, [temperature], uniforms
    )
    assert tokens.tolist() == [token]
    assert probs[0].tolist() == pytest.approx([0.75, 0.25, 0.0, 0.0])


def test_untrained_convolutions_and_a_silent_selector_change_nothing() -> None:
    """With the same backbone the draft is that of DFlash, token for token."""
    config = configured()
    start = untrained(config)
    silent = {"candidate_selector.hidden_projection.weight": torch.zeros(4, 32)}
    backbone = wide(config.backbone.shapes())
    second = DFlash2(Checkpoint(config.to_json(), {**start.tensors, **silent, **backbone}), lean("qwen3"), 300)
    first = DFlash(Checkpoint(config.backbone.to_json(), backbone), lean("qwen3"), 300)
    drafts = []
    both: tuple[Drafter, ...] = (first, second)
    for drafter in both:
        for number in range(3):
            tokens = prompt(number, 8 + number)
            drafter.open(number, 60)
            tell(drafter, number, tokens, features(number, 20))
        requests = [DraftRequest(number, prompt(number, 8 + number), 7) for number in range(3)]
        drafts.append(drafter.propose(requests))
    assert drafts[0] == drafts[1]
    assert [len(draft) for draft in drafts[0]] == [7, 7, 7]


def test_convolutions_and_selector_take_part() -> None:
    """Wide ones change the hidden states, and the selector alone changes the tokens of some position."""
    config = configured()
    weights = wide(config.shapes())
    silent = weights | {"candidate_selector.hidden_projection.weight": torch.zeros(4, 32, dtype=torch.float64)}
    loud = weights | {"candidate_selector.hidden_projection.weight": torch.full((4, 32), 9.0, dtype=torch.float64)}
    tokens, given = prompt(1, 9), features(1, 8)
    request = DraftRequest(0, tokens, 7)
    plain = DFlash(Checkpoint(config.backbone.to_json(), wide(config.backbone.shapes())), lean("qwen3"), 300)
    plain.open(0, 60)
    tell(plain, 0, tokens, given)
    quiet, noisy = (
        told(DFlash2(Checkpoint(config.to_json(), each), lean("qwen3"), 300), (tokens, given))
        for each in (silent, loud)
    )
    assert not torch.allclose(plain.backbone.blocks([request])[1], quiet.backbone.blocks([request])[1])
    assert quiet.propose([request]) != noisy.propose([request])


def test_sequences_are_drafted_together_as_if_alone() -> None:
    """Contexts of 3, 22 and 8 positions, drafts of 7, 2 and 5 tokens, the second one sampled."""
    texts = [(prompt(seed, length), features(seed, length - 1)) for seed, length in ((0, 4), (1, 23), (2, 9))]

    def requests() -> list[DraftRequest]:
        warm, chance = Sampling(1.0), torch.Generator().manual_seed(4)
        return [
            DraftRequest(0, texts[0][0], 7),
            DraftRequest(1, texts[1][0], 2, warm, chance),
            DraftRequest(2, texts[2][0], 5),
        ]

    together = told(drafter_of(configured()), *texts).propose(requests())
    for number in range(3):
        (alone,) = told(drafter_of(configured()), *texts).propose([requests()[number]])
        assert together[number].token_ids == alone.token_ids
        assert (together[number].probs is None) == (alone.probs is None) == (number != 1)
    assert [len(draft) for draft in together] == [7, 2, 5]


def test_a_rejected_draft_leaves_no_trace() -> None:
    """In steps, with drafts in between of which little is kept, or all at once: the next draft is the same."""
    tokens, given = prompt(4, 14), features(4, 13)
    stepwise = told(drafter_of(configured()), (tokens[:9], given))
    stepwise.propose([DraftRequest(0, tokens[:9], 7)])
    tell(stepwise, 0, tokens[:10], given, 9)
    stepwise.propose([DraftRequest(0, tokens[:10], 3)])
    tell(stepwise, 0, tokens, given, 10)
    fresh = told(drafter_of(configured()), (tokens, given))
    request = DraftRequest(0, tokens, 7)
    blocks = [drafter.backbone.blocks([request])[1] for drafter in (stepwise, fresh)]
    # Products of a few rows and of many may add up in another order.
    torch.testing.assert_close(blocks[0], blocks[1], rtol=0, atol=1e-10)
    assert stepwise.propose([request]) == fresh.propose([request])


def test_a_sampled_draft_keeps_to_the_candidates() -> None:
    """Its rows sum to one and have mass on the five best tokens of their position alone, whatever the request's top-k
    says."""
    tokens, given = prompt(5, 12), features(5, 11)
    drafter = told(drafter_of(configured()), (tokens, given))
    chance = torch.Generator().manual_seed(2)
    (draft,) = drafter.propose([DraftRequest(0, tokens, 6, Sampling(3.0, top_k=2), chance)])
    best = lean("qwen3").head(drafter.backbone.blocks([DraftRequest(0, tokens, 6)])[1][0, 1:7]).topk(5, dim=-1)
    assert draft.probs is not None
    assert draft.probs.shape == (6, VOCAB)
    assert draft.probs.sum(-1).tolist() == pytest.approx([1.0] * 6)
    for row, token, ids in zip(draft.probs.unbind(), draft.token_ids, best.indices.tolist(), strict=True):
        assert set(row.nonzero().flatten().tolist()) <= set(ids)
        assert float(row[token]) > 0


def test_a_saved_checkpoint_drafts_the_same(tmp_path: Path) -> None:
    """Configuration and tensors survive under the published names, the codebooks bare."""
    config = configured()
    Checkpoint(config.to_json(), wide(config.shapes())).save(tmp_path)
    loaded = Checkpoint.load(tmp_path)
    assert DFlash2Config.from_json(loaded.config) == config
    tokens, given = prompt(6, 10), features(6, 9)
    request = DraftRequest(0, tokens, 7)
    again = told(DFlash2(loaded, lean("qwen3"), 300), (tokens, given))
    before = told(drafter_of(config), (tokens, given))
    assert torch.equal(again.backbone.blocks([request])[1], before.backbone.blocks([request])[1])
    assert again.propose([request]) == before.propose([request])
    raw = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert (raw["architectures"], raw["block_size"]) == (["DFlash2DraftModel"], 8)
    assert raw["dflash_config"] == {
        "block_size": 8,
        "conv_group_size": 8,
        "conv_kernel_size": 2,
        "mask_token_id": VOCAB - 1,
        "selector_rank": 4,
        "selector_top_k": 5,
        "target_layer_ids": [0, 1],
    }
    assert tuple(loaded.tensors["candidate_selector.successor_codebook"].shape) == (VOCAB, 4)
    assert tuple(loaded.tensors["layers.1.mlp_conv.base_kernel"].shape) == (2, 2, 32)
    # Two sides, two taps, four groups.
    assert tuple(loaded.tensors["layers.0.attention_conv.kernel_projection.weight"].shape) == (16, 32)


def test_a_description_becomes_its_drafter(tmp_path: Path) -> None:
    """From a seed or from a folder; a DFlash method does not read a DFlash 2 checkpoint."""
    spec = DFlash2Spec(num_tokens=3, block_size=4, num_layers=1, selector_rank=6, selector_top_k=100)
    drafter = build(spec, lean("llama"), 100)
    assert isinstance(drafter, Drafter)
    assert (drafter.max_nodes, drafter.tree, drafter.feature_layers) == (3, False, (1, 2))
    untrained(configured()).save(tmp_path)
    assert build(DFlash2Spec(model=tmp_path), lean("qwen3"), 100).max_nodes == 7
    with pytest.raises(SpecError, match="this method needs 'DFlashDraftModel'"):
        DFlash(Checkpoint.load(tmp_path), lean("qwen3"), 100)


def test_what_does_not_fit_is_refused() -> None:
    """Groups that do not divide the width, and codebooks of a smaller vocabulary."""
    with pytest.raises(SpecError, match="conv_group_size is 5; allowed: a divisor of the hidden size 32"):
        configured(conv_group_size=5)
    with pytest.raises(SpecError, match="selector_top_k is 0; allowed: 1 or more"):
        configured(selector_top_k=0)
    small = configured(backbone=replace(configured().backbone, vocab_size=50))
    with pytest.raises(SpecError, match=f"codebooks have 50 entries, the target's vocabulary {VOCAB}"):
        drafter_of(small)
