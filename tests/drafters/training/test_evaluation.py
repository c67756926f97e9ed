"""Held-out numbers: what is summed, what is divided, and what is drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from drafters.training.batches import batch_of
from drafters.training.distributed import World
from drafters.training.evaluation import (
    Cell,
    Evaluation,
    HeldOut,
    held_out_report,
    held_out_sample,
    judged,
    losses_of,
    pooled,
    weights_by_group,
)
from drafters.training.examples import Example
from drafters.training.frozen import FrozenTarget
from drafters.training.method import Batch, Losses
from drafters.training.methods.medusa import MedusaMethod, MedusaSettings
from tests.drafters.training.tiny import tiny_examples, tiny_model, tiny_target


def test_an_acceptance_length_is_the_targets_token_and_every_reached_one() -> None:
    """Of ten places eight had a right first token, and of five that had room for a second two had both: 1 + 0.8 + 0.4."""
    evaluation = Evaluation(30.0, 10.0, (10, 5), (8, 2))
    assert evaluation.by_position == (0.8, 0.4)
    assert evaluation.acceptance_length == pytest.approx(2.2)
    assert evaluation.loss == 3.0


def test_what_was_never_tried_is_unknown() -> None:
    """No place, no share, no length, no loss; a chain never tried adds nothing."""
    nothing = Evaluation(0.0, 0.0, (0,), (0,))
    assert (nothing.loss, nothing.acceptance_length, nothing.by_position) == (None, None, (None,))
    assert Evaluation(1.0, 1.0, (4, 0), (2, 0)).acceptance_length == 1.5


def test_groups_are_ratios_of_sums() -> None:
    """Ten places with nine right and ninety with none: 9 of 100, not the mean of 0.9 and 0."""
    cells = {
        Cell("ko", "office", None): Evaluation(10.0, 10.0, (10,), (9,)),
        Cell("ko", "chat", None): Evaluation(90.0, 90.0, (90,), (0,)),
    }
    report = held_out_report(cells)
    assert pooled(cells).by_position == (0.09,)
    assert report["by_language"]["ko"]["accepted_by_position"] == [0.09]
    assert report["by_text_type"]["office"]["accepted_by_position"] == [0.9]
    assert report["by_language_and_text_type"]["ko/chat"]["places"] == 90
    assert report["note"] == "teacher-forced, not measured in the engine"
    assert report["judged"] == {"temperature": None, **report["all"]}


def test_what_was_drawn_by_chance_is_told_apart_and_not_judged_by() -> None:
    """At temperature 0 nine of ten are right, at 0.7 one of ten: the first decides, both are told; where no place of the
    first can be scored, the next one decides."""
    greedy, drawn = Evaluation(10.0, 10.0, (10,), (9,)), Evaluation(30.0, 10.0, (10,), (1,))
    cells = {
        Cell("ko", "office", 0.7): drawn,
        Cell("ko", "office", 0.0): greedy,
        Cell("en", "chat", None): Evaluation(70.0, 10.0, (10,), (5,)),
    }
    report = held_out_report(cells)
    assert (report["judged"]["temperature"], report["judged"]["acceptance_length"]) == (0.0, 1.9)
    assert {name: one["accepted_by_position"] for name, one in report["by_temperature"].items()} == {
        "0": [0.9],
        "0.7": [0.1],
        "unknown": [0.5],
    }
    assert report["all"]["accepted_by_position"] == [0.5]
    nothing = Evaluation(0.0, 0.0, (0,), (0,))
    assert judged({**cells, Cell("ko", "office", 0.0): nothing}) == (drawn, 0.7)


def test_examples_are_evaluated_by_their_temperature() -> None:
    """One text written at 0, another at 0.7: two cells, whose sums are those of each alone."""
    target = tiny_target()
    method = MedusaMethod(target, MedusaSettings(num_tokens=2))
    one, other = (replace(made, temperature=at) for made, at in zip(tiny_examples()[:6:3], (0.0, 0.7), strict=True))
    found = HeldOut([one, other], 100, 1).evaluate(method, target, None, World())
    alone = HeldOut([one], 100, 1).evaluate(method, target, None, World())
    assert {cell.temperature for cell in found} == {0.0, 0.7}
    assert found[Cell("ko", one.text_type, 0.0)] == alone[Cell("ko", one.text_type, 0.0)]


class Listening(MedusaMethod):
    """Keeps the batch that it was given, and the type that products have there."""

    def losses(self, batch: Batch, generator: torch.Generator) -> Losses:
        """As ever."""
        self.batch = batch
        self.product = (torch.ones((1, 1)) @ torch.ones((1, 1))).dtype
        return super().losses(batch, generator)


def test_the_target_is_not_rounded_where_the_drafter_is() -> None:
    """With products in bfloat16 the states are those of float32 to the bit; only where it is asked for are they not."""
    target, rows = tiny_target(), tiny_examples()[:2]
    method = Listening(target, MedusaSettings(num_tokens=2))
    exact = batch_of(rows, target, ())
    losses_of(method, target, rows, None, "bf16", "seed")
    assert method.product == torch.bfloat16
    assert torch.equal(method.batch.hidden, exact.hidden)
    losses_of(method, target, rows, None, "fp32", "seed", "bf16")
    assert method.product == torch.float32
    assert not torch.equal(method.batch.hidden.float(), exact.hidden)


def test_evaluations_compute_in_the_targets_own_type() -> None:
    """In float32, or in bfloat16 where the target is that, since head and embeddings are its own."""
    for model, product in ((tiny_model(), torch.float32), (tiny_model().bfloat16(), torch.bfloat16)):
        target = FrozenTarget(model)
        method = Listening(target, MedusaSettings(num_tokens=2))
        HeldOut(tiny_examples()[:2], 100, 1).evaluate(method, target, None, World())
        assert method.product == product


def test_weights_add_up_by_language() -> None:
    """Each row's own weight; together they are the whole."""
    target, rows = tiny_target(), tiny_examples()[:4]
    losses = losses_of(MedusaMethod(target, MedusaSettings(num_tokens=2)), target, rows, None, "fp32", "seed")
    found = weights_by_group(losses, rows)
    assert found["weight/ko"] == [pytest.approx(float(losses.weights[0] + losses.weights[3]))]
    assert sum(numbers[0] for numbers in found.values()) == pytest.approx(float(losses.weight))
    assert (
        losses_of(MedusaMethod(target, MedusaSettings()), target, rows, None, "bf16", "s").weights.dtype
        == torch.float32
    )


def test_the_sample_takes_every_language_and_text_type_in_turn() -> None:
    """Five Korean office texts and one English chat, ten tokens each: of twenty tokens, one of either."""
    texts = [Example(f"k{n}", "ko", "office", "heldout", (1,) * 10, ((5, 10),)) for n in range(5)]
    chat = Example("e", "en", "chat", "heldout", (1,) * 10, ((5, 10),))
    assert {one.language for one in held_out_sample([*texts, chat], 20, 1)} == {"ko", "en"}
    assert len(held_out_sample([*texts, chat], 1000, 1)) == 6


def test_processes_evaluate_what_one_would() -> None:
    """The two halves of two processes add up to the whole of one."""

    class Half(World):
        def sum(self, values):  # type: ignore[no-untyped-def]
            return {name: list(numbers) for name, numbers in values.items()}

    target = tiny_target()
    method = MedusaMethod(target, MedusaSettings(num_tokens=2))
    held_out = HeldOut(tiny_examples(), 40, 1)
    whole = pooled(held_out.evaluate(method, target, None, World()))
    halves = [pooled(held_out.evaluate(method, target, None, Half(rank, 2))) for rank in (0, 1)]
    assert sum(half.total for half in halves) == pytest.approx(whole.total)
    assert tuple(a + b for a, b in zip(halves[0].drafted, halves[1].drafted, strict=True)) == whole.drafted
    assert min(half.weight for half in halves) > 0
