"""Checks of what a workload says about starting servers, before anything is started."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from harness.access import AccessError, open_access
from harness.engines.remote_options import SERVED
from harness.errors import WorkloadError
from harness.workload import REMOTE_KINDS, Arm, LoadedWorkload
from harness.workload_launch import CONFIG, MODEL, Launch

Fault = tuple[tuple[str | int, ...], str]
"""Place of a key below its arm, and what is wrong with it."""


def check_launches(loaded: LoadedWorkload) -> None:
    """Check that what the arms' servers are started with is there, and that no arm says so of a server that is not.

    Where they listen is the business of :mod:`harness.engines.remote_options`.

    Raises:
        WorkloadError: with file and line.
    """
    spec = loaded.workload.engine
    if spec.kind not in REMOTE_KINDS:
        _refuse_foreign_keys(loaded)
        return
    fixed: dict[str, str] = {}
    for index, arm in enumerate(loaded.workload.arms):
        launch = spec.launch_for(arm)
        if launch is None:
            continue
        address = (arm.base_url or spec.base_url or "").rstrip("/")
        for place, text in _faults(arm, launch, spec.model):
            raise WorkloadError(f"{_where(loaded, index, place)}: arm {arm.name!r}: {text}")
        if not launch.takes_port and launch.side_by_side:
            twin = fixed.setdefault(address, arm.name)
            if twin != arm.name:
                raise WorkloadError(
                    f"{loaded.where('arms', index, 'base_url')}: arms {twin!r} and {arm.name!r} are side by side at {address}; give "
                    "each an address, or leave side_by_side out"
                )


def _where(loaded: LoadedWorkload, index: int, place: tuple[str | int, ...]) -> str:
    """Return the line of a key: the arm's own, else that of what all arms share, else the arm's."""
    own, shared = ("arms", index, *place), ("engine", *place)
    return loaded.where(*(shared if own not in loaded.lines and shared in loaded.lines else own))


def _refuse_foreign_keys(loaded: LoadedWorkload) -> None:
    kind = loaded.workload.engine.kind
    known = ", ".join(REMOTE_KINDS)
    if loaded.workload.engine.launch is not None:
        raise WorkloadError(f"{loaded.where('engine', 'launch')}: the engine {kind} has no launch; {known} have")
    _check_access(loaded)
    for index, arm in enumerate(loaded.workload.arms):
        if arm.launch is not None:
            raise WorkloadError(
                f"{loaded.where('arms', index, 'launch')}: arm {arm.name!r}: the engine {kind} has no launch, it starts its servers "
                f"itself; {known} have: choose one under engine.kind, or remove the key"
            )


def _check_access(loaded: LoadedWorkload) -> None:
    """Check that access belongs to a server which runs already, and that its variables and files are there."""
    engine = loaded.workload.engine
    if engine.access is None:
        return
    if engine.base_url is None and not any(arm.base_url for arm in loaded.workload.arms):
        raise WorkloadError(
            f"{loaded.where('engine', 'access')}: the engine {engine.kind} starts its own servers, which need no access; give base_url "
            "to measure one that runs, or remove the key"
        )
    try:
        open_access(engine.access, folder=loaded.path.parent)
    except AccessError as error:
        raise WorkloadError(f"{loaded.where('engine', 'access', error.key)}: {error}") from error


def _faults(arm: Arm, launch: Launch, model: str) -> Iterator[Fault]:
    """Yield what is wrong with how the server of one arm is started with this model, apart from where it listens."""
    if not launch.command:
        return
    own = arm.launch is not None and arm.launch.speculative_config is not None
    asks = any(CONFIG in text for text in (*launch.command, *launch.env.values()))
    if arm.method == "none" and own:
        yield (
            ("launch", "speculative_config"),
            "a baseline (method none) has no speculative_config; remove it, or name a method",
        )
    elif arm.method not in ("none", SERVED) and asks and launch.speculative_config is None:
        yield ("method",), f"its command has {CONFIG}, but launch.speculative_config is missing; add it"
    elif launch.speculative_config is not None and not asks:
        yield ("launch", "speculative_config"), f"the command has no {CONFIG}, so it would have no effect; add it there"
    if not model and (place := launch.place_of(MODEL)) is not None:
        yield ("launch", *place), f"{place[0]} has {MODEL}; give engine.model or --model"
    yield from _unset(launch)
    yield from _log_faults(launch, model)
    yield from _missing(launch)


def _unset(launch: Launch) -> Iterator[Fault]:
    unset = [name for name in launch.variables() if name not in os.environ]
    if unset:
        yield ("launch",), f"the environment has no {', '.join(unset)}, which launch asks for; set it before the run"


def _log_faults(launch: Launch, model: str) -> Iterator[Fault]:
    if launch.log is None or any(name not in os.environ for name in launch.variables()):
        return
    path = Path(launch.filled(launch.log, port=None, model=model)).expanduser()
    if path.is_dir() or launch.log.endswith("/"):
        yield ("launch", "log"), f"log {launch.log!r} is a folder; give the path of a file"
        return
    there = next(folder for folder in (*path.absolute().parents,) if folder.exists())
    if not there.is_dir():
        yield (
            ("launch", "log"),
            f"log {launch.log!r} is below {str(there)!r}, which is no folder; give the path of a file",
        )
    elif not os.access(path if path.exists() else there, os.W_OK):
        yield ("launch", "log"), f"log {launch.log!r} cannot be written; give the path of a file that can"


def _missing(launch: Launch) -> Iterator[Fault]:
    folder = Path(launch.cwd or ".").expanduser()
    if not folder.is_dir():
        yield ("launch", "cwd"), f"cwd {launch.cwd!r} is no folder; paths are relative to where the harness is started"
    program = launch.command[0]
    if "{" in program:  # known once it is filled in
        return
    found = (folder / program).is_file() if "/" in program else shutil.which(program, path=launch.env.get("PATH"))
    if not found:
        yield (
            ("launch", "command"),
            f"the program {program!r} is not there; give its path, or start the harness where it is installed",
        )
