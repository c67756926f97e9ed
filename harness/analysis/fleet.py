"""A fleet of equal servers for a number of agents: how many, how fast, at what cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.analysis.agents import ESTIMATE, HIGH, LOW, Carrying, Matrix
from harness.analysis.capacity import WHOLE, Capacity, servers_for, whole

HOURS = 8766.0  # of a year, leap years averaged in


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
    """What one arm carries of the mix, how fast, and with what power."""

    arm: str
    carried: tuple[Carrying, ...]
    found: Capacity
    mix: Mapping[str, float]
    power_watts: float | None
    power_source: str | None

    @property
    def agents(self) -> float | None:
        """Agents per server before rounding, ``None`` where nobody can say."""
        return self._known(self.found.agents)

    @property
    def agent_ends(self) -> tuple[float | None, float | None]:
        """The interval of :attr:`agents`; ``None``: beyond the measured range, or unknown."""
        return self._known(self.found.low), self._known(self.found.high)

    def whole(self, agents: float | None) -> int | None:
        """Return agents per server as people read them, rounded down."""
        return None if agents is None else whole(agents, self._lowest)

    @property
    def _lowest(self) -> int:
        return max((item.loads[0] for item in self.carried if item.loads), default=1)

    def _known(self, agents: float | None) -> float | None:
        return None if self.whole(agents) is None else agents

    def task_time_s(self, on_each: float) -> tuple[float, float | None, float | None]:
        """Return the mean task time over the mix at a load and its interval, interpolated in both logarithms.

        Each workload counts with the tasks that its agents finish.
        """

        def mean(row: int) -> float:
            times = [_between(item.loads, item.task_time_s[row], on_each) for item in self.carried]
            return sum(rate * time for rate, time in zip(self._rates(on_each, row), times, strict=True)) / sum(
                self._rates(on_each, row)
            )

        return _known(mean)

    def slot_s(self, on_each: float) -> tuple[float, float | None, float | None]:
        """Return how long one agent takes for a finished task, failed ones included, at a load, and the interval."""
        return _known(lambda row: 1 / sum(self._rates(on_each, row)))

    def _rates(self, on_each: float, row: int) -> list[float]:
        """Return what an agent of the mix finishes of each workload a second."""
        return [self.mix[item.workload] / _between(item.loads, item.slot_s[row], on_each) for item in self.carried]

    def fleet(self, given: Assumptions, agents: float | None, slower: float = 1.0) -> Fleet | None:
        """Return the servers for so many agents per server, ``None`` where a server carries none or nobody knows.

        Args:
            given: what was stated.
            agents: per server, before rounding: only servers come whole.
            slower: factor on the time that a finished task takes.
        """
        if agents is None or agents < 1 - WHOLE:
            return None
        exact = given.busy / (agents * (1 - given.headroom))
        servers = servers_for(exact, 1.0) or 1
        on_each = given.busy / servers
        time = self.slot_s(on_each)[0]
        if math.isnan(time):
            return None
        tasks_per_hour = given.busy * 3600 / (time * slower)
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


def _known(of: Callable[[int], float]) -> tuple[float, float | None, float | None]:
    estimate, low, high = (of(row) for row in (ESTIMATE, LOW, HIGH))
    return estimate, None if math.isnan(low) else low, None if math.isnan(high) else high


def _between(loads: Sequence[int], times: Matrix, at: float) -> float:
    """Return the task time at a load, linear in both logarithms; at or below the lowest load that of the lowest.

    Loads at which no task succeeded are left out; NaN where that leaves none.
    """
    known = ~np.isnan(times)
    if not known.any():
        return math.nan
    return float(np.exp(np.interp(math.log2(max(at, loads[0])), np.log2(loads)[known], np.log(times[known]))))
