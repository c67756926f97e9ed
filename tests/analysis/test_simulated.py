"""A hundred runs on a server whose break-even, agents and acceptance are known: does the instrument find them?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pytest

from harness.analysis.acceptance import acceptance_length
from harness.analysis.agents import carrying
from harness.analysis.bootstrap import draw_counts, interval, seed_of
from harness.analysis.breakeven import break_even, curves
from harness.analysis.capacity import agents
from harness.analysis.speedup import matrices, pairs
from harness.analysis.steps import OK, counted
from tests import simulated_server as server
from tests.builders import ARM, BASELINE

RUNS = 100
LIMITS_S = {BASELINE: 41.0, ARM: 40.0}  # task times of which nine in ten are within at about 15 and at about 10 agents


@dataclass(frozen=True, slots=True)
class Found:
    """What one run says: (low, high) of each interval, acceptance lengths by kind, and two widths of the speed-up at 8."""

    break_even: tuple[float | None, float | None]
    agents: dict[str, tuple[int | None, int | None]]
    acceptance: dict[str, float]
    paired: float
    unpaired: float


def found(seed: int) -> Found:
    """Measure and analyse one run."""
    run = server.measure(seed)
    plans = [server.plan()]
    paired = pairs(run.tasks, plans)
    crossing = break_even(curves(paired, plans)).row(0, named=True)
    carried = {}
    for arm, limit in LIMITS_S.items():
        plan = server.plan(task_time_p90=f"{limit}s")
        own = replace(plan, methods={arm: plan.methods[arm]})
        row = agents(carrying(run.steps, run.tasks, [own])).row(0, named=True)
        carried[arm] = (row["agents_low"], row["agents_high"])
    good = counted(run.steps).filter(pl.col("steady") & OK & pl.col("drafter"))
    good = good.with_columns(pl.lit(None, pl.Boolean).alias(name) for name in ("repetitive", "identical"))
    lengths = dict(good.group_by("kind").agg(acceptance_length()).select("kind", "acceptance_length").iter_rows())
    return Found((crossing["break_even_low"], crossing["break_even_high"]), carried, lengths, *widths(paired))


def widths(paired: pl.DataFrame) -> tuple[float, float]:
    """Return how wide the interval of the speed-up at 8 is, drawing the same tasks in both arms, and drawing them apart."""
    own = matrices(paired.filter(pl.col("steady") & (pl.col("concurrency") == 8)), "task_time_s", ("office",))
    assert own is not None
    together = interval(own.draws()[:, 0], own.n_tasks[0])
    sums = [
        np.concatenate([counts @ times for counts in draw_counts(len(times), seed_of(name))])[:, 0]
        for name, times in (("baseline", own.baseline_s), ("arm", own.arm_s))
    ]
    apart = interval(sums[0] / sums[1], own.n_tasks[0])
    assert together is not None and apart is not None
    return together[1] - together[0], apart[1] - apart[0]


@pytest.fixture(scope="module")
def runs() -> list[Found]:
    """The same hundred runs for every question."""
    return [found(seed) for seed in range(RUNS)]


def test_the_interval_of_the_break_even_holds_the_true_one(runs: list[Found]) -> None:
    """26.67 − 12 ms are used up at 1.75 − 0.533 ms an agent: break-even at 12.05; of 100 intervals of 95 % at least 93 hold it."""
    truth = server.true_break_even()
    assert truth == pytest.approx(12.05, abs=0.01)
    assert server.count([server.covered(*run.break_even, truth) for run in runs]) >= 93


@pytest.mark.parametrize("arm", [BASELINE, ARM])
def test_the_interval_of_the_agents_per_server_holds_the_true_number(runs: list[Found], arm: str) -> None:
    """Nine in ten task times are within the limit up to a load that follows from the costs; at least 93 of 100 intervals hold it."""
    truth = math.floor(server.true_agents(arm, LIMITS_S[arm]))
    assert 8 < truth < 16
    assert server.count([server.covered(*run.agents[arm], truth) for run in runs]) >= 93


def test_acceptance_lengths_are_exact(runs: list[Found]) -> None:
    """One kind of step yields 2 tokens a round, the other 4, whatever tasks a run draws."""
    assert all(run.acceptance == {"plan": 2.0, "write": 4.0} for run in runs)


def test_pairing_narrows_the_interval(runs: list[Found]) -> None:
    """Long tasks are long in both arms: drawn together that cancels, drawn apart it does not."""
    assert all(run.paired < run.unpaired for run in runs)
