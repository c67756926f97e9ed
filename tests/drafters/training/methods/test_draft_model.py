"""Training of a small draft model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from drafters.base import Commit, DraftRequest
from drafters.catalog import build
from drafters.checkpoint import Checkpoint
from drafters.engine.target import DecoderModel, Span
from drafters.specs import DraftModelSpec, SpecError
from drafters.training.batches import batch_of
from drafters.training.methods.draft_model import DraftModelMethod, DraftModelSettings
from tests.drafters.training.tiny import TINY, VOCAB, tiny_examples, tiny_model, tiny_target, write_tiny_target

CHANCE = torch.Generator()
SMALL = DraftModelSettings(
    num_tokens=3, hidden_size=16, layers=2, intermediate_size=24, heads=2, kv_heads=1, head_dim=8
)


def test_training_and_engine_say_the_same(tmp_path: Path) -> None:
    """The engine loads the written folder; its logits over a text are those of training, padded or not."""
    method = DraftModelMethod(tiny_target(), SMALL)
    method.checkpoint().save(tmp_path)
    model = DecoderModel.load(tmp_path, torch.float32)
    rows = sorted(tiny_examples()[:2], key=lambda one: len(one.token_ids))
    batch, length = batch_of(rows, tiny_target(), ()), len(rows[0].token_ids)
    trained = method.logits(batch, torch.zeros(length, dtype=torch.long), torch.arange(length))
    span = Span(0, 0, list(rows[0].token_ids), length)
    engine = model.forward([span], model.new_cache(length)).logits
    assert torch.allclose(trained, engine, atol=1e-5)  # float32, two implementations of one model
    again = DraftModelMethod(tiny_target(), SMALL, Checkpoint.load(tmp_path))
    assert torch.equal(trained, again.logits(batch, torch.zeros(length, dtype=torch.long), torch.arange(length)))


def test_the_written_folder_drafts_in_the_engine(tmp_path: Path) -> None:
    """As the spec names it, with the first token that training would draft."""
    method = DraftModelMethod(tiny_target(), SMALL)
    method.checkpoint().save(tmp_path / "draft")
    target = DecoderModel.load(write_tiny_target(tmp_path / "target"), torch.float32)
    drafter = build(DraftModelSpec(model=tmp_path / "draft", num_tokens=3), target, 100)
    tokens = tiny_examples()[0].token_ids
    drafter.open(0, 50)
    drafter.commit([Commit(0, 0, tokens)])
    batch = batch_of(tiny_examples()[:1], tiny_target(), ())
    best = method.logits(batch, torch.tensor([0]), torch.tensor([len(tokens) - 1])).argmax()
    assert drafter.propose([DraftRequest(0, tokens, 3)])[0].token_ids[0] == int(best)


def test_the_divergence_from_itself_is_zero() -> None:
    """A draft model that is the target loses nothing, and its chains are right where the target's own are."""
    target = tiny_target()
    model = tiny_model()
    start = Checkpoint(model.config.to_dict(), {n: t for n, t in model.state_dict().items() if n != "lm_head.weight"})  # type: ignore[operator, union-attr]
    method = DraftModelMethod(target, DraftModelSettings(num_tokens=2), start)
    assert method.checkpoint().config["hidden_size"] == TINY["hidden_size"]
    losses = method.losses(batch_of(tiny_examples()[:4], target, ()), CHANCE)
    assert float(losses.total) / float(losses.weight) == pytest.approx(0.0, abs=1e-4)  # a difference of float32 sums
    fresh = DraftModelMethod(target, SMALL).losses(batch_of(tiny_examples()[:4], target, ()), CHANCE)
    assert float(fresh.total) / float(fresh.weight) > 0.1


def test_chains_begin_after_a_token_of_the_target_and_stay_within_its_answer() -> None:
    """An answer of n tokens: n - 1 places with one token, n - 2 with two; loss stands on all n."""
    example = tiny_examples()[0]
    n = example.answer_tokens
    losses = DraftModelMethod(tiny_target(), SMALL).losses(batch_of([example], tiny_target(), ()), CHANCE)
    assert losses.drafted.tolist() == [n - 1, n - 2, n - 3]
    assert float(losses.weight) == n


def test_the_seed_decides_the_weights_and_leaves_chance_elsewhere_alone() -> None:
    """Two of one seed are equal, another is not, and the global source of chance is where it was."""
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    made = [DraftModelMethod(tiny_target(), SMALL.model_copy(update={"seed": seed})).checkpoint() for seed in (1, 1, 2)]
    assert torch.equal(torch.rand(1), expected)
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(made[0].tensors[name], made[1].tensors[name])
    assert not torch.equal(made[0].tensors[name], made[2].tensors[name])


def test_a_model_of_another_vocabulary_or_kind_is_refused() -> None:
    """One embedding row fewer, a tensor missing, a configuration that names no model."""
    good = DraftModelMethod(tiny_target(), SMALL).checkpoint()
    smaller = {**good.tensors, "model.embed_tokens.weight": good.tensors["model.embed_tokens.weight"][:-1]}
    with pytest.raises(SpecError, match=f"its vocabulary has {VOCAB - 1} entries, the target's {VOCAB}"):
        DraftModelMethod(tiny_target(), SMALL, Checkpoint({**good.config, "vocab_size": VOCAB - 1}, smaller))
    less = {name: tensor for name, tensor in good.tensors.items() if name != "model.norm.weight"}
    with pytest.raises(SpecError, match=r"lacks \['model.norm.weight'\]"):
        DraftModelMethod(tiny_target(), SMALL, Checkpoint(good.config, less))
    with pytest.raises(SpecError, match="no causal model"):
        DraftModelMethod(tiny_target(), SMALL, Checkpoint({"model_type": "nothing"}, good.tensors))


def test_the_defaults_stay_within_the_size_that_is_shipped() -> None:
    """At a vocabulary of 8,192: embedding 1.18 M, three layers of 0.2 M."""
    sizes = DraftModelSettings()
    heads = (2 * sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim
    layer = sizes.hidden_size * (heads + 3 * sizes.intermediate_size + 2) + 2 * sizes.head_dim
    assert 8192 * sizes.hidden_size + sizes.layers * layer + sizes.hidden_size < 1_800_000
