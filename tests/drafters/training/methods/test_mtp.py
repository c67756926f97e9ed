"""Training of multi-token prediction: it computes what the engine computes, and what it learns is drafted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from drafters.catalog import build
from drafters.checkpoint import Checkpoint
from drafters.mtp import Mtp, untrained
from drafters.specs import MtpSpec, SpecError
from drafters.training.lora import merged
from drafters.training.methods import method_class
from drafters.training.methods.blocks import load_module
from drafters.training.methods.chains import choose_chains
from drafters.training.methods.mtp import MtpMethod, MtpSettings
from tests.drafters.models import lean, prompt
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


def double(settings: MtpSettings, start: Checkpoint | None = None) -> MtpMethod:
    """In float64, as the tiny target is."""
    method = MtpMethod(frozen(), settings, start)
    method.module.double()
    return method


@pytest.mark.parametrize("recursion", ["after_norm", "before_norm"])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_chain_is_trained_on_what_the_engine_drafts_from(
    recursion: str, fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the text is what the drafter itself drafts, the logits of all five steps are the engine's; so are those after
    a longer and a shorter beginning in the same batch."""
    target = frozen()
    start = None if fresh else untrained(target, seed=3, recursion=recursion)
    method = double(
        MtpSettings.model_validate({"num_tokens": 5, "recursion": recursion, "num_key_value_heads": 2}), start
    )
    rows, heard = [], []
    for seed, length in ((1, 11), (2, 5), (3, 2)):
        tokens = prompt(seed, length)
        engine = lean(FAMILY)
        drafter = Mtp(method.checkpoint(), engine, 5)
        listening = Listening(engine.head)
        monkeypatch.setattr(engine, "head", listening, raising=True)
        drafted = draft_after(drafter, target, tokens)
        monkeypatch.undo()
        heard.append(torch.cat(listening.heard))  # a row a step
        rows.append(([*tokens, *drafted], [(length - 1, length + 5)]))
    batch = batch_of(target, rows, method.feature_layers)
    outputs = method.outputs(batch, choose_chains(batch, 5, None, CHANCE))
    with torch.no_grad():
        made = torch.stack([method.logits(output[:, 0]) for output in outputs], dim=1)
    torch.testing.assert_close(made, torch.stack(heard), rtol=0, atol=CLOSE)
    assert method.losses(batch, CHANCE).accepted[4] >= 3.0  # the three drafts of five tokens at least


def test_a_checkpoint_comes_back_as_the_same_drafter(tmp_path: Path) -> None:
    """Saved, loaded and continued, the losses are the same; loaded by the engine, it drafts the same from a file."""
    method = double(MtpSettings(num_tokens=3, seed=4, intermediate_size=40, head_dim=12))
    method.checkpoint().save(tmp_path)
    loaded = Checkpoint.load(tmp_path)
    again = double(MtpSettings(num_tokens=3), loaded)
    batch = batch_of(frozen(), texts(), ())
    same(again.losses(batch, CHANCE), method.losses(batch, CHANCE), 0.0)
    drafter = build(MtpSpec(model=tmp_path, num_tokens=3), lean(FAMILY), 100)
    tokens = texts()[0][0]
    assert draft_after(drafter, frozen(), tokens) == draft_after(
        Mtp(method.checkpoint(), lean(FAMILY)), frozen(), tokens
    )


def test_what_is_learnt_by_heart_is_accepted_by_the_engine(tmp_path: Path) -> None:
    """Three answers, over and over: nearly every drafted token is then accepted, and before next to none was."""
    target = frozen(torch.float32)
    method = method_class("mtp")(target, MtpSettings(num_tokens=3, labels="hard"))
    batch = batch_of(target, texts(torch.float32), method.feature_layers)
    course = overfit(method, batch, 150)
    assert shares(course[0])[0] < 0.3
    assert min(shares(course[-1])) > 0.95
    method.checkpoint().save(tmp_path)
    drafter = build(MtpSpec(model=tmp_path, num_tokens=3), lean(FAMILY, dtype=torch.float32), 600)
    accepted, drafted = accepted_by_engine(drafter, torch.float32)
    assert accepted > 0.95 * drafted > 3.0


def test_the_targets_distribution_is_learnt() -> None:
    """Soft labels: the loss goes down towards the distribution's own entropy and not below."""
    target = frozen(torch.float32)
    method = MtpMethod(target, MtpSettings(num_tokens=2, steps=1))
    batch = batch_of(target, texts(torch.float32), ())
    course = overfit(method, batch, 120)
    places = [batch.hidden[row, begin : stop - 1] for row, (_, [(begin, stop)]) in enumerate(texts(torch.float32))]
    probs = target.head(torch.cat(places)).softmax(-1)
    entropy = float(-(probs * probs.log()).sum())
    assert float(course[-1].total.detach()) >= entropy
    assert float(course[-1].total.detach()) - entropy < 0.2 * (float(course[0].total.detach()) - entropy)


def test_low_rank_changes_are_trained_alone_and_merged() -> None:
    """At first it is the checkpoint itself; only the changes have gradients; merged, the losses are the same."""
    start = double(MtpSettings(num_tokens=3, seed=5)).checkpoint()
    batch = batch_of(frozen(), texts(), ())
    plain = double(MtpSettings(num_tokens=3), start)
    method = double(MtpSettings(num_tokens=3, lora_rank=4), start)
    same(method.losses(batch, CHANCE), plain.losses(batch, CHANCE))
    names = {name.rpartition(".")[2] for name, _ in method.module.named_parameters()}
    assert names == {"down", "up"}
    course = overfit(method, batch, 30, 1e-2)
    assert float(course[-1].total.detach()) < 0.9 * float(course[0].total.detach())
    load_module(plain.module, merged(method.module))
    same(plain.losses(batch, CHANCE), method.losses(batch, CHANCE), 1e-9)
    for name, tensor in start.tensors.items():
        assert torch.equal(tensor, method.checkpoint().tensors[name]) == ("norm" in name)


def test_steps_learnt_and_tokens_scored_are_told_apart() -> None:
    """Two steps teach with weights 1 and 0.6, three tokens are scored."""
    batch = batch_of(frozen(), [(texts()[0][0][:12], [(6, 12)])], ())
    losses = double(MtpSettings(num_tokens=3, steps=2)).losses(batch, CHANCE)
    assert losses.drafted.tolist() == [5.0, 4.0, 3.0]
    assert float(losses.weight) == pytest.approx(5 + 0.6 * 4)
    assert sum(map(float, losses.parts.values())) == pytest.approx(float(losses.total.detach()))


def test_what_cannot_be_trained_is_refused() -> None:
    """LoRA of nothing, a checkpoint of another target, alpha without a rank, a chain longer than the engine drafts."""
    with pytest.raises(SpecError, match="'lora_rank' is given without a checkpoint"):
        MtpMethod(frozen(), MtpSettings(lora_rank=4))
    start = untrained(frozen())
    with pytest.raises(SpecError, match="hidden size is 16"):
        MtpMethod(frozen(), MtpSettings(), Checkpoint({**start.config, "hidden_size": 16}, start.tensors))
    with pytest.raises(ValidationError, match="lora_alpha is given without lora_rank"):
        MtpSettings(lora_alpha=1.0)
    with pytest.raises(ValidationError, match="less than or equal to 7"):
        MtpSettings(num_tokens=8)
