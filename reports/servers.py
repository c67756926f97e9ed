"""With which settings the arms' servers ran, where they differ besides the drafter, and what each server told of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.analysis.server_flags import told
from harness.engines.flags import differences
from reports.tables import Table
from reports.wording import UNKNOWN, Wording

LONGEST_VALUE = 300  # letters of one setting


def flags(manifest: Mapping[str, Any], words: Wording) -> Table:
    """Return the settings in which the arms' servers differ, those that are not the drafter's marked and first."""
    arms = [arm.arm for arm in told(manifest)]
    rows = tuple(
        (
            item.name,
            words.text("servers.drafter" if item.drafter else "servers.beyond"),
            *(_shown(item.values.get(arm)) for arm in arms),
        )
        for item in differences(told(manifest))
    )
    headers = (words.text("table.name"), words.text("servers.belongs"), *arms)
    return Table(words.text("table.server_flags"), headers, (False,) * len(headers), rows)


def facts(manifest: Mapping[str, Any], words: Wording) -> Table:
    """Return what each server told when it was asked, and for what it did not tell how it could be made to."""
    probed: Mapping[str, Any] = (manifest.get("engine") or {}).get("probed") or {}
    by_arm = {arm: found for arm, found in probed.items() if isinstance(found, Mapping)}
    names = dict.fromkeys(
        name for found in by_arm.values() for name, fact in found.items() if isinstance(fact, Mapping) and "how" in fact
    )
    rows = tuple((name, *(_fact(found.get(name), words) for found in by_arm.values())) for name in names)
    headers = (words.text("table.name"), *by_arm)
    return Table(words.text("table.server_facts"), headers, (False,) * len(headers), rows)


def note(manifest: Mapping[str, Any], words: Wording) -> str | None:
    """Return in one sentence whether the servers differ in more than the drafter; ``None`` where there are none to compare."""
    arms = told(manifest)
    if not arms:
        return None
    unknown = [arm.arm for arm in arms if arm.source is None]
    if unknown:
        return words.text("servers.unknown", arms=", ".join(unknown))
    beyond = [item.name for item in differences(arms) if not item.drafter]
    return words.text("servers.differ" if beyond else "servers.same", flags=", ".join(beyond))


def _fact(fact: Any, words: Wording) -> str:
    if not isinstance(fact, Mapping):
        return UNKNOWN
    value = fact.get("value")
    if value is None:
        why = "; ".join(str(part) for part in (fact.get("how"), fact.get("remedy")) if part)
        return _shown(f"{UNKNOWN} ({why})" if why else UNKNOWN)
    if isinstance(value, bool):
        return words.text("yes" if value else "no")
    if isinstance(value, Mapping):
        return _shown(", ".join(f"{name}: {item}" for name, item in value.items()) or words.text("no"))
    return _shown(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


def _shown(value: str | None) -> str:
    text = UNKNOWN if value is None else " ".join(value.split())
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
