"""What a run was made of: arguments, workloads with hashes, versions, machine, git state. Written before the first request."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.engines import flags
from harness.tasks import tasks_sha256
from harness.workload import LoadedWorkload

PER_START = frozenset({"cache_ram_mib"})  # of an engine's description: may differ between two starts of one run
PROBED = "probed"  # of an engine's description: what servers told when they were asked, also of how busy they were
DIFFERENCES = "flag_differences"  # of an engine's description: follows from the arms' flags
DISTRIBUTION = "spec-harness"
PACKAGES = (
    DISTRIBUTION,
    "aiohttp",
    "httpx",
    "openai",
    "pydantic",
    "polars",
    "numpy",
    "xllamacpp",
    "torch",
    "transformers",
)


def build(workloads: Sequence[LoadedWorkload], argv: Sequence[str], lang: str, folder: Path) -> dict[str, Any]:
    """Return the manifest of a run that is about to start in ``folder``; the engine's own description is added once it is up."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "argv": list(argv),
        "lang": lang,
        "workloads": [describe_workload(loaded, folder) for loaded in workloads],
        "versions": versions(PACKAGES),
        "machine": machine(),
        "git": git_state(Path(__file__).parent),
        "engine": None,
        "status": "running",
    }


def note_continuation(manifest: dict[str, Any]) -> bool:
    """Note in the manifest of a run that is continued which versions go on with it, if they are not those it was begun with.

    Returns whether the manifest has changed.
    """
    now = versions(PACKAGES)
    known = [manifest.get("versions"), *(again["versions"] for again in manifest.get("continued", ()))]
    if now in known:
        return False
    again = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "versions": now}
    manifest["continued"] = [*manifest.get("continued", ()), again]
    return True


def describe_workload(loaded: LoadedWorkload, folder: Path) -> dict[str, Any]:
    """Return a workload as it is run, overrides applied, with the hashes of its file and tasks.

    ``path_from_run`` leads from the run's folder to the file, so that a run can be continued from anywhere.
    """
    steps = [step for task in loaded.tasks for step in task.steps]
    return {
        **loaded.workload.model_dump(mode="json"),
        "path": str(loaded.path),
        "path_from_run": os.path.relpath(loaded.path, folder),
        "sha256": loaded.sha256,
        "tasks_sha256": tasks_sha256(loaded.tasks),
        "n_tasks": len(loaded.tasks),
        "n_steps": len(steps),
        "task_ids": [task.id for task in loaded.tasks],
        "genres": {task.id: task.genre for task in loaded.tasks},
        "task_sha256": {task.id: tasks_sha256([task]) for task in loaded.tasks},
        "languages": sorted({step.language for step in steps}),
        "kinds": sorted({step.kind for step in steps}),
    }


def merged_engine(then: Mapping[str, Any] | None, now: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return an engine's description, what is known from before added to what the engine tells now, and the keys in which they disagree.

    Unknown on either side is no disagreement: an arm whose server has not been up yet tells nothing. What a description has under
    ``flag_differences`` are the settings in which the arms' servers differ, each marked whether it is the drafter's own.
    """
    before = {} if then is None else dict(then)
    changed: list[str] = []
    found = dict(now)
    for key, value in now.items():
        old = before.get(key)
        if key == "arms" and isinstance(old, Mapping) and isinstance(value, Mapping):
            found[key] = {name: old.get(name) if told is None else told for name, told in value.items()}
            both = [name for name, told in value.items() if told is not None and old.get(name) is not None]
            changed += [f"arm {name}" for name in both if old[name] != value[name]]
            changed += [f"arm {name}" for name in old if name not in value]
        elif key == PROBED and isinstance(old, Mapping) and isinstance(value, Mapping):
            found[key] = {**old, **{name: told for name, told in value.items() if told is not None}}
        elif value is None:
            found[key] = old
        elif old is not None and old != value and key not in PER_START:
            changed.append(key)
    found[DIFFERENCES] = [item.to_json() for item in flags.differences(flags.of_description(found))]
    return found, changed


def versions(packages: Iterable[str]) -> dict[str, str | None]:
    """Return the installed version of each distribution, ``None`` for one that is not installed; Python's own first."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def machine() -> dict[str, Any]:
    """Return processor, usable cores, memory in bytes and operating system; ``None`` for what cannot be read."""
    return {
        "processor": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return commit and whether the tree differs from it, ``None`` outside a git checkout or without git."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if commit is None:
        return None
    status = git("status", "--porcelain")
    return {"commit": commit, "dirty": None if status is None else bool(status)}
