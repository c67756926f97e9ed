"""Objectives and thresholds of the workloads, each figure with its unit and each open question with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from harness.analysis.frames import RunAnalysis
from harness.analysis.slo import TIME_METRICS, parse_percentile
from harness.analysis.thresholds import SHARES, missed
from harness.columns import COLUMNS
from harness.errors import UsageError
from reports.tables import Table, table
from reports.wording import UNKNOWN, Wording, is_unknown, wording

Row = Mapping[str, Any]


def unit_of(text: str) -> str | None:
    """Return the unit of the metric at the start of an objective or threshold, ``None`` where there is none or nobody knows it."""
    match = re.match(r"\s*([a-z_0-9]+)", text)
    metric = match.group(1) if match else ""
    if metric in COLUMNS:
        return COLUMNS[metric].unit
    if metric in SHARES:
        return "share"
    try:
        return COLUMNS[TIME_METRICS[parse_percentile(metric)[0]]].unit
    except UsageError:
        return None


def slo(analysis: RunAnalysis, words: Wording) -> Table:
    """Return the objectives with what was observed at each load."""
    shown = {name: _quantity(name, "objective", words) for name in ("limit", "observed")}
    names = ("workload", "arm", "concurrency", "objective", "limit", "observed", "n", "attained_share", "met")
    return table(analysis.slo, names, words, words.text("table.slo"), shown=shown)


def thresholds(analysis: RunAnalysis, words: Wording) -> Table:
    """Return the thresholds with what was observed, or why nothing could be judged."""
    shown = {"observed": _quantity("observed", "threshold", words)}
    names = ("workload", "arm", "threshold", "observed", "met", "reason")
    return table(analysis.thresholds, names, words, words.text("table.thresholds"), shown=shown)


def missed_thresholds(analysis: RunAnalysis, lang: str) -> list[str]:
    """Return one line for each threshold that was not reached or could not be judged; both count as missed."""
    words = wording(lang)
    lines = []
    for row in missed(analysis.thresholds).iter_rows(named=True):
        place = {"workload": row["workload"], "arm": row["arm"], "threshold": row["threshold"]}
        if row["reason"] is not None:
            reason = words.figure("reason", row["reason"])
            lines.append(words.text("console.not_judged", reason=reason, **place))
        elif is_unknown(row["observed"]):  # beyond every figure that was measured
            key = "missed_range" if str(row["threshold"]).lstrip().startswith("break_even") else "missed_failures"
            lines.append(words.text(f"console.{key}", **place))
        else:
            observed = words.quantity(row["observed"], unit_of(row["threshold"]))
            lines.append(words.text("console.missed", observed=observed, **place))
    return lines


def _quantity(name: str, metric: str, words: Wording) -> Callable[[Row], str]:
    def shown(row: Row) -> str:
        return UNKNOWN if is_unknown(row[name]) else words.quantity(row[name], unit_of(str(row[metric])))

    return shown
