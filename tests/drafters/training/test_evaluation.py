"""Held-out numbers: what is summed, what is divided, and what is drawn."""

from __future__ import annotations

import pytest

from drafters.training.distributed import World
from drafters.training.evaluation import Evaluation, HeldOut, held_out_report, held_out_sample, pooled
from drafters.training.examples import Example
from drafters.training.methods.medusa import MedusaMethod, MedusaSettings
from tests.drafters.training.tiny import tiny_examples, tiny_target


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
    cells = {"ko/office": Evaluation(10.0, 10.0, (10,), (9,)), "ko/chat": Evaluation(90.0, 90.0, (90,), (0,))}
    report = held_out_report(cells)
    assert pooled(cells).by_position == (0.09,)
    assert report["by_language"]["ko"]["accepted_by_position"] == [0.09]
    assert report["by_text_type"]["office"]["accepted_by_position"] == [0.9]
    assert report["note"] == "teacher-forced, not measured in the engine"


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
    whole = pooled(held_out.evaluate(method, target, None, "fp32", World()))
    halves = [pooled(held_out.evaluate(method, target, None, "fp32", Half(rank, 2))) for rank in (0, 1)]
    assert sum(half.total for half in halves) == pytest.approx(whole.total)
    assert tuple(a + b for a, b in zip(halves[0].drafted, halves[1].drafted, strict=True)) == whole.drafted
    assert min(half.weight for half in halves) > 0
