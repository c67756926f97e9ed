"""What one server carries of a mix of workloads, and how many servers that makes for a number of agents.

Agents per server are shown as whole agents, rounded down, and reckoned with as they were read between two loads: agents are not tied
to a server, so a server holds so many on average. Only servers come whole, rounded up, here as in ``harness size``: half an agent
more or less a server never doubles the servers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from harness.analysis.agents import ESTIMATE, HIGH, LOW, Carrying, Three
from harness.analysis.frames import AGENTS, AGENTS_SCHEMA

HUNDRED = 100.0  # agents, all at work at once: what the buyer's table is made for
WHOLE = 1e-9  # below a whole number by less is rounding, not a smaller server
NONE = 1e-12  # of a capacity that is none: it has an inverse


@dataclass(frozen=True, slots=True)
class Capacity:
    """Agents per server of a mix of workloads; ``None``: unknown, 0: the service level is missed at the lowest load.

    Where a workload keeps its level at its highest measured load too (``open_ended``), ``agents`` and ``low`` take that load: they are
    lower bounds, and ``high`` may be infinite.
    """

    agents: float | None
    low: float | None
    high: float | None
    open_ended: bool
    n_tasks: int
    limited_by: str | None


def capacity(carried: Sequence[Carrying], shares: Mapping[str, float]) -> Capacity:
    """Return the agents per server of a mix: an agent of a workload takes 1/(its agents per server) of one.

    For one workload that is what was measured. For a mix it is modelled: it takes for granted that tasks of another workload weigh on
    a server like those of the same at the load that it carries; all its workloads at the same end of their intervals are its ends.

    Args:
        carried: of one arm, one a workload.
        shares: share of the agents by workload; the sum is 1.
    """
    n_tasks = min(item.n_tasks for item in carried)
    if not all(item.loads for item in carried):
        return Capacity(None, None, None, False, n_tasks, None)
    taken = np.array([[shares[item.workload] / end for end in _ends(item)] for item in carried])  # [workloads, 3]
    agents_per_server, low, high = (
        1 / part if part > 0 else math.inf for part in np.nan_to_num(taken.sum(axis=0), nan=-1.0)
    )
    unknown = np.isnan(taken.sum(axis=0))
    most = carried[int(np.argmax(taken[:, ESTIMATE]))]
    first = most.objectives[int(np.argmin(most.reached[:, ESTIMATE]))].name
    named = first if len(carried) == 1 else f"{most.workload}: {first}"
    kept = most.reached[:, ESTIMATE].min() == np.inf
    return Capacity(
        agents=agents_per_server,
        low=None if unknown[LOW] else low,
        high=None if unknown[HIGH] else high,
        open_ended=any(item.reached[:, ESTIMATE].min() == np.inf for item in carried),
        n_tasks=n_tasks,
        limited_by=None if kept else named,
    )


def _ends(item: Carrying) -> Three:
    """Return what one workload carries, and its ends; a tiny number stands for none, so that it takes up a whole server."""
    estimate, low = item.reached[:, :HIGH].min(axis=0)
    # the objective whose bound is known bounds the whole from above; from below all of them must be known
    upper = math.nan if np.isnan(item.reached[:, HIGH]).all() else float(np.nanmin(item.reached[:, HIGH]))
    return _positive(min(estimate, item.loads[-1])), _positive(min(low, item.loads[-1])), _positive(upper)


def _positive(load: float) -> float:
    return NONE if load == -np.inf else load


def agents(carried: Sequence[Carrying]) -> pl.DataFrame:
    """Return ``frames.AGENTS``: one row a workload and arm, and one for arms with several workloads in equal shares of agents."""
    rows = [_row(item.workload, [item], capacity([item], {item.workload: 1.0})) for item in carried]
    for arm in dict.fromkeys(item.arm for item in carried):
        own = [item for item in carried if item.arm == arm]
        if len(own) > 1:
            rows.append(_row(None, own, capacity(own, {item.workload: 1 / len(own) for item in own})))
    return pl.DataFrame(rows, schema=AGENTS_SCHEMA, orient="row").select(AGENTS)


def _row(workload: str | None, own: Sequence[Carrying], found: Capacity) -> tuple[str | int | None, ...]:
    levels = list(dict.fromkeys(item.slo for item in own))
    slo = "; ".join(levels) if len(levels) == 1 else "; ".join(f"{item.workload}: {item.slo}" for item in own)
    loads = (own[0].loads[0], own[0].loads[-1]) if len(own) == 1 and own[0].loads else (None, None)
    if found.agents is None:
        nobody_knows = (None, None, None, "none", "unknown", None, *loads, found.n_tasks, None, None, None)
        return (workload, own[0].arm, slo, *nobody_knows)
    lowest = max(item.loads[0] for item in own)
    low, high = (None if end is None else whole(end, lowest) for end in (found.low, found.high))
    servers = [servers_for(HUNDRED, end) for end in (found.agents, found.high, found.low)]
    known = {(True, True): "both", (False, True): "open_low", (True, False): "open_high"}
    nothing = "none" if found.low is None and found.high is None else "open_both"
    ends = known.get((low is not None, high is not None), nothing)
    row = (whole(found.agents, lowest), low, high, ends, state(found), found.limited_by)
    return (workload, own[0].arm, slo, *row, *loads, found.n_tasks, *servers)


def servers_for(busy: float, agents_per_server: float | None) -> int | None:
    """Return the servers for so many agents at work at once; ``None`` where a server carries none, no end is known, or nobody knows."""
    if agents_per_server is None or math.isinf(agents_per_server) or agents_per_server < 1 - WHOLE:
        return None
    return max(1, math.ceil(busy / agents_per_server - WHOLE))


def state(found: Capacity) -> str:
    """Return the word of ``frames.AGENTS`` for what was found."""
    if found.agents is None:
        return "unknown"
    return "none" if found.agents < 1 - WHOLE else "at_least" if found.open_ended else "found"


def whole(agents_per_server: float, lowest: int) -> int | None:
    """Return a capacity as whole agents; ``None`` beyond the measured range: infinite, or none where 1 at a time was not tried."""
    if math.isinf(agents_per_server) or (agents_per_server < 1 - WHOLE and lowest > 1):
        return None
    return int(agents_per_server + WHOLE)
