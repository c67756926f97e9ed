"""Chains over known text: where they begin and end, and that nothing beyond a row's end has a say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from drafters.training.frozen import FrozenTarget
from drafters.training.method import Batch, Method
from drafters.training.methods.chains import choose_chains
from drafters.training.methods.eagle3 import Eagle3Method, Eagle3Settings
from drafters.training.methods.mtp import MtpMethod, MtpSettings
from tests.drafters.training.methods.chaining import CLOSE, Row, batch_of, frozen, same, texts

Make = Callable[[FrozenTarget], Method]

CHANCE = torch.Generator().manual_seed(0)


def marks(*rows: str) -> Batch:
    """A batch without states: ``a`` is an answer's token, ``.`` another one; rows are padded."""
    longest = max(map(len, rows))
    answers = torch.tensor([[mark == "a" for mark in row.ljust(longest)] for row in rows])
    nothing = torch.zeros((*answers.shape, 1))
    lengths = torch.tensor([len(row) for row in rows])
    return Batch(torch.zeros(answers.shape, dtype=torch.long), lengths, answers, nothing.unsqueeze(2), nothing)


def mtp(target: FrozenTarget) -> MtpMethod:
    """A random drafter in float64."""
    method = MtpMethod(target, MtpSettings(num_tokens=3, seed=2))
    method.module.double()
    return method


def eagle3(target: FrozenTarget) -> Eagle3Method:
    """The same, with a third of the vocabulary."""
    settings = Eagle3Settings(num_tokens=3, seed=2, draft_vocab_size=20, draft_vocabulary=tuple(range(0, 60, 3)))
    method = Eagle3Method(target, settings)
    method.module.double()
    return method


def test_chains_begin_at_the_second_token_of_an_answer_and_end_with_it() -> None:
    """The answer has the tokens 2 to 5: a chain predicts 3, 4, 5 from the pair at 1 on, the next 4 and 5, the last 5."""
    chains = choose_chains(marks("..aaaa..aa"), 4, None, CHANCE)
    assert chains.anchors.tolist() == [[1, 2, 3, 7]]
    assert chains.told[:, 0].int().tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]


def test_rows_have_as_many_chains_as_their_answers() -> None:
    """Three tokens make two chains, one token makes none."""
    chains = choose_chains(marks(".aaa", ".a", "..aa"), 1, None, CHANCE)
    assert chains.told[0].int().tolist() == [[1, 1], [0, 0], [1, 0]]
    assert chains.anchors.tolist() == [[0, 1], [0, 0], [1, 0]]


def test_some_chains_of_a_row_are_drawn_by_chance() -> None:
    """Two of eight, others with another seed; a row with one chain keeps it."""
    batch = marks("." + "a" * 9, "..aa")
    drawn = [choose_chains(batch, 1, 2, torch.Generator().manual_seed(seed)) for seed in range(20)]
    assert all(chains.told[0].sum(1).tolist() == [2, 1] for chains in drawn)
    assert all(chains.anchors[1, 0] == 1 for chains in drawn)
    assert {place for chains in drawn for place in chains.anchors[0].tolist()} == set(range(8))


@pytest.mark.parametrize("make", [mtp, eagle3])
def test_padding_and_neighbours_change_nothing(make: Make) -> None:
    """Three rows side by side, padded with states that are not numbers, give the sums that they give alone; and so do
    their gradients."""
    target = frozen()
    rows = texts()
    method = make(target)
    together = method.losses(batch_of(target, rows, method.feature_layers, 40), CHANCE)
    (gradient,) = torch.autograd.grad(together.total, [method.module.get_parameter("fc.weight")])
    alone = [method.losses(batch_of(target, [row], method.feature_layers), CHANCE) for row in rows]
    total = torch.stack([one.total for one in alone]).sum()
    (summed,) = torch.autograd.grad(total, [method.module.get_parameter("fc.weight")])
    torch.testing.assert_close(together.total, total, rtol=0, atol=1e-9)
    torch.testing.assert_close(gradient, summed, rtol=0, atol=1e-9)
    assert torch.equal(together.drafted, torch.stack([one.drafted for one in alone]).sum(0))
    assert torch.equal(together.accepted, torch.stack([one.accepted for one in alone]).sum(0))


@pytest.mark.parametrize("make", [mtp, eagle3])
def test_what_follows_a_place_has_no_say_in_it(make: Make) -> None:
    """With the text changed after the answer's first five tokens, the chains that end before are the same."""
    target = frozen()
    method = make(target)
    (tokens, [(start, _)]) = texts()[0]
    other = [*tokens[: start + 5], *reversed(tokens[start + 5 :])]
    rows: list[Row] = [(tokens, [(start, start + 5)]), (other, [(start, start + 5)])]
    one, changed = (method.losses(batch_of(target, [row], method.feature_layers), CHANCE) for row in rows)
    same(one, changed, CLOSE)


@pytest.mark.parametrize("make", [mtp, eagle3])
def test_answers_of_one_token_teach_nothing(make: Make) -> None:
    """The sums are zero, and so are the gradients."""
    target = frozen()
    method = make(target)
    losses = method.losses(batch_of(target, [([1, 2, 3], [(2, 3)])], method.feature_layers), CHANCE)
    assert losses.weight == 0.0
    assert losses.drafted.tolist() == [0.0, 0.0, 0.0]
    losses.total.backward()  # type: ignore[no-untyped-call]
    assert all(not parameter.grad.any() for parameter in method.module.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("make", [mtp, eagle3])
def test_bfloat16_gives_the_same_but_for_rounding(make: Make) -> None:
    """Under autocast the loss is within two in a hundred, products having two to three digits; gradients are finite."""
    target = frozen(torch.float32)
    method = make(target)
    method.module.float()
    batch = batch_of(target, texts(torch.float32), method.feature_layers)
    exact = method.losses(batch, CHANCE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = method.losses(batch, CHANCE)
    assert rough.total.dtype == torch.float32
    torch.testing.assert_close(rough.total, exact.total, rtol=0.02, atol=0)
    rough.total.backward()  # type: ignore[no-untyped-call]
    gradients = [parameter.grad for parameter in method.module.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


def test_with_gradients_some_chains_teach_and_without_all_are_scored() -> None:
    """One chain a row is learnt from, three rows; without gradients all 23 chains of each answer of 24 tokens count."""
    method = MtpMethod(frozen(torch.float32), MtpSettings(num_tokens=1, chains_per_row=1))
    batch = batch_of(frozen(torch.float32), texts(torch.float32), ())
    assert method.losses(batch, CHANCE).drafted.tolist() == [3.0]
    with torch.no_grad():
        assert method.losses(batch, CHANCE).drafted.tolist() == [3 * 23.0]
