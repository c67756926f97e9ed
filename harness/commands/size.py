"""`harness size`: its arguments, and from a run folder and what the user states to servers, costs and their files."""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.analysis.fleet import Assumptions

SUMS = (1.0, 100.0)  # what the shares of a mix may sum up to
RANGES = {
    "--agents": (1.0, 1e9),
    "--price": (1e-6, 1e15),
    "--years": (0.01, 100.0),
    "--hours": (1.0, 8766.0),  # of a year, leap years averaged in
    "--power-watts": (1e-3, 1e9),
    "--kwh-price": (1e-9, 1e9),
}
LEAST_BUSY = 1e-6
MOST_HEADROOM = 0.99
NEARLY = 1e-3  # of a sum: thirds are written as 33.33


@dataclass(frozen=True, slots=True)
class Sized:
    """What the command line says at the end: tables and sentences, the page, the verdict."""

    text: str
    page: Path
    verdict: str


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    command.add_argument("folder", type=Path, metavar="RUN", help="a folder that harness run wrote")
    command.add_argument("--agents", required=True, metavar="N", help="agents that shall work on these servers")
    command.add_argument(
        "--busy-share",
        default="1",
        metavar="SHARE",
        help="share of them with a task in progress at the busiest time: 0.4 or 40%% (default 1)",
    )
    command.add_argument(
        "--headroom", default="0", metavar="SHARE", help="share of each server that stays free: 0.2 or 20%% (default 0)"
    )
    command.add_argument("--price", metavar="AMOUNT", help="price of one server, in any currency; needs --years")
    command.add_argument("--years", metavar="YEARS", help="over how many years the price is spread")
    command.add_argument(
        "--hours",
        metavar="HOURS",
        help="hours of a year in which the agents work, over which the price is spread (default: all)",
    )
    command.add_argument(
        "--power-watts",
        metavar="WATTS",
        help="power of one server under load (default: that of its GPUs, where the run measured it)",
    )
    command.add_argument("--kwh-price", metavar="AMOUNT", help="price of a kilowatt-hour, in the currency of --price")
    command.add_argument("--currency", default="", metavar="NAME", help="what to write behind amounts of money")
    command.add_argument(
        "--mix",
        metavar="WORKLOAD=SHARE,…",
        help="share of the agents by workload, for example office-ko=60,coding-en=40 (default: equal)",
    )
    command.add_argument(
        "--slo", action="append", metavar="NAME=LIMIT", default=[],
        help="service level instead of the workloads' own, for example task_time_p90=40s; may be given several times",
    )  # fmt: skip
    command.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: the run folder)")
    command.add_argument("--lang", choices=("ko", "en"), help="language of the report (default: that of the run)")


def size(args: argparse.Namespace) -> Sized:
    """Size, write the files and return what is to be said.

    Raises:
        UsageError: if an argument is no number of its kind, the mix does not fit the run, or no arm can be sized.
        RunFolderError: if the folder is no run, is damaged, or holds nothing that was finished.
    """
    from harness.analysis.plan import read_plan
    from harness.analysis.run import analyse
    from harness.analysis.sizing import size as sized
    from harness.analysis.slo import read_objectives
    from harness.store import RunFolder
    from reports import sizing as rendered

    objectives = read_objectives(args.slo)
    folder = RunFolder.open(args.folder)
    plans = read_plan(folder.manifest)
    given = assumptions(args, [plan.name for plan in plans])
    if objectives:
        plans = tuple(replace(plan, slo=objectives) for plan in plans)
    result = sized(analyse(folder, objectives), plans, given, str(args.folder))
    lang = args.lang or folder.manifest.get("lang") or "en"
    if result.arms["servers"].null_count() == result.arms.height:
        raise UsageError(f"{args.folder}: {rendered.headline(result, lang)}")
    page = rendered.write_all(result, args.out or folder.path, lang)
    return Sized(rendered.console(result, lang), page, rendered.headline(result, lang))


def assumptions(args: argparse.Namespace, workloads: Sequence[str]) -> Assumptions:
    """Return what was stated.

    Raises:
        UsageError: naming the option, what it was given and what it may be.
    """
    from harness.analysis.fleet import HOURS, Assumptions

    agents = _within("--agents", args.agents)
    if agents is None or not agents.is_integer():
        raise UsageError(f"--agents is {args.agents!r}; give a whole number above 0")
    price, years = _within("--price", args.price), _within("--years", args.years)
    if (price is None) != (years is None):
        raise UsageError(
            "--price and --years belong together: the price of a server is spread over the years of its use"
        )
    watts, kwh_price = _within("--power-watts", args.power_watts), _within("--kwh-price", args.kwh_price)
    hours = _within("--hours", args.hours) or HOURS
    busy = share("--busy-share", args.busy_share, "above 0 up to 1, such as 0.4 or 40%")
    headroom = share("--headroom", args.headroom, "from 0 to below 1, such as 0.2 or 20%")
    if 0 < busy < LEAST_BUSY:
        raise UsageError(f"--busy-share is {args.busy_share!r}; give at least {LEAST_BUSY:g}, or fewer agents")
    if MOST_HEADROOM < headroom < 1:
        raise UsageError(f"--headroom is {args.headroom!r}; give at most {MOST_HEADROOM:g}")
    if busy == 0:
        raise UsageError(f"--busy-share is {args.busy_share!r}; give a share above 0 up to 1, such as 0.4 or 40%")
    if headroom == 1:
        raise UsageError(f"--headroom is {args.headroom!r}; give a share from 0 to below 1, such as 0.2 or 20%")
    return Assumptions(
        agents=agents,
        mix=read_mix(args.mix, workloads),
        busy_share=busy,
        headroom=headroom,
        price=price,
        power_watts=watts,
        kwh_price=kwh_price,
        years=years,
        hours=hours,
        currency=args.currency,
    )


def _number(option: str, text: str | None, allowed: str = "a number above 0") -> float | None:
    if text is None:
        return None
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise UsageError(f"{option} is {text!r}; give {allowed}")
    return value


def _within(option: str, text: str | None) -> float | None:
    """Return a number inside :data:`RANGES`, so that no figure made of it overflows or vanishes."""
    least, most = RANGES[option]
    value = _number(option, text, "a whole number above 0" if option == "--agents" else "a number above 0")
    if value is not None and not least <= value <= most:
        raise UsageError(f"{option} is {text!r}; give a number from {least:g} to {most:,.0f}")
    return value


def share(option: str, text: str, allowed: str = "from 0 to 1, such as 0.4 or 40%") -> float:
    """Return a share of 1, also written in per cent.

    Raises:
        UsageError: if it is none.
    """
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise UsageError(f"{option} is {text!r}; give a share {allowed}")
    return value


def read_mix(text: str | None, workloads: Sequence[str]) -> Mapping[str, float]:
    """Return the share of the agents by workload, equal ones where nothing was said.

    Raises:
        UsageError: if a workload is not in the run or named twice, a share is no number above 0, or they do not sum up.
    """
    if text is None:
        return {name: 1 / len(workloads) for name in workloads}
    mix: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, given = (piece.strip() for piece in part.partition("="))
        value = _number(f"--mix {name}", given, "a share above 0") if equals else None
        if value is None:
            raise UsageError(f"--mix: {part!r} is no workload with its share; for example {workloads[0]}=100")
        if name not in workloads:
            close = difflib.get_close_matches(name, workloads, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UsageError(f"--mix: the run has no workload {name!r}; {hint}it has {', '.join(workloads)}")
        if name in mix:
            raise UsageError(f"--mix names {name!r} twice; keep one")
        mix[name] = value
    total = sum(mix.values())
    if not any(abs(total - wanted) <= NEARLY * wanted for wanted in SUMS):
        raise UsageError(f"--mix: the shares sum up to {total:g}; they must sum up to 100 (or to 1)")
    return {name: value / total for name, value in mix.items()}
