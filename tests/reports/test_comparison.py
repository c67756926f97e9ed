"""A comparison for people: sentences that say what the intervals bear out, a page without script, CSV files."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
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


def test_what_korean_loses_against_english_is_said_of_both_sides(tmp_path: Path) -> None:
    """Before both have 2.00 tokens a round; after Korean has 3.00: nothing is lost any more, and the table tells both."""
    found = made(tmp_path)
    said = console(found, "en")
    assert "Before: d2 accepts 2.00 tokens a round on Korean and 2.00 on English: no difference shown" in said
    assert (
        "After: d2 loses nothing on Korean against English: 3.00 against 2.00 tokens a round (6 and 6 tasks)." in said
    )
    assert set(found.language_loss["when"]) == {"before", "after"}
    assert "한국어의 손실, 이전과 이후" in render(found, "ko")


def test_a_run_of_several_workloads_is_compared_with_one_of_a_single(tmp_path: Path) -> None:
    """Before, the rows over all workloads are shown, after, those of the only one: each side by itself."""
    found = made(tmp_path)
    before, after = (pl.col("when") == when for when in ("before", "after"))
    several = found.language_loss.filter(before)
    over_all = several.with_columns(workload=pl.lit(None, pl.String))
    mixed = replace(found, language_loss=pl.concat([several, over_all, found.language_loss.filter(after)]))
    page = render(mixed, "en")
    assert page.count("d2 loses nothing on Korean against English") == 1
    assert page.count("d2 accepts 2.00 tokens a round on Korean") == 1


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
    """Sound, but prompts were not reused."""
    other = {"engine": "builtin", "model": {"sha256": MODEL}, "settings": {"prefix_reuse": False}}
    assert "but 1 setting(s) beside the drafter differ: settings.prefix_reuse." in console(
        made(tmp_path, manifest={"engine": other}), "en"
    )


def test_few_tasks_are_said_to_be_few(tmp_path: Path) -> None:
    """Four tasks: the change is shown, and nothing is claimed."""
    found = compare_runs(run(tmp_path / "a", {"d2": BEFORE}, tasks=4), run(tmp_path / "b", {"d2": AFTER}, tasks=4))
    assert "Cannot be said, too few tasks: English 2.00 → 2.00" in console(found, "en")


def test_what_differs_in_the_outputs_is_said(tmp_path: Path) -> None:
    """The share, and where the first difference lies."""
    said = console(made(tmp_path, texts={"d2": "test"}), "en")
    assert "Outputs identical in 0 % of 24 steps; first difference at character 3, in step t1:0." in said


def test_what_is_not_known_to_be_the_same_is_not_called_the_same(tmp_path: Path) -> None:
    """Without a hash of the target nobody can say that it is the same."""
    found = made(tmp_path, manifest={"engine": {"engine": "builtin", "model": {}}})
    assert console(found, "en").startswith(
        "Nothing shows the pairing to be unsound, but the target could not be told to be the same on both sides."
    )
    assert "the target could not be told to be the same" in render(found, "en")
    assert "same tasks, prompts, sampling and target" not in render(found, "en")
    assert "대상 모델이 같은지 알 수 없음" in console(found, "ko")


def test_texts_that_are_missing_have_no_first_difference(tmp_path: Path) -> None:
    """The outputs differ by hash, and their texts are gone: no position is claimed."""
    after = run(tmp_path / "b", {"d2": AFTER}, texts={"d2": "test"})
    (after.path / "outputs.jsonl").write_bytes(b"")
    said = console(compare_runs(run(tmp_path / "a", {"d2": BEFORE}), after), "en")
    assert "one that differs is t1:0, where is not known since texts are missing." in said


def test_arms_without_a_partner_are_said(tmp_path: Path) -> None:
    """Who reads the page learns what it is not about."""
    one, other = run(tmp_path / "a", {"d2": BEFORE, "x": AFTER}), run(tmp_path / "b", {"d2": AFTER})
    assert "Not compared, since they have no partner of their name: x | –;" in console(compare_runs(one, other), "en")


def test_made_up_acceptance_is_not_called_none(tmp_path: Path) -> None:
    """Both sides are synthetic: there are figures, and they say nothing of a drafter."""
    methods: dict[str, Any] = {"methods": {BASELINE: "none", "d2": "synthetic"}}
    found = compare_runs(run(tmp_path / "a", {"d2": BEFORE}, **methods), run(tmp_path / "b", {"d2": AFTER}, **methods))
    said = console(found, "en")
    assert "d2, before and after: the engine makes up the acceptance" in said
    assert "does not draft" not in said


def test_whole_cells_are_said(tmp_path: Path) -> None:
    """At a load whose steady window holds no pair, ramp and tail are in the figures."""
    found = made(tmp_path)
    assert "whole cells" not in console(found, "en")
    whole = replace(found, times=found.times.with_columns(window=pl.lit("whole")))
    assert "Concurrency 1: whole cells are compared, ramp and tail included" in console(whole, "en")


def test_arms_that_follow_the_machine_are_excepted(tmp_path: Path) -> None:
    """Draft lengths that follow measured costs carry the machine's drift into acceptance."""
    found = made(tmp_path)
    assert "acceptance and outputs do not." in console(found, "en")
    moved = console(replace(found, adrift=("d2",)), "en")
    assert "nor does acceptance, except that of d2, whose drafts follow measured costs or earlier requests." in moved


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


def test_acceptance_carries_the_cautions_of_each_side(tmp_path: Path) -> None:
    """After, the Korean outputs loop: said beside the figures of that side and language, in page and CSV, and nowhere before."""
    loop = "감사합니다. 다시 연락드리겠습니다. " * 20
    first = run(tmp_path / "a", {"d2": {"ko": TWO, "en": TWO}})
    second = run(tmp_path / "b", {"d2": {"ko": TWO, "en": TWO}}, texts={"d2": loop})
    comparison = compare_runs(first, second)
    pooled = comparison.acceptance.row(0, named=True)
    assert "repetitive_output" in pooled["cautions_after"]
    assert "repetitive_output" not in (pooled["cautions_before"] or "")
    shown = render(comparison, "en")
    assert "Cautions, after" in shown
    assert "⚠ repeats itself" in shown
