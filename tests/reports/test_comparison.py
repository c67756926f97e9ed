"""A comparison for people: sentences that say what the intervals bear out, a page without script, CSV files."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from harness.analysis import frames
from harness.analysis.compare import Comparison, compare_runs
from reports.comparison import CSV_FRAMES, console, headline, render, write_all
from reports.comparison_sentences import direction, level
from tests.builders import BASELINE
from tests.comparing import MODEL, THREE, TWO, run

BEFORE, AFTER = {"ko": TWO, "en": TWO}, {"ko": THREE, "en": TWO}


def made(tmp_path: Path, **keys: Any) -> Comparison:
    """Compare two runs of which Korean gained; ``keys`` are of the run after."""
    return compare_runs(run(tmp_path / "a", {"d2": BEFORE}), run(tmp_path / "b", {"d2": AFTER}, **keys))


def test_the_sentences_say_which_language_gained_and_which_did_not(tmp_path: Path) -> None:
    """Korean gained, English shows no difference, no language lost."""
    said = console(made(tmp_path), "en")
    assert "Gained: Korean 2.00 → 3.00 (+1.00, 95 % interval +1.00 to +1.00, 6 tasks)." in said
    assert "No difference shown: English 2.00 → 2.00 (+0.00, 95 % interval +0.00 to +0.00, 6 tasks)." in said
    assert "No language lost." in said
    assert "Outputs identical in 100 % of 24 steps." in said


def test_a_loss_is_said(tmp_path: Path) -> None:
    """The other way round Korean lost."""
    found = compare_runs(run(tmp_path / "a", {"d2": AFTER}), run(tmp_path / "b", {"d2": BEFORE}))
    assert "Lost: Korean 3.00 → 2.00 (-1.00, 95 % interval -1.00 to -1.00, 6 tasks)." in console(found, "en")
    assert headline(found, "ko").startswith("비교: d2의 이전과 이후: 수락 길이 2.50 → 2.00")


def test_times_of_two_runs_carry_the_warning_and_those_of_one_do_not(tmp_path: Path) -> None:
    """The machine's drift is in the times of two runs, and cancels inside one."""
    two = console(made(tmp_path), "en")
    assert "task times carry the machine's drift" in two
    assert "the machine's drift included" in two
    one = console(compare_runs(run(tmp_path / "c", {"old": BEFORE, "new": AFTER}), None, [("old", "new")]), "en")
    assert "they alternated A B B A" in one
    assert "the machine's drift included" not in one


def test_an_odd_number_of_repeats_is_no_alternation(tmp_path: Path) -> None:
    """Arms that ran once each, one after the other, are not said to cancel a drift."""
    folder = run(tmp_path / "c", {"old": BEFORE, "new": AFTER}, repeats=1)
    assert "did not alternate evenly" in console(compare_runs(folder, None, [("old", "new")]), "en")


def test_what_voids_a_comparison_stands_in_front(tmp_path: Path) -> None:
    """Another target: the first line and the last say that it is not sound, and the page is marked."""
    other = {"engine": "builtin", "model": {"sha256": "b" * 64}}
    found = made(tmp_path, manifest={"engine": other})
    assert console(found, "en").startswith("NOT SOUND (1): target: model.sha256.")
    assert headline(found, "en").startswith("Comparison: NOT SOUND")
    assert level(found) == "invalid"
    assert 'class="headline invalid"' in render(found, "en")


def test_a_setting_beside_the_drafter_is_named(tmp_path: Path) -> None:
    """Sound, but the weights were held otherwise."""
    other = {"engine": "builtin", "model": {"sha256": MODEL}, "settings": {"weights": "rtn4"}}
    assert "but 1 setting(s) beside the drafter differ: settings.weights." in console(
        made(tmp_path, manifest={"engine": other}), "en"
    )


def test_few_tasks_are_said_to_be_few(tmp_path: Path) -> None:
    """Four tasks: the change is shown, and nothing is claimed."""
    found = compare_runs(run(tmp_path / "a", {"d2": BEFORE}, tasks=4), run(tmp_path / "b", {"d2": AFTER}, tasks=4))
    assert "Cannot be said, too few tasks: English 2.00 → 2.00" in console(found, "en")


def test_what_differs_in_the_outputs_is_said(tmp_path: Path) -> None:
    """The share, and where the first difference lies."""
    said = console(made(tmp_path, texts={"d2": "test"}), "en")
    assert "Outputs identical in 0 % of 24 steps; first difference at character 3 (of a step such as t1:0)." in said


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.1, 0.5, "gained"), (-0.5, -0.1, "lost"), (-0.1, 0.5, "same"), (0.004, 0.5, "same"), (None, None, "too_few")],
)
def test_a_direction_is_that_of_the_figures_as_printed(low: float | None, high: float | None, expected: str) -> None:
    """An interval that is printed as from +0.00 shows no gain."""
    assert direction(low, high) == expected


@pytest.mark.parametrize("lang", ["ko", "en"])
def test_the_page_has_no_script_and_no_network(tmp_path: Path, lang: str) -> None:
    """One file with its drawings inside; names from outside are escaped."""
    found = compare_runs(
        run(tmp_path / "a", {"d2": BEFORE}),
        run(tmp_path / "b", {"d2": AFTER}, manifest={"status": "<script>x</script>"}),
    )
    page = render(found, lang)
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert page.count("<svg") == 2
    assert f'<html lang="{lang}">' in page
    assert BASELINE in page


def test_every_frame_is_a_csv_with_its_machine_names(tmp_path: Path) -> None:
    """Header as in the vocabulary, and "(all)" where a row pools."""
    found = made(tmp_path)
    assert write_all(found, tmp_path / "out", "en") == tmp_path / "out" / "comparison.html"
    for name, (attribute, _) in CSV_FRAMES.items():
        with (tmp_path / "out" / f"{name}.csv").open(encoding="utf-8-sig", newline="") as stream:
            header, *rows = list(csv.reader(stream))
        assert tuple(header) == getattr(frames, name.upper())
        assert len(rows) == getattr(found, attribute).height
    with (tmp_path / "out" / "compared_acceptance.csv").open(encoding="utf-8-sig", newline="") as stream:
        assert {row["language"] for row in csv.DictReader(stream)} == {"(all)", "ko", "en"}
