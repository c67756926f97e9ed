"""Frames of a run for those who work in pandas."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import polars as pl

from harness.notebook import frames, to_pandas
from reports.tables import CSV_FRAMES
from tests.builders import cell_key, run_folder, solo_tasks


def test_unknown_stays_unknown_and_whole_numbers_whole() -> None:
    """A missing count is NA beside whole numbers, and a column says what it is."""
    frame = pl.DataFrame(
        {
            "arm": ["a", None],
            "n_steps": [3, None],
            "speed_up": [1.5, None],
            "counters_match": [True, None],
            "position": [1, 2],
        }
    )
    made = to_pandas(frame, "ko")
    assert made["n_steps"].dtype == "Int64"
    assert made["n_steps"][0] == 3
    assert made["n_steps"][1] is pd.NA
    assert made["arm"][1] is pd.NA
    assert list(made["counters_match"].isna()) == [False, True]
    assert made["speed_up"].sum() == 1.5
    assert made.attrs["speed_up"]["unit"] == "x"
    assert made.attrs["speed_up"]["header"]


def test_every_frame_of_a_run_is_there(tmp_path: Path) -> None:
    """A run of one step gives its frames by the names of its CSV files, that of its steps with one row."""
    run_folder(tmp_path / "run", solo_tasks(cell_key("baseline"), [100]))
    found = frames(tmp_path / "run")
    assert {*CSV_FRAMES, "offer", "pareto", "findings", "verdicts"} <= set(found)
    assert list(found["pareto"]["arm"]) == ["baseline"]
    assert list(found["steps"]["task_id"]) == ["t1"]
    assert found["steps"].attrs["step_latency_s"]["unit"] == "s"
