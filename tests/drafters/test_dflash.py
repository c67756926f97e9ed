"""DFlash: a block in one pass over cached features."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drafters.base import Draft, Drafter, DraftRequest, Sampling
from drafters.catalog import build
from drafters.checkpoint import Checkpoint
from drafters.dflash import DFlash
from drafters.dflash_config import DFlashConfig, target_layers
from drafters.specs import DFlashSpec, SpecError
from tests.drafters.blocks import features, slow_block, tell, wide
from tests.drafters.models import VOCAB, lean, prompt


def configured(**changes: Any) -> DFlashConfig:
    """Two layers, block of 8, two feature layers."""
    return replace(DFlashConfig.for_target(lean("qwen3"), 8, 2), **changes)


def checkpoint_of(config: DFlashConfig) -> Checkpoint:
    """Wide weights under that configuration."""
    return Checkpoint(config.to_json(), wide(config.shapes()))


def drafter_of(config: DFlashConfig, cache_tokens: int = 200) -> DFlash:
    """With wide weights, through a checkpoint."""
    return DFlash(checkpoint_of(config), lean("qwen3"), cache_tokens)


def hidden_of(drafter: DFlash, tokens: list[int], given: Tensor, sequence_id: int = 0) -> Tensor:
    """[block_size, hidden] of a new sequence told all at once."""
    drafter.open(sequence_id, 60)
    tell(drafter, sequence_id, tokens, given)
    return drafter.backbone.blocks([DraftRequest(sequence_id, tokens, 7)])[1][0]


@pytest.mark.parametrize(
    ("layers", "ids"),
    [(36, (1, 9, 17, 25, 33)), (8, (1, 2, 3, 4, 5)), (6, (1, 2, 3)), (4, (1,)), (2, (0, 1)), (1, (0,))],
)
def test_features_come_from_layers_spread_over_the_target(layers: int, ids: tuple[int, ...]) -> None:
    """Five from the second to the third-last; fewer where a target has not so many."""
    assert target_layers(layers) == ids


def test_a_layer_id_is_an_output_counted_from_zero() -> None:
    """The engine counts hidden states, of which 0 is the embeddings."""
    config = configured()
    assert config.target_layer_ids == (0, 1)
    assert drafter_of(config).feature_layers == (1, 2)


@pytest.mark.parametrize("length", [2, 9, 40])
@pytest.mark.parametrize("block_size", [2, 8, 16])
def test_a_block_is_the_network_written_out(length: int, block_size: int) -> None:
    """Cached K/V, fused projections and folded heads give what the equations give, anchor and context included."""
    config, tokens, given = configured(block_size=block_size), prompt(1, length), features(1, length - 1)
    drafter = drafter_of(config)
    want = slow_block(config, wide(config.shapes()), lean("qwen3"), given, tokens[-1])
    # The engine keeps angles in float32, as transformers does: seven digits.
    torch.testing.assert_close(hidden_of(drafter, tokens, given), want, rtol=1e-4, atol=1e-4)


def test_drafted_are_the_best_tokens_behind_the_anchor() -> None:
    """Offsets 1 to k of the block through the target's head, for any k."""
    tokens, given = prompt(2, 11), features(2, 10)
    drafter = drafter_of(configured())
    best = lean("qwen3").head(hidden_of(drafter, tokens, given)).argmax(dim=-1).tolist()
    for k in (1, 4, 7):
        assert drafter.propose([DraftRequest(0, tokens, k)]) == [Draft(tuple(best[1 : k + 1]))]


def test_contexts_of_different_lengths_do_not_mix() -> None:
    """Three sequences in one pass give what each gives alone."""
    texts = [(prompt(seed, length), features(seed, length - 1)) for seed, length in ((0, 4), (1, 23), (2, 9))]
    together = drafter_of(configured())
    for number, (tokens, given) in enumerate(texts):
        together.open(number, 60)
        tell(together, number, tokens, given)
    requests = [DraftRequest(number, tokens, 7) for number, (tokens, _) in enumerate(texts)]
    _, hidden = together.backbone.blocks(requests)
    for number, (tokens, given) in enumerate(texts):
        alone = hidden_of(drafter_of(configured()), tokens, given)
        # Products of 8 and of 24 rows may add up in another order.
        torch.testing.assert_close(hidden[number], alone, rtol=0, atol=1e-10)


def test_a_grown_context_is_one_computed_anew() -> None:
    """Chunks of a prompt and rounds of one and three tokens leave the same K/V as telling everything at once."""
    tokens, given = prompt(3, 20), features(3, 19)
    drafter = drafter_of(configured())
    drafter.open(0, 60)
    known = 0
    for end in (7, 16, 17, 20):
        tell(drafter, 0, tokens[:end], given, known)
        known = end
    grown = drafter.backbone.blocks([DraftRequest(0, tokens, 7)])[1][0]
    anew = hidden_of(drafter_of(configured()), tokens, given)
    torch.testing.assert_close(grown, anew, rtol=0, atol=1e-10)


def test_a_rejected_draft_leaves_no_trace() -> None:
    """One token of a draft was kept: the next block is that of a drafter that never drafted."""
    tokens, given = prompt(4, 12), features(4, 20)
    blocks = []
    for drafts in (True, False):
        drafter = drafter_of(configured())
        drafter.open(0, 60)
        tell(drafter, 0, tokens, given)
        if drafts:
            drafter.propose([DraftRequest(0, tokens, 7)])
        longer = [*tokens, 5, 9]
        tell(drafter, 0, longer, given, len(tokens))
        blocks.append(drafter.backbone.blocks([DraftRequest(0, longer, 7)])[1])
    assert torch.equal(*blocks)


def test_a_block_sees_nothing_behind_the_anchor() -> None:
    """Whatever stands in the cache from the anchor's place on has no part in the block; the last feature before it
    has."""
    tokens, given = prompt(5, 10), features(5, 9)
    drafter = drafter_of(configured())
    before = hidden_of(drafter, tokens, given)
    drafter.backbone.cache.keys[:, :, 9:] = float("nan")
    drafter.backbone.cache.values[:, :, 9:] = float("nan")
    assert torch.equal(drafter.backbone.blocks([DraftRequest(0, tokens, 7)])[1][0], before)
    other = given.clone()
    other[8] += 1
    assert not torch.allclose(hidden_of(drafter_of(configured()), tokens, other), before)


def test_a_sliding_layer_sees_its_window() -> None:
    """Window 4 at anchor 12: position 8 is out of everyone's sight, position 9 in the anchor's alone."""
    config = configured(num_layers=1, layer_types=("sliding_attention",), sliding_window=4)
    tokens, given = prompt(6, 13), features(6, 12)
    before = hidden_of(drafter_of(config), tokens, given)
    changed = []
    for position in (8, 9):
        other = given.clone()
        other[position] += 1
        after = hidden_of(drafter_of(config), tokens, other)
        changed.append([not torch.equal(new, old) for new, old in zip(after, before, strict=True)])
    # The first four places of the block are within the window of one another; with one layer nothing passes on.
    assert changed == [[False] * 8, [True] + [False] * 7]


@pytest.mark.parametrize(
    ("is_causal", "kind", "causal"),
    [
        (None, "sliding_attention", True),
        (None, "full_attention", False),
        (False, "sliding_attention", False),
        (True, "full_attention", True),
    ],
)
def test_sliding_layers_are_causal_unless_told_otherwise(is_causal: bool | None, kind: str, causal: bool) -> None:
    """In a causal block the anchor does not see the masks behind it."""
    tokens, given = prompt(7, 9), features(7, 8)
    anchors = []
    for mask in (1, 2):
        config = configured(layer_types=(kind, kind), sliding_window=50, is_causal=is_causal, mask_token_id=mask)
        anchors.append(hidden_of(drafter_of(config), tokens, given)[0])
    assert torch.equal(*anchors) is causal


def test_sampled_tokens_carry_the_distribution_they_came_from() -> None:
    """Rows sum to one and keep to top-k, the drawn token has a chance; a greedy neighbour's draft is one-hot."""
    drafter = drafter_of(configured())
    tokens, given = prompt(8, 9), features(8, 8)
    for number in range(2):
        drafter.open(number, 60)
        tell(drafter, number, tokens, given)
    chance = torch.Generator().manual_seed(1)
    warm = DraftRequest(0, tokens, 5, Sampling(1.5, top_k=6), chance)
    sampled, plain = drafter.propose([warm, DraftRequest(1, tokens, 2)])
    assert sampled.probs is not None
    assert sampled.probs.shape == (5, VOCAB)
    assert sampled.probs.sum(-1).tolist() == pytest.approx([1.0] * 5)
    assert (sampled.probs > 0).sum(-1).tolist() == [6] * 5
    assert all(float(sampled.probs[row, token]) > 0 for row, token in enumerate(sampled.token_ids))
    assert (plain.probs, len(plain)) == (None, 2)


def test_without_room_a_sequence_drafts_nothing() -> None:
    """Memory for 40 tokens: the second sequence of 30 gets empty drafts, the third after the first has left does
    not."""
    drafter = drafter_of(configured(), 40)
    tokens, given = prompt(9, 6), features(9, 5)
    for number in range(2):
        drafter.open(number, 30)
        tell(drafter, number, tokens, given)
    requests = [DraftRequest(number, tokens, 3) for number in range(2)]
    assert [len(draft) for draft in drafter.propose(requests)] == [3, 0]
    drafter.release(0)
    drafter.release(1)
    drafter.open(2, 30)
    tell(drafter, 2, tokens, given)
    assert [len(draft) for draft in drafter.propose([DraftRequest(2, tokens, 3)])] == [3]


def test_a_gap_in_the_features_is_refused() -> None:
    """Positions must follow one another; a gap would only show as low acceptance."""
    drafter = drafter_of(configured())
    drafter.open(0, 60)
    tell(drafter, 0, prompt(1, 6), features(1, 20))
    with pytest.raises(ValueError, match="features from position 7 on given; 5 is the next one"):
        tell(drafter, 0, prompt(1, 10), features(1, 20), 8)


def test_a_saved_checkpoint_drafts_the_same(tmp_path: Path) -> None:
    """Configuration and tensors survive; block_size stands in both places that readers look in."""
    config = configured(mask_token_id=7, layer_types=("full_attention", "sliding_attention"), sliding_window=9)
    checkpoint_of(config).save(tmp_path)
    loaded = Checkpoint.load(tmp_path)
    assert DFlashConfig.from_json(loaded.config) == config
    tokens, given = prompt(10, 14), features(10, 13)
    again = hidden_of(DFlash(loaded, lean("qwen3"), 200), tokens, given)
    assert torch.equal(again, hidden_of(drafter_of(config), tokens, given))
    raw = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert (raw["architectures"], raw["model_type"]) == (["DFlashDraftModel"], "qwen3")
    assert (raw["block_size"], raw["num_target_layers"]) == (8, 2)
    assert raw["dflash_config"] == {"block_size": 8, "mask_token_id": 7, "target_layer_ids": [0, 1]}
    assert "layers.1.self_attn.q_norm.weight" in loaded.tensors
    assert isinstance(build(DFlashSpec(model=tmp_path), lean("qwen3"), 100), Drafter)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"block_size": 16}, "block_size 16 at the top and 8 in dflash_config"),
        ({"architectures": ["DFlash2DraftModel"]}, "this method needs 'DFlashDraftModel'"),
        ({"num_hidden_layers": 1, "layer_types": None}, "has no use for layers.1.input_layernorm.weight"),
        ({"num_hidden_layers": 3, "layer_types": None}, "lacks layers.2.input_layernorm.weight"),
        ({"intermediate_size": 95}, "has shape"),
        ({"output_multiplier": 0.5}, "sets output_multiplier to 0.5; this engine has no such step"),
        ({"num_target_layers": 36}, "of a target with 36 layers; this one has 2"),
        ({"head_dim": "8"}, "head_dim '8'; allowed: an integer"),
        ({"rope_parameters": None, "rope_theta": None}, "no rope_theta"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4}}, "rope type 'dynamic' changes"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    """Each of these would load somewhere and show as low acceptance only."""
    config = configured()
    checkpoint_of(config).save(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(raw | changes), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        build(DFlashSpec(model=tmp_path), lean("qwen3"), 100)
    assert said in str(caught.value)


def test_older_configurations_are_read_as_well() -> None:
    """rope_theta at the top, no layer types, no head_dim, no num_target_layers."""
    raw = configured().to_json()
    for key in ("rope_parameters", "layer_types", "head_dim", "num_target_layers", "is_causal"):
        del raw[key]
    read = DFlashConfig.from_json(raw | {"rope_scaling": None})
    assert read.kinds() == ((None, False), (None, False))
    assert (read.head_dim, read.rope["rope_theta"], read.num_target_layers) == (8, 1e6, None)


def test_untrained_weights_are_those_of_their_seed() -> None:
    """The same description gives the same drafter, and a block of four drafts three tokens whatever is asked."""
    spec = DFlashSpec(num_tokens=3, block_size=4, num_layers=1, seed=5)
    tokens, given = prompt(11, 8), features(11, 7)
    drafters = [
        DFlash.from_spec(each, lean("qwen3"), 100) for each in (spec, spec, spec.model_copy(update={"seed": 6}))
    ]
    first, second, other = (hidden_of(drafter, tokens, given) for drafter in drafters)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert DFlash.from_spec(DFlashSpec(block_size=4), lean("qwen3"), 100).max_nodes == 3


def test_a_long_context_is_stored_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """29 features, eight at a time: the block is the one behind features stored at once."""
    tokens, given = prompt(12, 30), features(12, 29)
    want = hidden_of(drafter_of(configured()), tokens, given)
    sizes: list[int] = []
    drafter = drafter_of(configured())
    remember = drafter.backbone._remember

    def watched(some: Tensor, positions: Tensor, slots: Tensor) -> None:
        sizes.append(len(some))
        remember(some, positions, slots)

    monkeypatch.setattr(drafter.backbone, "_remember", watched)
    monkeypatch.setattr("drafters.dflash_backbone.CHUNK", 8)
    torch.testing.assert_close(hidden_of(drafter, tokens, given), want, rtol=0, atol=1e-11)
    assert sizes == [8, 8, 8, 5]


def test_the_mask_of_untrained_weights_can_be_chosen() -> None:
    """The vocabulary's last token unless the description names one, which must be a token."""
    drafters = [DFlash.from_spec(DFlashSpec(mask_token_id=mask), lean("qwen3"), 100) for mask in (None, 7)]
    assert [drafter.backbone.config.mask_token_id for drafter in drafters] == [VOCAB - 1, 7]
    with pytest.raises(SpecError, match=f"mask_token_id is {VOCAB}; allowed: 0 to {VOCAB - 1}"):
        build(DFlashSpec(mask_token_id=VOCAB), lean("qwen3"), 100)
