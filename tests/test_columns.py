"""The vocabulary of columns."""

from __future__ import annotations

import pytest

from harness.analysis import frames
from harness.analysis.offer import OFFER, PARETO
from harness.columns import COLUMNS, Column
from reports.tables import FINDINGS, VERDICTS

FRAMES = (
    "STEPS",
    "TASKS",
    "CELLS",
    "SUMMARY",
    "ACCEPTANCE",
    "SURVIVAL",
    "DRAFTERS",
    "COMPARED_TIMES",
    "COMPARED_ACCEPTANCE",
    "COMPARED_SURVIVAL",
    "COMPARED_OUTPUTS",
    "COMPARED_STEPS",
    "DIFFERENCES",
    "SPEED_UP",
    "BREAK_EVEN",
    "LOSSLESS",
    "SLO",
    "THRESHOLDS",
    "PERCENTILES",
    "AGENTS",
    "REPEATS",
    "SIZING",
    "TORNADO",
    "COSTS",
    "PREDICTED",
    "PREDICTED_BREAK_EVEN",
    "HARDWARE",
    "HARDWARE_BREAK_EVEN",
    "LANGUAGE_LOSS",
    "COMPARED_LANGUAGE_LOSS",
)


def test_every_column_of_every_frame_is_in_the_vocabulary_and_nothing_else_is() -> None:
    """The vocabulary, the frames and the two files beside them name the same columns."""
    used = {name for frame in FRAMES for name in getattr(frames, frame)} | set(FINDINGS) | set(VERDICTS)
    used |= {*OFFER, *PARETO}
    assert set(COLUMNS) == used


def test_no_frame_is_left_out_of_the_completeness_check() -> None:
    """A frame added to the contract must be added to the check."""
    assert {
        name for name, value in vars(frames).items() if name.isupper() and name[0] != "_" and isinstance(value, tuple)
    } == {
        *FRAMES,
        "CELL",
    }


@pytest.mark.parametrize("column", COLUMNS.values(), ids=lambda column: column.name)
def test_a_column_has_header_and_definition_in_both_languages(column: Column) -> None:
    """Nothing is left untranslated, and a definition is a sentence."""
    assert set(column.header) == set(column.definition) == {"ko", "en"}
    assert all(column.header.values())
    assert all(text.endswith((".", "다.")) for text in column.definition.values())


@pytest.mark.parametrize("column", COLUMNS.values(), ids=lambda column: column.name)
def test_a_suffix_of_a_name_and_its_unit_agree(column: Column) -> None:
    """A reader of the CSV can trust the unit in the name."""
    for suffix, unit in (("_ms", "ms"), ("_share", "share"), ("_per_s", "tokens/s"), ("_per_hour", "tasks/h")):
        if column.name.endswith(suffix):
            assert column.unit == unit
    if column.name.endswith("_s") and not column.name.endswith("_per_s"):
        assert column.unit == "s"


def test_the_vocabulary_cannot_be_changed_at_run_time() -> None:
    """The mapping and its columns are read-only."""
    with pytest.raises(TypeError):
        COLUMNS["new"] = COLUMNS["arm"]  # type: ignore[index]
    with pytest.raises(TypeError):
        COLUMNS["arm"].header["en"] = "x"  # type: ignore[index]


def test_the_bonus_token_is_said_to_be_in_the_acceptance_length_and_not_in_the_rate() -> None:
    """The two figures that tools disagree about say what they count."""
    assert "bonus token included" in COLUMNS["acceptance_length"].definition["en"]
    assert "bonus token left out" in COLUMNS["acceptance_rate"].definition["en"]
    assert "보너스 토큰을 포함" in COLUMNS["acceptance_length"].definition["ko"]
    assert "보너스 제외" in COLUMNS["acceptance_rate"].definition["ko"]


def test_an_empty_end_of_a_break_even_is_told_from_an_unknown_one() -> None:
    """Only a break-even can lie beyond what was measured."""
    assert "beyond the measured range" in COLUMNS["break_even_low"].definition["en"]
    assert "beyond the measured range" not in COLUMNS["speed_up_low"].definition["en"]
