"""Was the output unchanged?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.frames import RunAnalysis
from harness.analysis.lossless import first_difference
from harness.analysis.run import analyse
from harness.records import StepRecord
from harness.store import Output, text_sha256
from tests.builders import ARM, BASELINE, TEXT, cell_key, run_folder, solo_tasks, step, workload_entry

OTHER = "The order left the warehouse on Tuesday and will arrive on Friday before noon."
TOKENS = (
    Output(text_sha256(TEXT), TEXT, (1, 2, 3, 4)),
    Output(text_sha256(OTHER), OTHER, (1, 2, 9, 4)),
)


def analysed(folder: Path, records: Sequence[StepRecord], outputs: Sequence[Output] = (), **entry: Any) -> RunAnalysis:
    """Analyse the steps as one workload whose texts are known."""
    return analyse(
        run_folder(folder, records, workloads=[workload_entry(**entry)], texts=(TEXT, OTHER), outputs=outputs)
    )


def two_tasks(second: str | None) -> list[StepRecord]:
    """Return a baseline with two equal texts, and an arm whose second text is ``second``."""
    records = solo_tasks(cell_key(BASELINE), [100, 100])
    return [*records, step(cell_key(), "t1", end=100), step(cell_key(), "t2", due=100, end=200, text=second)]


def test_equal_outputs_are_identical(tmp_path: Path) -> None:
    """Two steps of two with the same text: a share of 1 and no example."""
    row = analysed(tmp_path, two_tasks(TEXT)).lossless.row(0, named=True)
    assert (row["n_steps"], row["n_identical"], row["identical_share"], row["example_step"]) == (2, 2, 1, None)


def test_a_difference_is_counted_and_named(tmp_path: Path) -> None:
    """One step of two differs: its task and step are the example, and each step carries the result into acceptance."""
    analysis = analysed(tmp_path, two_tasks(OTHER))
    row = analysis.lossless.row(0, named=True)
    assert (row["identical_share"], row["example_step"], row["first_difference_token_min"]) == (0.5, "t2:0", None)
    assert analysis.summary["identical_share"].to_list() == [None, 0.5]


def test_the_first_differing_token_is_found_where_tokens_are_known(tmp_path: Path) -> None:
    """Tokens 1 2 3 4 against 1 2 9 4 differ at the third."""
    row = analysed(tmp_path, two_tasks(OTHER), TOKENS).lossless.row(0, named=True)
    assert (row["first_difference_token_min"], row["first_difference_token_p50"]) == (3, 3)


@pytest.mark.parametrize(
    ("left", "right", "expected"), [((1, 2), (1, 2, 3), 3), ((1, 2), (1, 2), None), (None, (1,), None), ((5,), (6,), 1)]
)
def test_first_difference(left: Sequence[int] | None, right: Sequence[int] | None, expected: int | None) -> None:
    """A shorter output differs where it ends; unknown tokens have no place of difference."""
    assert first_difference(left, right) == expected


def test_at_temperature_above_zero_nothing_is_compared(tmp_path: Path) -> None:
    """Sampled outputs differ by chance: no row, and a finding that says so."""
    analysis = analysed(tmp_path, two_tasks(OTHER), temperature=0.7)
    assert analysis.lossless.is_empty()
    assert "temperature_above_zero" in {finding.code for finding in analysis.findings}


def test_with_live_history_only_first_steps_are_compared(tmp_path: Path) -> None:
    """The second step of a task has its own history in each arm, so one of two steps is comparable."""
    records = []
    for arm in (BASELINE, ARM):
        records += [step(cell_key(arm), end=100), step(cell_key(arm), step_index=1, due=100, end=200)]
    assert analysed(tmp_path / "a", records, history="live").lossless["n_steps"].to_list() == [1]
    assert analysed(tmp_path / "b", records).lossless["n_steps"].to_list() == [2]


def test_an_arm_that_falls_silent_is_not_identical(tmp_path: Path) -> None:
    """A step that succeeded without a text differs from one with a text, at its first token."""
    row = analysed(tmp_path, two_tasks(None), TOKENS).lossless.row(0, named=True)
    assert (row["n_steps"], row["n_identical"], row["example_step"]) == (2, 1, "t2:0")
    assert row["first_difference_token_min"] == 1
