"""What a buyer compares, from figures that stand elsewhere: servers and relative cost by arm, and the trade between server and agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

# interval and capacity as in frames.AGENTS; concurrency: the load of the three figures behind it, the highest measured one that keeps the
# service level, without a service level the one with the most tasks an hour; workload null: equal shares of agents, modelled
OFFER = (
    "workload", "arm", "slo", "agents", "agents_low", "agents_high", "interval", "capacity", "limited_by",
    "servers_per_100", "servers_per_100_low", "servers_per_100_high", "concurrency", "n_tasks", "task_time_mean_s", "tasks_per_hour",
    "cost_ratio",
)  # fmt: skip
PARETO = (  # one row a measured load
    "workload", "arm", "concurrency", "n_tasks", "task_time_mean_s", "tasks_per_hour", "tasks_per_hour_per_agent", "frontier",
)  # fmt: skip
_TEXTS = ("workload", "arm", "slo", "interval", "capacity", "limited_by")
_WHOLE = ("agents", "agents_low", "agents_high", "servers_per_100", "servers_per_100_low", "servers_per_100_high",
          "concurrency", "n_tasks")  # fmt: skip
OFFER_SCHEMA = pl.Schema(
    {name: pl.String() if name in _TEXTS else pl.Int64() if name in _WHOLE else pl.Float64() for name in OFFER}
)
Row = Mapping[str, Any]


def offer(agents: pl.DataFrame, summary: pl.DataFrame, baselines: Mapping[str, str]) -> pl.DataFrame:
    """Return ``OFFER``: one row a workload and arm, and one for each arm over all workloads where ``agents`` has one.

    Args:
        agents: ``frames.AGENTS``.
        summary: ``frames.SUMMARY``.
        baselines: the arm without a drafter by workload.
    """
    carried = {(row["workload"], row["arm"]): row for row in agents.iter_rows(named=True)}
    places: dict[tuple[str, str], list[Row]] = {}
    for row in summary.iter_rows(named=True):
        own = places.setdefault((row["workload"], row["arm"]), [])
        if row["tasks_per_hour"]:
            own.append(row)
    chosen = {key: _load(rows, carried.get(key)) for key, rows in places.items()}
    offered: list[dict[str, Any]] = []
    for (workload, arm), load in chosen.items():
        bare = chosen.get((workload, baselines.get(workload, "")))
        ratio = bare["tasks_per_hour"] / load["tasks_per_hour"] if bare and load else None
        known = load or {}
        figures = {name: known.get(name) for name in ("concurrency", "n_tasks", "task_time_mean_s", "tasks_per_hour")}
        servers = _servers(carried.get((workload, arm)))
        offered.append({"workload": workload, "arm": arm, **servers, **figures, "cost_ratio": ratio})
    offered += [
        {"workload": None, "arm": arm, **_servers(row)} for (workload, arm), row in carried.items() if workload is None
    ]
    return pl.DataFrame([{name: row.get(name) for name in OFFER} for row in offered], schema=OFFER_SCHEMA)


def pareto(summary: pl.DataFrame) -> pl.DataFrame:
    """Return ``PARETO`` of the loads whose tasks per hour are known."""
    known = summary.filter(pl.col("tasks_per_hour").is_not_null() & (pl.col("concurrency") > 0))
    frame = known.with_columns(
        tasks_per_hour_per_agent=pl.col("tasks_per_hour").cast(pl.Float64) / pl.col("concurrency")
    )
    points = list(frame.select("workload", "tasks_per_hour", "tasks_per_hour_per_agent").iter_rows())
    best = [not any(_beats(other, point) for other in points) for point in points]
    return frame.with_columns(frontier=pl.Series("frontier", best, dtype=pl.Boolean)).select(PARETO)


def _load(rows: list[Row], carried: Row | None) -> Row | None:
    """Return the load at which an arm is compared, ``None`` where none keeps the service level."""
    if carried is None:
        return max(rows, key=lambda row: float(row["tasks_per_hour"]), default=None)
    if carried["agents"] is None:
        return None
    keeping = [row for row in rows if row["concurrency"] <= carried["agents"]]
    return max(keeping, key=lambda row: int(row["concurrency"]), default=None)


def _servers(carried: Row | None) -> dict[str, Any]:
    return {} if carried is None else {name: carried[name] for name in OFFER[2:12]}


def _beats(other: tuple[str, float, float], point: tuple[str, float, float]) -> bool:
    at_least = other[0] == point[0] and other[1] >= point[1] and other[2] >= point[2]
    return at_least and other[1:] != point[1:]


def baselines(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield workload and arm of each baseline that a manifest names."""
    for workload in manifest.get("workloads") or ():
        for arm in workload.get("arms") or ():
            if arm.get("method") == "none":
                yield workload["name"], arm["name"]
                break
