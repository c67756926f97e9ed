"""What a buyer compares."""

from __future__ import annotations

from typing import Any

import polars as pl

from harness.analysis.frames import AGENTS_SCHEMA
from harness.analysis.offer import offer, pareto

LOADS = {1: (10.0, 360.0), 4: (20.0, 720.0), 16: (80.0, 600.0)}  # concurrency: task time in s, tasks an hour


def summary(**faster: float) -> pl.DataFrame:
    """Return a summary of arms that are so many times as fast as the baseline at every load."""
    rows = [
        {"workload": "office", "arm": arm, "concurrency": load, "n_tasks": 12, "task_time_mean_s": time / factor,
         "tasks_per_hour": rate * factor}
        for arm, factor in {"baseline": 1.0, **faster}.items()
        for load, (time, rate) in LOADS.items()
    ]  # fmt: skip
    return pl.DataFrame(rows)


def agents(*rows: dict[str, Any]) -> pl.DataFrame:
    """Return agents per server with a service level."""
    plain = {
        "workload": "office",
        "slo": "task_time_p90 <= 30s",
        "interval": "both",
        "capacity": "found",
        "n_tasks": 12,
    }
    return pl.DataFrame([plain | row for row in rows], schema=AGENTS_SCHEMA)


def rows(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the rows by arm."""
    return {row["arm"]: row for row in frame.iter_rows(named=True)}


def test_servers_for_a_hundred_agents_are_those_of_the_capacity() -> None:
    """They come with the agents per server, as reckoned before these were rounded."""
    servers = {"servers_per_100": 13, "servers_per_100_low": 12, "servers_per_100_high": 15}
    carried = agents({"arm": "baseline", "agents": 7, "agents_low": 6, "agents_high": 8, **servers})
    row = rows(offer(carried, summary(), {"office": "baseline"}))["baseline"]
    assert {name: row[name] for name in servers} == servers


def test_arms_are_compared_at_the_highest_load_that_keeps_the_service_level() -> None:
    """The baseline carries 3 (load 1), the arm 5 (load 4): 360 against 1,440 tasks an hour, a quarter of the cost."""
    carried = agents({"arm": "baseline", "agents": 3}, {"arm": "ngram", "agents": 5})
    found = rows(offer(carried, summary(ngram=2.0), {"office": "baseline"}))
    assert [(found[arm]["concurrency"], found[arm]["cost_ratio"]) for arm in ("baseline", "ngram")] == [
        (1, 1.0),
        (4, 0.25),
    ]


def test_without_a_service_level_the_load_with_the_most_tasks_an_hour_stands() -> None:
    """Concurrency 4 beats 16; nothing is said of agents and servers."""
    row = rows(offer(agents(), summary(), {"office": "baseline"}))["baseline"]
    assert (row["concurrency"], row["tasks_per_hour"], row["agents"], row["servers_per_100"]) == (4, 720.0, None, None)


def test_an_arm_that_keeps_no_load_has_no_cost() -> None:
    """The service level is missed at 1 already."""
    carried = agents({"arm": "baseline", "agents": 3}, {"arm": "ngram", "agents": 0, "capacity": "none"})
    row = rows(offer(carried, summary(ngram=0.5), {"office": "baseline"}))["ngram"]
    assert (row["concurrency"], row["cost_ratio"], row["servers_per_100"]) == (None, None, None)


def test_the_best_trades_are_the_points_that_no_other_beats() -> None:
    """An arm twice as fast beats the baseline everywhere; of its own loads 16 is beaten by 4 in both."""
    frame = pareto(summary(ngram=2.0))
    best = frame.filter("frontier").select("arm", "concurrency", "tasks_per_hour_per_agent").rows()
    assert best == [("ngram", 1, 720.0), ("ngram", 4, 360.0)]
