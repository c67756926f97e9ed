"""How an arm drafts and what is accepted of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from harness.analysis.draftprofile import DraftProfile, profile
from harness.analysis.loading import read_records
from harness.analysis.rounds import ROUNDS
from harness.records import StepRecord
from tests.builders import cell_key, counters, run_folder, step

NO_ROUNDS = pl.DataFrame(schema=ROUNDS)


def steps_of(path: Path, *records: StepRecord) -> pl.DataFrame:
    """Return step rows of a run with these steps."""
    return read_records(run_folder(path / "run", list(records))).steps


def drafting(passes: int | None, rounds: int, drafted: int, accepted: int, positions: list[int] | None) -> StepRecord:
    """Return a call with these counts."""
    spec = counters(rounds, drafted, accepted, positions)
    return step(cell_key(), "t1", decode_passes=passes, spec=spec, spec_source="round")


def test_survival_counts_passes_without_a_draft_too(tmp_path: Path) -> None:
    """20 passes, 10 of them draft two tokens, accepted 8 times at the first place and 4 at the second: 0.4 and 0.2 a pass."""
    found = profile(steps_of(tmp_path, drafting(20, 10, 20, 12, [8, 4])), NO_ROUNDS)
    assert found is not None
    assert found.survival.tolist() == [0.4, 0.2]
    assert found.lengths.tolist() == [0.5, 0, 0.5]
    assert found.at(2)[1] == pytest.approx(1 + 12 / 20)


def test_a_limit_makes_several_drafts_of_a_long_one(tmp_path: Path) -> None:
    """20 passes, 10 with three drafted tokens: two lost at once, eight accepted whole. With one token each of the eight takes two passes.

    10 + 2 + 2 × 8 = 28 passes for the same 44 tokens; 10 of them draft nothing.
    """
    found = profile(steps_of(tmp_path, drafting(20, 10, 30, 24, [8, 8, 8])), NO_ROUNDS)
    assert found is not None
    lengths, tokens = found.at(1)
    assert lengths.tolist() == pytest.approx([10 / 28, 18 / 28])
    assert tokens == pytest.approx(44 / 28)
    assert found.at(3)[1] == pytest.approx(44 / 20)
    assert found.at(0)[1] == 1


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_tokens_that_are_accepted_independently_yield_a_geometric_sum(limit: int) -> None:
    """Every token is right by one half: 1 + 1/2 + 1/4 …, whatever limit the run was made with."""
    half = DraftProfile(np.array([0.0] * 5 + [1.0]), np.array([0.5, 0.25, 0.125, 0.0625, 0.03125]))
    assert half.at(limit)[1] == pytest.approx(2 - 0.5**limit)


def test_the_lengths_of_rounds_are_used_where_they_are_told(tmp_path: Path) -> None:
    """Of four drafts one had 1 token, three had 4; the call's sums alone would only tell a mean."""
    rounds = pl.DataFrame({"num_draft_tokens": [1, 4, 4, 4, 0]})
    found = profile(steps_of(tmp_path, drafting(8, 4, 13, 6, [3, 2, 1])), rounds)
    assert found is not None
    assert found.lengths.tolist() == pytest.approx([0.5, 0.125, 0, 0, 0.375])
    assert found.longest == 4
    assert found.survival.tolist() == pytest.approx([3 / 8, 2 / 8, 1 / 8, 0])


def test_a_mean_length_is_spread_over_its_neighbours(tmp_path: Path) -> None:
    """25 drafted tokens in ten rounds are five drafts of 2 and five of 3."""
    found = profile(steps_of(tmp_path, drafting(10, 10, 25, 12, [8, 4])), NO_ROUNDS)
    assert found is not None
    assert found.lengths.tolist() == pytest.approx([0, 0, 0.5, 0.5])


@pytest.mark.parametrize(
    "record", [drafting(None, 10, 20, 12, [8, 4]), drafting(20, 0, 0, 0, None), drafting(20, 10, 20, 12, None)]
)
def test_unknown_passes_or_positions_make_no_profile(tmp_path: Path, record: StepRecord) -> None:
    """Nor does an arm that never drafted."""
    assert profile(steps_of(tmp_path, record), NO_ROUNDS) is None
