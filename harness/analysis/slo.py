"""Objectives of a workload (``ttft_p90: 2s``) and how far each load attains them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from harness.analysis.frames import SLO
from harness.analysis.intervals import add_ratio
from harness.analysis.latency import LOAD, needed, quantile
from harness.analysis.plan import WorkloadPlan
from harness.analysis.steps import counted
from harness.errors import UsageError

STEP_METRICS = {"ttft": "ttft_s", "tpot": "tpot_ms", "step_latency": "step_latency_s"}
TASK_METRICS = {"task_time": "task_time_s", "task_time_no_wait": "task_time_no_wait_s"}
TIME_METRICS = STEP_METRICS | TASK_METRICS
SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0}
SCHEMA = dict(
    zip(SLO, (*[pl.String] * 2, pl.Int64, pl.String, *[pl.Float64] * 2, pl.Int64, pl.Float64, pl.Boolean), strict=True)
)
_SHARES = tuple(f"{name}{end}" for name in ("slo_attainment", "good_tasks_per_hour") for end in ("", "_low", "_high"))
ATTAINED = {"workload": pl.String, "arm": pl.String, "concurrency": pl.Int64} | dict.fromkeys(_SHARES, pl.Float64)
_NAME = re.compile(r"([a-z_]+)_p(\d{1,2})")
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)

_STATE = ("phase", "done", "steady")


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective: the percentile of a metric stays within ``limit``, which is in the unit of ``column`` (s; TPOT: ms).

    ``text`` is the objective as a reader knows it.
    """

    name: str
    metric: str
    percent: int
    limit: float
    text: str = ""

    @property
    def column(self) -> str:
        """The column of the step or task frame that the objective is about."""
        return TIME_METRICS[self.metric]


def parse_slo(name: str, text: str) -> Objective:
    """Read one entry of a workload's ``slo`` mapping, such as ``ttft_p90`` and ``2s``.

    Raises:
        UsageError: if the metric, the percentile or the limit is not one that can be measured.
    """
    metric, percent = parse_percentile(name)
    return Objective(name, metric, percent, parse_time(text, metric), f"{name} ≤ {text.strip()}")


def read_objectives(given: Sequence[str]) -> dict[str, str]:
    """Return the objectives of ``--slo``.

    Raises:
        UsageError: if one is none, or is named twice.
    """
    found: dict[str, str] = {}
    for text in given:
        name, equals, limit = (piece.strip() for piece in text.partition("="))
        if not equals:
            raise UsageError(f"--slo is {text!r}; give a percentile and its limit, such as task_time_p90=40s")
        try:
            parse_slo(name, limit)
        except UsageError as error:
            raise UsageError(f"--slo {text}: {error}") from error
        if name in found:
            raise UsageError(f"--slo names {name!r} twice; keep one")
        found[name] = limit
    return found


def parse_percentile(name: str) -> tuple[str, int]:
    """Split ``ttft_p90`` into metric and percent.

    Raises:
        UsageError: if it is not a known metric with a percentile from p1 to p99.
    """
    match = _NAME.fullmatch(name)
    if match is None or match[1] not in TIME_METRICS or int(match[2]) < 1:
        known = [f"{metric}_p90" for metric in TIME_METRICS]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UsageError(
            f"unknown objective {name!r}; {hint}give one of {', '.join(TIME_METRICS)} and a percentile, such as ttft_p90 (p1 to p99)"
        )
    return match[1], int(match[2])


def check_tasks(metric: str, percent: int, n_tasks: int) -> None:
    """Check that a workload has as many different tasks as its percentile needs to be judged at all.

    Raises:
        UsageError: saying how many it needs.
    """
    if n_tasks < needed(percent):
        raise UsageError(
            f"{metric}_p{percent} needs at least {needed(percent)} different tasks, the workload has {n_tasks}; "
            f"add tasks or ask for a lower percentile"
        )


def parse_time(text: str, metric: str) -> float:
    """Return a time with a unit (``80ms``, ``2s``, ``1.5min``) in the unit of the metric's column.

    Raises:
        UsageError: if it is no positive time with a unit.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None or match[2] not in SECONDS or float(match[1]) <= 0:
        raise UsageError(
            f"{text!r} is no limit for {metric}; give a number above 0 with a unit: ms, s or min, such as 2s"
        )
    seconds = float(match[1]) * SECONDS[match[2]]
    return seconds * 1e3 if TIME_METRICS[metric].endswith("_ms") else seconds


def slo(steps: pl.DataFrame, tasks: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return ``frames.SLO`` and the attainment of each load (``ATTAINED``), from counted rows inside the steady window.

    ``attained_share`` is the share of single values within the limit; a failed step or task attained nothing and counts. ``met``:
    the percentile of those that succeeded keeps the limit, and so does that share of all (else an arm that fails most of its steps
    would meet what the rest keep); null with too few distinct tasks. Attainment of a load is the share of its tasks that succeeded
    and kept every limit with every one of their steps; good tasks per hour are those tasks ÷ the time that all tasks of the load took,
    failed ones included.
    """
    rows: list[pl.DataFrame] = []
    attained: list[pl.DataFrame] = []
    key = ["cell", "instance"]
    steps = counted(steps.select(*LOAD, *key, "task_id", *_STATE, "error_kind", *STEP_METRICS.values())).filter(
        "steady"
    )
    tasks = counted(tasks).filter("steady")
    for plan in plans:
        objectives = [parse_slo(name, text) for name, text in plan.slo.items()]
        own_steps, own_tasks = (frame.filter(pl.col("workload") == plan.name) for frame in (steps, tasks))
        # the slots are full inside the window, so each task took its time ÷ concurrency of the window to itself
        hours = (pl.col("end_ns") - pl.col("start_ns")) / 3.6e12 / pl.col("concurrency")
        times = ("task_id", "task_time_s", "task_time_no_wait_s")
        good = own_tasks.select(*LOAD, *key, *times, kept=pl.col("ok"), hours=hours, n=1)
        for objective in objectives:
            of_steps = objective.metric in STEP_METRICS
            rows.append(_observed(own_steps if of_steps else own_tasks, objective))
            within = pl.col(objective.column) <= objective.limit
            if of_steps:  # a step without a value (TPOT of one token) keeps the limit
                kept = own_steps.group_by(key).agg(within=within.fill_null(True).all())
                good = (
                    good.join(kept, on=key, how="left").with_columns(pl.col("kept") & pl.col("within")).drop("within")
                )
            else:
                good = good.with_columns(pl.col("kept") & within.fill_null(False))
        if objectives:
            frame = good.select(LOAD).unique(maintain_order=True)
            for name, below in (("slo_attainment", "n"), ("good_tasks_per_hour", "hours")):
                frame = add_ratio(frame, good, LOAD, name, "kept", below, plus=0.0, share=below == "n")
            attained.append(frame)
    frame = pl.concat([pl.DataFrame(schema=SCHEMA), *rows]).sort("workload", "arm", "concurrency", maintain_order=True)
    return frame, pl.concat([pl.DataFrame(schema=ATTAINED), *attained])


def _observed(rows: pl.DataFrame, objective: Objective) -> pl.DataFrame:
    value = pl.col(objective.column)
    failed = ~pl.col("ok") if "ok" in rows.columns else pl.col("error_kind").is_not_null()
    judged = value.is_not_null() | failed
    frame = rows.group_by(LOAD).agg(
        objective=pl.lit(objective.name).first(),
        limit=pl.lit(objective.limit).first(),
        observed=quantile(value, objective.percent),
        n=judged.sum(),
        n_distinct=pl.col("task_id").filter(judged).n_unique(),
        attained_share=(value <= objective.limit).fill_null(False).filter(judged).mean(),
    )
    kept = (pl.col("observed") <= objective.limit) & (pl.col("attained_share") >= objective.percent / 100)
    frame = frame.with_columns(met=pl.when(pl.col("n_distinct") >= needed(objective.percent)).then(kept))
    return frame.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())
