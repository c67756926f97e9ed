"""``drafters claims``: list the claims, run one or all of them, report; and the small tools that they need beside the stages."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from drafters.claims import candidates, documents, edits, recorded
from drafters.claims.edits import EDITS
from drafters.claims.scale import SCALES, Setting, load_scale
from drafters.claims.stages import Cost, in_order
from drafters.training.stage import StageError

__all__ = ["HELP", "NAME", "add_arguments", "plan", "run"]

NAME = "claims"
HELP = "fifteen claims about drafters, each tested by one command"
TOOLS: Mapping[str, tuple[ModuleType, str]] = {
    "documents": (documents, "generated texts to learn from, and tasks to be measured on"),
    "recorded": (recorded, "recorded answers in place of the target's own"),
    "candidates": (candidates, "how often the right token is among a dflash2 drafter's candidates"),
}
"""Tool → its module, and what it does."""
OUT = Path("reports/runs/claims")
WORKLOADS = Path("workloads")
RATES = {"trained": 5000.0, "written": 600.0, "captured": 4000.0, "measured": 450.0}
"""Tokens a second on two cores with ref-koen, for estimates alone."""
START_S = 7.0
"""Of a stage's start."""
Say = Callable[[str], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = actions.add_parser("list", help="the claims, and about how long each takes on two cores")
    _scale(listed)
    listed.add_argument("--lang", choices=("en", "ko"), default="en")
    one = actions.add_parser("run", help="run claims; what is done already, by any of them, is not done again")
    one.add_argument("numbers", nargs="+", metavar="N", help="numbers of claims, or all")
    one.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"folder of the stages and results ({OUT})")
    _scale(one)
    one.add_argument("--seeds", type=int, metavar="N", help="trainings of each kind (default: the scale's)")
    one.add_argument(
        "--target", default="ref-koen", metavar="MODEL", help="shipped model or Hugging Face folder (ref-koen)"
    )
    one.add_argument("--workloads", type=Path, default=WORKLOADS, metavar="DIR", help="folder of the workload files")
    one.add_argument("--lang", choices=("en", "ko"), default="en", help="language of what is said")
    one.add_argument("--plan", action="store_true", help="show the stages' command lines, do nothing")
    report = actions.add_parser(
        "report", help="pages in Korean and English from what was run, with charts, hashes and counts"
    )
    report.add_argument("folder", type=Path, metavar="DIR", help="the --out of 'drafters claims run'")
    report.add_argument("--to", type=Path, metavar="DIR", help="where pages and counts go (default: DIR/report)")
    for tool, (module, text) in TOOLS.items():
        module.add_arguments(actions.add_parser(tool, help=text))
    for edit, text in EDITS.items():
        edits.add_arguments(edit, actions.add_parser(edit, help=text))


def run(options: argparse.Namespace, say: Say) -> int:
    """Do what was asked. Raises StageError for bad input."""
    if options.action == "list":
        return _list(options, say)
    if options.action == "run":
        return _run(options, say)
    if options.action == "report":
        return _report(options)
    if options.action in EDITS:
        return edits.run(options.action, options, say)
    code: int = TOOLS[options.action][0].run(options, say)
    return code


def plan(options: argparse.Namespace) -> list[str]:
    """The command lines of ``run``, in order. Raises StageError."""
    from drafters.claims.catalogue import CLAIMS
    from drafters.claims.recipes import Recipes
    from drafters.claims.store import Store

    recipes, store = Recipes(_setting(options)), Store(options.out)
    wanted = [stage for number in _numbers(options.numbers) for stage in CLAIMS[number].plan(recipes).values()]
    return [store.command(stage) for stage in in_order(wanted)]


def estimate(cost: Cost, stages: int) -> float:
    """Seconds on two cores, from tokens and starts."""
    return sum(float(getattr(cost, name)) / rate for name, rate in RATES.items()) + START_S * stages


def _scale(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scale", default=SCALES[0], metavar="SCALE", help=f"{', '.join(SCALES)}, or a YAML file with their keys"
    )


def _setting(options: argparse.Namespace) -> Setting:
    target = options.target if options.target == "ref-koen" else str(Path(options.target).resolve())
    return Setting(load_scale(options.scale, options.seeds), options.workloads.resolve(), target)


def _numbers(given: Sequence[str]) -> list[int]:
    from drafters.claims.catalogue import CLAIMS

    if list(given) == ["all"]:
        return list(CLAIMS)
    numbers = [int(text) for text in given if text.isdigit()]
    if len(numbers) < len(given) or any(number not in CLAIMS for number in numbers):
        raise StageError(f"{' '.join(given)!r}; allowed: numbers from 1 to {len(CLAIMS)}, or all")
    return numbers


def _list(options: argparse.Namespace, say: Say) -> int:
    from drafters.claims.catalogue import CLAIMS
    from drafters.claims.recipes import Recipes
    from drafters.claims.words import words

    recipes = Recipes(Setting(load_scale(options.scale), WORKLOADS.resolve()))
    spoken, seen, total = words(options.lang), set(), 0.0
    for number, claim in CLAIMS.items():
        stages = list(in_order(list(claim.plan(recipes).values())))
        own = sum((stage.cost for stage in stages), Cost())
        alone = estimate(own, len(stages))
        new = [stage for stage in stages if stage not in seen]
        seen |= set(stages)
        total += estimate(sum((stage.cost for stage in new), Cost()), len(new))
        say(
            f"{number:>2} {spoken.claim(number)['title']} — {alone / 60:.0f} min alone, {len(stages)} stages: "
            f"{own.trained:,} tokens trained on, {own.written:,} written by the target, {own.measured:,} measured at most"
        )
    say(
        f"all of them, shared stages once: about {total / 60:.0f} min on two cores (estimated from rates, not measured)"
    )
    return 0


def _run(options: argparse.Namespace, say: Say) -> int:
    from drafters.claims.catalogue import CLAIMS
    from drafters.claims.recipes import Recipes
    from drafters.claims.result import judge
    from drafters.claims.store import Store
    from drafters.claims.words import words

    setting, store, spoken = _setting(options), Store(options.out), words(options.lang)
    numbers = _numbers(options.numbers)
    for number in numbers:
        claim = CLAIMS[number]
        say(f"claim {number}: {spoken.claim(number)['title']}")
        if code := store.run(list(claim.plan(Recipes(setting)).values()), say):
            return code
        said = judge(claim, setting, store, options.scale)["said"][options.lang]
        for line in said["parts"]:
            say(f"  {line}")
        say(f"claim {number}: {said['verdict']}. {said['advice']}")
    say(f"report: drafters claims report {options.out}")
    return 0


def _report(options: argparse.Namespace) -> int:
    from drafters.claims.result import read_results

    read_results(options.folder)  # what cannot be read is told before anything is written
    to = options.to or options.folder / "report"
    return subprocess.run(
        [sys.executable, "-m", "reports.claims", str(options.folder), str(to)], check=False
    ).returncode
