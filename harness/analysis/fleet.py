"""A fleet of equal servers for a number of agents: how many, how fast, at what cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.analysis.agents import WHOLE, Capacity, Carrying, whole
from harness.analysis.bootstrap import interval

HOURS = 8766.0  # of a year, leap years averaged in
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What whoever sizes states; money is in one currency, whichever. ``None``: not stated.

    ``busy_share`` of the agents have a task in progress at the busiest time; ``headroom`` of each server stays free; ``price`` is that
    of a server, written off over ``years`` of which each has ``hours`` in use; ``mix`` is the share of the agents by workload.
    """

    agents: float
    mix: Mapping[str, float]
    busy_share: float = 1.0
    headroom: float = 0.0
    price: float | None = None
    power_watts: float | None = None
    kwh_price: float | None = None
    years: float | None = None
    hours: float = HOURS
    currency: str = ""

    @property
    def busy(self) -> float:
        """Tasks in progress at the busiest time."""
        return self.agents * self.busy_share


@dataclass(frozen=True, slots=True)
class Fleet:
    """Servers that carry the busy agents: ``exact`` before rounding up; costs ``None`` without a price, energy without a power."""

    servers: int
    exact: float
    on_each: float
    tasks_per_hour: float
    kwh_per_1000: float | None
    cost_per_1000: float | None
    cost_per_year: float | None


@dataclass(frozen=True, slots=True)
class ArmLoad:
    """What one arm carries of the mix and how fast; row 0 of what it returns is the estimate, the others are draws."""

    arm: str
    carried: tuple[Carrying, ...]
    found: Capacity
    mix: Mapping[str, float]
    power_watts: float | None
    power_source: str | None

    @property
    def agents(self) -> int | None:
        """Whole agents per server, ``None`` where nobody can say."""
        lowest = [item.loads[0] for item in self.carried if item.loads]
        return None if self.found.agents is None else whole(self.found.agents, lowest)

    def tasks_per_agent_hour(self, on_each: Matrix) -> Matrix:
        """Return how many tasks an hour an agent finishes at these loads, task times interpolated in both logarithms. # [1 + draws]"""
        rate = np.zeros(len(on_each))
        for item in self.carried:
            rate += self.mix[item.workload] * 3600 / _between(item.loads, item.task_time_s, on_each)
        return rate

    def fleet(self, given: Assumptions, agents: float, slower: float = 1.0) -> Fleet | None:
        """Return the servers for so many agents per server, ``None`` where a server carries none.

        Args:
            given: what was stated.
            agents: per server.
            slower: factor on the task times.
        """
        if agents <= 0:
            return None
        exact = given.busy / (agents * (1 - given.headroom))
        servers = max(1, math.ceil(exact - WHOLE))
        on_each = given.busy / servers
        tasks_per_hour = given.busy * float(self.tasks_per_agent_hour(np.array([on_each]))[0]) / slower
        kilowatts = None if given.power_watts is None else servers * given.power_watts / 1000
        energy = 0.0 if kilowatts is None or given.kwh_price is None else kilowatts * given.kwh_price
        cost = None
        if given.price is not None and given.years is not None:
            cost = servers * given.price / (given.years * given.hours) + energy  # an hour
        return Fleet(
            servers=servers,
            exact=exact,
            on_each=on_each,
            tasks_per_hour=tasks_per_hour,
            kwh_per_1000=None if kilowatts is None else kilowatts / tasks_per_hour * 1000,
            cost_per_1000=None if cost is None else cost / tasks_per_hour * 1000,
            cost_per_year=None if cost is None else cost * given.hours,
        )


def _between(loads: Sequence[int], times: Matrix, at: Matrix) -> Matrix:
    """Return task times at these loads, linear in both logarithms; at or below the lowest load that of the lowest. # [rows]"""
    if len(times) != len(at):
        times = times[: len(at)]
    axis = np.log2(np.asarray(loads, dtype=np.float64))
    place = np.clip(np.log2(at), axis[0], axis[-1])
    if len(loads) == 1:
        return times[:, 0]
    right = np.clip(np.searchsorted(axis, place), 1, len(axis) - 1)
    rows, share = np.arange(len(at)), (place - axis[right - 1]) / (axis[right] - axis[right - 1])
    lower, upper = np.log(times[rows, right - 1]), np.log(times[rows, right])
    found: Matrix = np.exp(lower + share * (upper - lower))
    return found


def agent_limits(load: ArmLoad) -> tuple[int | None, int | None]:
    """Return the interval of the agents per server, ``None`` for an end beyond the measured range and where there is none."""
    lowest = [item.loads[0] for item in load.carried if item.loads]
    limits = load.found.limits()
    low, high = (None, None) if limits is None else (whole(end, lowest) for end in limits)
    return low, high


def task_time(load: ArmLoad, on_each: float) -> tuple[float, float | None, float | None]:
    """Return the mean task time on each server with its interval."""
    times = 3600 / load.tasks_per_agent_hour(np.full(len(load.found.lower), on_each))
    limits = None if load.found.limits() is None else interval(times[1:], load.found.n_tasks)
    return (float(times[0]), *(limits or (None, None)))
