"""What a run says, in one line an arm: never more certain than the interval behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.analysis.bootstrap import MIN_TASKS
from harness.analysis.frames import Finding, RunAnalysis, Verdict
from harness.analysis.plan import BASELINE_METHOD
from reports.cut_run import cut_run
from reports.wording import Wording, is_unknown, number, percent, wording

Certainty = Literal["clear", "limited", "unsure", "unknown", "invalid"]
Direction = Literal["faster", "slower", "same"]
Point = tuple[float, float, float]  # estimate, low, high
MOST_REASONS = 3  # for a limited certainty, in the line itself; the findings have all of them
MOST_NAMES = 3  # of workloads in one reason
ODD_TEXT = (
    "random_output",
    "repetitive_output",
    "prompt_echo",
    "output_language_mismatch",
)  # what the drafter met was not real text
_NOTHING_TO_SAY = ("no_finished_cell", "baseline_missing", "baseline_unfinished")
_NOT_ABOUT_FIGURES = frozenset({"threshold_not_evaluated"})


@dataclass(frozen=True, slots=True)
class Context:
    """What stands beside a verdict and bears on it.

    ``baselines`` are pairs of workload and arm without a drafter, ``places`` the workloads that have an arm, and ``estimates`` the
    speed-up on each workload by arm and concurrency.
    """

    findings: tuple[Finding, ...] = ()
    baselines: frozenset[tuple[str, str]] = frozenset()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    estimates: Mapping[tuple[str, int], Mapping[str, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, analysis: RunAnalysis) -> Context:
        """Take it from a whole run."""
        arms: list[tuple[str, dict[str, Any]]] = [
            (workload["name"], arm)
            for workload in analysis.manifest.get("workloads") or ()
            for arm in workload.get("arms") or ()
        ]
        places: dict[str, tuple[str, ...]] = {}
        for workload, arm in arms:
            places[arm["name"]] = (*places.get(arm["name"], ()), workload)
        estimates: dict[tuple[str, int], dict[str, float]] = {}
        for row in analysis.speed_up.iter_rows(named=True):
            if row["window"] == "steady" and not is_unknown(row["speed_up"]):
                estimates.setdefault((row["arm"], row["concurrency"]), {})[row["workload"]] = row["speed_up"]
        baselines = frozenset((workload, arm["name"]) for workload, arm in arms if arm.get("method") == BASELINE_METHOD)
        return cls(analysis.findings, baselines, places, estimates)


ALONE = Context()


def sentence(verdict: Verdict, lang: str, context: Context = ALONE) -> str:
    """Return the verdict on one arm in one line; what voids it stands in front, how certain it is at the end.

    Args:
        verdict: one arm, on one workload or pooled.
        lang: ``ko`` or ``en``.
        context: the rest of the run.
    """
    words = wording(lang)
    level = certainty(verdict, context)
    names = "" if level == "invalid" else ", ".join(reasons(verdict, words, context))
    why = words.text("verdict.reasons", names=names) if names else ""
    ending = words.text("verdict.certainty", level=words.text(f"certainty.short.{level}"), why=why)
    parts = (_void(verdict, words, context), _comparison(verdict, words, context), _lossless(verdict, words), ending)
    return " ".join(part for part in parts if part)


def spoken(verdict: Verdict, words: Wording, context: Context = ALONE) -> str:
    """Return the verdict on one arm without its losslessness and its certainty, which a page says beside it."""
    return " ".join(part for part in (_void(verdict, words, context), _comparison(verdict, words, context)) if part)


def last_line(analysis: RunAnalysis, lang: str) -> str:
    """Return the run's verdict in one line: that on the arm that holds out longest, or why there is none."""
    words = wording(lang)
    lead = leading(analysis)
    cut = cut_run(analysis, words)
    if lead:
        said = sentence(lead[0], lang, Context.of(analysis))
        return words.text("verdict.line", sentence=f"{cut} {said}" if cut else said)
    found = {finding.code for finding in analysis.findings}
    reason = next((code for code in _NOTHING_TO_SAY if code in found), "no_arm")
    return words.text("verdict.line", sentence=words.text(f"verdict.nothing.{reason}"))


def leading(analysis: RunAnalysis) -> tuple[Verdict, ...]:
    """Return the verdicts to be said first, the arm that holds out longest in front.

    One an arm, pooled over workloads, where that was computed and has as much of a curve as the workloads have; for every other arm
    those of its workloads, so that no arm is passed over.
    """
    found: list[Verdict] = []
    for arm in dict.fromkeys(verdict.arm for verdict in analysis.verdicts):
        own = [verdict for verdict in analysis.verdicts if verdict.arm == arm]
        single = [verdict for verdict in own if verdict.workload is not None]
        curved = any(_has_curve(verdict) for verdict in single)
        pooled = [
            verdict
            for verdict in own
            if verdict.workload is None and verdict.side != "unknown" and (_has_curve(verdict) or not curved)
        ]
        found += pooled or single or own
    return tuple(sorted(found, key=_rank))


def certainty(verdict: Verdict, context: Context = ALONE) -> Certainty:
    """Return how far the verdict can be trusted, from its intervals, its repeats and the findings that touch it."""
    severities = {finding.severity for finding in concerning(verdict, context)}
    if "invalid" in severities:
        return "invalid"
    points = (verdict.speed_up_first, verdict.speed_up_last)
    if verdict.side == "unknown" or not all(points):
        return "unknown"
    if any(point is not None and _direction(point) == "same" for point in points):
        return "unsure"
    limited = "warning" in severities or verdict.unmeasured or not verdict.consistent or _open_ended(verdict)
    return "limited" if limited else "clear"


def concerning(verdict: Verdict, context: Context) -> list[Finding]:
    """Return the findings that bear on a verdict.

    Those about its arm, about all arms, and about the baseline it is compared with; on its workload, or on any workload with the arm
    where it is pooled. A threshold that could not be judged says nothing about the figures.
    """

    def touches(finding: Finding) -> bool:
        places = (verdict.workload,) if verdict.workload is not None else context.places.get(verdict.arm, ())
        if finding.workload is not None and places and finding.workload not in places:
            return False
        if finding.arm in (None, verdict.arm):
            return True
        return any(arm == finding.arm and finding.workload in (None, where) for where, arm in context.baselines)

    return [finding for finding in context.findings if finding.code not in _NOT_ABOUT_FIGURES and touches(finding)]


def is_sure(verdict: Verdict) -> bool:
    """Tell whether the intervals bear out the side on which the estimates lie."""
    first = None if verdict.speed_up_first is None else _direction(verdict.speed_up_first)
    last = None if verdict.speed_up_last is None else _direction(verdict.speed_up_last)
    if verdict.side == "crossed":
        return first == "faster" and last == "slower"
    return last == "faster" if verdict.side == "above" else verdict.side == "below" and first == "slower"


def side_text(verdict: Verdict, words: Wording) -> str:
    """Return the side of the measured range on which the break-even lies, as an estimate where the intervals do not bear it out."""
    stated = verdict.side == "unknown" or is_sure(verdict)
    return words.text(f"side.{verdict.side}" if stated else f"side_unsure.{verdict.side}")


def _has_curve(verdict: Verdict) -> bool:
    return verdict.lowest_concurrency != verdict.highest_concurrency


def _open_ended(verdict: Verdict) -> bool:
    return verdict.side == "crossed" and (verdict.break_even_low is None or verdict.break_even_high is None)


def _rank(verdict: Verdict) -> tuple[int, float, float]:
    order = {"above": 0, "crossed": 1, "unknown": 2, "below": 3}[verdict.side]
    last = verdict.speed_up_last[0] if verdict.speed_up_last else 0.0
    first = verdict.speed_up_first[0] if verdict.speed_up_first else 0.0
    return order, -(verdict.break_even or last), -first


def _direction(point: Point) -> Direction:
    # judged on the figures as printed: an interval that reads "1.00–1.20" must not be called faster
    low, high = round(point[1], 2), round(point[2], 2)
    return "faster" if low > 1 else "slower" if high < 1 else "same"


def _comparison(verdict: Verdict, words: Wording, context: Context) -> str:
    subject = _subject(verdict, words, context)
    first, last = _known(verdict.speed_up_first), _known(verdict.speed_up_last)
    lowest, highest = verdict.lowest_concurrency, verdict.highest_concurrency
    if first is None and last is None:
        nothing = verdict.side == "unknown" and not verdict.n_tasks
        key = "verdict.no_pairs" if nothing else "verdict.too_few_pairs"
        return words.text(key, subject=subject, n=verdict.n_tasks, least=MIN_TASKS)
    tasks = "" if verdict.n_tasks is None else words.text("verdict.tasks", n=verdict.n_tasks)
    if lowest == highest:
        stated = _point(words, "verdict.first", first or last, lowest, tasks)
        return words.text("verdict.one", subject=subject, first=stated)
    if first is None:
        stated, then = _point(words, "verdict.first", last, highest, tasks), _point(words, "verdict.then", None, lowest)
    else:
        stated, then = (
            _point(words, "verdict.first", first, lowest, tasks),
            _point(words, "verdict.then", last, highest),
        )
    return words.text("verdict.both", subject=subject, first=stated, then=then, break_even=_break_even(verdict, words))


def _subject(verdict: Verdict, words: Wording, context: Context) -> str:
    if verdict.workload is not None:
        return words.text("verdict.on_workload", arm=verdict.arm, workload=verdict.workload)
    lowest = verdict.lowest_concurrency
    apart = {} if lowest is None else context.estimates.get((verdict.arm, lowest), {})
    if not apart:
        return words.text("verdict.pooled", arm=verdict.arm)
    if len(apart) == 1:
        return words.text("verdict.on_workload", arm=verdict.arm, workload=next(iter(apart)))
    least, most = (f"{value:.2f}" for value in (min(apart.values()), max(apart.values())))
    place = {"n": len(apart), "least": least, "most": most, "concurrency": lowest}
    return words.text("verdict.pooled_apart", arm=verdict.arm, **place)


def _known(point: Point | None) -> Point | None:
    return None if point is None or any(is_unknown(value) for value in point) else point


def _point(words: Wording, key: str, point: Point | None, concurrency: int | None, tasks: str = "") -> str:
    if point is None:
        return words.text("verdict.too_few_at", concurrency=concurrency)
    speed_up, low, high = (f"{value:.2f}" for value in point)
    note = words.text(f"verdict.note_{_direction(point)}")
    place = {"low": low, "high": high, "concurrency": concurrency, "tasks": tasks, "note": note}
    return words.text(key, speed_up=speed_up, **place)


def _break_even(verdict: Verdict, words: Wording) -> str:
    if verdict.side == "unknown":
        return words.text("verdict.unknown")
    place = {"lowest": verdict.lowest_concurrency, "highest": verdict.highest_concurrency}
    key = f"verdict.{verdict.side}_{'sure' if is_sure(verdict) else 'unsure'}"
    found = number(verdict.break_even, "tasks")
    return words.text(key, break_even=found, interval=_interval(verdict, words), **place)


def _interval(verdict: Verdict, words: Wording) -> str:
    """Say the interval of the break-even; an end that is ``None`` lies beyond the measured range on that side."""
    low, high = verdict.break_even_low, verdict.break_even_high
    ends = (
        "open" if low is None and high is None else "no_low" if low is None else "no_high" if high is None else "both"
    )
    if verdict.side != "crossed":
        key = f"verdict.possible_{ends}"
    elif ends == "open" and verdict.n_tasks is not None and verdict.n_tasks < MIN_TASKS:
        key = "verdict.interval_none"
    else:
        key = f"verdict.interval_{ends}"
    place = {"lowest": verdict.lowest_concurrency, "highest": verdict.highest_concurrency}
    return words.text(key, low=number(low, "tasks"), high=number(high, "tasks"), **place)


def _lossless(verdict: Verdict, words: Wording) -> str:
    if verdict.identical_share is None:
        return words.text("verdict.not_compared")
    return words.text("verdict.identical", share=_percent(verdict.identical_share))


def _percent(share: float) -> str:
    return percent(share).removesuffix(".0")


def _void(verdict: Verdict, words: Wording, context: Context) -> str:
    failed = [finding for finding in concerning(verdict, context) if finding.severity == "invalid"]
    if not failed:
        return ""
    return words.text("verdict.invalid", reasons=", ".join(_texts(verdict, words, context, failed)))


def reasons(verdict: Verdict, words: Wording, context: Context) -> list[str]:
    """Say why a verdict is less than clear.

    What is missing comes first, then unequal servers, then odd outputs, then the rest in the order of the findings.
    """
    found = [finding for finding in concerning(verdict, context) if finding.severity == "warning"]
    names = []
    if verdict.unmeasured:
        names.append(words.text("caveat.unmeasured", loads=", ".join(map(str, verdict.unmeasured))))
    found.sort(key=lambda finding: (finding.code != "flags_differ", finding.code not in ODD_TEXT))
    names += _texts(verdict, words, context, found)
    odd = any(finding.code == "drift_not_cancelled" for finding in found)  # that is said already
    if verdict.speed_up_first and verdict.speed_up_last and not verdict.consistent and not odd:
        names.append(words.text("caveat.repeats_disagree"))
    if _open_ended(verdict):
        names.append(words.text("caveat.open_ended"))
    rest = len(names) - MOST_REASONS
    return [*names[:MOST_REASONS], words.text("verdict.more_reasons", n=rest)] if rest > 0 else names


def _texts(verdict: Verdict, words: Wording, context: Context, found: Sequence[Finding]) -> list[str]:
    """Return one text a code, with the worst share and, where workloads are pooled, the workloads it is about."""
    texts = []
    for code in dict.fromkeys(finding.code for finding in found):
        own = [finding for finding in found if finding.code == code]
        shares = [finding.values["share"] for finding in own if not is_unknown(finding.values.get("share"))]
        share = _percent(max(shares)) if shares else None
        if len(shares) > 1:
            share = words.text("verdict.up_to", share=share)
        spoken = [str(finding.values["language"]) for finding in own if finding.values.get("language")]
        languages = ", ".join(words.label("language", language) for language in dict.fromkeys(spoken))
        text = words.optional(f"caveat.{code}", share=share, languages=languages)
        text = text or words.text("caveat_unknown", code=code)
        texts.append(text + (_places(verdict, words, context, own) if verdict.workload is None else ""))
    return texts


def _places(verdict: Verdict, words: Wording, context: Context, found: Sequence[Finding]) -> str:
    names = sorted({finding.workload for finding in found if finding.workload is not None})
    if not names:
        return ""
    if len(names) > 1 and len(names) == len(context.places.get(verdict.arm, ())):
        text = words.text("verdict.places_all", n=len(names))
    elif len(names) > MOST_NAMES:
        text = words.text("verdict.places_many", n=len(names))
    else:
        text = ", ".join(names)
    return words.text("verdict.places", names=text)
