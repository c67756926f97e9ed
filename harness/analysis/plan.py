"""What the manifest says was planned: which arm is the baseline, which are synthetic, at which loads, with which goals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from harness.errors import RunFolderError

BASELINE_METHOD = "none"
SYNTHETIC_METHOD = "synthetic"
GOODPUT_LENGTHS = "goodput"


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    """One workload of a run.

    ``methods`` maps each arm to its method, in the order of the file. ``max_requests_per_s`` is ``None`` where requests left as they
    were due. ``goodput`` are the arms whose draft lengths rest on costs that the server measures when it starts. ``genres`` maps each
    task to its genre, empty in runs that did not write it down. ``order`` is ``per_arm`` where arms did not alternate.
    """

    name: str
    path: str
    path_from_run: str | None
    tasks_sha256: str
    task_ids: tuple[str, ...]
    methods: Mapping[str, str]
    concurrency: tuple[int, ...]
    repeats: int
    temperature: float
    history: str
    slo: Mapping[str, str]
    thresholds: tuple[str, ...]
    max_requests_per_s: float | None
    goodput: tuple[str, ...] = ()
    genres: Mapping[str, str] = field(default_factory=dict)
    order: str = "alternate"

    @property
    def baseline(self) -> str | None:
        """The arm without a drafter, ``None`` where the workload has none."""
        return next((arm for arm, method in self.methods.items() if method == BASELINE_METHOD), None)

    @property
    def synthetic(self) -> tuple[str, ...]:
        """Arms whose acceptance is made up by the engine: good for checking arithmetic, never for a verdict."""
        return tuple(arm for arm, method in self.methods.items() if method == SYNTHETIC_METHOD)

    @property
    def drafting(self) -> tuple[str, ...]:
        """Arms with a real drafter: those that get verdicts."""
        return tuple(arm for arm, method in self.methods.items() if method not in (BASELINE_METHOD, SYNTHETIC_METHOD))


def baseline_arms(plans: Iterable[WorkloadPlan]) -> pl.DataFrame:
    """Return ``workload`` and ``arm`` of each workload's baseline, to join with; workloads without one have no row."""
    return pl.DataFrame(
        [(plan.name, plan.baseline) for plan in plans if plan.baseline is not None],
        schema={"workload": pl.String, "arm": pl.String},
        orient="row",
    )


def read_plan(manifest: Mapping[str, Any]) -> tuple[WorkloadPlan, ...]:
    """Return the workloads of a run in the order in which they were given.

    Raises:
        RunFolderError: if the manifest lacks what a run always writes.
    """
    try:
        return tuple(_workload(item) for item in manifest["workloads"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RunFolderError(
            f"manifest.json: workloads are not as a run writes them ({error!r}); restore the file"
        ) from error


def _workload(item: Mapping[str, Any]) -> WorkloadPlan:
    return WorkloadPlan(
        name=item["name"],
        path=item["path"],
        path_from_run=item.get("path_from_run"),
        tasks_sha256=item["tasks_sha256"],
        task_ids=tuple(item.get("task_ids", ())),
        methods={arm["name"]: arm["method"] for arm in item["arms"]},
        concurrency=tuple(item["concurrency"]),
        repeats=item["repeats"],
        temperature=item["sampling"]["temperature"],
        history=item["replay"]["history"],
        slo=dict(item["slo"]),
        thresholds=tuple(item["thresholds"]),
        max_requests_per_s=(item.get("engine") or {}).get("max_requests_per_s"),
        goodput=tuple(
            arm["name"] for arm in item["arms"] if (arm.get("options") or {}).get("lengths") == GOODPUT_LENGTHS
        ),
        genres=dict(item.get("genres") or {}),
        order=item.get("order", "alternate"),
    )
