"""Whether two runs may be compared at all: what was set otherwise on the two sides, and what that does to a comparison.

``invalid``: the two sides did not do the same work, so that no figure is about the drafter. ``warning``: something beside the drafter
differs, or could not be told to be the same (``unproven``). ``note``: it differs and does no harm, or it is the drafter, which is what
is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from harness.analysis.frames import DIFFERENCES, Severity
from harness.analysis.plan import GOODPUT_LENGTHS
from harness.engines.flags import of_drafter

SCHEMA = dict.fromkeys(DIFFERENCES, pl.String)
Manifest = Mapping[str, Any]
Row = tuple[Severity, str | None, str, str | None, str | None]
ArmPair = tuple[str, str]
_OF_DRAFTER = ("method", "options", "drafter", "draft_model", "drafter_carries_state", "drafting_state")
_ASKED = ("history", "tools")  # of replay: they decide what the model is asked
_HARMLESS = (
    "tasks_per_cell",
    "steps_per_task",
    "repeats",
    "concurrency",
    "warm_up",
)  # only what both sides have is compared
_BY_ARM_OR_START = ("arms", "cache_ram_mib", "probed", "flag_differences")
_SIZES = ("served_name", "max_sequences", "cache_tokens")  # of a server: follow from the highest load
_OF_TARGET = (
    "settings.weights",
    "settings.dtype",
    "model.kind",
    "model_ftype",
)  # weights of other values are another target
_ORDER = {"invalid": 0, "warning": 1, "note": 2}
_LONGEST = 120
_LABEL_BYTES = 24  # of a salt beside the run's and the workload's name: load, repeat, cycle, brackets
_AS_GIVEN = {"weights": "plain", "dtype": "float32"}  # how an engine holds weights that tells nothing of it
TARGET_UNKNOWN = "target: hash not known"
SALT = "salt"
_PROMPTS = "prompt tokens"
_UNKNOWN = f"{_PROMPTS} not known"


def differences(before: Manifest, after: Manifest, workloads: Iterable[str], arms: Sequence[ArmPair]) -> list[Row]:
    """Return what two runs' manifests say differs on the workloads that they share.

    Of one run compared with itself only its arms can differ.
    """
    rows: list[Row] = []
    for name in workloads:
        left, right = _workload(before, name), _workload(after, name)
        rows += _of_tasks(name, left, right)
        rows += _of_settings(name, left, right)
        labels = [_label(side, name) for side in (before, after)]
        if labels[0] != labels[1]:
            rows.append(("warning", name, SALT, *labels))  # type: ignore[arg-type]
    rows += _of_engine(before.get("engine") or {}, after.get("engine") or {}, arms)
    rows += _of_surroundings(before, after)
    return rows


def changed_tasks(before: Manifest, after: Manifest, workload: str) -> tuple[str, ...]:
    """Return the tasks of a workload that have one name and another content, as far as the runs wrote it down."""
    left, right = (_workload(side, workload).get("task_sha256") or {} for side in (before, after))
    return tuple(task for task, sha in left.items() if task in right and right[task] != sha)


def of_prompts(paired: pl.DataFrame, before: Manifest, after: Manifest) -> list[Row]:
    """Return a row for each workload where the same step was asked with prompts of different lengths, or of unknown ones.

    Where the runs put different salts in front of their prompts, lengths that those may account for are only a warning.

    Args:
        paired: step pairs with ``prompt_tokens`` and ``prompt_tokens_after``.
        before: manifest of the run before.
        after: manifest of the run after.
    """
    rows: list[Row] = []
    apart = (pl.col("prompt_tokens") - pl.col("prompt_tokens_after")).abs()
    for part in paired.partition_by("workload", maintain_order=True):
        name = part["workload"][0]
        differ = part.filter(apart > 0)
        labels = [_label(manifest, name) for manifest in (before, after)]
        # a token has at least one byte, so a label makes no more tokens than it has bytes
        room = max(len((label or "").encode()) + _LABEL_BYTES for label in labels) if labels[0] != labels[1] else 0
        severity: Severity = "invalid" if (differ.select(apart).to_series() > room).any() else "warning"
        if differ.height:
            first = differ.row(0, named=True)
            what = f"{_PROMPTS} ({differ.height} steps, first {first['task_id']}:{first['step_index']})"
            lengths = (str(first[f"prompt_tokens{side}"]) for side in ("", "_after"))
            rows.append((severity, name, what, *lengths))
        unknown = [part[f"prompt_tokens{side}"].null_count() for side in ("", "_after")]
        if any(unknown):
            rows.append(("warning", name, _UNKNOWN, *(f"{count} steps" for count in unknown)))
    return rows


def unproven(found: pl.DataFrame) -> tuple[str, ...]:
    """Return what these differences leave open, of ``prompts`` and ``target``: nobody can tell whether it is the same on both sides."""
    settings = found["setting"].to_list()
    prompts = any(setting == SALT or setting.startswith(_PROMPTS) for setting in settings)
    return ("prompts",) * prompts + ("target",) * (TARGET_UNKNOWN in settings)


def adrift(manifests: Sequence[Manifest], arms: Iterable[ArmPair], *, busy: bool) -> tuple[str, ...]:
    """Return the arms, by name, whose drafts follow what the machine or earlier requests did.

    Args:
        manifests: of the run before and the run after.
        arms: pairs of arms.
        busy: whether several tasks were in progress at once, so that the order of requests depends on time.
    """
    names = [
        arm for pair in arms for arm, manifest in zip(pair, manifests, strict=True) if _follows(manifest, arm, busy)
    ]
    return tuple(dict.fromkeys(names))


def _follows(manifest: Manifest, arm: str, busy: bool) -> bool:
    given = [item for workload in manifest["workloads"] for item in workload["arms"] if item["name"] == arm]
    if any((item.get("options") or {}).get("lengths") == GOODPUT_LENGTHS for item in given):
        return True
    described = ((manifest.get("engine") or {}).get("arms") or {}).get(arm) or {}
    return busy and bool(described.get("drafter_carries_state"))


def _label(manifest: Manifest, workload: str) -> str | None:
    """Return what is the same in all labels that a run put in front of a workload's prompts, ``None`` where it put none."""
    if (_workload(manifest, workload).get("replay") or {}).get("prompt_cache") != "salt":
        return None
    return f"{manifest.get('salt') or ''} {workload}".strip()


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Return ``frames.DIFFERENCES``, the most serious first."""
    return pl.DataFrame(sorted(rows, key=lambda row: _ORDER[row[0]]), schema=SCHEMA, orient="row")


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
        yield "warning", name, what, before[changed[0]][:12], after[changed[0]][:12]
    only = [len(before.keys() - after.keys()), len(after.keys() - before.keys())]
    if any(only):
        yield "note", name, "tasks that only this side's file has", str(only[0]), str(only[1])


def _of_settings(name: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[Row]:
    greedy = all((side.get("sampling") or {}).get("temperature") == 0 for side in (left, right))
    for key, one, other in _unequal(left.get("sampling"), right.get("sampling")):
        yield "note" if key == "seed" and greedy else "invalid", name, f"sampling.{key}", one, other
    for key, one, other in _unequal(left.get("replay"), right.get("replay")):
        yield "invalid" if key in _ASKED else "warning", name, f"replay.{key}", one, other
    for key in _HARMLESS:
        if left.get(key) != right.get(key):
            yield "note", name, key, _text(left.get(key)), _text(right.get(key))
    paced = [(side.get("engine") or {}).get("max_requests_per_s") for side in (left, right)]
    if paced[0] != paced[1]:
        yield "warning", name, "engine.max_requests_per_s", _text(paced[0]), _text(paced[1])


def _of_engine(left: Mapping[str, Any], right: Mapping[str, Any], arms: Sequence[ArmPair]) -> Iterator[Row]:
    models = [side.get("model") or {} for side in (left, right)]
    same = _same_model(*models)
    if same is None:
        yield "warning", None, TARGET_UNKNOWN, *(_text(model.get("sha256")) for model in models)  # type: ignore[misc]
    elif not same:
        yield "invalid", None, "target: model.sha256", *(_text(model.get("sha256")) for model in models)  # type: ignore[misc]
    if left.get("engine") != right.get(
        "engine"
    ):  # settings of two engines have nothing in common but how weights are held
        yield "warning", None, "engine", _name(left), _name(right)
        held = [
            {key: side.get("settings", {}).get(key, plain) for key, plain in _AS_GIVEN.items()}
            for side in (left, right)
        ]
        for key, one, other in _unequal(*held):
            yield "invalid", None, f"settings.{key}", one, other
    else:
        plain = [{key: value for key, value in side.items() if key not in _BY_ARM_OR_START} for side in (left, right)]
        for key, one, other in _unequal(*plain):
            if key in ("model.sha256", "model.source_sha256"):
                continue
            harmless = key.startswith("model.name") or key.split(".")[-1] in _SIZES
            yield "invalid" if key in _OF_TARGET else "note" if harmless else "warning", None, key, one, other
    for one_arm, other_arm in arms:
        found = [(side.get("arms") or {}).get(arm) for side, arm in ((left, one_arm), (right, other_arm))]
        label = one_arm if one_arm == other_arm else f"{one_arm}={other_arm}"
        for key, one, other in _unequal(*found):
            own = key.split(".")[0] in _OF_DRAFTER or of_drafter(key.removeprefix("flags.values."))
            yield "note" if own else "warning", None, f"arm {label}: {key}", one, other


def _same_model(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool | None:
    """Tell whether two targets have the same weights, ``None`` where one's hash is not known.

    A file and a folder of one model have hashes of their own, and one in common: that of what one of them, or both, were made of.
    """
    hashes = [{model[key] for key in ("sha256", "source_sha256") if model.get(key)} for model in (left, right)]
    return bool(hashes[0] & hashes[1]) if all(hashes) else None


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
