"""Agents per server: the largest load that keeps the objectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.analysis.agents import Carrying, gives_way, isotonic
from harness.analysis.capacity import capacity, servers_for, state
from harness.analysis.run import analyse
from harness.analysis.slo import parse_slo
from harness.records import StepRecord
from tests.builders import ARM, BASELINE, cell_key, run_folder, step, waves, workload_entry

TIMES = ("due_ns", "sent_ns", "first_token_ns", "end_ns")
TASKS = 6  # the fewest whose order bounds a median on both sides


def at_loads(
    times_ms: Mapping[tuple[str, int], float], tasks: int = TASKS, workload: str = "office"
) -> list[StepRecord]:
    """Return tasks that all take as long as said for their arm and load, each in a wave that fills all slots."""
    records = []
    for (arm, load), time in times_ms.items():
        wave = waves(cell_key(arm, load, workload=workload), [time] * tasks * load)
        records += [replace(record, task_id=f"t{i // load}") for i, record in enumerate(wave)]
    return records


def curve(values: Sequence[float]) -> Any:
    """Return one curve as a matrix of one row."""
    return np.array([values], dtype=np.float64)


def test_a_dip_is_levelled_with_what_came_before() -> None:
    """A load that looks faster than a lower one is chance: 3 and 2 become 2.5 each, by weight 1 to 3 they become 2.25."""
    assert isotonic(curve([1, 3, 2]), np.ones(3)).tolist() == [[1, 2.5, 2.5]]
    assert isotonic(curve([1, 3, 2]), np.array([1.0, 1.0, 3.0])).tolist() == [[1, 2.25, 2.25]]


def test_a_curve_that_rises_is_left_alone() -> None:
    """There is nothing to level, infinity at the end included."""
    assert isotonic(curve([1, 2, np.inf]), np.ones(3)).tolist() == [[1, 2, np.inf]]


@pytest.mark.parametrize(
    ("over", "load"),
    [
        ([-1, -0.5, 0.5], 2**1.5),  # halfway between 2 and 4 in doublings
        ([-1, -0.5, 0], np.inf),  # kept exactly at the highest
        ([0.1, 0.5, 1], -np.inf),
        ([-1, -0.5, np.inf], 2),  # failures at 4: nobody knows how soon before
        ([-1, np.nan, 1], np.nan),
    ],
)
def test_where_a_curve_gives_way(over: list[float], load: float) -> None:
    """Between two loads in doublings, beyond the range infinite, unknown where a load is."""
    np.testing.assert_allclose(gives_way([1, 2, 4], curve(over)), [load])


def found(folder: Path, limit: str = "3s", records: list[StepRecord] | None = None, **slo: str) -> dict[str, Any]:
    """Return the row of a baseline whose tasks take as many seconds as there are tasks in progress."""
    grown = {(BASELINE, load): 1000.0 * load for load in (1, 2, 4)}
    records = at_loads(grown) if records is None else records
    loads = sorted({record.cell.concurrency for record in records})
    entry = workload_entry(methods={BASELINE: "none"}, concurrency=loads, slo={"task_time_p50": limit} | slo)
    return analyse(run_folder(folder, records, workloads=[entry])).agents.row(0, named=True)


def outcome(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the figures of a row, and which ends of the interval are known."""
    return tuple(row[name] for name in ("agents", "agents_low", "agents_high", "interval", "capacity"))


def test_agents_are_read_between_loads(tmp_path: Path) -> None:
    """As many seconds as agents: 3 s are kept up to 3 agents, and all tasks agree on it."""
    row = found(tmp_path)
    assert outcome(row) == (3, 3, 3, "both", "found")
    assert (row["limited_by"], row["slo"], row["n_tasks"]) == ("task_time_p50", "task_time_p50 ≤ 3s", TASKS)


def test_tasks_that_only_the_highest_load_had_do_not_count(tmp_path: Path) -> None:
    """At 4 six more ran, of 12 s each: the six that ran at all loads take 4 s there, as before, and 3 s are kept up to 3 agents."""
    more = waves(cell_key(BASELINE, 4), [12_000.0] * TASKS * 4)
    last = max(record.end_ns for record in at_loads({(BASELINE, 4): 4000.0}))
    late = [
        replace(record, task_id=f"late{i // 4}", **{name: getattr(record, name) + last for name in TIMES})
        for i, record in enumerate(more)
    ]
    row = found(tmp_path, records=at_loads({(BASELINE, load): 1000.0 * load for load in (1, 2, 4)}) + late)
    assert outcome(row) == (3, 3, 3, "both", "found")


def test_where_few_ran_at_all_loads_all_of_them_count(tmp_path: Path) -> None:
    """Other tasks at each load: better these than nothing."""
    records = at_loads({(BASELINE, load): 1000.0 * load for load in (1, 2, 4)})
    apart = [replace(record, task_id=f"{record.task_id}-{record.cell.concurrency}") for record in records]
    assert outcome(found(tmp_path, records=apart)) == (3, 3, 3, "both", "found")


def test_the_highest_load_is_a_lower_bound(tmp_path: Path) -> None:
    """4 s at 4 agents keep 5 s: at least 4, nobody knows how many more."""
    assert outcome(found(tmp_path, "5s")) == (4, 4, None, "open_high", "at_least")


def test_a_level_missed_at_the_lowest_load_carries_no_agent(tmp_path: Path) -> None:
    """1 s alone is more than half a second: not even one."""
    assert outcome(found(tmp_path, "500ms")) == (0, 0, 0, "both", "none")


def test_below_a_lowest_load_of_two_nothing_is_known(tmp_path: Path) -> None:
    """One agent was never tried, so it is not said that none can be carried."""
    records = at_loads({(BASELINE, load): 1000.0 * load for load in (2, 4)})
    assert outcome(found(tmp_path, "1s", records)) == (None, None, None, "open_both", "none")


def test_failures_are_beyond_every_limit(tmp_path: Path) -> None:
    """Among four every other task fails, however fast the rest is: two are carried."""
    records = [
        replace(record, error_kind="timeout", error_message="x", output_sha256=None)
        if record.cell.concurrency == 4 and record.instance % 2
        else record
        for record in at_loads({(BASELINE, load): 1000.0 for load in (1, 2, 4)})
    ]
    assert outcome(found(tmp_path, "3s", records))[0] == 2


def test_three_tasks_say_nothing_of_a_p90(tmp_path: Path) -> None:
    """No figure is made up from three tasks."""
    records = at_loads({(BASELINE, load): 1000.0 for load in (1, 2)}, tasks=3)
    row = found(tmp_path, "3s", records, step_latency_p90="3s")
    assert (*outcome(row), row["n_tasks"]) == (None, None, None, "none", "unknown", 3)


def test_twelve_tasks_do_not_bound_a_p90_from_above(tmp_path: Path) -> None:
    """With twelve even the slowest may lie below p90: the estimate stands, that there may be fewer agents stays open."""
    records = at_loads({(BASELINE, load): 1000.0 * load for load in (1, 2, 4)}, tasks=12)
    loads = [1, 2, 4]
    entry = workload_entry(methods={BASELINE: "none"}, concurrency=loads, slo={"task_time_p90": "3s"})
    row = analyse(run_folder(tmp_path, records, workloads=[entry])).agents.row(0, named=True)
    assert outcome(row) == (3, None, 3, "open_low", "found")


def test_the_interval_follows_the_bounds_of_the_percentile(tmp_path: Path) -> None:
    """Six tasks of 1, 2, 2, 2, 2 and 4 s at each doubling: the median bounds are 1 and 4 times the load, so 1, 2 and 4 agents keep 4 s."""
    sizes = (0.5, 1, 1, 1, 1, 2)
    records = []
    for load in (1, 2, 4, 8):
        wave = waves(cell_key(BASELINE, load), [1000.0 * load * size for size in sizes for _ in range(load)])
        records += [replace(record, task_id=f"t{i // load}") for i, record in enumerate(wave)]
    assert outcome(found(tmp_path, "2s", records)) == (2, 1, 4, "both", "found")


def test_the_objective_that_gives_way_first_limits(tmp_path: Path) -> None:
    """The first token comes after half of each task: 1 s for it allows 2 agents, 3 s for the task would allow 3."""
    row = found(tmp_path, "3s", ttft_p50="1s")
    assert (row["agents"], row["limited_by"]) == (2, "ttft_p50")


def test_a_workload_without_objectives_has_no_row(tmp_path: Path) -> None:
    """Without a service level there is nothing to attain."""
    folder = run_folder(tmp_path, [step(cell_key(BASELINE))])
    assert analyse(folder).agents.is_empty()


def test_servers_are_rounded_and_agents_are_not() -> None:
    """1.9 agents a server make 53 servers for 100, not the 100 of whole agents; an exact division needs no spare one."""
    assert servers_for(100, 1.9) == 53
    assert servers_for(100, 100 / 7) == 7
    assert [servers_for(100, agents) for agents in (None, 0.9, np.inf)] == [None, None, None]


def carries(workload: str, reached: float, highest: int = 16) -> Carrying:
    """Return an arm that surely carries so many agents of a workload."""
    three = np.full((1, 3), reached)
    return Carrying(workload, ARM, (parse_slo("task_time_p50", "9s"),), (1, highest), 6, three, *(np.ones((3, 2)),) * 2)


def test_a_mix_takes_each_workloads_share_of_a_server() -> None:
    """Half of the agents take 1/8 of a server, half 1/4: on average 3/16, so 5.33 fit."""
    mixed = capacity([carries("office", 8), carries("code", 4)], {"office": 0.5, "code": 0.5})
    assert mixed.agents == pytest.approx(16 / 3)
    assert (mixed.open_ended, mixed.limited_by) == (False, "code: task_time_p50")


def test_a_mix_with_an_open_end_is_a_lower_bound() -> None:
    """A workload kept at 16, the highest load, takes 1/16 at most: at least 6.4 fit, and never more than 8."""
    mixed = capacity([carries("office", np.inf), carries("code", 4)], {"office": 0.5, "code": 0.5})
    assert (mixed.agents, mixed.low, mixed.high) == pytest.approx((6.4, 6.4, 8))
    assert mixed.open_ended


def test_a_mix_with_a_workload_that_cannot_be_carried_carries_none() -> None:
    """One kind of agent that misses its level even alone cannot be served beside others."""
    mixed = capacity([carries("office", 8), carries("code", -np.inf)], {"office": 0.5, "code": 0.5})
    assert (state(mixed), mixed.limited_by) == ("none", "code: task_time_p50")
