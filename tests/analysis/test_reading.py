"""What is read beside decoding, from calls whose load is known."""

from __future__ import annotations

import math

import polars as pl
import pytest

from harness.analysis.costmodel import PURE, Beside, CostModel, DraftCost, Forward
from harness.analysis.draftprofile import DraftProfile
from harness.analysis.passes import PASSES
from harness.analysis.prediction import Subject, crossing, point
from harness.analysis.reading import Met, Reading, reading
from tests.analysis.test_prediction import ALWAYS

# without a drafter 20 passes, in which a request among 3 meets one prompt of 100 tokens, among 5 two of 200; with it twice as many
PLAIN, DRAFTED = Met((3.0, 5.0), (1.0, 2.0), (100.0, 200.0)), Met((3.0, 5.0), (2.0, 4.0), (100.0, 200.0))
READING = Reading(PLAIN, DRAFTED, 20.0, 1.875)


def calls(batch: float, passes: int, prompts: float, prompt_tokens: float) -> pl.DataFrame:
    """Two calls that met the same."""
    load = {
        "batch": batch,
        "tokens": batch,
        "context": 0.0,
        "prompts": prompts / passes,
        "drafted": 0.0,
        "passes": passes,
    }
    row = {"cell": 0, "workload": "w", "arm": "a", "concurrency": math.ceil(batch), "decode_ms": 10.0 * passes}
    return pl.DataFrame([row | load | {"prefill": prompts * prompt_tokens / passes}] * 2, schema=PASSES)


def test_what_is_met_follows_from_the_calls() -> None:
    """By load: how many prompts, and how long; long ones are fed in several forwards where it is known how much one feeds."""
    plain = pl.concat([calls(1, 20, 0, 0), calls(3, 20, 1, 100), calls(5, 20, 2, 200)])
    drafted = pl.concat([calls(1, 10, 0, 0), calls(3, 10, 2, 100), calls(5, 10, 4, 200)])
    found = reading(plain, drafted, None, 1.875)
    assert found is not None
    assert found == READING
    chunked = reading(plain, drafted, 50.0, 1.875)
    assert chunked is not None
    assert chunked.plain == Met((3.0, 5.0), (2.0, 8.0), (50.0, 50.0))


def test_where_nothing_is_met_nothing_is_read() -> None:
    """One request at a time; and an arm of which nothing is known meets what its baseline meets."""
    assert reading(calls(1, 20, 0, 0), calls(1, 10, 0, 0), None, 1.875) is None
    found = reading(calls(3, 20, 1, 100), calls(3, 10, 2, 100).clear(), None, 1.875)
    assert found is not None
    assert found.drafted == found.plain


def test_prompts_meet_requests_at_any_time() -> None:
    """Two forwards' worth in 20 passes: one pass in 10.5 has any, and these have a little more than one; nothing is lost."""
    mixed = READING.beside(5, 1.0)
    assert mixed.share == pytest.approx(1 - math.exp(-0.1))
    assert mixed.share * mixed.prompt_tokens == pytest.approx(0.1 * 200)
    assert READING.beside(1, 1.0) == PURE


def test_faster_requests_meet_more_in_fewer_passes() -> None:
    """With drafts four in 20 / 1.875 passes, half way to that yield three."""
    share = [-math.log(1 - READING.beside(5, tokens).share) for tokens in (1.0, 1.4375, 1.875)]
    assert share == pytest.approx([2 / 20, 3 * 1.4375 / 20, 4 * 1.875 / 20])


def test_between_and_beyond_the_loads_that_were_measured() -> None:
    """Of 4 requests one meets 1.5 prompts; of 9 twice as many as of 5, since twice as many others are there."""
    assert PLAIN.at(4) == (1.5, 150.0)
    assert PLAIN.at(2) == (0.5, 100.0)
    assert PLAIN.at(9) == (4.0, 200.0)


def test_prompts_beside_decoding_bring_the_break_even_forward() -> None:
    """Alone a round takes 10 ms whatever is drafted; beside a prompt each token costs 2 ms, so with load drafting stops paying."""
    costs = Forward(10, (1, 64), (0,), 0, 0), {"it": DraftCost(0, 0, 0, 0)}, 0, 0, 1, 0
    model = CostModel("rounds", *costs, Beside(28, 0.2, 2, 0, 0))
    profile = DraftProfile(ALWAYS.lengths, ALWAYS.survival)
    alone, met = Subject("w", "it", profile, 0.0), Subject("w", "it", profile, 0.0, READING)
    free, paid = crossing(model, alone, 3), crossing(model, met, 3)
    assert free is not None
    assert paid is not None
    assert (free.side, paid.side) == ("above", "crossed")
    one = point(model, met, 1, 3)
    assert one is not None
    assert one.speed_up == pytest.approx(1.875)
    four = point(model, met, 4, 3)
    assert four is not None
    plain, drafted = READING.beside(4, 1.0), READING.beside(4, 1.875)
    assert four.plain_ms == pytest.approx(10 + plain.share * (18 + 0.2 * plain.prompt_tokens + 2 * 4))
    assert four.verify_ms == pytest.approx(10 + drafted.share * (18 + 0.2 * drafted.prompt_tokens + 2 * 16))
