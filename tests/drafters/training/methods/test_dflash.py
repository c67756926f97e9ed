"""Training of DFlash: which places teach what, and that a trained drafter is right in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from tokenizers import Tokenizer

from drafters.base import Target
from drafters.catalog import build
from drafters.checkpoint import Checkpoint
from drafters.dflash2 import DFlash2Config
from drafters.dflash_config import DFlashConfig, target_layers
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request
from drafters.specs import DFlash2Spec, DFlashSpec, SpecError
from drafters.training.frozen import FrozenTarget
from drafters.training.method import Batch, Losses
from drafters.training.methods.anchors import all_anchors, draw_anchors
from drafters.training.methods.dflash import (
    Blocks,
    DFlashMethod,
    DFlashSettings,
    config_for,
    counted,
    unary_loss,
    unused_token,
)
from drafters.training.methods.dflash2 import DFlash2Method, DFlash2Settings
from drafters.training.reference.model import build_target
from drafters.training.reference.tokenizer import train_tokenizer
from tests.drafters.models import VOCAB, greedy, lean, prompt
from tests.drafters.training.methods.block_batches import (
    batch_of,
    config,
    config2,
    engine_block,
    engine_drafter,
    frozen,
    text_batch,
    trained,
)


def chance(seed: int = 0) -> torch.Generator:
    """A generator."""
    return torch.Generator().manual_seed(seed)


def tiny_batch(answers: Sequence[tuple[int, int]], length: int) -> Batch:
    """Rows of ``length`` tokens with these answers, without features."""
    marks = torch.zeros((len(answers), length), dtype=torch.bool)
    for row, (start, end) in enumerate(answers):
        marks[row, start:end] = True
    nothing = torch.zeros((len(answers), length, 0, 0))
    return Batch(marks.long(), torch.full((len(answers),), length), marks, nothing, nothing)


def test_an_anchor_is_a_token_of_an_answer_with_another_behind_it() -> None:
    """Of an answer from 3 to 6 the places 3 and 4; of one token none: its only place follows the prompt's end."""
    anchors = draw_anchors(tiny_batch([(3, 6), (5, 6)], 8), 10, chance())
    assert anchors.positions.tolist() == [[3, 4], [0, 0]]
    assert anchors.there.tolist() == [[True, True], [False, False]]


def test_anchors_are_drawn_by_the_generator_alone() -> None:
    """Three of thirty: ascending, the same for one seed, others for another, all places in the end."""
    batch = tiny_batch([(10, 41)], 50)
    drawn = [draw_anchors(batch, 3, chance(seed)).positions[0].tolist() for seed in (*range(80), 0)]
    assert drawn[0] == drawn[80] != drawn[1]
    assert all(a < b < c for a, b, c in drawn)
    assert {place for three in drawn for place in three} == set(range(10, 40))


def test_all_anchors_come_in_order_so_many_of_a_row_at_once() -> None:
    """Places 2, 3 and 4 of one row and 1 of another, two at a time; a batch without one still gives one pass."""
    parts = list(all_anchors(tiny_batch([(2, 6), (1, 3)], 8), 2))
    assert [(part.positions.tolist(), part.there.tolist()) for part in parts] == [
        ([[2, 3], [1, 0]], [[True, True], [True, False]]),
        ([[4], [0]], [[True], [False]]),
    ]
    (nothing,) = all_anchors(tiny_batch([(3, 4)], 8), 2)
    assert nothing.there.tolist() == [[False]]


@pytest.mark.parametrize("given", [config(), config2()], ids=["dflash", "dflash2"])
def test_without_gradients_every_place_counts_once(given: DFlashConfig | DFlash2Config) -> None:
    """Three anchors of each row at once give the sums of all 36 together, whatever the generator says."""
    few, all_of_them = trained(given, anchors=3), trained(given, anchors=99)
    batch = text_batch(few.feature_layers)
    assert few.losses(batch, chance()).drafted[0] == 9.0
    with torch.no_grad():
        some, whole = few.losses(batch, chance(1)), all_of_them.losses(batch, chance(2))
    assert some.drafted.tolist() == whole.drafted.tolist()
    assert some.drafted[0] == 36.0
    assert some.accepted.tolist() == whole.accepted.tolist()
    torch.testing.assert_close(some.total, whole.total)
    torch.testing.assert_close(some.weights, whole.weights)
    torch.testing.assert_close(dict(some.parts), dict(whole.parts))


def test_a_block_is_scored_up_to_the_end_of_its_answer() -> None:
    """Blocks of 8 in an answer of 20 tokens: anchors 6 to 18 draft seven, then one less each; answers of 8 and 11 tokens
    give 7 and 10 anchors."""
    method = trained(config(), anchors=99)
    losses = method.losses(text_batch(method.feature_layers), chance())
    # Position i: 19 - i + 1 anchors of the first text, 8 - i of the second, 11 - i of the third.
    assert losses.drafted.tolist() == [
        19 + 7 + 10,
        18 + 6 + 9,
        17 + 5 + 8,
        16 + 4 + 7,
        15 + 3 + 6,
        14 + 2 + 5,
        13 + 1 + 4,
    ]


def test_a_block_does_not_reach_into_the_next_answer() -> None:
    """Answers from 6 to 9 and 10 to 13 in one row: each gives two anchors, one with two positions and one with one."""
    method = trained(config(), anchors=99)
    batch = text_batch(method.feature_layers)
    answers = torch.zeros_like(batch.answers)
    answers[0, 6:9] = answers[0, 10:13] = True
    losses = method.losses(replace(batch, answers=answers), chance())
    assert losses.drafted.tolist() == [4, 2, 0, 0, 0, 0, 0]


def test_a_batch_without_answers_teaches_nothing() -> None:
    """Its loss is 0 of weight 0 and still has a gradient."""
    method = trained(config())
    batch = text_batch(method.feature_layers)
    losses = method.losses(replace(batch, answers=torch.zeros_like(batch.answers)), chance())
    losses.total.backward()  # type: ignore[no-untyped-call]
    assert (losses.total.item(), losses.weight.item(), losses.drafted.tolist()) == (0, 0, [0] * 7)


@pytest.mark.parametrize("given", [config(), config2()], ids=["dflash", "dflash2"])
def test_accepted_counts_what_the_engine_drafts(given: DFlashConfig | DFlash2Config) -> None:
    """From every anchor of every answer, the engine's own draft against the text; with wide random weights some agree
    by chance, so the answers are made of its drafts."""
    method, drafter = trained(given, anchors=99), engine_drafter(given)
    batch = text_batch(method.feature_layers)
    for row, anchor in ((0, 9), (1, 5), (2, 12)):
        draft = engine_block(drafter, batch, row, anchor)[1]
        end = min(anchor + 6, int(batch.lengths[row]))
        batch.token_ids[row, anchor + 1 : end] = torch.tensor(draft[: end - anchor - 1])
    losses = method.losses(batch, chance())
    accepted = torch.zeros(7, dtype=torch.long)
    for row, anchor in batch.answers.nonzero().tolist():
        rest = batch.token_ids[row, anchor + 1 :][batch.answers[row, anchor + 1 :]].tolist()
        for place, (drafted, wanted) in enumerate(
            zip(engine_block(drafter, batch, row, anchor)[1], rest, strict=False)
        ):
            if drafted != wanted:
                break
            accepted[place] += 1
    assert losses.accepted.tolist() == accepted.tolist()
    assert accepted[3] >= 3


def test_only_as_many_tokens_are_counted_as_asked_for() -> None:
    """Three of the block's seven; the loss is the same, and a short block leaves the last positions untried."""
    kept = torch.tensor([[[True, True, True, False]]])
    right = torch.tensor([True, False, True])
    assert [counts.tolist() for counts in counted(kept, right, 2)] == [[1, 1], [1, 0]]
    assert [counts.tolist() for counts in counted(kept, right, 5)] == [[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]
    totals = [trained(config(), num_tokens=count).losses(text_batch((1, 2)), chance()).total.item() for count in (3, 7)]
    assert totals[0] == totals[1]


def scored(logits: torch.Tensor, label: int) -> Blocks:
    """Positions 1, 2, 3 behind anchor 0, all with one label."""
    place = torch.tensor([1, 2, 3])
    labels = torch.full((3,), label)
    kept = torch.ones((1, 1, 3), dtype=torch.bool)
    return Blocks(kept, torch.zeros_like(place), place, place - 1, labels, torch.zeros((3, 32)), logits)


def test_a_weight_falls_with_the_distance_from_the_anchor() -> None:
    """A decay that halves: 1, 1/2 and 1/4 of the logarithm of the vocabulary, for a drafter that knows nothing."""
    batch = tiny_batch([(0, 4)], 4)
    settings = DFlashSettings(decay=1 / log(2))
    total, entropy, weights = unary_loss(scored(torch.zeros((3, 61)), 5), frozen(), batch, 8, settings)
    assert weights.tolist() == pytest.approx([1.0, 0.5, 0.25])
    assert total.item() == entropy.item() == pytest.approx(1.75 * log(61))


@pytest.mark.parametrize(("block_size", "decay"), [(8, 4), (10, 5), (16, 7)])
def test_the_decay_is_the_published_one(block_size: int, decay: float) -> None:
    """The second position's weight tells it."""
    blocks, batch = scored(torch.zeros((3, 61)), 5), tiny_batch([(0, 4)], 4)
    weights = unary_loss(blocks, frozen(), batch, block_size, DFlashSettings(block_size=block_size))[2]
    assert weights[1].item() == pytest.approx(2.718281828 ** (-1 / decay))


def test_the_soft_loss_vanishes_at_the_targets_own_distribution() -> None:
    """The target predicts position t from its state at t - 1; the cross entropy of its token stays."""
    batch = batch_of([prompt(1, 6)], [(1, 6)], (1,))
    logits = frozen().head(batch.hidden[0, 0:3])
    for share, left in ((1.0, 0.0), (0.25, 0.75)):
        total, entropy, _ = unary_loss(scored(logits, 5), frozen(), batch, 8, DFlashSettings(soft=share))
        assert total.item() == pytest.approx(left * entropy.item(), abs=1e-9)
        assert entropy.item() > 1


@pytest.mark.parametrize("given", [config(), config2()], ids=["dflash", "dflash2"])
def test_a_checkpoint_comes_back_as_it_was(given: DFlashConfig | DFlash2Config, tmp_path: Path) -> None:
    """Written, read by the engine's class from the folder, and trained on: same configuration, tensors and logits."""
    method = trained(given)
    made = method.checkpoint()
    made.save(tmp_path)
    again = type(method)(frozen(), type(method).settings(), Checkpoint.load(tmp_path)).checkpoint()  # type: ignore[arg-type]
    assert again.config == made.config == given.to_json() | {"dtype": "float32"}
    assert list(again.tensors) and all(torch.equal(again.tensors[name], made.tensors[name]) for name in made.tensors)
    spec = DFlash2Spec(model=tmp_path) if isinstance(given, DFlash2Config) else DFlashSpec(model=tmp_path)
    loaded: Any = build(spec, lean("qwen3"), 200)
    batch = text_batch(method.feature_layers)
    for row, anchor in ((0, 8), (2, 15)):
        assert torch.equal(
            engine_block(loaded, batch, row, anchor)[0], engine_block(engine_drafter(given), batch, row, anchor)[0]
        )


def trained_on(method: DFlashMethod | DFlash2Method, batch: Batch, steps: int) -> Losses:
    """A loop in a few lines; returns the last step's losses."""
    parameters = list(method.module.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=4e-3, weight_decay=0.0)
    generator = chance()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * (1 - step / steps)
        losses = method.losses(batch, generator)
        (losses.total / losses.weight).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return losses


@pytest.mark.parametrize("name", ["dflash", "dflash2"])
def test_a_drafter_that_knows_the_texts_is_always_right_in_the_engine(name: str, tmp_path: Path) -> None:
    """Four answers of 25 tokens, learnt by heart: after the first token three rounds of eight, one token of the target's
    in each."""
    prompts = [prompt(seed, 10) for seed in range(4)]
    texts = [[*text, *greedy("qwen3", text, 25, dtype=torch.float32)] for text in prompts]
    target = frozen(torch.float32)
    method: DFlashMethod | DFlash2Method
    if name == "dflash":
        method = DFlashMethod(target, DFlashSettings())
    else:
        method = DFlash2Method(target, DFlash2Settings(selector_rank=8, selector_top_k=4))
    ids = torch.tensor(texts)
    states = target.hidden_states(ids, [35] * 4, [*method.feature_layers, 2])
    marks = torch.zeros_like(ids, dtype=torch.bool)
    marks[:, 10:] = True
    batch = Batch(ids, torch.full((4,), 35), marks, states[:, :, :-1], states[:, :, -1])
    losses = trained_on(method, batch, 150)
    assert torch.equal(losses.accepted, losses.drafted)
    method.checkpoint().save(tmp_path)
    spec = DFlashSpec(model=tmp_path) if name == "dflash" else DFlash2Spec(model=tmp_path)
    engine_target = lean("qwen3", dtype=torch.float32)
    runner = Runner(engine_target, 400, {"it": build(spec, engine_target, 400)})
    running = [runner.add(Request(tuple(text), 25, drafter="it")) for text in prompts]
    while runner.busy:
        runner.step()
    for sequence, text in zip(running, texts, strict=True):
        assert sequence.token_ids == text
    # An acceptance length of 8: 24 tokens in 3 rounds.
    assert runner.counters.num_accepted_tokens == runner.counters.num_draft_tokens == 4 * 3 * 7


def test_fresh_weights_follow_the_seed() -> None:
    """The same for one seed, others for another, and the number of layers and their width as asked for."""
    made = [
        DFlashMethod(frozen(), DFlashSettings(seed=seed, num_layers=1, intermediate_size=40)).checkpoint().tensors
        for seed in (1, 1, 2)
    ]
    name = "layers.0.mlp.up_proj.weight"
    assert torch.equal(made[0][name], made[1][name])
    assert not torch.equal(made[0][name], made[2][name])
    assert made[0][name].shape == (40, 32)
    assert "layers.1.mlp.up_proj.weight" not in made[0]


def test_the_configuration_is_what_was_asked_for() -> None:
    """Block size in both places, layers and mask token under their published names."""
    settings = DFlashSettings(block_size=4, target_layer_ids=(1,), mask_token_id=7)
    written = DFlashMethod(frozen(), settings).checkpoint().config
    assert (written["block_size"], written["dflash_config"]["block_size"]) == (4, 4)
    assert written["dflash_config"]["target_layer_ids"] == [1]
    assert written["dflash_config"]["mask_token_id"] == 7
    assert DFlashMethod(frozen(), settings).feature_layers == (2,)
    # The target's own: a drafter of short texts turned too slowly could hardly tell neighbours apart.
    assert (written["rope_theta"], written["max_position_embeddings"]) == (10000.0, 256)


def test_fewer_layers_of_the_target_are_spread_over_the_same_range() -> None:
    """Three and four of the five of a target of 36."""
    assert target_layers(36, 3) == (1, 17, 33)
    assert target_layers(36, 4) == (1, 12, 22, 33)


def test_layers_that_are_not_there_are_refused() -> None:
    """The message names the range."""
    with pytest.raises(SpecError, match=r"target_layer_ids holds 2; allowed: 0 to 1"):
        config_for(frozen(), DFlashSettings(target_layer_ids=(0, 2)))


def test_a_start_of_another_target_or_method_is_refused() -> None:
    """Another width, and a DFlash 2 checkpoint for DFlash."""
    with pytest.raises(SpecError, match="hidden size is 16"):
        DFlashMethod(frozen(), DFlashSettings(), Checkpoint(config(hidden_size=16).to_json(), {}))
    with pytest.raises(SpecError, match="DFlash2DraftModel"):
        DFlashMethod(frozen(), DFlashSettings(), trained(config2()).checkpoint())


def test_all_that_a_block_drafts_is_scored_unless_told_otherwise() -> None:
    """Also from words of a command line; more than the block has is refused, be it given, the default, or a
    checkpoint's."""
    assert DFlashSettings.model_validate({"block_size": "4"}).num_tokens == 3
    assert DFlashSettings(block_size=16).num_tokens == 15
    assert DFlash2Settings(block_size=4, num_tokens=2).num_tokens == 2
    with pytest.raises(ValidationError, match="a block of 6 drafts at most 5"):
        DFlashSettings(num_tokens=6, block_size=6)
    with pytest.raises(SpecError, match="a block of 8 drafts at most 7"):
        DFlashMethod(frozen(), DFlashSettings(num_tokens=8))
    small = DFlashMethod(frozen(), DFlashSettings(block_size=4)).checkpoint()
    with pytest.raises(SpecError, match="a block of 4 drafts at most 3"):
        DFlashMethod(frozen(), DFlashSettings(num_tokens=7), small)
    large = DFlashMethod(frozen(), DFlashSettings(block_size=12)).checkpoint()
    for settings, start, scored_tokens in ((DFlashSettings(), small, 3), (DFlashSettings(num_tokens=11), large, 11)):
        method = DFlashMethod(frozen(), settings, start)
        method.module.double()
        assert len(method.losses(text_batch(method.feature_layers), chance()).drafted) == scored_tokens
    with pytest.raises(ValidationError, match="block_size"):
        DFlashSettings.model_validate({"block_size": "many"})


def test_the_mask_is_a_token_that_no_text_holds(tmp_path: Path) -> None:
    """Byte 255, which UTF-8 never uses; the last id where the tokenizer has fewer than the model, or is not known."""
    tokenizer: Tokenizer = train_tokenizer(["a text of bytes, 글자"] * 3, 300)
    size = tokenizer.get_vocab_size()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    shape = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    target: Target
    for vocabulary, folder, want in ((size, tmp_path, None), (size + 2, tmp_path, size + 1), (size, None, size - 1)):
        target = FrozenTarget(build_target(vocabulary, **shape, head_dim=8), folder)
        found = unused_token(target)
        assert found == (tokenizer.token_to_id("\u00ff") if want is None else want)
    every = "".join(map(chr, range(0x20, 0x3000))) + "글자"
    assert tokenizer.token_to_id("\u00ff") not in tokenizer.encode(every).ids
    assert unused_token(frozen()) == VOCAB - 1
