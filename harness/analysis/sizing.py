"""How many servers a number of agents needs, with and without each drafter, what a finished task costs, and what moves the answer.

Everything rests on agents per server and on task times between measured loads: it is modelled, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from harness.analysis.agents import Carrying, carrying
from harness.analysis.capacity import capacity, state
from harness.analysis.fleet import ArmLoad, Assumptions
from harness.analysis.frames import SIZING, TORNADO, Finding, RunAnalysis
from harness.analysis.latency import needed
from harness.analysis.paired_servers import saved_limits
from harness.analysis.plan import WorkloadPlan
from harness.analysis.tornado import tornado
from harness.errors import RunFolderError, UsageError

_TEXTS = ("arm", "capacity", "limited_by", "power_source", "assumption", "source")
_WHOLE = (
    "agents", "agents_low", "agents_high", "servers", "servers_low", "servers_high", "servers_saved",
    "servers_saved_low", "servers_saved_high", "servers_at_low", "servers_at_high",
)  # fmt: skip
NOT_THE_RUN = ("no_finished_cell", "steps_missing", "steps_doubled")
"""Findings after which no figure is one of the run: nothing is sized."""


def schema(names: Sequence[str]) -> dict[str, type[pl.DataType]]:
    """Return the types of the columns of ``frames.SIZING`` and ``frames.TORNADO``."""
    return {name: pl.String if name in _TEXTS else pl.Int64 if name in _WHOLE else pl.Float64 for name in names}


@dataclass(frozen=True, slots=True)
class Sizing:
    """The answer: ``arms`` (``frames.SIZING``, the baseline first), ``tornado`` (``frames.TORNADO``, the widest first).

    ``doubts`` are the invalid findings and warnings of the workloads in the mix, and percentiles of too few tasks;
    ``percentiles`` those of the run.
    """

    run: str
    assumptions: Assumptions
    slo: str
    baseline: str | None
    arms: pl.DataFrame
    tornado: pl.DataFrame
    percentiles: pl.DataFrame
    doubts: tuple[Finding, ...]
    reasons: Mapping[str, Mapping[str, Any]]  # by arm without a figure: "key" of its text, and the values in it


def size(analysis: RunAnalysis, plans: Sequence[WorkloadPlan], given: Assumptions, run: str) -> Sizing:
    """Size a run for a number of agents.

    Args:
        analysis: of the run.
        plans: its workloads, with the objectives that count.
        given: what was stated; its mix names workloads of the run.
        run: what to call the run.

    Raises:
        RunFolderError: if the folder holds no finished cell, or was cut, so that no figure is one of the run.
        UsageError: if a workload of the mix has no objectives.
    """
    _refuse(analysis, run)
    own = [plan for plan in plans if plan.name in given.mix]
    without = [plan.name for plan in own if not plan.slo]
    if without:
        raise UsageError(
            f"{', '.join(without)}: no objectives, so nobody can say how many agents a server carries; state them, for example "
            "--slo task_time_p90=40s, or in the workload file (slo)"
        )
    carried = carrying(analysis.steps, analysis.tasks, own)
    everywhere = [
        arm for arm in own[0].methods if all(arm in plan.methods and arm not in plan.synthetic for plan in own)
    ]
    baseline = own[0].baseline if own[0].baseline in everywhere else None
    loads = [_load(arm, carried, analysis, given) for arm in sorted(everywhere, key=lambda arm: arm != baseline)]
    rows = [_row(load, replace(given, power_watts=load.power_watts)) for load in loads]
    frame = pl.DataFrame(_saved(rows, loads, baseline, analysis, given), schema=schema(SIZING), orient="row")
    moved = [row for load in loads for row in tornado(load, replace(given, power_watts=load.power_watts))]
    levels = dict.fromkeys(item.slo for item in carried)
    return Sizing(
        run=run,
        assumptions=given,
        slo="; ".join(levels)
        if len(levels) == 1
        else "; ".join(dict.fromkeys(f"{item.workload}: {item.slo}" for item in carried)),
        baseline=baseline,
        arms=frame,
        tornado=pl.DataFrame(moved, schema=schema(TORNADO), orient="row"),
        percentiles=analysis.percentiles.filter(pl.col("workload").is_in([plan.name for plan in own])),
        doubts=tuple(
            item
            for item in analysis.findings
            if (item.severity != "note" or item.code == "percentile_unsure")
            and item.workload in (None, *(plan.name for plan in own))
        ),
        reasons={load.arm: _why_not(load) for load in loads if load.fleet(given, load.agents) is None},
    )


def _why_not(load: ArmLoad) -> dict[str, Any]:
    """Return why an arm carries none or nobody can say: failures, the measured value, or the tasks that are missing."""
    few = [(item.n_tasks, max(needed(of.percent) for of in item.objectives)) for item in load.carried if not item.loads]
    if few:
        return {"key": "few", "n": few[0][0], "needed": few[0][1]}
    for missed in (item.missed for item in load.carried if item.missed is not None):
        counts = {"load": missed.load, "n": missed.n, "failed": missed.failed, "objective": missed.objective.text}
        if missed.failed == missed.n:
            return {"key": "all_failed", **counts}
        if math.isinf(missed.observed):
            return {"key": "failed", **counts}
        return {"key": "missed", **counts, "observed": missed.observed, "metric": missed.objective.metric}
    return {"key": "none" if state(load.found) == "none" else "unknown"}


def _saved(
    rows: Sequence[tuple[str | float | None, ...]],
    loads: Sequence[ArmLoad],
    baseline: str | None,
    analysis: RunAnalysis,
    given: Assumptions,
) -> list[tuple[str | float | None, ...]]:
    """Return the rows with the servers saved and their ends, which are those of the paired difference."""
    place = SIZING.index("servers")
    bare = next((load for load in loads if load.arm == baseline), None)
    bare_servers = next((row[place] for row in rows if row[0] == baseline), None)
    found = []
    for row, load in zip(rows, loads, strict=True):
        saved: tuple[float | None, ...] = (None, None, None)
        own_servers = row[place]
        if bare is not None and load is not bare and isinstance(bare_servers, int) and isinstance(own_servers, int):
            ends = saved_limits(load.carried, bare.carried, analysis.steps, analysis.tasks, given)
            saved = (bare_servers - own_servers, *ends)
        found.append((*row, *saved))
    return found


def _refuse(analysis: RunAnalysis, run: str) -> None:
    codes = {item.code for item in analysis.findings if item.severity == "invalid"}
    if "no_finished_cell" in codes:
        failed = analysis.cells["n_steps_failed"].sum() if analysis.cells.height else 0
        why = f"failed steps: {failed}; see {run}/report.html" if failed else "the run was cut short before"
        raise RunFolderError(f"{run}: no cell was finished, so there is nothing to size ({why}); run again")
    if codes & set(NOT_THE_RUN):
        raise RunFolderError(
            f"{run}: steps of finished cells are missing or doubled, so no figure is one of this run; restore the folder or run again "
            f"(harness report {run} says which)"
        )


def _load(arm: str, carried: Sequence[Carrying], analysis: RunAnalysis, given: Assumptions) -> ArmLoad:
    own = tuple(item for item in carried if item.arm == arm)
    found = capacity(own, given.mix)
    power, source = given.power_watts, "stated" if given.power_watts is not None else None
    if power is None and found.agents:
        power = _measured_watts(analysis.cells, own, given.mix, found.agents * (1 - given.headroom))
        source = "nvml" if power is not None else None
    return ArmLoad(arm, own, found, given.mix, power, source)


def _measured_watts(
    cells: pl.DataFrame, own: Sequence[Carrying], mix: Mapping[str, float], on_each: float
) -> float | None:
    """Return the mean power of the measured loads closest to ``on_each``, weighted by the mix; ``None`` where one was not measured."""
    total = 0.0
    for item in own:
        done = cells.filter(
            (pl.col("workload") == item.workload) & (pl.col("arm") == item.arm) & (pl.col("status") == "done")
        )
        known = dict(
            done.drop_nulls("power_watts").group_by("concurrency").agg(pl.col("power_watts").mean()).iter_rows()
        )
        if not known:
            return None
        total += mix[item.workload] * known[min(known, key=lambda load: abs(math.log(load / max(on_each, 1.0))))]
    return total


def _row(load: ArmLoad, given: Assumptions) -> tuple[str | float | None, ...]:
    found, agents = load.found, load.agents
    fleet = load.fleet(given, agents)
    low, high = load.agent_ends
    shown = (load.whole(agents), load.whole(low), load.whole(high))
    if fleet is None:
        return (load.arm, *shown, state(found), found.limited_by, *[None] * 15)
    # the interval of the servers is that of the agents turned over; a cost is lowest where servers carry most and tasks are fastest
    time, fast, slow = load.task_time_s(fleet.on_each)
    taken, least, longest = load.slot_s(fleet.on_each)
    fewest = load.fleet(given, high, 1.0 if least is None else least / taken)
    most = load.fleet(given, low, 1.0 if longest is None else longest / taken)
    ends = [None if end is None else end.servers for end in (fewest, most)]
    costs = [None if end is None else end.cost_per_1000 for end in (fewest, most)]
    return (
        load.arm, *shown, state(found), found.limited_by, fleet.servers, *ends, fleet.on_each, time, fast, slow,
        fleet.tasks_per_hour, given.power_watts, load.power_source, fleet.kwh_per_1000, fleet.cost_per_1000, *costs,
        fleet.cost_per_year,
    )  # fmt: skip
