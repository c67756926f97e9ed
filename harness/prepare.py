"""From files and overrides to checked workloads and an engine, before the first request is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.access import open_access
from harness.analysis.slo import check_tasks, parse_slo
from harness.analysis.thresholds import CAPACITIES, parse_threshold
from harness.combining import Experiment, combine
from harness.engines import builtin, builtin_options, llamacpp, llamacpp_options, remote, remote_options
from harness.engines.base import Engine
from harness.engines.launch_options import check_launches
from harness.errors import UsageError, WorkloadError
from harness.models import resolve, resolve_folder
from harness.overrides import Overrides, apply
from harness.workload import REMOTE_KINDS, LoadedWorkload, load

_OPTIONS = {"builtin": builtin_options, "llamacpp": llamacpp_options}  # of every other kind: those of remote servers


def experiment_of(paths: Sequence[Path], overrides: Overrides) -> Experiment:
    """Load workload files, apply overrides, check everything that can be checked without an engine.

    Raises:
        UsageError: on bad input, with file and line where a file is to blame.
    """
    loaded = [load(path) for path in paths]
    for item in loaded:
        _check_goals(item, overrides.slo)
        own = item.workload.engine.kind
        if overrides.engine not in (None, own):  # its engine options will not be used; a mistake is one all the same
            _OPTIONS.get(own, remote_options).check_engine_options(item)
    workloads = [apply(item, overrides) for item in loaded]
    for item in workloads:
        check_launches(item)
        _OPTIONS.get(item.workload.engine.kind, remote_options).check_arms(item)
    return combine(workloads)


def fetch_model(experiment: Experiment, progress: Callable[[str, float], None]) -> None:
    """Fetch and check the model that the engine will read, unless every arm attaches to a server that has its own.

    Raises:
        ModelError: if the model is unknown, damaged or cannot be fetched.
        EngineStartError: if the packages that the engine needs are not installed.
    """
    spec = experiment.engine
    if spec.kind in REMOTE_KINDS or all(arm.base_url or spec.base_url for arm in experiment.arms):
        return
    if spec.kind == "builtin":
        builtin.require_packages()
        resolve_folder(spec.model, progress=progress)
    else:
        resolve(spec.model, progress=progress)


def make_engine(experiment: Experiment, folder: Path, progress: Callable[[str, float], None]) -> Engine:
    """Return the engine of an experiment, not started yet; its servers log into ``folder``."""
    own = folder / "engine"
    spec, arms, slots = experiment.engine, experiment.arms, experiment.slots
    access = open_access(spec.access, folder=experiment.workloads[0].path.parent)
    if spec.kind == "builtin":
        return builtin.BuiltinEngine(spec, arms, concurrency=slots, folder=own, access=access, progress=progress)
    if spec.kind in REMOTE_KINDS:
        return remote.RemoteEngine(spec, arms, concurrency=slots, folder=own, access=access, progress=progress)
    policies = {loaded.workload.replay.prompt_cache for loaded in experiment.workloads}
    return llamacpp.LlamaCppEngine(
        spec,
        arms,
        concurrency=slots,
        folder=own,
        prompt_cache="reset" if "reset" in policies else "salt",
        access=access,
        progress=progress,
    )


def _check_goals(loaded: LoadedWorkload, stated: Mapping[str, str] | None) -> None:
    """Check objectives and thresholds: their form, what their filters name, and that the file has as many tasks as a percentile needs.

    ``stated`` are objectives that stand instead of the file's, which are checked all the same.
    """
    workload = loaded.workload
    arms = tuple(dict.fromkeys(arm.name for arm in workload.arms))
    objectives = [(loaded.where("slo", key), key, text) for key, text in workload.slo.items()]
    objectives += [(f"--slo {key}={text} for {loaded.path}", key, text) for key, text in (stated or {}).items()]
    for where, key, text in objectives:
        try:
            objective = parse_slo(key, text)
            check_tasks(objective.metric, objective.percent, len(loaded.tasks))
        except UsageError as error:
            raise WorkloadError(f"{where}: {error}") from error
    for index, text in enumerate(workload.thresholds):
        try:
            threshold = parse_threshold(text, arms, workload.concurrency)
            if threshold.percentile is not None:
                check_tasks(*threshold.percentile, len(loaded.tasks))
            if threshold.metric in CAPACITIES and not (stated or workload.slo):
                raise UsageError(
                    f"{text!r} needs objectives; add a key slo, such as slo: {{task_time_p90: 40s}}, or give --slo task_time_p90=40s"
                )
        except UsageError as error:
            raise WorkloadError(f"{loaded.where('thresholds', index)}: {error}") from error
