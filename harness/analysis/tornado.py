"""Which assumption moves the size of a fleet, or its cost, most: one at a time, everything else as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.analysis.capacity import capacity
from harness.analysis.fleet import HOURS, ArmLoad, Assumptions, Fleet

FIFTH = 0.2
MOST_HEADROOM = 0.95
MIX = "mix:"
"""Before the name of the workload whose share of the agents is moved."""


def tornado(load: ArmLoad, given: Assumptions) -> list[tuple[str | float | None, ...]]:
    """Return ``frames.TORNADO`` of one arm, the assumption that moves the answer most first, those without an interval last.

    Nothing where there is no answer.
    """
    agents = load.agents
    base = load.fleet(given, agents)
    if base is None or agents is None:
        return []
    rows = []
    low, high = load.agent_ends
    moved = [load.fleet(given, end) for end in (low, high)]
    rows.append(_moved(load.arm, "agents_per_server", "measured", (agents, low, high), base, moved))
    time, fast, slow = load.slot_s(base.on_each)
    moved = [None if end is None else load.fleet(given, agents, end / time) for end in (fast, slow)]
    rows.append(_moved(load.arm, "task_time", "measured", (time, fast, slow), base, moved))
    for name, ends in _tried(given).items():
        moved = [load.fleet(replace(given, **{name: end}), agents) for end in ends]  # type: ignore[arg-type]
        source = "measured" if name == "power_watts" and load.power_source == "nvml" else "stated"
        rows.append(_moved(load.arm, name, source, (getattr(given, name), *ends), base, moved))
    for workload, shares in _mixes(given):
        others = [_with_share(load, given, workload, end) for end in shares]
        moved = [other.fleet(given, other.agents) for other in others]
        rows.append(_moved(load.arm, MIX + workload, "stated", (given.mix[workload], *shares), base, moved))
    return sorted(rows, key=lambda row: -(row[-1] or 0.0))  # type: ignore[operator]


def _tried(given: Assumptions) -> dict[str, tuple[float, float]]:
    """Return the two values that are tried for each stated assumption; the value itself lies between them."""
    tried = {
        name: (value * (1 - FIFTH), value * (1 + FIFTH))
        for name in ("agents", "busy_share", "price", "power_watts", "kwh_price", "hours")
        if (value := getattr(given, name)) is not None
    }
    tried["busy_share"] = (tried["busy_share"][0], min(tried["busy_share"][1], 1.0))
    tried["hours"] = (tried["hours"][0], min(tried["hours"][1], HOURS))
    more = given.headroom + 0.1
    tried["headroom"] = (
        max(given.headroom - 0.1, 0.0),
        more if more <= MOST_HEADROOM else (1 + given.headroom) / 2,
    )
    if given.years is not None:
        tried["years"] = (given.years - 1 if given.years >= 2 else given.years / 2, given.years + 1)
    if given.price is None:
        for name in ("hours", "kwh_price", "power_watts"):  # they move the cost alone
            tried.pop(name, None)
    return tried


def _mixes(given: Assumptions) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield each workload with the two shares of the agents that are tried; nothing where there is only one."""
    for workload, share in given.mix.items() if len(given.mix) > 1 else ():
        yield workload, (share * (1 - FIFTH), min(share * (1 + FIFTH), (1 + share) / 2))


def _with_share(load: ArmLoad, given: Assumptions, workload: str, share: float) -> ArmLoad:
    """Return what an arm carries where a workload has another share; the others keep their proportions."""
    rest = (1 - share) / (1 - given.mix[workload])
    mix = {name: share if name == workload else own * rest for name, own in given.mix.items()}
    return replace(load, mix=mix, found=capacity(load.carried, mix))


def _moved(
    arm: str,
    name: str,
    source: str,
    values: tuple[float, float | None, float | None],
    base: Fleet,
    moved: Sequence[Fleet | None],
) -> tuple[str | float | None, ...]:
    low, high = moved
    swings = [
        _swing([None if fleet is None else fleet.exact for fleet in (base, low, high)]),
        _swing([None if fleet is None else fleet.cost_per_1000 for fleet in (base, low, high)]),
    ]
    known = [swing for swing in swings if swing is not None]
    return (
        arm, name, source, *values, low.servers if low else None, high.servers if high else None,
        low.cost_per_1000 if low else None, high.cost_per_1000 if high else None, max(known, default=None),
    )  # fmt: skip


def _swing(figures: Sequence[float | None]) -> float | None:
    """Return how far a figure moves between both ends relative to itself, from itself where only one end is known.

    ``None`` where that end is the figure itself: then all its way lies at the end that nobody knows.
    """
    base, low, high = figures
    if not base or (low is None and high is None) or (None in (low, high) and base in (low, high)):
        return None
    return abs((base if high is None else high) - (base if low is None else low)) / base
