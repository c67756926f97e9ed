"""What one group of languages loses against another with the same drafter, in tokens and in time, and what winning it back is worth.

Languages mostly come from different workloads, with other kinds of steps. So only kinds that both groups have are compared, the reference
weighed by how much of each kind the group has. The time lost is modelled: the group's measured decoding, less what it would take if each
pass yielded as many tokens as in the reference. That is the most that a better drafter for these texts could win.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from harness.analysis.bootstrap import MIN_TASKS, draw_counts, interval, seed_of
from harness.analysis.frames import LANGUAGE_LOSS_SCHEMA
from harness.analysis.numbering import numbered
from harness.analysis.plan import WorkloadPlan
from harness.analysis.steps import OK, counted

Matrix = NDArray[np.float64]
GROUPS = {"ko": "ko", "ko+code": "ko", "en": "en", "en+code": "en", "code": "code"}
AGAINST = (("ko", "en"), ("ko", "code"))
VALUES = ("accepted_in_rounds", "rounds", "accepted_in_passes", "passes")
_PLACE = ("arm", "workload", "concurrency")
NEEDED = (
    *_PLACE, "cell", "instance", "task_id", "task", "kind", "language", "phase", "done", "steady", "error_kind", "drafter",
    "num_drafts", "num_accepted_tokens", "decode_passes", "first_token_ns", "end_ns",
)  # fmt: skip
Row = tuple[Any, ...]


def language_loss(steps: pl.DataFrame, tasks: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> pl.DataFrame:
    """Return ``frames.LANGUAGE_LOSS`` of the arms with a real drafter, from counted steps of the steady window that succeeded.

    Rows are per workload that has both groups and over all workloads; pooled over loads (acceptance alone) and at each. Intervals draw
    tasks, and need ``MIN_TASKS`` on either side.

    Args:
        steps: step rows with ``steady``.
        tasks: task rows with ``steady`` and ``task_time_s``.
        plans: workloads of the run.
    """
    real = pl.DataFrame(
        [(plan.name, arm) for plan in plans for arm in plan.drafting],
        schema={"workload": pl.String, "arm": pl.String},
        orient="row",
    )
    good = counted(steps.select(NEEDED)).filter(pl.col("steady") & OK & pl.col("drafter"))
    good = good.with_columns(what=numbered(good, ("kind", "language")), **_values())
    grouping = {"group": pl.col("language").replace_strict(GROUPS, default=None, return_dtype=pl.String)}
    # a cell, a task, a kind of step: from here on few rows, which names may tell apart
    few = good.group_by("cell", "task", "what", maintain_order=True).agg(
        pl.col(*_PLACE, "task_id", "kind", "language").first(),
        *(pl.col(name).sum() for name in VALUES),
        n_steps=pl.len().cast(pl.Int64),
    )
    few = few.join(real, on=["workload", "arm"], how="semi", maintain_order="left").with_columns(**grouping)
    few = few.filter(pl.col("group").is_not_null())
    place = (*_PLACE, "group", "kind")
    sums = few.group_by(*place, "task_id", maintain_order=True).agg(pl.col(*VALUES, "n_steps").sum())
    runs = _Runs.of(good, few, counted(tasks).filter(pl.col("steady") & pl.col("ok")))
    found: list[Row] = []
    for (arm,), own in sums.group_by("arm", maintain_order=True):
        workloads: list[str | None] = own["workload"].unique(maintain_order=True).to_list()
        for workload in [*workloads, None] if len(workloads) > 1 else workloads:
            here = own if workload is None else own.filter(pl.col("workload") == workload)
            for group, reference in AGAINST:
                found += _rows((workload, str(arm), group, reference), here, runs)
    return pl.DataFrame(found, schema=LANGUAGE_LOSS_SCHEMA, orient="row")


@dataclass(frozen=True, slots=True)
class _Runs:
    """Seconds of decoding of each kind of step in each run of a task, beside the time of the task: ``decode_s``, ``task_time_s``."""

    parts: Mapping[tuple[str, str, int, str], pl.DataFrame]  # by arm, workload, concurrency and group

    @classmethod
    def of(cls, good: pl.DataFrame, few: pl.DataFrame, tasks: pl.DataFrame) -> _Runs:
        times = tasks.select("cell", "instance", "task_time_s")
        seconds = good.group_by("cell", "instance", "what").agg(pl.col("decode_s").sum())
        runs = seconds.join(times, on=["cell", "instance"])
        keys = few.select("cell", "what", *_PLACE, "group", "kind").unique()
        runs = runs.join(keys, on=["cell", "what"])
        parts = runs.partition_by(*_PLACE, "group", as_dict=True, include_key=False)
        return cls(parts)  # type: ignore[arg-type]

    def at(self, key: tuple[str | None, str, str, str], load: int, kinds: Sequence[str] | None) -> pl.DataFrame:
        """Return one row a run of a task of one arm, workload (or all), group and load; of these kinds of steps, or of all."""
        workload, arm, group, _ = key
        own = [
            part
            for (of_arm, of_workload, of_load, of_group), part in self.parts.items()
            if (of_arm, of_load, of_group) == (arm, load, group) and workload in (None, of_workload)
        ]
        if not own:
            return pl.DataFrame(schema={"decode_s": pl.Float64, "task_time_s": pl.Float64})
        runs = pl.concat(own)
        runs = runs if kinds is None else runs.filter(pl.col("kind").is_in(kinds))
        return runs.group_by("cell", "instance").agg(pl.col("decode_s").sum(), pl.col("task_time_s").first())


def _values() -> dict[str, pl.Expr]:
    rounds = pl.col("num_drafts").is_not_null() & pl.col("num_accepted_tokens").is_not_null()
    passes = pl.col("decode_passes").is_not_null() & pl.col("num_accepted_tokens").is_not_null()
    return {
        "accepted_in_rounds": pl.when(rounds).then("num_accepted_tokens").otherwise(0),
        "rounds": pl.when(rounds).then("num_drafts").otherwise(0),
        "accepted_in_passes": pl.when(passes).then("num_accepted_tokens").otherwise(0),
        "passes": pl.when(passes).then("decode_passes").otherwise(0),
        "decode_s": ((pl.col("end_ns") - pl.col("first_token_ns")) / 1e9).fill_null(0.0),
    }


def _rows(key: tuple[str | None, str, str, str], steps: pl.DataFrame, runs: _Runs) -> Iterable[Row]:
    pair = steps.filter(pl.col("group").is_in([key[2], key[3]]))
    if pair["group"].n_unique() < 2:
        return
    loads: list[int | None] = sorted(pair["concurrency"].unique().to_list())
    for load in [None, *loads]:
        own = pair if load is None else pair.filter(pl.col("concurrency") == load)
        row = _row(key, load, own, runs)
        if row is not None:
            yield row


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums of ``VALUES`` by task, side (0 the group, 1 the reference) and kind of step."""

    values: Matrix  # [tasks, 2, kinds, values]
    n_kinds: int

    def drawn(self, counts: Matrix) -> Matrix:
        """Return the sums of each draw from how often each task is in it. # [draws, tasks] → [draws, 2, kinds, values]"""
        flat = counts @ self.values.reshape(len(self.values), -1)
        return flat.reshape(len(counts), *self.values.shape[1:])

    @staticmethod
    def ratio(sums: Matrix, above: int, below: int) -> tuple[Matrix, Matrix]:
        """Return Σ above / Σ below of both sides, the reference weighed by the kinds of the group. # [draws] each

        Args:
            sums: of :meth:`drawn`.
            above: place of a value of ``VALUES``.
            below: another.
        """
        top, bottom = sums[..., above], sums[..., below]  # [draws, 2, kinds]
        both = (bottom > 0).all(axis=1)  # kinds of which a draw has nothing on one side cannot be compared in it
        weight = np.where(both, bottom[:, 0], 0.0)
        each = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)  # [draws, 2, kinds]
        total = weight.sum(axis=1)
        weighed = (each * weight[:, None, :]).sum(axis=2)  # [draws, 2]
        unknown = np.full_like(weighed, np.nan)
        mean = np.divide(weighed, total[:, None], out=unknown, where=total[:, None] > 0)
        return mean[:, 0], mean[:, 1]


def _row(
    key: tuple[str | None, str, str, str], load: int | None, steps: pl.DataFrame, runs: _Runs
) -> Row | None:
    group, reference = (steps.filter(pl.col("group") == name) for name in key[2:])
    kinds = sorted(set(group["kind"]) & set(reference["kind"]))
    n_kinds = len(kinds)
    if n_kinds:
        group, reference = (side.filter(pl.col("kind").is_in(kinds)) for side in (group, reference))
    else:
        group, reference, kinds = group.with_columns(kind=pl.lit("")), reference.with_columns(kind=pl.lit("")), [""]
    if group.is_empty() or reference.is_empty():
        return None
    sums = _sums((group, reference), kinds, n_kinds)
    once = sums.drawn(np.ones((1, len(sums.values))))
    length, length_reference = (1 + float(value[0]) for value in sums.ratio(once, 0, 1))
    tokens, tokens_reference = (1 + float(value[0]) for value in sums.ratio(once, 2, 3))
    n_tasks, n_reference = group["task_id"].n_unique(), reference["task_id"].n_unique()
    limits, share_limits = _limits(sums) if min(n_tasks, n_reference) >= MIN_TASKS else ((None, None), (None, None))
    share = 1 - tokens / tokens_reference
    time: tuple[float | None, float | None, float | None] = (None, None, None)
    if load is not None and np.isfinite(share):
        time = _time(runs.at(key, load, kinds if n_kinds else None), share)
    sure = share_limits[0] is not None and share_limits[0] > 0
    return (
        *key, load, n_tasks, n_reference, int(group["n_steps"].sum()), n_kinds,
        _known(length), _known(length_reference), _known(length_reference - length), *limits,
        _known(tokens), _known(tokens_reference), *time[:2], _known(share), *share_limits, time[2] if sure else None,
    )  # fmt: skip


def _sums(sides: Sequence[pl.DataFrame], kinds: Sequence[str], n_kinds: int) -> _Sums:
    tasks = {task: row for row, task in enumerate(sorted(set(sides[0]["task_id"]) | set(sides[1]["task_id"])))}
    places = {kind: place for place, kind in enumerate(kinds)}
    values = np.zeros((len(tasks), 2, len(kinds), len(VALUES)))
    for side, steps in enumerate(sides):
        for task, kind, *own in (
            steps.group_by("task_id", "kind").agg(pl.col(name).sum() for name in VALUES).iter_rows()
        ):
            values[tasks[task], side, places[kind]] = own
    return _Sums(values, n_kinds)


def _limits(sums: _Sums) -> tuple[tuple[float | None, float | None], tuple[float | None, float | None]]:
    """Return the intervals of the acceptance length that is lost, and of the share of decoding time; both draw the same tasks."""
    lengths, shares = [], []
    n_tasks = len(sums.values)
    for counts in draw_counts(n_tasks, seed_of("language", n_tasks)):
        drawn = sums.drawn(counts)
        own, other = sums.ratio(drawn, 0, 1)
        lengths.append(other - own)
        own, other = sums.ratio(drawn, 2, 3)
        shares.append(1 - (1 + own) / (1 + other))
    ends = (interval(np.concatenate(draws)) for draws in (lengths, shares))
    first, second = ((None, None) if pair is None else pair for pair in ends)
    return first, second


def _time(runs: pl.DataFrame, share: float) -> tuple[float | None, float | None, float | None]:
    """Return seconds of decoding a run of a task, seconds of them lost, and the hours of serving that win back one hour of training.

    Tasks that take ΔT less of T at the same load are done T / (T − ΔT) times as fast; an hour without serving is made good after
    (T − ΔT) / ΔT hours.
    """
    if runs.is_empty():
        return None, None, None
    decode_s, task_s = float(runs["decode_s"].mean()), float(runs["task_time_s"].mean())  # type: ignore[arg-type]
    lost_s = decode_s * share
    return decode_s, lost_s, (task_s - lost_s) / lost_s if lost_s > 0 else None


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
