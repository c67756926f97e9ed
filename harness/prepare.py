"""From files and overrides to checked workloads and an engine, before the first request is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from harness.analysis.slo import check_tasks, parse_slo
from harness.analysis.thresholds import CAPACITIES, parse_threshold
from harness.engines import builtin, builtin_options, llamacpp, llamacpp_options
from harness.engines.base import Engine
from harness.errors import UsageError, WorkloadError
from harness.experiment import Experiment, combine
from harness.models import resolve, resolve_folder
from harness.overrides import Overrides, apply
from harness.workload import LoadedWorkload, load


def experiment_of(paths: Sequence[Path], overrides: Overrides) -> Experiment:
    """Load workload files, apply overrides, check everything that can be checked without an engine.

    Raises:
        UsageError: on bad input, with file and line where a file is to blame.
    """
    loaded = [load(path) for path in paths]
    for item in loaded:
        _check_goals(item)
        own = item.workload.engine.kind
        if overrides.engine not in (
            None,
            own,
        ):  # its engine options will not be used; a mistake in them is one all the same
            (builtin_options if own == "builtin" else llamacpp_options).check_engine_options(item)
    workloads = [apply(item, overrides) for item in loaded]
    for item in workloads:
        (builtin if item.workload.engine.kind == "builtin" else llamacpp).check_arms(item)
    return combine(workloads)


def fetch_model(experiment: Experiment, progress: Callable[[str, float], None]) -> None:
    """Fetch and check the model that the engine will read, unless every arm attaches to a server that has its own.

    Raises:
        ModelError: if the model is unknown, damaged or cannot be fetched.
        EngineStartError: if the packages that the engine needs are not installed.
    """
    spec = experiment.engine
    if all(arm.base_url or spec.base_url for arm in experiment.arms):
        return
    if spec.kind == "builtin":
        builtin.require_packages()
        resolve_folder(spec.model, progress=progress)
    else:
        resolve(spec.model, progress=progress)


def make_engine(experiment: Experiment, folder: Path, progress: Callable[[str, float], None]) -> Engine:
    """Return the engine of an experiment, not started yet; its servers log into ``folder``."""
    own = folder / "engine"
    if experiment.engine.kind == "builtin":
        return builtin.BuiltinEngine(
            experiment.engine, experiment.arms, concurrency=experiment.slots, folder=own, progress=progress
        )
    policies = {loaded.workload.replay.prompt_cache for loaded in experiment.workloads}
    return llamacpp.LlamaCppEngine(
        experiment.engine,
        experiment.arms,
        concurrency=experiment.slots,
        folder=own,
        prompt_cache="reset" if "reset" in policies else "salt",
        progress=progress,
    )


def _check_goals(loaded: LoadedWorkload) -> None:
    """Check objectives and thresholds: their form, what their filters name, and that the file has as many tasks as a percentile needs."""
    workload = loaded.workload
    arms = tuple(dict.fromkeys(arm.name for arm in workload.arms))
    for key, text in workload.slo.items():
        try:
            objective = parse_slo(key, text)
            check_tasks(objective.metric, objective.percent, len(loaded.tasks))
        except UsageError as error:
            raise WorkloadError(f"{loaded.where('slo', key)}: {error}") from error
    for index, text in enumerate(workload.thresholds):
        try:
            threshold = parse_threshold(text, arms, workload.concurrency)
            if threshold.percentile is not None:
                check_tasks(*threshold.percentile, len(loaded.tasks))
            if threshold.metric in CAPACITIES and not workload.slo:
                raise UsageError(f"{text!r} needs objectives; add a key slo, such as slo: {{task_time_p90: 40s}}")
        except UsageError as error:
            raise WorkloadError(f"{loaded.where('thresholds', index)}: {error}") from error
