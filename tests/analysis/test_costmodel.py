"""The cost model: fitted to a known engine it says what that engine takes."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from harness.analysis.costfit import Fit, fit_passes, fit_rounds
from harness.analysis.costmodel import Beside, CostModel, DraftCost, Forward, Mixed, knots_for
from harness.analysis.passes import PASSES
from tests.analysis.modelled import BASE, DRAFTER, METHODS, engine_rounds


def fitted(rounds: pl.DataFrame | None = None) -> Fit:
    """Return the fit of rounds of the known engine."""
    found = fit_rounds(engine_rounds() if rounds is None else rounds, METHODS)
    assert found is not None
    return found


def test_a_round_of_the_known_engine_costs_what_it_costs() -> None:
    """12 tokens with 4 × 750 tokens of context: 10 + 4 + 3 = 17 ms, 0.2 ms of the rest; 3 drafted positions: 1.5 ms."""
    model = fitted().model
    forward = model.forward.at(4, np.array([4.0, 8.0, 12.0, 16.0]), 3000.0)
    assert forward == pytest.approx([13, 13, 17, 21], rel=0.02)
    assert model.drafts[DRAFTER].at(4, 3, 12) == pytest.approx(1.5)
    assert model.host_ms + 4 * model.host_batch_ms == pytest.approx(0.2)
    assert model.residual < 0.02


def test_flat_costs_stay_flat_and_rising_ones_go_on_beyond_what_was_measured() -> None:
    """Up to 8 tokens nothing is added; from the largest round (64 tokens) on, each token costs what it did before: 1 ms."""
    forward = fitted().model.forward
    at = forward.at(1, np.array([1.0, 8.0, 64.0, 80.0]), 0.0)
    assert at[1] - at[0] == pytest.approx(0, abs=0.2)
    assert at[3] - at[2] == pytest.approx(16, rel=0.1)
    assert fitted().model.most_tokens == 128


def test_rounds_with_prompt_tokens_beside_them_have_costs_of_their_own() -> None:
    """20 ms, 0.2 ms a prompt token and 2 ms for each token that decodes; the fit of rounds that decode alone does not see them."""
    slow = [
        engine_rounds(batches=(batch,), times=30).with_columns(
            prefill_tokens=pl.lit(prompt, pl.Int64),
            verify_ns=((20 + 0.2 * prompt + 2 * (pl.col("batch_size") + pl.col("num_draft_tokens"))) * 1e6).cast(
                pl.Int64
            ),
        )
        for batch in (1, 4)
        for prompt in (100, 400)
    ]
    found = fitted(pl.concat([engine_rounds(), *slow]))
    assert found.costs.filter(pl.col("part") != "beside").drop("modelled_ms").equals(fitted().costs.drop("modelled_ms"))
    assert found.model.forward == fitted().model.forward
    assert fitted().model.beside is None
    assert found.model.beside is not None
    assert found.model.beside.at(4, np.array([4.0, 16.0]), 0.0, 200.0) == pytest.approx([68, 92], rel=0.03)


def test_a_round_takes_the_mean_of_those_with_and_without_prompts() -> None:
    """Half of the rounds take 10 ms, half 50 ms and 2 ms for each of 4 drafted tokens and the one of its own: 30 and 35 ms."""
    model = CostModel(
        "rounds", Forward(10, (1, 64), (0,), 0, 0), {"a": DraftCost(0, 0, 0, 0)}, 0, 0, 1, 0, Beside(28, 0.2, 2, 0, 0)
    )
    half, four = Mixed(0.5, 100), np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    assert model.plain_parts_ms(1, 0, half) == pytest.approx((30, 0))
    assert model.parts_ms("a", 1, 0, four, half) == pytest.approx((0, 34, 0))
    assert model.parts_ms("a", 1, 0, four) == pytest.approx((0, 10, 0))


def test_a_drafter_that_reads_prompts_too_is_paid_for_it() -> None:
    """Its usual 1.5 ms and 0.01 ms a prompt token in rounds that feed 200."""
    own = engine_rounds(batches=(1,)).filter(pl.col("arm") == DRAFTER)
    reading = own.with_columns(prefill_tokens=pl.lit(200, pl.Int64), draft_ns=pl.col("draft_ns") + 2_000_000)
    cost = fitted(pl.concat([engine_rounds(), reading])).model.drafts[DRAFTER]
    assert cost.prompt_ms == pytest.approx(0.01, rel=0.05)
    assert fitted().model.drafts[DRAFTER].prompt_ms == 0


def test_a_disturbed_round_among_ten_changes_little() -> None:
    """The median of each kind of round counts."""
    disturbed = engine_rounds().with_columns(
        verify_ns=pl.when(pl.col("round_index") % 10 == 0).then(pl.col("verify_ns") * 20).otherwise("verify_ns")
    )
    assert fitted(disturbed).costs["modelled_ms"].to_list() == pytest.approx(fitted().costs["modelled_ms"].to_list())


def test_residuals_stand_beside_every_part_of_a_round() -> None:
    """Target, drafter and rest are there; what fits exactly has residuals near 0, and each row says how many rounds it rests on."""
    costs = fitted().costs
    assert set(costs["part"]) == {"verify", "draft", "host"}
    assert costs.filter(pl.col("part") == "verify")["n_rounds"].sum() == 200
    assert costs["residual_share"].abs().max() == pytest.approx(0, abs=0.05)
    assert set(costs["cost_source"]) == {"rounds"}


def test_a_block_drafter_of_one_length_costs_the_same_at_every_length() -> None:
    """Where only one length was run, a block in one pass is taken for as dear when less of it is used; a chain is not."""
    block = fit_rounds(engine_rounds(), METHODS | {DRAFTER: "dflash"})
    assert block is not None
    assert [block.model.drafts[DRAFTER].at(1, length, length) for length in (1, 3)] == pytest.approx([1.5, 1.5])
    assert [fitted().model.drafts[DRAFTER].at(1, length, length) for length in (1, 3)] == pytest.approx([0.5, 1.5])


def test_rounds_in_which_nothing_was_left_to_draft_say_nothing_of_what_drafting_costs() -> None:
    """A block of 1.5 ms at any length stays one beside ten rounds of a single last token each, for which no drafter ran (6 µs)."""
    ended = engine_rounds(batches=(1,)).filter(pl.col("arm") == DRAFTER)
    ended = ended.with_columns(
        num_draft_tokens=pl.lit(0, pl.Int64), longest=pl.lit(0, pl.Int64), draft_ns=pl.lit(6_000, pl.Int64)
    )
    shorter = engine_rounds(batches=(1,), length=1).filter(pl.col("arm") == DRAFTER)
    shorter = shorter.with_columns(draft_ns=pl.lit(1_500_000, pl.Int64))
    block = fit_rounds(pl.concat([engine_rounds(), shorter, ended]), METHODS | {DRAFTER: "dflash"})
    assert block is not None
    assert [block.model.drafts[DRAFTER].at(1, length, length) for length in (1, 3)] == pytest.approx(
        [1.5, 1.5], rel=0.01
    )


def test_without_rounds_with_times_there_is_no_model() -> None:
    """Nothing is invented."""
    assert fit_rounds(engine_rounds().clear(), METHODS) is None
    assert fit_passes(pl.DataFrame(schema=PASSES), {DRAFTER: "eagle3"}) is None


def test_knots_are_powers_of_two_with_something_between_them() -> None:
    """1, 3 and 40 tokens: 2 parts 1 from 3, 4 parts 3 from 40, and 8, 16 and 32 part nothing."""
    assert knots_for(np.array([1.0, 3.0, 40.0]), 10) == (1.0, 4.0, 40.0)
    assert knots_for(np.array([5.0, 5.0]), 10) == (5.0, 6.0)


def test_decoding_of_single_requests_gives_the_same_costs() -> None:
    """The known engine seen through its requests: in a fifth of the passes of some a prompt of 100 tokens costs 30 ms and what it holds."""
    rows = []
    for arm, drafted in ((BASE, 0.0), (DRAFTER, 3.0)):
        for batch in (1, 2, 4, 8, 16):
            for context in (500, 1000):
                for prompts in (0.0, 0.2):
                    tokens, mixed = batch * (1 + drafted), 1 - math.exp(-prompts)
                    alone, beside = 10 + max(0.0, tokens - 8), 30 + 2 * tokens
                    rest = batch * context / 1000 + 0.5 * drafted + 0.05 * 100 * prompts
                    ms = (1 - mixed) * alone + mixed * beside + rest
                    place = {"cell": 0, "workload": "office", "arm": arm, "concurrency": batch, "passes": 8}
                    load = {
                        "batch": batch,
                        "tokens": tokens,
                        "context": batch * context,
                        "prefill": 100 * prompts,
                        "prompts": prompts,
                        "drafted": drafted,
                    }
                    rows.append(place | load | {"decode_ms": 8 * ms})
    found = fit_passes(pl.DataFrame(rows, schema=PASSES), {DRAFTER: "eagle3"})
    assert found is not None
    forward, beside_decoding = found.model.forward, found.model.beside
    assert forward.at(4, np.array([4.0, 16.0]), 2000.0) == pytest.approx([12, 20], rel=0.05)
    assert beside_decoding is not None
    assert beside_decoding.at(4, np.array([4.0, 16.0]), 2000.0, 100.0) == pytest.approx([45, 69], rel=0.1)
    assert found.model.drafts[DRAFTER].at(4, 3, 12) == pytest.approx(1.5, abs=0.5)
    assert set(found.costs["part"]) == {"pass"}
    assert set(found.costs["cost_source"]) == {"cells"}


def test_two_knots_are_never_so_close_that_scatter_makes_a_slope() -> None:
    """34 is hardly more than 32, and 1.9 hardly less than 2."""
    assert knots_for(np.array([1.9, 3.0, 7.0, 33.0, 34.0]), 10) == (1.9, 4.0, 8.0, 34.0)
