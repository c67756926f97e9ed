"""Whether the arms' servers differ in more than the drafter: then a speed-up is that of another set-up, not of speculation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.analysis.frames import Finding
from harness.analysis.plan import WorkloadPlan
from harness.analysis.validity import finding
from harness.engines.flags import ArmFlags, differences, of_description

NOT_GIVEN = "–"


def findings(manifest: Mapping[str, Any], plans: Sequence[WorkloadPlan]) -> Iterator[Finding]:
    """Yield one warning for each arm whose server has other settings than the baseline's (the first arm's, where there is none).

    Runs on engines that are set up here, and of versions that wrote no settings down, say nothing of them.
    """
    arms = told(manifest)
    baseline = next((plan.baseline for plan in plans if plan.baseline is not None), None)
    first = next((arm for arm in arms if arm.arm == baseline), arms[0] if arms else None)
    for arm in arms:
        if arm.source is None:
            yield finding("flags_unknown", "note", None, arm.arm)
        elif first is not None and first.source is not None and arm is not first:
            beyond = [item for item in differences([first, arm]) if not item.drafter]
            changes = [
                f"{item.name}: {_shown(item.values[first.arm])} → {_shown(item.values[arm.arm])}" for item in beyond
            ]
            if beyond:
                yield finding("flags_differ", "warning", None, arm.arm, len(beyond), ", ".join(changes))


def told(manifest: Mapping[str, Any]) -> list[ArmFlags]:
    """Return the settings of each arm's server; empty for engines whose arms are no servers with settings of their own."""
    engine = manifest.get("engine") or {}
    arms = engine.get("arms") or {}
    if not any("values" in ((arm or {}).get("flags") or {}) for arm in arms.values()):
        return []
    return of_description(engine)


def _shown(value: str | None) -> str:
    return NOT_GIVEN if value is None else value
