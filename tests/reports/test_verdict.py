"""The verdict in one sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.analysis.frames import Finding
from reports.verdict import certainty, concerning, last_line, leading, sentence
from reports.wording import LANGUAGES
from tests.reports import sample
from tests.reports.sample import verdict


def finding(
    code: str, severity: Any = "warning", workload: str | None = "office-ko", arm: str | None = "ngram-map-k"
) -> Finding:
    """Return a finding without values."""
    return Finding(code, severity, workload, arm, {})


def test_a_crossing_is_said_with_both_ends_and_its_interval() -> None:
    """The usual case, word by word."""
    assert sentence(verdict(), "en") == (
        "ngram-map-k: 1.42x (95 % 1.31–1.55) at concurrency 1, break-even at 9 tasks in progress (95 % 6–14), "
        "slower at concurrency 16 (0.84x, 95 % 0.78–0.91); outputs identical in 98 % of steps."
    )


def test_the_korean_sentence_says_the_same() -> None:
    """Same figures, same caution."""
    assert sentence(verdict(), "ko") == (
        "ngram-map-k: 동시 작업 1개에서 1.42배(95 % 1.31–1.55), 손익분기는 동시 작업 9개(95 % 6–14), "
        "동시 작업 16개에서 느려짐(0.84배, 95 % 0.78–0.91); 출력 동일 단계 98 %."
    )


def test_no_crossing_above_1_names_the_range() -> None:
    """Not crossed is a proper answer when the highest load is clearly above 1."""
    text = sentence(verdict(side="above", break_even=None, break_even_low=None, break_even_high=None,
                            speed_up_last=(1.12, 1.04, 1.20)), "en")  # fmt: skip
    assert "not crossed in 1–16, still above 1: 1.12x (95 % 1.04–1.20) at concurrency 16;" in text


def test_above_1_is_not_claimed_where_the_interval_includes_1() -> None:
    """An estimate of 1.03 whose interval reaches 0.96 shows no difference."""
    text = sentence(verdict(side="above", break_even=None, break_even_low=12.0, break_even_high=None,
                            speed_up_last=(1.03, 0.96, 1.10)), "en")  # fmt: skip
    assert "still above" not in text
    assert "no difference shown at concurrency 16 (1.03x, 95 % 0.96–1.10)" in text
    assert "break-even possible from 12 on" in text


@pytest.mark.parametrize(("low", "faster"), [(1.004, False), (1.006, True)])
def test_faster_is_judged_on_the_interval_as_printed(low: float, faster: bool) -> None:
    """A lower end that prints as 1.00 is not called faster."""
    text = sentence(verdict(side="above", speed_up_last=(1.1, low, 1.2)), "en")
    assert ("no difference shown at concurrency 16" not in text) is faster


def test_slower_from_the_start_is_said_once() -> None:
    """Below at the lowest load, with an interval that excludes 1."""
    text = sentence(verdict(side="below", break_even=None, break_even_low=None, break_even_high=None,
                            speed_up_first=(0.93, 0.89, 0.97)), "en")  # fmt: skip
    assert text.startswith(
        "ngram-map-k: slower from the start: 0.93x (95 % 0.89–0.97) at concurrency 1, 0.84x (95 % 0.78–0.91)"
    )


def test_slower_is_not_claimed_where_the_interval_includes_1() -> None:
    """An estimate of 0.97 whose interval reaches 1.02 shows no difference."""
    text = sentence(verdict(side="below", break_even=None, speed_up_first=(0.97, 0.93, 1.02)), "en")
    assert "slower from the start" not in text
    assert "no difference shown at concurrency 1 (0.97x" in text


def test_a_curve_that_starts_below_1_and_rises_is_reported_as_rising() -> None:
    """What the points say is not hidden behind the word slower."""
    text = sentence(
        verdict(side="below", break_even=None, speed_up_first=(0.9, 0.85, 0.95), speed_up_last=(1.2, 1.1, 1.3)), "en"
    )
    assert "faster at concurrency 16 (1.20x, 95 % 1.10–1.30)" in text


def test_a_crossing_before_an_unclear_end_is_only_an_estimate() -> None:
    """A break-even is not stated flatly when the highest load is not clearly slower."""
    text = sentence(verdict(speed_up_last=(0.97, 0.90, 1.05)), "en")
    assert "break-even estimated at 9 tasks in progress" in text
    assert "but no difference shown at concurrency 16" in text


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (None, 14.0, "95 % up to 14, lower end below 1"),
        (6.0, None, "95 % from 6, upper end beyond 16"),
        (None, None, "95 % interval not inside 1–16"),
    ],
)
def test_an_end_beyond_the_range_is_said_to_be_beyond(low: float | None, high: float | None, said: str) -> None:
    """A limit that was not reached is not unknown: it lies outside."""
    assert f"({said})" in sentence(verdict(break_even_low=low, break_even_high=high), "en")


def test_without_pairs_nothing_is_said() -> None:
    """No estimate, no claim."""
    none = verdict(side="unknown", break_even=None, speed_up_first=None, speed_up_last=None, identical_share=None)
    assert sentence(none, "en") == "ngram-map-k: cannot be said: no paired tasks; outputs not compared."


def test_one_concurrency_gives_a_point_and_no_break_even() -> None:
    """A run at one load does not pretend to have searched."""
    text = sentence(
        verdict(side="above", break_even=None, highest_concurrency=1, speed_up_last=(1.42, 1.31, 1.55)), "en"
    )
    assert text.startswith("ngram-map-k: 1.42x (95 % 1.31–1.55) at concurrency 1, the only concurrency compared")


@pytest.mark.parametrize(("share", "said"), [(1.0, "100 %"), (0.9996, "99.9 %"), (0.5, "50 %")])
def test_identical_is_rounded_to_100_only_when_it_is_all(share: float, said: str) -> None:
    """One step that differs stays visible."""
    assert f"identical in {said} of steps" in sentence(verdict(identical_share=share), "en")


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("code", ["repetitive_output", "prompt_echo", "output_language_mismatch"])
def test_odd_output_is_said_in_the_same_sentence(lang: str, code: str) -> None:
    """A speed-up on loops or in the wrong language never stands alone, and the pooled sentence names the workload."""
    text = sentence(verdict(), lang, [finding(code)])
    assert "office-ko" in text
    assert len(text) > len(sentence(verdict(), lang))


def test_findings_about_other_arms_and_notes_add_no_caveat() -> None:
    """Only what touches the arm is said."""
    strangers = [
        finding("repetitive_output", arm="ngram-mod"),
        finding("repetitive_output", "note"),
        finding("few_tasks"),
    ]
    assert sentence(verdict(), "en", strangers) == sentence(verdict(), "en")


def test_an_invalid_finding_of_unknown_code_is_a_caveat() -> None:
    """A failed check that has no words yet is not passed over."""
    assert "a validity check failed (odd_new)" in sentence(verdict(), "en", [finding("odd_new", "invalid")])


def test_a_finding_about_all_arms_touches_every_arm() -> None:
    """A baseline that drafts voids all comparisons."""
    drafted = finding("baseline_drafted", "invalid", arm=None)
    assert concerning(verdict(), [drafted]) == [drafted]
    assert certainty(verdict(), [drafted]) == "invalid"
    assert "the comparison is void (office-ko)" in sentence(verdict(), "en", [drafted])


@pytest.mark.parametrize(
    ("changes", "codes", "level"),
    [
        ({}, [], "clear"),
        ({}, ["few_tasks"], "limited"),
        ({"break_even_high": None}, [], "limited"),
        ({"speed_up_last": (0.97, 0.9, 1.05)}, [], "unsure"),
        ({"speed_up_last": None}, [], "unknown"),
    ],
)
def test_certainty_falls_with_the_evidence(changes: dict[str, Any], codes: list[str], level: str) -> None:
    """Intervals first, then warnings."""
    assert certainty(verdict(**changes), [finding(code) for code in codes]) == level


def test_the_last_line_is_the_pooled_verdict_of_the_arm_that_holds_out_longest() -> None:
    """Of two arms the one with a break-even leads the one that is slower from the start."""
    run = sample.small()
    assert [item.arm for item in leading(run)] == ["ngram-map-k", "ngram-mod"]
    assert last_line(run, "en").startswith("Verdict: ngram-map-k: 1.42x")
    assert "\n" not in last_line(run, "ko")


def test_without_a_pooled_verdict_the_workloads_are_named() -> None:
    """A run of one workload has no pooled figures."""
    run = replace(sample.small(), verdicts=(verdict(workload="office-ko"),))
    assert last_line(run, "en").startswith("Verdict: ngram-map-k on office-ko: 1.42x")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("no_finished_cell", "no cell was finished"),
        ("baseline_missing", "no baseline arm"),
        ("few_tasks", "no arm with a drafter"),
    ],
)
def test_the_last_line_says_why_there_is_no_verdict(code: str, reason: str) -> None:
    """Silence has a reason."""
    line = last_line(replace(sample.empty(), findings=(finding(code),)), "en")
    assert line.startswith("Verdict: nothing can be said")
    assert reason in line
