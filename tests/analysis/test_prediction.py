"""Predictions for other draft lengths and batch sizes, against an engine whose costs are known."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from harness.analysis.costmodel import CostModel, DraftCost, Forward
from harness.analysis.draftprofile import DraftProfile
from harness.analysis.handover import aiconfigurator, falling, hand_over, ranges, vllm
from harness.analysis.prediction import (
    Point,
    Subject,
    as_concurrency,
    batch_sizes,
    best,
    crossing,
    limits,
    point,
    points,
)
from tests.analysis.modelled import DRAFTER

# 10 ms up to 8 tokens, 1 ms for each further one up to 64; drafting half a millisecond a position; nothing else
MODEL = CostModel(
    "rounds",
    Forward(10.0, (1.0, 8.0, 64.0), (0.0, 56.0), 0.0, 0.0),
    {DRAFTER: DraftCost(0, 0, 0.5, 0)},
    0.0,
    0.0,
    100,
    0.0,
)
# always drafts three tokens; half of the first are accepted, a quarter of the second, an eighth of the third
ALWAYS = DraftProfile(np.array([0.0, 0.0, 0.0, 1.0]), np.array([0.5, 0.25, 0.125]))
SUBJECT = Subject("office", DRAFTER, ALWAYS, 0.0)


def at(batch: int, num_tokens: int) -> Point:
    """Return one prediction that there is."""
    found = point(MODEL, SUBJECT, batch, num_tokens)
    assert found is not None
    return found


def test_one_request_gains_what_acceptance_and_drafting_leave() -> None:
    """Three drafts yield 1.875 tokens a pass; the round takes 10 + 1.5 ms instead of 10: 1.875 × 10 / 11.5."""
    assert at(1, 3).tokens_per_pass == 1.875
    assert at(1, 3).speed_up == pytest.approx(18.75 / 11.5)


def test_a_shorter_draft_is_predicted_from_the_survival_of_the_longer() -> None:
    """One draft yields 1.5 tokens for 10.5 ms."""
    assert at(1, 1).speed_up == pytest.approx(15 / 10.5)
    assert point(MODEL, SUBJECT, 1, 4) is None  # nobody saw a fourth


def test_of_a_tree_only_the_whole_is_predicted() -> None:
    """Ten nodes, of which a path of two can be accepted: what three nodes would yield nobody knows."""
    tree = DraftProfile(np.array([0.0] * 10 + [1.0]), np.array([0.5, 0.25] + [0.0] * 8), chain=False)
    assert limits(tree) == [0, 10]
    assert point(MODEL, Subject(None, DRAFTER, tree, 0.0), 1, 3) is None
    whole = point(MODEL, Subject(None, DRAFTER, tree, 0.0), 1, 10)
    assert whole is not None
    assert whole.tokens_per_pass == 1.75


def test_load_makes_drafts_dear() -> None:
    """Eight requests with three drafts are 32 tokens: 10 + 24 ms and 1.5 ms of drafting against 10 ms."""
    assert at(8, 3).speed_up == pytest.approx(18.75 / 35.5)
    assert at(8, 3).verify_ms == pytest.approx(34)


def test_a_drafter_that_seldom_drafts_pays_for_the_rounds_in_which_it_does() -> None:
    """Half of the passes draft 15 tokens (16 tokens: 18 ms), half none (10 ms): 14 ms on average, not the 10 ms of 8.5 tokens."""
    seldom = DraftProfile(np.array([0.5] + [0.0] * 14 + [0.5]), np.array([0.5] * 15))
    found = point(MODEL, Subject(None, DRAFTER, seldom, 0.0), 1, 15)
    assert found is not None
    assert found.verify_ms == pytest.approx(14)
    assert found.draft_ms == pytest.approx(0.5 * 7.5)


def test_the_draft_length_that_is_best_falls_with_the_batch() -> None:
    """Alone three pay, at eight requests, where every further token costs, none does."""
    chosen = best(list(points(MODEL, SUBJECT, [1, 2, 8, 16], limits(ALWAYS))), ALWAYS)
    assert {batch: item.num_tokens for batch, item in chosen.items()} == {1: 3, 2: 3, 8: 0, 16: 0}


def test_the_break_even_lies_where_the_costs_say() -> None:
    """Three drafts: 4B tokens take 10 + 4B − 8 + 1.5 ms from B = 2 on, and yield 1.875 for 10 ms: B = 3.8125 breaks even."""
    found = crossing(MODEL, SUBJECT, 3)
    assert found is not None
    assert found.side == "crossed"
    assert found.batch == pytest.approx(3.8125, rel=0.01)


def test_no_crossing_is_said_to_be_none() -> None:
    """A drafter that costs nothing and a forward that stays flat never lose; one that takes a second never gains."""
    flat = CostModel("rounds", Forward(10, (1, 64), (0,), 0, 0), {DRAFTER: DraftCost(0, 0, 0, 0)}, 0, 0, 1, 0)
    slow = CostModel("rounds", Forward(10, (1, 64), (0,), 0, 0), {DRAFTER: DraftCost(1000, 0, 0, 0)}, 0, 0, 1, 0)
    ends = [crossing(model, SUBJECT, 3) for model in (flat, slow)]
    assert [(end.side, end.batch) for end in ends if end is not None] == [("above", None), ("below", None)]


def test_nothing_is_said_of_rounds_twice_as_large_as_any_that_was_measured() -> None:
    """64 tokens were measured: 32 requests with three drafts are 128 tokens, 33 are beyond."""
    assert point(MODEL, SUBJECT, 32, 3) is not None
    assert point(MODEL, SUBJECT, 33, 3) is None
    assert batch_sizes(MODEL) == [1, 2, 4, 8, 16, 32, 64, 128]


def test_a_batch_is_told_as_tasks_in_progress() -> None:
    """4 tasks made batches of 2, 16 of 8: a batch of 4 needs 8; beyond what was measured nothing is said."""
    loads = [(1, 1.0), (4, 2.0), (16, 8.0)]
    assert as_concurrency(4.0, loads) == pytest.approx(8)
    assert as_concurrency(9.0, loads) is None
    assert as_concurrency(1.0, []) is None


def test_vllm_gets_a_table_that_it_takes() -> None:
    """Ranges begin at 1, follow one another without a gap, and those beyond the break-even draft nothing."""
    item = hand_over(SUBJECT, MODEL)
    assert item.vllm_table is not None
    assert item.vllm_table[0][0] == 1
    assert all(right[0] == left[1] + 1 for left, right in zip(item.vllm_table, item.vllm_table[1:], strict=False))
    assert item.vllm_table[-1][2] == 0
    config = vllm(item)
    assert config is not None
    assert config["num_speculative_tokens"] == max(entry[2] for entry in item.vllm_table)
    assert config["num_speculative_tokens_per_batch_size"][0][0] == 1


def test_no_length_is_the_fastest_where_a_longer_one_that_could_be_faster_is_unknown() -> None:
    """A flat forward, 8 tokens at most: three drafts fit up to 2 requests; at 4 only one fits and wins, but three could be faster."""
    flat = CostModel("rounds", Forward(10, (1, 4), (0,), 0, 0), {DRAFTER: DraftCost(0, 0, 0.5, 0)}, 0, 0, 1, 0)
    chosen = best(list(points(flat, SUBJECT, [1, 2, 4, 8], limits(ALWAYS))), ALWAYS)
    assert {batch: item.num_tokens for batch, item in chosen.items()} == {1: 3, 2: 3}
    assert hand_over(SUBJECT, flat).vllm_table == ((1, 2, 3),)


def test_a_longer_length_that_could_not_win_does_not_hide_the_fastest() -> None:
    """64 requests fit with one draft: 15 tokens against 130.5 ms; three drafts yield 18.75 and take no less, so none at all is best."""
    found = list(points(MODEL, SUBJECT, [64, 128], limits(ALWAYS)))
    assert {batch: item.num_tokens for batch, item in best(found, ALWAYS).items()} == {64: 0}
    table = hand_over(SUBJECT, MODEL).vllm_table
    assert table is not None
    assert table[-1][1:] == (64, 0)


def test_a_gain_within_what_the_model_is_off_is_none_to_draft_for() -> None:
    """One and two requests gain 63 % with three drafts, three 46 % with two: a model that is off by half hands over nothing for these."""
    table = hand_over(SUBJECT, MODEL).vllm_table
    assert table is not None
    assert table[:2] == ((1, 2, 3), (3, 3, 2))
    assert hand_over(SUBJECT, dataclasses.replace(MODEL, residual=0.5)).vllm_table == ((1, 2, 3), (3, 64, 0))


def test_longer_drafts_for_larger_batches_are_not_handed_over() -> None:
    """Where two requests happen to be modelled faster with three drafts than one request is with two, both get two."""
    found = [Point(1, 0, 1, 10, 0, 10, 0), Point(1, 2, 2, 10, 0, 10, 0), Point(1, 3, 2, 10, 1, 10, 0)]
    found += [Point(2, 0, 1, 10, 0, 10, 0), Point(2, 2, 2, 10, 0, 10, 0), Point(2, 3, 2.5, 10, 0, 10, 0)]
    assert list(falling(found, [1, 2], 1.0)) == [(1, 2), (2, 2)]


def test_equal_neighbours_are_one_range() -> None:
    """1 and 2 take three tokens, 4 takes one (and 3, which nobody looked at, what 2 takes)."""
    assert ranges([(1, 3), (2, 3), (4, 1), (8, 0)]) == ((1, 3, 3), (4, 7, 1), (8, 8, 0))


def test_where_no_draft_ever_pays_vllm_gets_no_table() -> None:
    """Its config needs at least one drafted token."""
    slow = CostModel("rounds", Forward(10, (1, 64), (0,), 0, 0), {DRAFTER: DraftCost(1000, 0, 0, 0)}, 0, 0, 1, 0)
    assert vllm(hand_over(SUBJECT, slow)) is None
    assert vllm(hand_over(SUBJECT, None)) is None


def test_aiconfigurator_gets_accepted_tokens_without_the_bonus() -> None:
    """Acceptance length 1.875 is 0.875 accepted tokens a step of three."""
    assert aiconfigurator(hand_over(SUBJECT, None)) == {"nextn": 3, "nextn_accepted": 0.875}


def test_the_geometric_formula_is_a_special_case() -> None:
    """With acceptance ½ at every place, k drafts yield (1 − ½^(k+1)) / ½ tokens (Leviathan et al. 2023)."""
    for limit in (1, 2, 3):
        assert ALWAYS.at(limit)[1] == pytest.approx((1 - math.pow(0.5, limit + 1)) / 0.5)
