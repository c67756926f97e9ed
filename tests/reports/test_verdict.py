"""The verdict in one line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.analysis.frames import Finding
from reports.verdict import Context, certainty, concerning, is_sure, last_line, leading, sentence, side_text
from reports.wording import LANGUAGES, wording
from tests.reports import sample
from tests.reports.sample import verdict

BESIDE: dict[str, Any] = {"break_even": None, "break_even_low": None, "break_even_high": None}
SPREAD = {("ngram-map-k", 1): {"office-ko": 0.94, "coding-en": 1.31}}
PLACES = {"ngram-map-k": ("office-ko", "coding-en")}


def finding(
    code: str,
    severity: Any = "warning",
    workload: str | None = "office-ko",
    arm: str | None = "ngram-map-k",
    **values: Any,
) -> Finding:
    """Return a finding."""
    return Finding(code, severity, workload, arm, values)


def beside(*findings: Finding) -> Context:
    """Return a run of two workloads with these findings."""
    baselines = frozenset({("office-ko", "baseline"), ("coding-en", "baseline")})
    return Context(findings, baselines, PLACES)


def test_a_crossing_is_said_with_both_ends_and_its_interval() -> None:
    """The usual case, word by word."""
    assert sentence(verdict(workload="office-ko"), "en") == (
        "ngram-map-k on office-ko finishes tasks 1.42 times as fast as the baseline at concurrency 1 "
        "(95 % interval 1.31–1.55, 12 tasks), 0.84 times at 16 (0.78–0.91, slower); "
        "break-even at 9 tasks in progress (6–14). Outputs identical in 98 % of steps. [certainty: clear]"
    )


def test_the_korean_sentence_says_the_same() -> None:
    """Same figures, same caution."""
    assert sentence(verdict(workload="office-ko"), "ko") == (
        "office-ko 워크로드의 ngram-map-k 구성은 기준 구성의 1.42배 속도로 작업 완료"
        "(동시 작업 1개, 95 % 구간 1.31–1.55, 작업 12개), 동시 작업 16개에서는 0.84배(0.78–0.91, 느려짐); "
        "손익분기는 동시 작업 9개(6–14). 출력이 같은 단계 98 %. [확실성: 확실]"
    )


def test_a_pooled_verdict_says_how_far_the_workloads_lie_apart() -> None:
    """1.42 pooled, 0.94 on one workload and 1.31 on the other."""
    text = sentence(verdict(), "en", Context(estimates=SPREAD))
    assert text.startswith(
        "ngram-map-k (2 workloads pooled, by workload 0.94–1.31x at concurrency 1) finishes tasks 1.42"
    )


def test_a_pooled_verdict_that_rests_on_one_workload_names_it() -> None:
    """One workload is no pool."""
    context = Context(estimates={("ngram-map-k", 1): {"office-ko": 1.42}})
    assert sentence(verdict(), "en", context).startswith("ngram-map-k on office-ko finishes tasks 1.42")


def test_no_crossing_above_1_names_the_range() -> None:
    """Not crossed is a proper answer when the highest load is clearly above 1."""
    text = sentence(verdict(side="above", speed_up_last=(1.12, 1.04, 1.20), **BESIDE), "en")
    assert "1.12 times at 16 (1.04–1.20); no break-even up to 16 tasks in progress." in text


def test_above_1_is_not_claimed_where_the_interval_includes_1() -> None:
    """An estimate of 1.03 whose interval reaches 0.96 shows no difference."""
    changes = BESIDE | {"break_even_low": 12.0}
    text = sentence(verdict(side="above", speed_up_last=(1.03, 0.96, 1.10), **changes), "en")
    assert "1.03 times at 16 (0.96–1.10, no difference shown)" in text
    assert "no break-even seen up to 16 tasks in progress, but it is not excluded (possible from 12 on)." in text


@pytest.mark.parametrize(("low", "faster"), [(1.004, False), (1.006, True)])
def test_faster_is_judged_on_the_interval_as_printed(low: float, faster: bool) -> None:
    """A lower end that prints as 1.00 is not called faster."""
    text = sentence(verdict(side="above", speed_up_last=(1.1, low, 1.2)), "en")
    assert ("no difference shown" not in text) is faster


def test_slower_at_the_lowest_load_is_said() -> None:
    """Below at the lowest load, with an interval that excludes 1."""
    text = sentence(verdict(side="below", speed_up_first=(0.93, 0.89, 0.97), **BESIDE), "en")
    assert "0.93 times as fast as the baseline at concurrency 1 (95 % interval 0.89–0.97, 12 tasks, slower)" in text
    assert "; no break-even, slower already at concurrency 1." in text


def test_slower_is_not_claimed_where_the_interval_includes_1() -> None:
    """An estimate of 0.97 whose interval reaches 1.02 shows no difference."""
    text = sentence(verdict(side="below", speed_up_first=(0.97, 0.93, 1.02), **BESIDE), "en")
    assert (
        "0.97 times as fast as the baseline at concurrency 1 (95 % interval 0.93–1.02, 12 tasks, no difference" in text
    )
    assert "; no gain shown at concurrency 1, so no break-even." in text


def test_a_curve_that_starts_below_1_and_rises_is_reported_as_rising() -> None:
    """What the points say is not hidden behind the word slower."""
    changes = BESIDE | {"speed_up_first": (0.9, 0.85, 0.95), "speed_up_last": (1.2, 1.1, 1.3)}
    assert "1.20 times at 16 (1.10–1.30);" in sentence(verdict(side="below", **changes), "en")


@pytest.mark.parametrize("changes", [{"speed_up_last": (0.97, 0.90, 1.05)}, {"speed_up_first": (1.05, 0.98, 1.12)}])
def test_a_crossing_with_one_unclear_end_is_only_an_estimate(changes: dict[str, Any]) -> None:
    """A break-even is stated flatly only between a clear gain and a clear loss."""
    text = sentence(verdict(**changes), "en")
    assert "break-even not certain, estimated at 9 tasks in progress (6–14)" in text
    assert not is_sure(verdict(**changes))
    assert side_text(verdict(**changes), wording("en")) == "estimate crosses 1 (not confirmed)"


@pytest.mark.parametrize(
    ("low", "high", "n_tasks", "said"),
    [
        (None, 14.0, 12, "below 1 to 14"),
        (6.0, None, 12, "6 to beyond 16"),
        (None, None, 12, "95 % interval reaches beyond the measured range 1–16"),
        (None, None, 4, "too few tasks for an interval"),
    ],
)
def test_an_end_beyond_the_range_is_told_from_an_unknown_one(
    low: float | None, high: float | None, n_tasks: int, said: str
) -> None:
    """A limit that was not reached lies outside; with four tasks there is none."""
    text = sentence(verdict(break_even_low=low, break_even_high=high, n_tasks=n_tasks), "en")
    assert f"break-even at 9 tasks in progress ({said})" in text


def test_without_pairs_nothing_is_said() -> None:
    """No estimate, no claim."""
    none = verdict(
        side="unknown", speed_up_first=None, speed_up_last=None, identical_share=None, n_tasks=None, **BESIDE
    )
    assert sentence(none, "en") == (
        "ngram-map-k (all workloads pooled) cannot be judged, no task succeeded both with it and with the baseline. "
        "Outputs not compared. [certainty: unknown]"
    )


def test_too_few_pairs_are_counted() -> None:
    """Three tasks give no interval, five do."""
    few = verdict(side="above", speed_up_first=None, speed_up_last=None, n_tasks=3, **BESIDE)
    assert "cannot be judged, 3 tasks are too few for an interval (5 needed)." in sentence(few, "en")


def test_a_load_with_too_few_tasks_is_said_beside_the_other() -> None:
    """The known end is compared in full, the other is not passed over."""
    text = sentence(verdict(speed_up_first=None), "en")
    assert "finishes tasks 0.84 times as fast as the baseline at concurrency 16 (95 % interval 0.78–0.91" in text
    assert "too few tasks for an interval at 1;" in text


def test_one_concurrency_gives_a_point_and_no_break_even() -> None:
    """A run at one load does not pretend to have searched."""
    one = verdict(side="above", highest_concurrency=1, speed_up_last=(1.42, 1.31, 1.55), **BESIDE)
    assert "12 tasks); break-even not sought, only one concurrency was compared." in sentence(one, "en")


@pytest.mark.parametrize(("share", "said"), [(1.0, "100 %"), (0.9996, "99.9 %"), (0.5, "50 %")])
def test_identical_is_rounded_to_100_only_when_it_is_all(share: float, said: str) -> None:
    """One step that differs stays visible."""
    assert f"identical in {said} of steps" in sentence(verdict(identical_share=share), "en")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("repetitive_output", "62 % of Korean outputs repeat themselves (office-ko)"),
        ("prompt_echo", "62 % of Korean outputs copy the prompt (office-ko)"),
        ("output_language_mismatch", "62 % of Korean outputs are in another language (office-ko)"),
    ],
)
def test_odd_output_is_said_in_the_same_line(code: str, said: str) -> None:
    """A speed-up on loops or in the wrong language never stands alone, and the pooled line names the workload."""
    odd = finding(code, language="ko", share=0.62, n_steps=144)
    assert sentence(verdict(), "en", beside(odd)).endswith(f"[certainty: limited – {said}]")


def test_a_reason_of_all_workloads_does_not_list_them() -> None:
    """Two of two workloads."""
    both = [finding("few_tasks", workload=name, arm=None) for name in ("office-ko", "coding-en")]
    assert "few tasks (all 2 workloads)" in sentence(verdict(), "en", beside(*both))


def test_the_worst_of_several_shares_is_said_as_the_most() -> None:
    """20 % on one workload, 40 % on the other."""
    odd = [
        finding("prompt_echo", workload=name, language="ko", share=share)
        for name, share in (("office-ko", 0.2), ("coding-en", 0.4))
    ]
    assert "up to 40 % of Korean outputs copy the prompt (all 2 workloads)" in sentence(verdict(), "en", beside(*odd))


def test_more_reasons_than_fit_are_counted() -> None:
    """Five reasons, three of them said."""
    codes = ("few_tasks", "requests_late", "repeats_drift", "nothing_drafted", "cells_foreign")
    text = sentence(verdict(workload="office-ko"), "en", beside(*map(finding, codes)))
    assert text.endswith("[certainty: limited – few tasks, requests left late, repeats differ widely, 2 more]")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_planned_load_that_was_not_measured_is_said(lang: str) -> None:
    """A curve that ends early must not look finished."""
    short = verdict(unmeasured=(32,))
    assert "32" in sentence(short, lang)
    assert certainty(short) == "limited"


def test_repeats_that_disagree_are_said_once() -> None:
    """An odd number of repeats is a reason of its own and the same doubt."""
    doubtful = verdict(consistent=False)
    assert sentence(doubtful, "en").endswith("[certainty: limited – repeats do not all point the same way]")
    odd = beside(finding("drift_not_cancelled", arm=None))
    assert sentence(doubtful, "en", odd).endswith("[certainty: limited – odd number of repeats (office-ko)]")


def test_findings_about_other_arms_and_notes_change_nothing() -> None:
    """Only what touches the arm is said."""
    strangers = beside(
        finding("repetitive_output", arm="ngram-mod"),
        finding("repetitive_output", "note"),
        finding("threshold_not_evaluated"),
        finding("few_tasks", workload="a workload without this arm"),
    )
    assert sentence(verdict(), "en", strangers) == sentence(verdict(), "en")


def test_an_invalid_verdict_says_so_before_its_figures() -> None:
    """A failed check that has no words yet is not passed over either."""
    text = sentence(verdict(), "en", beside(finding("odd_new", "invalid")))
    assert text.startswith("Not valid (a validity check failed (odd_new) (office-ko)). ngram-map-k")
    assert text.endswith("[certainty: invalid]")


def test_a_finding_about_all_arms_touches_every_arm() -> None:
    """A baseline that drafts voids all comparisons."""
    drafted = finding("baseline_drafted", "invalid", arm=None)
    assert concerning(verdict(), beside(drafted)) == [drafted]
    assert certainty(verdict(), beside(drafted)) == "invalid"
    assert "Not valid (the baseline drafted too, so the comparison is void (office-ko))." in sentence(
        verdict(), "en", beside(drafted)
    )


def test_what_befalls_the_baseline_concerns_what_is_compared_with_it() -> None:
    """Failed steps of the baseline of office-ko: that workload and the pool, not the other workload."""
    context = beside(finding("steps_failed", "invalid", arm="baseline", share=0.6))
    assert [certainty(verdict(workload=name), context) for name in (None, "office-ko", "coding-en")] == [
        "invalid",
        "invalid",
        "clear",
    ]


@pytest.mark.parametrize(
    ("changes", "codes", "level"),
    [
        ({}, [], "clear"),
        ({}, ["few_tasks"], "limited"),
        ({"break_even_high": None}, [], "limited"),
        ({"consistent": False}, [], "limited"),
        ({"speed_up_last": (0.97, 0.9, 1.05)}, [], "unsure"),
        ({"speed_up_last": None}, [], "unknown"),
    ],
)
def test_certainty_falls_with_the_evidence(changes: dict[str, Any], codes: list[str], level: str) -> None:
    """Intervals first, then repeats and warnings."""
    assert certainty(verdict(**changes), beside(*map(finding, codes))) == level


def test_the_last_line_is_the_pooled_verdict_of_the_arm_that_holds_out_longest() -> None:
    """Of two arms the one with a break-even leads the one that is slower from the lowest load."""
    run = sample.small()
    assert [item.arm for item in leading(run)] == ["ngram-map-k", "ngram-mod"]
    assert last_line(run, "en") == (
        "Verdict: ngram-map-k (2 workloads pooled, by workload 1.42–1.88x at concurrency 1) finishes tasks 1.42 times as fast as the "
        "baseline at concurrency 1 (95 % interval 1.31–1.55, 12 tasks), 0.84 times at 16 (0.78–0.91, slower); break-even at 9 tasks in "
        "progress (6–14). Outputs identical in 98 % of steps. "
        "[certainty: limited – 62 % of Korean outputs are in another language (office-ko), few tasks (coding-en)]"
    )
    assert "\n" not in last_line(run, "ko")


def test_without_a_pooled_verdict_the_workloads_are_named() -> None:
    """A run of one workload has no pooled figures."""
    run = replace(sample.small(), verdicts=(verdict(workload="office-ko"),))
    assert last_line(run, "en").startswith("Verdict: ngram-map-k on office-ko finishes tasks 1.42 times as fast")


def test_an_arm_of_one_workload_stands_beside_the_pooled_ones() -> None:
    """One arm in two workloads, another in one only."""
    lone = verdict(workload="office-ko", arm="lone", break_even=4.0)
    run = replace(sample.small(), verdicts=(verdict(), verdict(workload="office-ko"), lone))
    assert [(item.arm, item.workload) for item in leading(run)] == [("ngram-map-k", None), ("lone", "office-ko")]


@pytest.mark.parametrize("changes", [{"side": "unknown"}, {"highest_concurrency": 1}])
def test_a_pooled_verdict_without_a_curve_gives_way_to_the_workloads(changes: dict[str, Any]) -> None:
    """The workloads share no load or only one, but each has its own curve."""
    apart = [verdict(workload="office-ko"), verdict(workload="coding-en", break_even=4.0)]
    run = replace(sample.small(), verdicts=(verdict(**changes), *apart))
    assert [item.workload for item in leading(run)] == ["office-ko", "coding-en"]


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
