"""What a run says, in one sentence an arm: never more certain than the interval behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from harness.analysis.frames import Finding, RunAnalysis, Verdict
from reports.wording import Wording, is_unknown, number, percent, wording

Certainty = Literal["clear", "limited", "unsure", "unknown", "invalid"]
Point = tuple[float, float, float]  # estimate, low, high
_NOTHING_TO_SAY = ("no_finished_cell", "baseline_missing", "baseline_unfinished")
_ODD_TEXT = ("repetitive_output", "prompt_echo", "output_language_mismatch")  # what the drafter met was not real text


def sentence(verdict: Verdict, lang: str, findings: Iterable[Finding] = ()) -> str:
    """Return the verdict on one arm; what voids it is said in the same sentence.

    Args:
        verdict: one arm, on one workload or pooled.
        lang: ``ko`` or ``en``.
        findings: all findings of the run; those of severity invalid and those about odd output text are taken from them.
    """
    words = wording(lang)
    key = "verdict.subject" if verdict.workload is None else "verdict.subject_on_workload"
    subject = words.text(key, arm=verdict.arm, workload=verdict.workload)
    parts = [part for part in (_comparison(verdict, words), _lossless(verdict, words)) if part]
    parts += _caveats(verdict, words, findings)
    return words.text("verdict.sentence", subject=subject, parts="; ".join(parts))


def last_line(analysis: RunAnalysis, lang: str) -> str:
    """Return the run's verdict in one sentence: the pooled one on the arm that holds out longest, or why there is none."""
    words = wording(lang)
    lead = leading(analysis)
    if lead:
        return words.text("verdict.line", sentence=sentence(lead[0], lang, analysis.findings))
    found = {finding.code for finding in analysis.findings}
    reason = next((code for code in _NOTHING_TO_SAY if code in found), "no_arm")
    return words.text("verdict.line", sentence=words.text(f"verdict.nothing.{reason}"))


def leading(analysis: RunAnalysis) -> tuple[Verdict, ...]:
    """Return one verdict an arm, pooled over workloads where that was computed, the arm that holds out longest first."""
    pooled = [verdict for verdict in analysis.verdicts if verdict.workload is None]
    return tuple(sorted(pooled or analysis.verdicts, key=_rank))


def certainty(verdict: Verdict, findings: Iterable[Finding]) -> Certainty:
    """Return how far the verdict can be trusted, from its intervals and from the findings that touch it."""
    severities = {finding.severity for finding in concerning(verdict, findings)}
    if "invalid" in severities:
        return "invalid"
    points = (verdict.speed_up_first, verdict.speed_up_last)
    if verdict.side == "unknown" or not all(points):
        return "unknown"
    if any(point is not None and _direction(point) == "same" for point in points):
        return "unsure"
    open_ended = verdict.side == "crossed" and (verdict.break_even_low is None or verdict.break_even_high is None)
    return "limited" if open_ended or "warning" in severities else "clear"


def concerning(verdict: Verdict, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings about the verdict's arm and workload; a pooled verdict is touched by those of any workload."""
    return [
        finding
        for finding in findings
        if finding.arm in (None, verdict.arm)
        and (verdict.workload is None or finding.workload in (None, verdict.workload))
    ]


def _rank(verdict: Verdict) -> tuple[int, float, float]:
    order = {"above": 0, "crossed": 1, "unknown": 2, "below": 3}[verdict.side]
    last = verdict.speed_up_last[0] if verdict.speed_up_last else 0.0
    first = verdict.speed_up_first[0] if verdict.speed_up_first else 0.0
    return order, -(verdict.break_even or last), -first


def _direction(point: Point) -> Literal["faster", "slower", "same"]:
    # judged on the figures as printed: an interval that reads "1.00–1.20" must not be called faster
    low, high = round(point[1], 2), round(point[2], 2)
    return "faster" if low > 1 else "slower" if high < 1 else "same"


def _point(words: Wording, point: Point | None, concurrency: int | None, neutral: str = "faster") -> str:
    if point is None or any(is_unknown(value) for value in point):
        return words.text("verdict.no_estimate_at", concurrency=concurrency)
    estimate, low, high = point
    direction = _direction(point)
    key = "verdict.point_at" if direction == neutral else f"verdict.{direction}_at"
    return words.text(key, speed_up=f"{estimate:.2f}", low=f"{low:.2f}", high=f"{high:.2f}", concurrency=concurrency)


def _comparison(verdict: Verdict, words: Wording) -> str:
    first, last = verdict.speed_up_first, verdict.speed_up_last
    lowest, highest = verdict.lowest_concurrency, verdict.highest_concurrency
    if first is None and last is None:
        return words.text("verdict.no_pairs" if verdict.side == "unknown" else "verdict.too_few_pairs")
    at_first, at_last = _point(words, first, lowest), _point(words, last, highest)
    if lowest == highest:
        return words.text("verdict.one_concurrency", first=at_first)
    place = {"first": at_first, "last": at_last, "lowest": lowest, "highest": highest}
    # the crossing is the first one downwards, so a curve that starts below 1 and rises counts as below: its points say so
    expected = {"crossed": (last, "slower"), "above": (last, "faster"), "below": (first, "slower")}.get(verdict.side)
    if expected is None:
        return words.text("verdict.unknown", **place)
    point, direction = expected
    sure = point is not None and _direction(point) == direction
    if verdict.side == "below" and sure:  # "slower" is said once, at the front
        place |= {
            "first": _point(words, first, lowest, neutral="slower"),
            "last": _point(words, last, highest, neutral="slower"),
        }
    key = f"verdict.{verdict.side}_{'sure' if sure else 'unsure'}"
    return words.text(key, break_even=number(verdict.break_even, "tasks"), interval=_interval(verdict, words), **place)


def _interval(verdict: Verdict, words: Wording) -> str:
    """Say the interval of the break-even; an end that is ``None`` lies beyond the measured range on that side."""
    low, high = verdict.break_even_low, verdict.break_even_high
    ends = (
        "none" if low is None and high is None else "no_low" if low is None else "no_high" if high is None else "both"
    )
    key = f"verdict.interval_{ends}" if verdict.side == "crossed" else f"verdict.possible_{ends}"
    place = {"lowest": verdict.lowest_concurrency, "highest": verdict.highest_concurrency}
    return words.text(key, low=number(low, "tasks"), high=number(high, "tasks"), **place)


def _lossless(verdict: Verdict, words: Wording) -> str:
    if verdict.identical_share is None:
        return words.text("verdict.not_compared")
    return words.text("verdict.identical", share=percent(verdict.identical_share).removesuffix(".0"))


def _caveats(verdict: Verdict, words: Wording, findings: Iterable[Finding]) -> list[str]:
    own = [finding for finding in concerning(verdict, findings) if finding.severity != "note"]
    reasons = [
        words.text(f"caveat.{code}") + _places(verdict, words, own, code)
        for code in _ODD_TEXT
        if any(f.code == code for f in own)
    ]
    texts = [words.text("caveat.not_transferable", reasons=", ".join(reasons))] if reasons else []
    for code in dict.fromkeys(finding.code for finding in own if finding.severity == "invalid"):
        if code not in _ODD_TEXT:
            known = words.optional(f"caveat.{code}") or words.text("caveat_unknown", code=code)
            texts.append(known + _places(verdict, words, own, code))
    return [words.text("verdict.caveat", text="; ".join(texts))] if texts else []


def _places(verdict: Verdict, words: Wording, findings: Sequence[Finding], code: str) -> str:
    names = sorted({finding.workload for finding in findings if finding.code == code and finding.workload is not None})
    return words.text("verdict.places", names=", ".join(names)) if verdict.workload is None and names else ""
