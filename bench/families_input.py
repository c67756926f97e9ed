"""What the benchmark of drafter families runs: an arm for each drafter that comes with the package, on the workloads' own tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import drafters
from drafters.reference import PREFIX, TARGET
from harness.errors import UsageError
from harness.workload import load

__all__ = [
    "BASELINE",
    "WORKLOADS",
    "ShippedDrafter",
    "available",
    "chosen_files",
    "content",
    "known",
    "load_settings",
    "write_workloads",
]

WORKLOADS = Path(__file__).parents[1] / "workloads"
SETTINGS = Path(drafters.__file__).parent / "training" / "reference" / "families.yaml"
BASELINE = "baseline"
CONTEXT_TOKENS = 2048
DEFAULT_TOKENS = 4
START_TIMEOUT_S = 600.0  # a dozen drafters are loaded, on a small machine


@dataclass(frozen=True, slots=True)
class ShippedDrafter:
    """One drafter of the package: ``name`` is its folder, its arm and, behind ``ref:``, what a workload calls it.

    ``family`` is ``None`` for one that stands outside the families; ``num_tokens`` are drafted in a round.
    """

    name: str
    family: str | None
    method: str
    num_tokens: int

    def arm(self, lengths: str) -> dict[str, Any]:
        """Return the arm of a workload file."""
        where = {"corpus" if self.method == "ngram" else "model": f"{PREFIX}{self.name}"}
        options = {**where, "num_tokens": self.num_tokens}
        if lengths != "fixed":
            options["lengths"] = lengths
        return {"name": self.name, "method": self.method, "options": options}


def load_settings(path: Path = SETTINGS) -> dict[str, Any]:
    """Return the settings with which the drafters were trained."""
    found: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


def known(settings: Mapping[str, Any]) -> list[ShippedDrafter]:
    """Return every drafter of the settings, family by family, those outside the families last."""
    found = [
        ShippedDrafter(f"{family}-{method}", family, method, _tokens(own))
        for family in settings["families"]
        for method, own in settings["methods"].items()
    ]
    found += [ShippedDrafter(name, None, own["method"], _tokens(own)) for name, own in settings["shared"].items()]
    return found


def available(there: Iterable[str], settings: Mapping[str, Any], only: Sequence[str] = ()) -> list[ShippedDrafter]:
    """Return the known drafters that are there, in the order of the settings.

    Args:
        there: names of drafters, as :func:`drafters.reference.drafters` gives them.
        settings: of :func:`load_settings`.
        only: leave out all others.

    Raises:
        UsageError: if none is there, or one of ``only`` is not.
    """
    names = set(there)
    found = [one for one in known(settings) if one.name in names]
    told = ", ".join(one.name for one in found) or "none"
    if missing := [name for name in only if name not in {one.name for one in found}]:
        raise UsageError(f"no drafter {', '.join(missing)} comes with the package; there: {told}")
    if not found:
        expected = ", ".join(one.name for one in known(settings))
        raise UsageError(f"no trained drafter comes with the package; expected beside {TARGET}: {expected}")
    return [one for one in found if not only or one.name in only]


def chosen_files(paths: Sequence[Path]) -> list[Path]:
    """Return the workload files without those that only mix tasks of the others: no task is to weigh twice."""
    tasks = {path: {task.id for task in load(path).tasks} for path in paths}
    kept = list(paths)
    for path in sorted(paths, key=lambda one: isinstance(load(one).workload.tasks, str)):  # mixed ones first
        others = set().union(*(tasks[other] for other in kept if other != path))
        if tasks[path] <= others:
            kept.remove(path)
    return kept


def content(source: Path, folder: Path, arms: Sequence[ShippedDrafter], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a workload file's content on the builtin engine with the baseline and these drafters.

    Args:
        source: workload whose tasks are replayed.
        folder: where the new file will lie; task files are named from there.
        arms: drafters.
        options: ``concurrency``, ``repeats``, ``lengths``, ``tool_wait``, and where they are not ``None`` ``limit_tasks``,
            ``limit_steps`` and ``max_tokens``.
    """
    found: dict[str, Any] = yaml.safe_load(source.read_text("utf-8"))

    def near(file: str) -> str:
        return Path(os.path.relpath((source.parent / file).resolve(), folder.resolve())).as_posix()

    tasks = found["tasks"]
    found["tasks"] = near(tasks) if isinstance(tasks, str) else [item | {"file": near(item["file"])} for item in tasks]
    found["engine"] = {
        "kind": "builtin",
        "model": TARGET,
        "context_tokens": CONTEXT_TOKENS,
        "threads": options["threads"],
        "start_timeout_s": START_TIMEOUT_S,
        "options": {"dtype": "float32"},
    }
    found["arms"] = [{"name": BASELINE, "method": "none"}, *(one.arm(options["lengths"]) for one in arms)]
    found["concurrency"], found["repeats"] = list(options["concurrency"]), options["repeats"]
    # the prompts are the same at every load, so that outputs can be compared across loads
    found["replay"] = {**found.get("replay", {}), "tool_wait": options["tool_wait"], "prompt_cache": "reset"}
    sampling = {**found.get("sampling", {}), "temperature": 0.0}
    if options.get("max_tokens") is not None:
        sampling["max_tokens"] = options["max_tokens"]
    found["sampling"] = sampling
    for key, name in (("tasks_per_cell", "limit_tasks"), ("steps_per_task", "limit_steps")):
        if options.get(name) is not None:
            found[key] = options[name]
    return found


def command(manifest: Mapping[str, Any]) -> str:
    """Return the command line that measures what a run of this benchmark has measured."""
    entries = manifest["workloads"]
    first = entries[0]
    arms = [arm for arm in first["arms"] if arm["method"] != "none"]
    lengths = {str((arm.get("options") or {}).get("lengths", "fixed")) for arm in arms}
    words = ["python -m bench.families --out OUT", f"--concurrency {','.join(map(str, first['concurrency']))}"]
    words += [f"--repeats {first['repeats']}", f"--max-tokens {first['sampling']['max_tokens']}"]
    words += [f"--lengths {', '.join(lengths)}", f"--tool-wait {first['replay']['tool_wait']}"]
    for key, name in (("tasks_per_cell", "limit-tasks"), ("steps_per_task", "limit-steps")):
        words += [f"--{name} {first[key]}"] if first.get(key) is not None else []
    names = [str(arm["name"]) for arm in arms]
    if names != [one.name for one in known(load_settings())]:
        words.append(f"--drafters {','.join(names)}")
    files = [Path(str(item["path"])).name for item in entries]
    if sorted(files) != [path.name for path in chosen_files(sorted(WORKLOADS.glob("*.yaml")))]:
        words.append(f"--workloads {' '.join(f'workloads/{file}' for file in files)}")
    return " ".join(words)


def write_workloads(
    sources: Sequence[Path], folder: Path, arms: Sequence[ShippedDrafter], options: Mapping[str, Any], *, begun: bool
) -> list[Path]:
    """Write a workload file for each source and return their paths.

    Raises:
        UsageError: if a run on files of other settings has ``begun``.
    """
    made = {
        folder / f"{source.stem}.yaml": yaml.safe_dump(
            content(source, folder, arms, options), allow_unicode=True, sort_keys=False
        )
        for source in sources
    }
    there = {path: path.read_text("utf-8") for path in sorted(folder.glob("*.yaml"))}
    if begun and there != made:
        raise UsageError(
            f"{folder.parent} holds a run with other drafters or settings; give the ones it was begun with, or another --out"
        )
    if not begun:
        folder.mkdir(parents=True, exist_ok=True)
        for path in there:
            path.unlink()
        for path, text in made.items():
            path.write_text(text, "utf-8")
    return sorted(made)


def _tokens(own: Mapping[str, Any]) -> int:
    given = own.get("set", {}).get("num_tokens", DEFAULT_TOKENS)
    return int(given)
