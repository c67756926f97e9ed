"""What the chain says of a measured run: the harness's own figures, and a verdict that claims no more than they do."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from drafters.training.adapt_report import measured, verdict
from drafters.training.stage import StageError
from harness import cli
from tests.comparing import THREE, TWO, Accepted, run

PLAIN: Accepted = {"ko": TWO, "en": TWO}
BETTER: Accepted = {"ko": THREE, "en": TWO}


def made(folder: Path, arms: dict[str, Accepted], **keys: Any) -> dict[str, Any]:
    """Write a run with these arms, have the harness report and compare it, and return what the chain reads of it."""
    place = run(folder / "run", arms, **keys).path
    assert cli.run(["report", str(place), "--lang", "en"]) == 0
    compared = folder / "compared" if "before" in arms else None
    if compared is not None:
        assert cli.run(["compare", str(place), "--arms", "before=after", "--out", str(compared)]) == 0
    return measured(place, compared)


def test_every_figure_is_the_comparison_s_own(tmp_path: Path) -> None:
    """Acceptance before and after and the interval of the change are those of compared_acceptance.csv, by language group."""
    found = made(tmp_path, {"before": PLAIN, "after": BETTER})["acceptance"]
    korean = next(row for row in found if (row["workload"], row["language"]) == (None, "ko"))
    assert (korean["before"], korean["after"], korean["low"], korean["high"]) == (2, 3, 1, 1)
    assert (korean["tasks"], korean["steps"], korean["window"], korean["shown"]) == (6, 12, "steady", True)
    with (tmp_path / "compared" / "compared_acceptance.csv").open(encoding="utf-8-sig", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["language_group"] == "ko" and row["workload"] == "(all)"]
    assert [row["acceptance_length_change_low"] for row in rows] == ["1.0"]
    assert {(row["workload"], row["language"]) for row in found} == {
        (workload, language) for workload in (None, "office") for language in (None, "ko", "en")
    }


def test_the_verdict_says_what_is_shown_in_both_languages(tmp_path: Path) -> None:
    """Korean from 2 to 3, English the same, all outputs those without a drafter, speed-ups with their intervals."""
    found = made(tmp_path, {"before": PLAIN, "after": BETTER}, milliseconds={"after": 500})
    english, korean = verdict(found, "en"), verdict(found, "ko")
    gained = "Korean: acceptance length 2.00 before, 3.00 after; +1.00, 95 % interval +1.00 to +1.00, 6 tasks."
    assert gained in english
    assert any(line.startswith("English: acceptance length 2.00") and "no difference shown" in line for line in english)
    assert "Outputs of after: 24 of 24 steps identical to those without a drafter." in english
    assert "Speed-up of task time of after at 1 tasks in progress, office: 2.00 (2.00 to 2.00)." in english
    assert any(line.startswith("한국어: 수락 길이 학습 전 2.00, 학습 후 3.00") for line in korean)


def test_few_tasks_show_nothing(tmp_path: Path) -> None:
    """Four tasks have no interval, so no difference is shown however large it is."""
    found = made(tmp_path, {"before": PLAIN, "after": BETTER}, tasks=4)
    assert not any(row["shown"] for row in found["acceptance"])
    assert any("4 tasks are too few for an interval." in line for line in verdict(found, "en"))


def test_whole_cells_are_said(tmp_path: Path) -> None:
    """Where no step lies in the steady windows, ramp and tail are in the figures."""
    found = made(tmp_path, {"before": PLAIN, "after": BETTER})
    assert not any("ramp and tail" in line for line in verdict(found, "en"))
    found["acceptance"][0]["window"] = "whole"
    assert any("ramp and tail" in line for line in verdict(found, "en"))


def test_a_run_that_is_not_valid_is_called_so_first(tmp_path: Path) -> None:
    """What the harness forbids to conclude, the chain does not conclude either."""
    found = made(tmp_path, {"before": PLAIN, "after": BETTER})
    found["invalid"] = [{"code": "wrong_language", "workload": "office", "arm": "after", "values": "{}"}]
    assert verdict(found, "en")[0].startswith("NOT VALID")
    assert "wrong_language" in verdict(found, "ko")[0]


def test_outputs_that_differ_are_told(tmp_path: Path) -> None:
    """None of the 24 steps has the text of the run without a drafter."""
    found = made(tmp_path, {"before": PLAIN, "after": BETTER}, texts={"after": "other"})
    assert found["outputs"]["after"] == {"steps": 24, "identical": 0}
    assert any("ONLY 0 of 24" in line for line in verdict(found, "en"))


def test_without_a_drafter_before_only_the_new_one_is_told(tmp_path: Path) -> None:
    """Trained from fresh weights, there is nothing to compare with: its acceptance is that of the run's own table."""
    found = made(tmp_path, {"after": BETTER})
    whole = found["acceptance"][0]
    assert (whole["workload"], whole["language"], whole["before"], whole["after"]) == (None, None, None, 2.5)
    assert "Korean: acceptance length 3.00, 6 tasks; there was no drafter before to compare with." in verdict(
        found, "en"
    )


def test_a_run_without_its_tables_is_refused(tmp_path: Path) -> None:
    """The message names the file and how to get it; what is no run at all is refused too."""
    with pytest.raises(StageError, match=r"lossless\.csv cannot be read.*harness report"):
        measured(run(tmp_path / "run", {"after": PLAIN}).path, None)
    with pytest.raises(StageError, match="is no run of the harness"):
        measured(tmp_path, None)
