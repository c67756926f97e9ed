"""What one group of languages loses against another with the same drafter, in tokens and in time, and what winning it back is worth.

Languages mostly come from different workloads, with other kinds of steps. So only kinds that both groups have are compared, the reference
weighed by how much of each kind the group has. The time lost is modelled: the group's measured decoding, less what it would take if each
pass yielded as many tokens as in the reference. That is the most that a better drafter for these texts could win. Where the tasks would
still take longer than without a drafter, it is worth nothing.
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
from harness.analysis.plan import WorkloadPlan
from harness.analysis.steps import counted, steady_ok

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
GROUPS = {"ko": "ko", "ko+code": "ko", "en": "en", "en+code": "en", "code": "code"}
AGAINST = (("ko", "en"), ("ko", "code"))
VALUES = ("accepted_in_rounds", "rounds", "accepted_in_passes", "passes")
_PLACE = ("arm", "workload", "concurrency")
NEEDED = (
    *_PLACE, "cell", "instance", "task_id", "task", "what", "kind", "language",
    "num_drafts", "num_accepted_tokens", "decode_passes", "first_token_ns", "end_ns",
)  # fmt: skip
Row = tuple[Any, ...]
Key = tuple[str | None, str, str, str]  # workload (None: all), arm, group and reference


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
    good = steady_ok(steps, NEEDED, pl.col("drafter"))
    good = good.with_columns(**_values())
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
    summed = few.group_by(*place, "task_id", maintain_order=True).agg(pl.col(*VALUES, "n_steps").sum())
    named = summed.select(*place, "task_id", "n_steps", values=pl.concat_list(VALUES))
    sums = [_Sum(*row) for row in named.iter_rows()]
    runs = _Runs.of(good, few, counted(tasks).filter(pl.col("steady") & pl.col("ok")), plans)
    found: list[Row] = []
    for arm in dict.fromkeys(item.arm for item in sums):
        own = [item for item in sums if item.arm == arm]
        workloads: list[str | None] = list(dict.fromkeys(item.workload for item in own))
        for workload in [*workloads, None] if len(workloads) > 1 else workloads:
            here = [item for item in own if workload in (None, item.workload)]
            for group, reference in AGAINST:
                found += _rows((workload, arm, group, reference), here, runs)
    return pl.DataFrame(found, schema=LANGUAGE_LOSS_SCHEMA, orient="row")


@dataclass(frozen=True, slots=True)
class _Sum:
    """The sums of ``VALUES`` over the steps of one kind of one task: few enough to be gone through one by one."""

    arm: str
    workload: str
    concurrency: int
    group: str
    kind: str
    task_id: str
    n_steps: int
    values: list[int]


@dataclass(frozen=True, slots=True)
class _Runs:
    """Seconds of decoding of each kind of step in each run of a task, beside the time of the task."""

    task_time_s: Vector  # [runs]
    parts: Mapping[tuple[str, str, int, str], Mapping[str, tuple[NDArray[np.int64], Vector]]]
    """By arm, workload, concurrency and group, and by kind: the numbers of the runs and their seconds of decoding."""
    of_task: Mapping[tuple[str, str, int, str], float]
    """Mean time of a task, by arm, workload, concurrency and task."""
    baselines: Mapping[str, str | None]

    @classmethod
    def of(cls, good: pl.DataFrame, few: pl.DataFrame, tasks: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> _Runs:
        times = tasks.select("cell", "instance", "task_time_s").with_row_index("run")
        seconds = good.group_by("cell", "instance", "what").agg(pl.col("decode_s").sum())
        runs = seconds.join(times.select("cell", "instance", "run"), on=["cell", "instance"])
        keys = few.select("cell", "what", *_PLACE, "group", "kind").unique()
        keys = keys.with_columns(place=pl.struct(*_PLACE, "group", "kind").rank("dense"))
        runs = runs.join(keys.select("cell", "what", "place"), on=["cell", "what"]).sort("place")
        names = keys.unique("place").sort("place")
        ends = np.searchsorted(runs["place"].to_numpy(), names["place"].to_numpy(), side="right")
        of_run, decode_s = runs["run"].cast(pl.Int64).to_numpy(), runs["decode_s"].to_numpy()
        parts: dict[tuple[str, str, int, str], dict[str, tuple[NDArray[np.int64], Vector]]] = {}
        begin = 0
        for (*place, kind), end in zip(names.select(*_PLACE, "group", "kind").iter_rows(), ends.tolist(), strict=True):
            arm, workload, load, group = place
            if end > begin:  # of tasks that failed there are steps and no run
                parts.setdefault((arm, workload, load, group), {})[kind] = of_run[begin:end], decode_s[begin:end]
            begin = end
        each = tasks.group_by("arm", "workload", "concurrency", "task_id").agg(pl.col("task_time_s").mean())
        of_task = {row[:4]: row[4] for row in each.iter_rows()}
        return cls(times["task_time_s"].to_numpy(), parts, of_task, {plan.name: plan.baseline for plan in plans})

    def speed_up(self, arm: str, load: int, tasks: Iterable[tuple[str, str]]) -> float | None:
        """Return the baseline's time ÷ the arm's over the tasks (workload and name) that both did, ``None`` without any."""
        both = [
            (bare, own)
            for workload, task in tasks
            if (bare := self.of_task.get((self.baselines.get(workload) or "", workload, load, task))) is not None
            and (own := self.of_task.get((arm, workload, load, task))) is not None
        ]
        return sum(bare for bare, _ in both) / sum(own for _, own in both) if both else None

    def means(self, key: Key, load: int, kinds: Sequence[str] | None) -> tuple[float, float] | None:
        """Return the mean decoding and task time of the runs of one arm, workload (or all), group and load, ``None`` without any.

        Of the steps of these kinds, or of all.
        """
        workload, arm, group, _ = key
        own = [
            arrays
            for (of_arm, of_workload, of_load, of_group), by_kind in self.parts.items()
            if (of_arm, of_load, of_group) == (arm, load, group) and workload in (None, of_workload)
            for kind, arrays in by_kind.items()
            if kinds is None or kind in kinds
        ]
        if not own:
            return None
        runs, decode_s = (np.concatenate([arrays[place] for arrays in own]) for place in (0, 1))
        there = np.bincount(runs, minlength=len(self.task_time_s)) > 0
        of_run = np.bincount(runs, decode_s, len(self.task_time_s))
        return float(of_run[there].mean()), float(self.task_time_s[there].mean())


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


def _rows(key: Key, sums: Sequence[_Sum], runs: _Runs) -> Iterable[Row]:
    pair = [item for item in sums if item.group in key[2:]]
    if len({item.group for item in pair}) < 2:
        return
    for load in [None, *sorted({item.concurrency for item in pair})]:
        row = _row(key, load, [item for item in pair if load in (None, item.concurrency)], runs)
        if row is not None:
            yield row


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums of ``VALUES`` by task, side (0 the group, 1 the reference) and kind of step."""

    values: Matrix  # [tasks, 2, kinds, values]

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


def _row(key: Key, load: int | None, pair: Sequence[_Sum], runs: _Runs) -> Row | None:
    group, reference = ([item for item in pair if item.group == name] for name in key[2:])
    kinds = sorted({item.kind for item in group} & {item.kind for item in reference})
    n_kinds = len(kinds)
    if n_kinds:
        group, reference = ([item for item in side if item.kind in kinds] for side in (group, reference))
    if not group or not reference:
        return None
    sums = _sums((group, reference), kinds)
    once = sums.drawn(np.ones((1, len(sums.values))))
    length, length_reference = (1 + float(value[0]) for value in sums.ratio(once, 0, 1))
    tokens, tokens_reference = (1 + float(value[0]) for value in sums.ratio(once, 2, 3))
    n_tasks, n_reference = (len({item.task_id for item in side}) for side in (group, reference))
    limits, share_limits = _limits(sums) if min(n_tasks, n_reference) >= MIN_TASKS else ((None, None), (None, None))
    share = 1 - tokens / tokens_reference
    time: tuple[float | None, float | None, float | None] = (None, None, None)
    if load is not None and np.isfinite(share):
        time = _time(runs.means(key, load, kinds if n_kinds else None), share)
    sure = share_limits[0] is not None and share_limits[0] > 0
    win_back = time[2] if sure else None
    if load is not None and win_back is not None:
        measured = runs.speed_up(key[1], load, {(item.workload, item.task_id) for item in group})
        if measured is not None and measured * (1 + 1 / win_back) <= 1:  # even then slower than without a drafter
            win_back = None
    return (
        *key, load, n_tasks, n_reference, sum(item.n_steps for item in group), n_kinds,
        _known(length), _known(length_reference), _known(length_reference - length), *limits,
        _known(tokens), _known(tokens_reference), *time[:2], _known(share), *share_limits, win_back,
    )  # fmt: skip


def _sums(sides: Sequence[Sequence[_Sum]], kinds: Sequence[str]) -> _Sums:
    """Return the sums of both sides; without a kind in common all steps are taken for one kind."""
    tasks = {task: row for row, task in enumerate(sorted({item.task_id for side in sides for item in side}))}
    places = {kind: place for place, kind in enumerate(kinds)}
    values = np.zeros((len(tasks), 2, len(kinds) or 1, len(VALUES)))
    for number, side in enumerate(sides):
        for item in side:
            values[tasks[item.task_id], number, places.get(item.kind, 0)] += item.values
    return _Sums(values)


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


def _time(means: tuple[float, float] | None, share: float) -> tuple[float | None, float | None, float | None]:
    """Return seconds of decoding a run of a task, seconds of them lost, and the hours of serving that win back one hour of training.

    Tasks that take ΔT less of T at the same load are done T / (T − ΔT) times as fast; an hour without serving is made good after
    (T − ΔT) / ΔT hours.
    """
    if means is None:
        return None, None, None
    decode_s, task_s = means
    lost_s = decode_s * share
    return decode_s, lost_s, (task_s - lost_s) / lost_s if lost_s > 0 else None


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
