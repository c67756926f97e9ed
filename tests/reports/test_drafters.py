"""The table of drafters for people."""

from __future__ import annotations

from pathlib import Path

from harness.analysis.run import analyse
from reports.drafters import drafter_table, section
from reports.wording import wording
from tests.comparing import THREE, TWO, run
from tests.reports import sample


def test_a_row_has_acceptance_positions_and_speed_up(tmp_path: Path) -> None:
    """Korean mail: three tasks too few for an interval, 100, 60 and 40 % survive, twice as fast at concurrency 1."""
    folder = run(tmp_path / "run", {"d2": {"ko": THREE, "en": TWO}}, milliseconds={"d2": 500})
    found = drafter_table(analyse(folder), wording("en"))
    rows = {row[2:4]: row for row in found.rows}
    assert rows["Korean", "mail"] == (
        "office",
        "d2",
        "Korean",
        "mail",
        "3",
        "6",
        "3.00 [–]",
        "2.00 [–]",
        "100 60 40",
        "2.00 [–]",
        "⚠ another language",
    )
    assert rows["Korean", "all"][6:10] == ("3.00 [3.00–3.00]", "2.00 [2.00–2.00]", "100 60 40", "2.00 [2.00–2.00]")
    assert found.headers[-2:] == ("Speed-up of steps (x) @ 1 [95\u00a0%]", "Cautions")


def test_workloads_are_pooled_only_where_there_are_several(tmp_path: Path) -> None:
    """One workload: no row repeats it as all."""
    folder = run(tmp_path / "run", {"d2": {"ko": THREE, "en": TWO}})
    assert {row[0] for row in drafter_table(analyse(folder), wording("en")).rows} == {"office"}


def test_a_run_without_drafters_says_so() -> None:
    """An empty table is a note, not a hole."""
    found = section(sample.empty(), wording("ko"))
    assert found.tables == ()
    assert found.notes
