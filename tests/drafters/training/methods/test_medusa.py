"""Training of Medusa's heads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from drafters.base import Commit
from drafters.checkpoint import Checkpoint
from drafters.engine.target import DecoderModel
from drafters.medusa import Medusa, untrained
from drafters.specs import SpecError
from drafters.training.batches import batch_of
from drafters.training.examples import Example
from drafters.training.method import Batch
from drafters.training.methods.medusa import MedusaMethod, MedusaSettings
from tests.drafters.training.tiny import VOCAB, tiny_examples, tiny_model, tiny_target, write_tiny_target

CHANCE = torch.Generator()


def scrambled(settings: MedusaSettings) -> MedusaMethod:
    """Heads that are no longer as they begin."""
    method = MedusaMethod(tiny_target(), settings)
    torch.manual_seed(1)
    for parameter in method.module.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return method


@pytest.mark.parametrize("original", [True, False])
def test_training_and_engine_say_the_same(original: bool, tmp_path: Path) -> None:
    """Same states, same logits, through the saved checkpoint, with the target's head and with heads' own."""
    method = scrambled(MedusaSettings(num_tokens=3, layers=2, original_lm_head=original))
    method.checkpoint().save(tmp_path)
    target = DecoderModel.load(write_tiny_target(tmp_path / "target"), torch.float32)
    drafter = Medusa(Checkpoint.load(tmp_path), target, 3)
    hidden = torch.randn((4, 32), generator=torch.Generator().manual_seed(2))
    for row in hidden:
        drafter.open(0, 10)
        drafter.commit([Commit(0, 0, (1, 2), row.view(1, 1, -1))])
        trained = torch.cat([method.logits(head, row.unsqueeze(0)) for head in range(3)])
        assert torch.allclose(trained, drafter.logits(0), atol=1e-4, rtol=1e-5)  # float32 products of packed weights
    names = {name.rpartition(".")[0] for name in Checkpoint.load(tmp_path).tensors}
    assert ("0.2" in names) is not original


@pytest.mark.parametrize("original", [True, False])
def test_a_checkpoint_goes_on_as_it_was(original: bool) -> None:
    """Weights, losses and counts of a training that starts from a checkpoint are those of the one that wrote it."""
    method = scrambled(MedusaSettings(num_tokens=3, original_lm_head=original))
    again = MedusaMethod(tiny_target(), MedusaSettings(num_tokens=2), method.checkpoint())
    for name, tensor in method.checkpoint().tensors.items():
        assert torch.equal(again.checkpoint().tensors[name], tensor)
    batch = batch_of(tiny_examples()[:3], tiny_target(), ())
    first, second = method.losses(batch, CHANCE), again.losses(batch, CHANCE)
    assert torch.equal(first.total, second.total)
    assert first.accepted[:2].tolist() == second.accepted.tolist()


def test_a_head_starts_as_the_targets_own_prediction() -> None:
    """W is zero, so the state passes unchanged; yet every block has weights of its own."""
    method = MedusaMethod(tiny_target(), MedusaSettings(num_tokens=2, layers=2))
    hidden = torch.randn((5, 32), generator=torch.Generator().manual_seed(0))
    assert torch.equal(method.logits(1, hidden), tiny_target().head(hidden))
    assert len({parameter.data_ptr() for parameter in method.module.parameters()}) == 8


class Spy(MedusaMethod):
    """Heads that say a token for each state they were given: the state's first number and the head decide."""

    def logits(self, head: int, hidden: torch.Tensor) -> torch.Tensor:
        """The token after the next two, as a text that counts by one has it."""
        said = hidden[:, 0].long() + 2 + head
        return torch.nn.functional.one_hot(said, VOCAB).float() * 100


def test_head_i_is_scored_on_the_token_i_plus_two_further() -> None:
    """Tokens 10 to 17, the last five the target's. A state says its own token, so every head is right; drafting begins
    where the last committed token is the first of the answer: four places with one token, three with two, two with
    three."""
    tokens = torch.arange(10, 18).unsqueeze(0)
    answers = torch.tensor([[False] * 3 + [True] * 5])
    hidden = torch.zeros((1, 8, 32))
    hidden[0, :, 0] = tokens[0].float()
    method = Spy(tiny_target(), MedusaSettings(num_tokens=3, loss="hard"))
    batch = Batch(tokens, torch.tensor([8]), answers, hidden.unsqueeze(2)[:, :, :0], hidden)
    losses = method.losses(batch, CHANCE)
    assert losses.drafted.tolist() == losses.accepted.tolist() == [4, 3, 2]
    assert float(losses.weight) == pytest.approx(4 + 0.8 * 3 + 0.64 * 2)
    assert float(losses.total) == pytest.approx(0.0, abs=1e-6)


def test_the_soft_loss_is_least_at_the_targets_own_distribution() -> None:
    """A head whose states are those of the right place pays the entropy of the target alone, and any other pays more."""
    target = tiny_target()
    batch = batch_of([Example("a", "ko", "office", "train", tuple(range(5, 15)), ((3, 10),))], target, ())

    class Seeing(MedusaMethod):
        def logits(self, head: int, hidden: torch.Tensor) -> torch.Tensor:
            return target.head(batch.hidden[0, 3 : 3 + len(hidden)])

    settings = MedusaSettings(num_tokens=1)
    probs = target.head(batch.hidden[0, 3:9]).softmax(dim=-1)
    least = float(torch.special.entr(probs).sum())
    assert float(Seeing(target, settings).losses(batch, CHANCE).total) == pytest.approx(least, rel=1e-4)
    assert float(MedusaMethod(target, settings).losses(batch, CHANCE).total.detach()) > 1.05 * least


def test_what_stands_beyond_a_row_does_not_count() -> None:
    """A row alone and the same row beside a longer one give the same sums."""
    rows = sorted(tiny_examples()[:2], key=lambda one: len(one.token_ids))
    method = scrambled(MedusaSettings(num_tokens=3))
    alone = [method.losses(batch_of([row], tiny_target(), ()), CHANCE) for row in rows]
    together = method.losses(batch_of(rows, tiny_target(), ()), CHANCE)
    assert float(together.total) == pytest.approx(sum(float(one.total) for one in alone), rel=1e-5)
    assert together.drafted.tolist() == (alone[0].drafted + alone[1].drafted).tolist()


def test_checkpoints_of_another_target_or_too_few_heads_are_refused() -> None:
    """Heads for 32 dimensions do not serve 16, and two heads do not draft three tokens."""
    two = MedusaMethod(tiny_target(), MedusaSettings(num_tokens=2)).checkpoint()
    with pytest.raises(SpecError, match="num_tokens is 3, but the checkpoint has 2 heads"):
        MedusaMethod(tiny_target(), MedusaSettings(num_tokens=3), two)
    small = {name: tensor[:16] for name, tensor in two.tensors.items()}
    with pytest.raises(SpecError, match="Give the drafter of this target"):
        MedusaMethod(tiny_target(), MedusaSettings(num_tokens=2), Checkpoint(two.config, small))


def test_the_engines_untrained_heads_can_be_trained_on() -> None:
    """Heads with a projection of their own, as published ones are."""
    start = untrained(DecoderModel(tiny_model().double()), 3)
    method = MedusaMethod(tiny_target(), MedusaSettings(num_tokens=3), start)
    assert method.checkpoint().config["original_lm_head"] is False
    assert set(method.checkpoint().tensors) == set(start.tensors)
