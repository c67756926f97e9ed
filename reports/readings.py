"""What each chart says, in one sentence from its own rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reports.wording import Wording, crossing, is_unknown, number, percent

Row = Mapping[str, Any]
MOST_ARMS = 3  # in one sentence; the table has all of them


def speed_up(rows: Sequence[Row], ends: Mapping[tuple[str, str], Row], words: Wording) -> str:
    """Return the speed-up of each arm at its lowest and highest load, and where it breaks even; the fastest come first."""

    def of(arm: str, own: Sequence[Row]) -> str:
        first, last = own[0], own[-1]
        found = ends.get((first["workload"], arm))
        if found is None or is_unknown(found["break_even"]):
            end = words.text("reading.no_break_even")
        else:
            place = crossing(found["break_even"], found["break_even_low"], found["break_even_high"], found["interval"])
            end = words.text("reading.break_even", break_even=place)
        figures = {"first": number(first["speed_up"], "x"), "last": number(last["speed_up"], "x")}
        return words.text(
            "reading.speed_up", arm=arm, lowest=first["concurrency"], highest=last["concurrency"], end=end, **figures
        )

    lowest = min(row["concurrency"] for row in rows)
    gain = {row["arm"]: float(row["speed_up"]) for row in rows if row["concurrency"] == lowest}
    best_first = sorted(rows, key=lambda row: -gain.get(row["arm"], 0.0))
    return _by_arm(best_first, "concurrency", of, words)


def task_time(rows: Sequence[Row], words: Wording) -> str:
    """Return the median task time of each arm at the highest load: of the first row, then of the fastest."""
    highest = max(row["concurrency"] for row in rows)
    first, *others = (row for row in rows if row["concurrency"] == highest)
    own = [first, *sorted(others, key=lambda row: float(row["task_time_p50_s"]))]
    items = [f"{row['arm']} {words.quantity(row['task_time_p50_s'], 's')}" for row in own]
    return words.text("reading.task_time", concurrency=highest, items=_listed(items, words))


def acceptance(rows: Sequence[Row], words: Wording) -> str:
    """Return where each arm is accepted least and most; without rounds that means tokens per pass."""

    def of(arm: str, own: Sequence[Row]) -> str:
        name = (
            "acceptance_length" if any(not is_unknown(row["acceptance_length"]) for row in own) else "tokens_per_pass"
        )
        known = sorted((row for row in own if not is_unknown(row[name])), key=lambda row: float(row[name]))
        least, most = known[0], known[-1]
        figures = {"least": number(least[name], "tokens/round"), "most": number(most[name], "tokens/round")}
        key = "reading.acceptance_one" if len(known) == 1 else f"reading.{name}"
        return words.text(key, arm=arm, least_step=least["step"], most_step=most["step"], **figures)

    return _by_arm(rows, None, of, words)


def survival(rows: Sequence[Row], words: Wording) -> str:
    """Return the share of rounds that accept the first drafted token and the last one."""

    def of(arm: str, own: Sequence[Row]) -> str:
        figures = {"first": percent(own[0]["survival"]), "last": percent(own[-1]["survival"])}
        return words.text("reading.survival", arm=arm, position=own[-1]["position"], **figures)

    return _by_arm(rows, "position", of, words)


def lossless(rows: Sequence[Row], words: Wording) -> str:
    """Return the load at which each arm leaves the baseline's outputs most often, if it does at any."""

    def of(arm: str, own: Sequence[Row]) -> str:
        worst = min(own, key=lambda row: float(row["identical_share"]))
        if worst["identical_share"] == 1:
            return words.text("reading.lossless_all", arm=arm)
        share = percent(worst["identical_share"]).removesuffix(".0")
        return words.text("reading.lossless", arm=arm, share=share, concurrency=worst["concurrency"])

    return _by_arm(rows, "concurrency", of, words)


def pareto(rows: Sequence[Row], words: Wording) -> str:
    """Return which points no other one beats."""
    best = [f"{row['arm']} @ {row['concurrency']}" for row in rows if row["frontier"]]
    return words.text("reading.pareto", n=len(rows), items=", ".join(best))


def _by_arm(rows: Sequence[Row], over: str | None, of: Callable[[str, Sequence[Row]], str], words: Wording) -> str:
    """Return one clause an arm, its rows in the order of the chart's axis."""
    clauses = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        own = [row for row in rows if row["arm"] == arm]
        clauses.append(of(arm, own if over is None else sorted(own, key=lambda row: row[over])))
    return _listed(clauses, words) + "."


def _listed(items: Sequence[str], words: Wording) -> str:
    rest = len(items) - MOST_ARMS
    more = [words.text("reading.more", n=rest)] if rest > 0 else []
    return "; ".join([*items[:MOST_ARMS], *more])
