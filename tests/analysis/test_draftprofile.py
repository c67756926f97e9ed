"""How an arm drafts and what is accepted of it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from harness.analysis.draftprofile import profile
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


def test_a_limit_cuts_lengths_and_what_is_accepted_beyond_it(tmp_path: Path) -> None:
    """With one token at most all ten rounds draft one, and 8 of 20 passes keep it."""
    found = profile(steps_of(tmp_path, drafting(20, 10, 20, 12, [8, 4])), NO_ROUNDS)
    assert found is not None
    lengths, tokens = found.at(1)
    assert lengths.tolist() == [0.5, 0.5]
    assert tokens == pytest.approx(1.4)


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
