"""Training of EAGLE-3: it computes what the engine computes, in a vocabulary of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from drafters.catalog import build
from drafters.checkpoint import Checkpoint
from drafters.eagle3 import Eagle3, untrained
from drafters.specs import Eagle3Spec, SpecError
from drafters.training.methods import method_class
from drafters.training.methods.chains import choose_chains
from drafters.training.methods.draft_vocabulary import choose_vocabulary
from drafters.training.methods.eagle3 import Eagle3Method, Eagle3Settings
from tests.drafters.models import VOCAB, lean, prompt
from tests.drafters.training.methods.chaining import (
    CLOSE,
    FAMILY,
    Listening,
    accepted_by_engine,
    batch_of,
    draft_after,
    frozen,
    overfit,
    same,
    shares,
    texts,
)

CHANCE = torch.Generator().manual_seed(0)
KNOWN = tuple(token for token in range(VOCAB) if token % 3)


def double(start: Checkpoint | None = None, **settings: Any) -> Eagle3Method:
    """In float64, as the tiny target is."""
    method = Eagle3Method(frozen(), Eagle3Settings(**settings), start)
    method.module.double()
    return method


@pytest.mark.parametrize("kind", ["fresh", "normed residual", "checkpoint"])
def test_a_chain_is_trained_on_what_the_engine_drafts_from(kind: str) -> None:
    """Where the text is what the drafter itself drafts, the logits of all five steps are the engine's; so are those after
    a longer and a shorter beginning in the same batch."""
    target = frozen()
    if kind == "checkpoint":
        method = double(untrained(target, 40, seed=3), num_tokens=5)
    else:
        method = double(
            num_tokens=5,
            draft_vocabulary=KNOWN,
            feature_layers=(0, 1, 2),
            norm_before_residual=kind != "fresh",
            num_key_value_heads=2,
        )
    rows, heard = [], []
    for seed, length in ((1, 11), (2, 5), (3, 2)):
        tokens = prompt(seed, length)
        drafter = Eagle3(method.checkpoint(), lean(FAMILY), 5)
        drafter._head = listening = Listening(drafter._head)  # type: ignore[assignment]
        drafted = draft_after(drafter, target, tokens)
        heard.append(torch.cat(listening.heard))  # a row a step
        rows.append(([*tokens, *drafted], [(length - 1, length + 5)]))
    batch = batch_of(target, rows, method.feature_layers)
    outputs = method.outputs(batch, choose_chains(batch, 5, None, CHANCE))
    with torch.no_grad():
        made = torch.stack([method.logits(output[:, 0]) for output in outputs], dim=1)
    torch.testing.assert_close(made, torch.stack(heard), rtol=0, atol=CLOSE)
    assert method.losses(batch, CHANCE).accepted[4] >= 3.0  # the three drafts of five tokens at least


def test_a_checkpoint_comes_back_as_the_same_drafter(tmp_path: Path) -> None:
    """Saved, loaded and continued under either name of the layer, the losses are the same; the engine drafts the same."""
    method = double(num_tokens=3, seed=4, draft_vocabulary=KNOWN, intermediate_size=40)
    method.checkpoint().save(tmp_path)
    loaded = Checkpoint.load(tmp_path)
    renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in loaded.tensors.items()}
    batch = batch_of(frozen(), texts(), method.feature_layers)
    wanted = method.losses(batch, CHANCE)
    same(double(loaded, num_tokens=3).losses(batch, CHANCE), wanted, 0.0)
    same(double(Checkpoint(loaded.config, renamed), num_tokens=3).losses(batch, CHANCE), wanted, 0.0)
    drafter = build(Eagle3Spec(model=tmp_path, num_tokens=3), lean(FAMILY), 100)
    before = Eagle3(method.checkpoint(), lean(FAMILY), 3)
    tokens = texts()[0][0]
    assert draft_after(drafter, frozen(), tokens) == draft_after(before, frozen(), tokens)


def test_what_is_learnt_by_heart_is_accepted_by_the_engine(tmp_path: Path) -> None:
    """Three answers, over and over, with the tokens that occur in them as vocabulary: nearly all is then accepted."""
    target = frozen(torch.float32)
    rows = texts(torch.float32)
    answers = torch.tensor([token for tokens, [(start, end)] in rows for token in tokens[start:end]])
    counts = answers.bincount(minlength=VOCAB)
    known = choose_vocabulary(counts, int((counts > 0).sum()))
    method = method_class("eagle3")(target, Eagle3Settings(num_tokens=4, draft_vocabulary=known, labels="hard"))
    course = overfit(method, batch_of(target, rows, method.feature_layers), 150)
    assert shares(course[0])[0] < 0.3
    assert min(shares(course[-1])) > 0.95
    method.checkpoint().save(tmp_path)
    drafter = build(Eagle3Spec(model=tmp_path, num_tokens=4), lean(FAMILY, dtype=torch.float32), 600)
    accepted, drafted = accepted_by_engine(drafter, torch.float32)
    assert accepted > 0.95 * drafted > 3.5


def test_a_token_outside_the_vocabulary_is_drafted_in_vain_and_not_learnt() -> None:
    """Of five places the likeliest token of two is unknown: the weight is three, drafted are five, accepted at most
    three."""
    tokens = texts()[0][0][:12]
    batch = batch_of(frozen(), [(tokens, [(6, 12)])], (1, 1, 1))
    wanted = tokens[7:12]  # the target's own greedy answer
    unknown = set(wanted[:2])
    left = sum(token not in unknown for token in wanted)
    known = tuple(token for token in range(VOCAB) if token not in unknown)
    for labels in ("soft", "hard"):
        losses = double(num_tokens=1, draft_vocabulary=known, labels=labels).losses(batch, CHANCE)
        assert losses.weight == left < 5
        assert losses.drafted.tolist() == [5.0]
        assert losses.accepted[0] <= left


def test_every_step_weighs_four_fifths_of_the_one_before() -> None:
    """Places 5, 4 and 3 with all tokens known."""
    batch = batch_of(frozen(), [(texts()[0][0][:12], [(6, 12)])], (1, 1, 1))
    assert float(double(num_tokens=3).losses(batch, CHANCE).weight) == pytest.approx(5 + 0.8 * 4 + 0.64 * 3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"draft_vocab_size": 9}, "is 9 of 61 without 'draft_vocabulary'"),
        ({"draft_vocab_size": 9, "draft_vocabulary": (1, 2)}, "is 9, but 'draft_vocabulary' has 2 ids"),
        ({"draft_vocabulary": (2, 1)}, "ids from 0 to 60, ascending"),
        ({"draft_vocabulary": (1, 61)}, "ids from 0 to 60, ascending"),
        ({"feature_layers": (1, 2, 3)}, "three of 0 to 2"),
        ({"num_attention_heads": 3, "num_key_value_heads": 2}, "3 heads of 8 on 2 key heads"),
    ],
)
def test_what_cannot_be_trained_is_refused(settings: dict[str, Any], said: str) -> None:
    """Each setting with what it is and what is allowed."""
    with pytest.raises(SpecError, match=said):
        double(**settings)
