"""Whether two runs may be compared at all: what was set otherwise on the two sides, and what that does to a comparison.

``invalid``: the two sides did not do the same work, so that no figure is about the drafter. ``warning``: something beside the drafter
differs. ``note``: it differs and does no harm, or it is the drafter, which is what is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from harness.analysis.frames import DIFFERENCES, Severity

SCHEMA = dict.fromkeys(DIFFERENCES, pl.String)
Manifest = Mapping[str, Any]
Row = tuple[Severity, str | None, str, str | None, str | None]
ArmPair = tuple[str, str]
_OF_DRAFTER = ("method", "options", "drafter", "draft_model", "drafter_carries_state", "drafting_state")
_PROMPTS = ("history", "tools")  # of replay: they decide what the model is asked
_HARMLESS = (
    "tasks_per_cell",
    "steps_per_task",
    "repeats",
    "concurrency",
    "warm_up",
)  # only what both sides have is compared
_SIZES = ("served_name", "max_sequences", "cache_tokens")  # of a server: follow from the highest load
_LONGEST = 120


def differences(before: Manifest, after: Manifest, workloads: Iterable[str], arms: Sequence[ArmPair]) -> list[Row]:
    """Return what two runs' manifests say differs on the workloads that they share, the most serious first.

    Of one run compared with itself only its arms can differ.
    """
    rows: list[Row] = []
    for name in workloads:
        left, right = _workload(before, name), _workload(after, name)
        rows += _of_tasks(name, left, right)
        rows += _of_settings(name, left, right)
    rows += _of_engine(before.get("engine") or {}, after.get("engine") or {}, arms)
    rows += _of_surroundings(before, after)
    order = {"invalid": 0, "warning": 1, "note": 2}
    return sorted(rows, key=lambda row: order[row[0]])


def changed_tasks(before: Manifest, after: Manifest, workload: str) -> tuple[str, ...]:
    """Return the tasks of a workload that have one name and another content, as far as the runs wrote it down."""
    left, right = (_workload(side, workload).get("task_sha256") or {} for side in (before, after))
    return tuple(task for task, sha in left.items() if task in right and right[task] != sha)


def of_prompts(paired: pl.DataFrame) -> list[Row]:
    """Return a row for each workload where the same step was asked with prompts of different lengths.

    Args:
        paired: step pairs with ``prompt_tokens`` and ``prompt_tokens_after``.
    """
    differ = paired.filter(pl.col("prompt_tokens") != pl.col("prompt_tokens_after"))
    return [
        (
            "invalid",
            part["workload"][0],
            f"prompt tokens ({part.height} steps, first {part['task_id'][0]}:{part['step_index'][0]})",
            str(part["prompt_tokens"][0]),
            str(part["prompt_tokens_after"][0]),
        )
        for part in differ.partition_by("workload", maintain_order=True)
    ]


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Return ``frames.DIFFERENCES``."""
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _workload(manifest: Manifest, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(item for item in manifest["workloads"] if item["name"] == name)
    return found


def _of_tasks(name: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[Row]:
    if left.get("tasks_sha256") == right.get("tasks_sha256"):
        return
    known = [side.get("task_sha256") for side in (left, right)]
    if not all(known):  # written before runs told the hash of each task: a name may mean another task
        yield "invalid", name, "tasks_sha256", _text(left.get("tasks_sha256")), _text(right.get("tasks_sha256"))
        return
    before, after = (item or {} for item in known)
    changed = [task for task in before if task in after and before[task] != after[task]]
    if changed:
        what = f"tasks of one name and another content, left out ({len(changed)}, first {changed[0]})"
        yield "invalid", name, what, before[changed[0]][:12], after[changed[0]][:12]
    only = [len(before.keys() - after.keys()), len(after.keys() - before.keys())]
    if any(only):
        yield "note", name, "tasks that only this side's file has", str(only[0]), str(only[1])


def _of_settings(name: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[Row]:
    greedy = all((side.get("sampling") or {}).get("temperature") == 0 for side in (left, right))
    for key, one, other in _unequal(left.get("sampling"), right.get("sampling")):
        yield "note" if key == "seed" and greedy else "invalid", name, f"sampling.{key}", one, other
    for key, one, other in _unequal(left.get("replay"), right.get("replay")):
        yield "invalid" if key in _PROMPTS else "warning", name, f"replay.{key}", one, other
    for key in _HARMLESS:
        if left.get(key) != right.get(key):
            yield "note", name, key, _text(left.get(key)), _text(right.get(key))
    paced = [(side.get("engine") or {}).get("max_requests_per_s") for side in (left, right)]
    if paced[0] != paced[1]:
        yield "warning", name, "engine.max_requests_per_s", _text(paced[0]), _text(paced[1])


def _of_engine(left: Mapping[str, Any], right: Mapping[str, Any], arms: Sequence[ArmPair]) -> Iterator[Row]:
    models = [side.get("model") or {} for side in (left, right)]
    hashes = [{model[key] for key in ("sha256", "source_sha256") if model.get(key)} for model in models]
    if not all(hashes):
        yield "warning", None, "target: hash not known", *(_text(model.get("sha256")) for model in models)  # type: ignore[misc]
    elif not hashes[0] & hashes[1]:
        yield "invalid", None, "target: model.sha256", *(_text(model.get("sha256")) for model in models)  # type: ignore[misc]
    if left.get("engine") != right.get("engine"):  # settings of two engines have nothing in common
        yield "warning", None, "engine", _name(left), _name(right)
    else:
        plain = [
            {key: value for key, value in side.items() if key not in ("arms", "cache_ram_mib")}
            for side in (left, right)
        ]
        for key, one, other in _unequal(*plain):
            if key in ("model.sha256", "model.source_sha256"):
                continue
            yield (
                "note" if key.startswith("model.name") or key.split(".")[-1] in _SIZES else "warning",
                None,
                key,
                one,
                other,
            )
    for one_arm, other_arm in arms:
        found = [(side.get("arms") or {}).get(arm) for side, arm in ((left, one_arm), (right, other_arm))]
        label = one_arm if one_arm == other_arm else f"{one_arm}={other_arm}"
        for key, one, other in _unequal(*found):
            yield "note" if key.split(".")[0] in _OF_DRAFTER else "warning", None, f"arm {label}: {key}", one, other


def _of_surroundings(before: Manifest, after: Manifest) -> Iterator[Row]:
    for key, one, other in _unequal(before.get("machine"), after.get("machine")):
        yield "warning", None, f"machine.{key}", one, other
    for key, severity in (("created", "note"), ("git.commit", "note")):
        one, other = (_at(side, key) for side in (before, after))
        if one != other:
            yield severity, None, key, _text(one), _text(other)  # type: ignore[misc]
    states = [side.get("status") for side in (before, after)]
    if any(state not in (None, "complete") for state in states):
        yield "warning", None, "status", _text(states[0]), _text(states[1])


def _unequal(left: Any, right: Any) -> Iterator[tuple[str, str | None, str | None]]:
    one, other = dict(_flat(left, "")), dict(_flat(right, ""))
    for key in dict.fromkeys([*one, *other]):
        if one.get(key) != other.get(key):
            yield key, _text(one.get(key)), _text(other.get(key))


def _flat(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{prefix}.{key}" if prefix else str(key))
    elif prefix:
        yield prefix, value


def _at(value: Any, key: str) -> Any:
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _name(engine: Mapping[str, Any]) -> str:
    return " ".join(str(engine[key]) for key in ("engine", "version") if engine.get(key)) or "–"


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
