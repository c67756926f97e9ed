"""The whole analysis: its frames have the columns that reports rely on, in every run."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import polars as pl
import pytest

from bench.generated_run import write_run
from harness.analysis import frames
from harness.analysis.run import analyse
from harness.records import StepRecord
from harness.store import RunFolder
from tests.analysis.test_acceptance import MIXED
from tests.builders import BASELINE, cell_key, run_folder, solo_tasks, workload_entry

FRAMES = (
    "steps", "tasks", "cells", "summary", "acceptance", "survival", "speed_up", "break_even", "lossless", "slo", "thresholds",
)  # fmt: skip


@pytest.mark.parametrize(
    "records", [[], [*solo_tasks(cell_key(BASELINE), [1000, 1000]), *MIXED]], ids=["empty", "full"]
)
def test_every_frame_has_its_columns(tmp_path: Path, records: list[StepRecord]) -> None:
    """A run with nothing in it has the same columns as any other."""
    analysis = analyse(run_folder(tmp_path, records))
    for name in FRAMES:
        assert tuple(getattr(analysis, name).columns) == getattr(frames, name.upper())


def test_empty_and_full_frames_have_equal_types(tmp_path: Path) -> None:
    """What reads one run's frames reads any run's."""
    entry = [workload_entry(slo={"ttft_p50": "1s"}, thresholds=["speed_up >= 1"])]
    empty = analyse(run_folder(tmp_path / "a", [], workloads=entry))
    full = analyse(run_folder(tmp_path / "b", [*solo_tasks(cell_key(BASELINE), [1000, 1000]), *MIXED], workloads=entry))
    for name in FRAMES:
        assert getattr(empty, name).schema == getattr(full, name).schema, name


def test_a_run_without_a_finished_cell_says_so(tmp_path: Path) -> None:
    """No figures, no verdicts, one invalid finding."""
    analysis = analyse(run_folder(tmp_path, []))
    assert [name for name in FRAMES if len(getattr(analysis, name))] == []
    assert analysis.verdicts == ()
    assert analysis.findings[0].code == "no_finished_cell"


def test_a_report_of_the_same_records_never_changes(tmp_path: Path) -> None:
    """Two readings of one folder give equal frames, bootstrap included."""
    folder = run_folder(tmp_path, [*solo_tasks(cell_key(BASELINE), [900, 3000]), *MIXED])
    first, second = analyse(folder), analyse(folder)
    assert all(getattr(first, name).equals(getattr(second, name)) for name in FRAMES)
    assert first.verdicts == second.verdicts


def test_sums_of_a_large_run_are_always_added_in_one_order(tmp_path: Path) -> None:
    """Hundreds of places with shares and times of many digits: every frame is equal to the last one."""
    write_run(tmp_path / "run", 600, 3)
    first, *others = (analyse(RunFolder.open(tmp_path / "run", append=False)) for _ in range(3))
    for field in fields(first):
        found = getattr(first, field.name)
        if isinstance(found, pl.DataFrame):
            assert all(found.equals(getattr(other, field.name)) for other in others), field.name
