"""Where a run itself speaks against what is modelled from it: invalid measurements, a poor fit, other measured speeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from harness.analysis.frames import RunAnalysis
from reports.wording import Wording, crossing, interval, is_unknown, number

FAR_OFF = 0.2
"""Median residual above which nothing is to be built on a model: an error of a fifth is as large as many a speed-up."""
APART = 1.5  # factor between a modelled and a measured break-even of which no interval is known
MARGIN = 1.1  # the same of a speed-up and 1
_NOT_ABOUT_FIGURES = frozenset({"threshold_not_evaluated"})
Row = Mapping[str, Any]


def invalid(analysis: RunAnalysis, words: Wording) -> str | None:
    """Return the sentence on findings that make what was measured invalid, ``None`` where there are none."""
    found = {
        (item.code, item.workload): item
        for item in reversed(analysis.findings)
        if item.severity == "invalid" and item.code not in _NOT_ABOUT_FIGURES
    }
    said = [
        f"{item.workload}: {words.finding(item)}" if item.workload else words.finding(item) for item in found.values()
    ]
    return words.text("predicted.invalid", findings=" ".join(reversed(said))) if said else None


def residual(costs: pl.DataFrame) -> float | None:
    """Return the median of the residuals of the target's forward, which decides, over its rounds; ``None`` without any."""
    own = costs.filter(pl.col("part").is_in(["verify", "pass"])).sort(pl.col("residual_share").abs())
    half = own["n_rounds"].cum_sum() >= own["n_rounds"].sum() / 2
    median = own.filter(half)["residual_share"].abs().to_list()
    return float(median[0]) if median else None


def of_arm(analysis: RunAnalysis, row: Row, words: Wording) -> Iterator[str]:
    """Yield what was measured that contradicts a row of ``frames.PREDICTED_BREAK_EVEN``.

    Only the longest draft length was measured; of others nothing is said.
    """
    longest = next((len(item.accepted_tokens) for item in analysis.hand_overs if item.arm == row["arm"]), None)
    if longest not in (None, row["num_tokens"]):
        return
    for measured in _of(analysis.break_even, row).iter_rows(named=True):
        low, high = _measured(measured)
        least, most = _modelled(row)
        if least > high or most < low:
            if measured["side"] == "crossed":
                limits = (measured["break_even_low"], measured["break_even_high"], measured["interval"])
                bare = measured["interval"] == "none"
                said = number(measured["break_even"], "tasks") if bare else crossing(measured["break_even"], *limits)
                yield words.text("predicted.against_break_even", measured=said)
            else:
                load = measured["lowest_concurrency" if measured["side"] == "below" else "highest_concurrency"]
                yield words.text(f"predicted.against_{measured['side']}", load=load)
    yield from _speeds(analysis, row, words)


def _speeds(analysis: RunAnalysis, row: Row, words: Wording) -> Iterator[str]:
    """Yield measured speed-ups on the other side of 1 than all that is modelled up to their load.

    As many requests decode at once as tasks are in progress, or fewer.
    """
    length = _of(analysis.predicted, row).filter(pl.col("num_tokens") == row["num_tokens"])
    for own in measured_speeds(analysis, row).iter_rows(named=True):
        load = own["concurrency"]
        modelled = length.filter(pl.col("batch_size") <= load)["decode_speed_up"].to_list()
        if not modelled:
            continue
        bare = is_unknown(own["speed_up_low"]) or is_unknown(own["speed_up_high"])
        low = own["speed_up"] / MARGIN if bare else own["speed_up_low"]
        high = own["speed_up"] * MARGIN if bare else own["speed_up_high"]
        reached = row["highest_batch"] >= load
        if (reached and min(modelled) > 1 > high) or max(modelled) < 1 < low:
            span = (number(value, "x") for value in (min(modelled), max(modelled)))
            yield words.text(
                "predicted.against_speed_up", load=load, measured=speed(own), modelled="–".join(dict.fromkeys(span))
            )


def measured_speeds(analysis: RunAnalysis, row: Row) -> pl.DataFrame:
    """Return the measured speed-ups of the place of a row, by concurrency: ``frames.DRAFTERS`` over all languages and genres."""
    whole = _of(analysis.drafters, row).filter(pl.col("language").is_null() & pl.col("genre").is_null())
    return whole.filter(pl.col("concurrency").is_not_null() & pl.col("speed_up").is_not_null()).sort("concurrency")


def speed(row: Row) -> str:
    """Return a measured speed-up, with its interval where there is one."""
    low, high = row["speed_up_low"], row["speed_up_high"]
    bare = is_unknown(low) and is_unknown(high)
    return number(row["speed_up"], "x") if bare else interval(row["speed_up"], low, high, "x")


def _of(frame: pl.DataFrame, row: Row) -> pl.DataFrame:
    return frame.filter(
        (pl.col("arm") == row["arm"]) & pl.col("workload").eq_missing(pl.lit(row["workload"], pl.String))
    )


def _measured(row: Row) -> tuple[float, float]:
    """Return between which numbers of tasks in progress the measured break-even lies."""
    low, high = row["break_even_low"], row["break_even_high"]
    if row["side"] == "above":
        return (row["highest_concurrency"] if is_unknown(low) else low), math.inf
    if row["side"] == "below":
        return 0.0, (row["lowest_concurrency"] if is_unknown(high) else high)
    if row["side"] != "crossed":
        return 0.0, math.inf
    if row["interval"] == "none":
        return row["break_even"] / APART, row["break_even"] * APART
    return (0.0 if is_unknown(low) else low), (math.inf if is_unknown(high) else high)


def _modelled(row: Row) -> tuple[float, float]:
    """Return the same of the modelled one: at least as many tasks are in progress as requests decode at once."""
    if row["side"] == "above":
        return float(row["highest_batch"]), math.inf
    if row["side"] == "below":
        return 0.0, 1.0
    tasks = row["break_even_modelled"]
    return (row["batch_break_even"], math.inf) if is_unknown(tasks) else (tasks, tasks)
