"""Conditions of a workload on its own figures (``speed_up{concurrency=1} >= 1.1``): read before the run, judged after it."""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from harness.analysis.frames import THRESHOLDS, Finding, RunAnalysis
from harness.analysis.latency import needed
from harness.analysis.plan import WorkloadPlan
from harness.analysis.slo import STEP_METRICS, TASK_METRICS, TIME_METRICS, parse_percentile, parse_time
from harness.analysis.validity import finding
from harness.errors import UsageError
from harness.tasks import KINDS, LANGUAGES

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
SHARES = (
    "acceptance_rate", "identical_share", "identical_share_low", "repetitive_share", "slo_attainment", "slo_attainment_low", "failed_share",
)  # fmt: skip
IDENTICAL = ("identical_share", "identical_share_low")
ACCEPTANCE_METRICS = (
    "acceptance_length",
    "acceptance_length_low",
    "acceptance_length_macro",
    "acceptance_rate",
    "tokens_per_pass",
    "repetitive_share",
)
SPEED_UP_METRICS = ("speed_up", "speed_up_low", "speed_up_no_wait", "speed_up_no_wait_low")
RATES = (
    "output_tokens_per_s", "tasks_per_hour", "slo_attainment", "slo_attainment_low", "good_tasks_per_hour", "good_tasks_per_hour_low",
)  # fmt: skip
CAPACITIES = ("agents", "agents_low")
LOAD_FILTERS = ("arm", "concurrency")
STEP_FILTERS = (*LOAD_FILTERS, "kind", "language")
METRICS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("break_even", *CAPACITIES), ("arm",)),
    **dict.fromkeys(SPEED_UP_METRICS, LOAD_FILTERS),
    **dict.fromkeys(ACCEPTANCE_METRICS, STEP_FILTERS),
    **dict.fromkeys(IDENTICAL, LOAD_FILTERS),
    **dict.fromkeys(RATES, LOAD_FILTERS),
    "failed_share": LOAD_FILTERS,
    **{f"{metric}_p90": STEP_FILTERS for metric in STEP_METRICS},
    **{f"{metric}_p90": LOAD_FILTERS for metric in TASK_METRICS},
}
"""Every metric with the filters that it takes; of times any percentile from p1 to p99."""
SCHEMA = dict(zip(THRESHOLDS, (pl.String, pl.String, pl.String, pl.Float64, pl.Boolean, pl.String), strict=True))
_FORM = re.compile(r"\s*([a-z_0-9]+)\s*(?:\{([^{}]*)\})?\s*(>=|<=|>|<)\s*(\S(?:.*\S)?)\s*")


@dataclass(frozen=True, slots=True)
class Threshold:
    """One condition; ``value`` is a plain number, a share of 1, or a time in the unit of the metric's column (s; TPOT: ms)."""

    text: str
    metric: str
    filters: Mapping[str, str]
    comparison: str
    value: float

    @property
    def percentile(self) -> tuple[str, int] | None:
        """Metric and percent where the condition is about a percentile of times."""
        return None if self.metric in METRICS and not self.metric.endswith("_p90") else parse_percentile(self.metric)

    def holds(self, observed: float) -> bool:
        """Tell whether an observed value meets the condition."""
        return OPERATORS[self.comparison](observed, self.value)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a threshold for one arm; ``reason`` says why it could not be judged, ``None`` where it was."""

    observed: float | None
    met: bool | None
    reason: str | None = None


def parse_threshold(text: str, arms: Sequence[str] = (), concurrency: Sequence[int] = ()) -> Threshold:
    """Read a threshold: metric, filters in braces (optional), comparison, value.

    Args:
        text: such as ``acceptance_length{language=ko,kind=summarize} >= 2.5`` or ``task_time_p90{concurrency=8} <= 40s``.
        arms: names that an arm filter may have; any where empty.
        concurrency: loads that a concurrency filter may have; any where empty.

    Raises:
        UsageError: saying which part is wrong, what is allowed, and the closest name.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is no threshold; write metric{{filter=value}} comparison value, such as speed_up{{concurrency=1}} >= 1.1"
        )
    metric, filters, comparison, value = match.groups()
    allowed = _filters_of(metric, text)
    return Threshold(
        text,
        metric,
        _parse_filters(filters or "", text, allowed, arms, concurrency),
        comparison,
        _value(metric, value, text),
    )


def _filters_of(metric: str, text: str) -> tuple[str, ...]:
    if metric in METRICS:
        return METRICS[metric]
    try:
        name, _ = parse_percentile(metric)
    except UsageError:
        raise UsageError(f"{text!r}: unknown metric {metric!r}; {_hint(metric, list(METRICS))}") from None
    return METRICS[f"{name}_p90"]


def _parse_filters(
    text: str, whole: str, allowed: tuple[str, ...], arms: Sequence[str], concurrency: Sequence[int]
) -> dict[str, str]:
    values = {
        "arm": list(arms),
        "concurrency": list(map(str, concurrency)),
        "kind": list(KINDS),
        "language": list(LANGUAGES),
    }
    filters: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in allowed or not equals or not value:
            raise UsageError(f"{whole!r}: unknown filter {part!r}; {_hint(name, list(allowed))}, written as name=value")
        if name in filters:
            raise UsageError(f"{whole!r}: filter {name!r} appears twice; keep one")
        if (values[name] and value not in values[name]) or (name == "concurrency" and not value.isdecimal()):
            raise UsageError(f"{whole!r}: {name} is {value!r}; {_hint(value, values[name] or ['a whole number'])}")
        filters[name] = value
    return filters


def _hint(given: str, known: list[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return (f"did you mean {close[0]!r}? " if close else "") + f"known: {', '.join(known)}"


def _value(metric: str, text: str, whole: str) -> float:
    if metric not in METRICS or metric.rpartition("_p")[0] in TIME_METRICS:
        return parse_time(text, metric.rpartition("_p")[0])
    percent = text.endswith("%") and metric in SHARES
    try:
        if not text.isascii() or "_" in text:
            raise ValueError(text)
        value = float(text.removesuffix("%") if percent else text)
    except ValueError:
        unit = " or a percentage" if metric in SHARES else ""
        raise UsageError(f"{whole!r}: {text!r} is no value for {metric}; give a number{unit}") from None
    value = value / 100 if percent else value
    if not math.isfinite(value) or value < 0 or (metric in SHARES and value > 1):
        allowed = "a share from 0 to 1, such as 0.9 or 90%" if metric in SHARES else "a number that is not negative"
        raise UsageError(f"{whole!r}: {text!r} can never be reached or never be missed; give {allowed}")
    return value


def evaluate(analysis: RunAnalysis, plans: Sequence[WorkloadPlan]) -> tuple[pl.DataFrame, list[Finding]]:
    """Return ``frames.THRESHOLDS`` and a finding for each row that could not be judged.

    Without an arm filter a threshold holds for every arm with a real drafter (for the baseline where there is no other). Without a
    concurrency filter acceptance is pooled over loads, and every other figure must hold at each planned load: the worst is shown, and
    a planned load that was not measured leaves the threshold open. A row whose ``met`` is null counts as missed; its ``reason`` says
    why it is null.
    """
    rows, found = [], []
    for plan in plans:
        for text in plan.thresholds:
            threshold = parse_threshold(text)
            named = threshold.filters.get("arm")
            arms = (named,) if named else plan.drafting or tuple(plan.methods)
            for arm in arms:
                outcome = _judge(analysis, plan, arm, threshold)
                rows.append((plan.name, arm, text, outcome.observed, outcome.met, outcome.reason))
                if outcome.reason is not None:
                    found.append(finding("threshold_not_evaluated", "warning", plan.name, arm, text, outcome.reason))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row"), found


def missed(thresholds: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that were not reached or could not be judged."""
    return thresholds.filter(~pl.col("met").fill_null(False))


def _judge(analysis: RunAnalysis, plan: WorkloadPlan, arm: str, threshold: Threshold) -> Outcome:
    metric = threshold.metric
    if metric in (*SPEED_UP_METRICS, "break_even", *IDENTICAL) and plan.baseline is None:
        return Outcome(None, None, "no_baseline")
    if metric in IDENTICAL and plan.temperature > 0:
        return Outcome(None, None, "temperature_above_zero")
    if metric == "break_even":
        return _judge_break_even(_own(analysis.break_even, plan, arm), threshold)
    if metric in CAPACITIES:
        return _judge_agents(_own(analysis.agents, plan, arm), threshold, stated=bool(plan.slo))
    return _judge_by_load(analysis, plan, arm, threshold)


def _judge_by_load(analysis: RunAnalysis, plan: WorkloadPlan, arm: str, threshold: Threshold) -> Outcome:
    metric = threshold.metric
    if metric in ACCEPTANCE_METRICS:
        return _judge_values(threshold, _acceptance(_own(analysis.acceptance, plan, arm), threshold).to_list())
    if metric in SPEED_UP_METRICS:
        frame = _own(analysis.speed_up, plan, arm).filter(pl.col("window") == "steady")
    elif metric in (*RATES, *IDENTICAL):
        frame = _own(analysis.summary, plan, arm)
    elif metric == "failed_share":
        cells = _own(analysis.cells, plan, arm).filter(pl.col("status") == "done")
        frame = cells.group_by("concurrency").agg(failed_share=pl.col("n_steps_failed").sum() / pl.col("n_steps").sum())
    else:
        return _judge_percentile(analysis, plan, arm, threshold)
    by_load = dict(zip(frame["concurrency"], frame[metric], strict=True))
    return _judge_values(threshold, [by_load.get(load) for load in _loads(plan, threshold)])


def _own(frame: pl.DataFrame, plan: WorkloadPlan, arm: str) -> pl.DataFrame:
    return frame.filter((pl.col("workload") == plan.name) & (pl.col("arm") == arm))


def _loads(plan: WorkloadPlan, threshold: Threshold) -> Sequence[int]:
    given = threshold.filters.get("concurrency")
    return plan.concurrency if given is None else (int(given),)


def _acceptance(frame: pl.DataFrame, threshold: Threshold) -> pl.Series:
    for name in ("concurrency", "kind", "language"):
        value = threshold.filters.get(name)
        wanted = pl.lit(int(value) if name == "concurrency" else value) if value else None
        frame = frame.filter(pl.col(name).is_null() if wanted is None else pl.col(name) == wanted)
    return frame[threshold.metric]


def _judge_percentile(analysis: RunAnalysis, plan: WorkloadPlan, arm: str, threshold: Threshold) -> Outcome:
    """A failed step or task never ended: it counts as a value beyond every limit."""
    name, percent = parse_percentile(threshold.metric)
    of_steps = name in STEP_METRICS
    frame = _own(analysis.steps if of_steps else analysis.tasks, plan, arm)
    frame = frame.filter(pl.col("steady") & (pl.col("phase") == "counted"))
    for key in ("kind", "language"):
        if key in threshold.filters:
            frame = frame.filter(pl.col(key) == threshold.filters[key])
    failed = pl.col("error_kind").is_not_null() if of_steps else ~pl.col("ok")
    value = pl.when(failed).then(math.inf).otherwise(pl.col(TIME_METRICS[name]))
    judged = frame.select("concurrency", "task_id", value=value).drop_nulls("value")
    # between two infinite values there is no number to interpolate, and none is needed
    percentile = pl.col("value").quantile(percent / 100, "linear").fill_nan(math.inf)
    known = judged.group_by("concurrency").agg(n=pl.col("task_id").n_unique(), value=percentile)
    enough = known.filter(pl.col("n") >= needed(percent))
    by_load = dict(zip(enough["concurrency"], enough["value"], strict=True))
    loads = _loads(plan, threshold)
    unknown = "too_few_values" if set(loads) <= set(known["concurrency"]) else "no_values"
    return _judge_values(threshold, [by_load.get(load) for load in loads], unknown)


def _judge_values(threshold: Threshold, values: Sequence[float | None], unknown: str = "no_values") -> Outcome:
    """Judge the worst of several values; one unknown among good ones leaves the threshold open.

    An infinite value (a percentile that falls on failures) is missed and is no figure to show.
    """
    known = [value for value in values if value is not None]
    if not known:
        return Outcome(None, None, unknown)
    worst = min(known) if threshold.comparison in (">=", ">") else max(known)
    if not math.isfinite(worst):
        return Outcome(None, False)
    if not threshold.holds(worst):
        return Outcome(worst, False)
    return Outcome(worst, True) if len(known) == len(values) else Outcome(worst, None, unknown)


def _judge_break_even(frame: pl.DataFrame, threshold: Threshold) -> Outcome:
    """A break-even beyond the measured range still answers a threshold inside it."""
    row: dict[str, Any] = frame.row(0, named=True) if len(frame) else {"side": "unknown"}
    if row["side"] == "unknown":
        return Outcome(None, None, "no_values")
    if row["side"] == "crossed":
        return Outcome(row["break_even"], threshold.holds(row["break_even"]))
    wants_high = threshold.comparison in (">=", ">")
    if row["side"] == "above" and threshold.value <= row["highest_concurrency"]:
        return Outcome(None, wants_high)
    if row["side"] == "below" and threshold.value >= row["lowest_concurrency"]:
        return Outcome(None, not wants_high)
    return Outcome(None, None, "beyond_range")


def _judge_agents(frame: pl.DataFrame, threshold: Threshold, *, stated: bool) -> Outcome:
    """What the highest load carries is a lower bound: it answers a threshold at or below it."""
    if not stated:
        return Outcome(None, None, "no_objectives")
    row: dict[str, Any] = frame.row(0, named=True) if len(frame) else {"capacity": "unknown"}
    value, wants_high = row.get(threshold.metric), threshold.comparison in (">=", ">")
    if row["capacity"] == "unknown" or (threshold.metric == "agents_low" and row["interval"] == "none"):
        return Outcome(None, None, "too_few_values")
    if value is None:  # missed at the lowest load already, and that is more than one
        return Outcome(None, None, "beyond_measured")
    bound = value == row["highest_concurrency"] and row["capacity"] == "at_least"
    if bound and not (wants_high and threshold.holds(value)):
        missed_at = not wants_high and not threshold.holds(value)
        return Outcome(value, False) if missed_at else Outcome(value, None, "beyond_measured")
    return Outcome(float(value), threshold.holds(value))
