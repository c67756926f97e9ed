"""Command-line overrides of workload files: applied to the checked file, then checked again."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import ValidationError

from harness.addresses import shown_address
from harness.engines.remote_options import SERVED
from harness.errors import UsageError
from harness.models import TARGET, is_drafter
from harness.workload import KINDS, REMOTE_KINDS, Arm, LoadedWorkload, Workload

QUICK_TASKS = 5  # the fewest for which an interval is given
QUICK_CONCURRENCY = (1, 4)
QUICK_MAX_TOKENS = 48
Lines = dict[tuple[str | int, ...], int]
_ARM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line changes about every workload of a run; ``None`` leaves the file's own value."""

    engine: str | None = None
    model: str | None = None
    base_url: str | None = None
    concurrency: tuple[int, ...] | None = None
    arms: tuple[str, ...] | None = None
    limit_tasks: int | None = None
    limit_steps: int | None = None
    repeats: int | None = None
    max_tokens: int | None = None
    quick: bool = False
    api_key_env: str | None = None
    context_tokens: int | None = None
    slo: Mapping[str, str] | None = None  # objectives instead of the file's, as ``--slo`` was checked

    def to_json(self) -> dict[str, Any]:
        """Return the overrides for the manifest, so that a run can be continued as it was started."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Overrides:
        """Inverse of :meth:`to_json`.

        Raises:
            UsageError: if the value is not what that returns.
        """
        try:
            lists = {key: tuple(value[key]) for key in ("concurrency", "arms") if value[key] is not None}
            if not isinstance(value.get("slo"), dict | None):
                raise TypeError("slo is no mapping")
            return cls(**{**value, **lists})
        except (KeyError, TypeError) as error:
            raise UsageError(
                f"manifest.json: overrides are not as a run writes them ({error!r}); restore the file or start a new run"
            ) from error


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What decides which arms of a file a run has: the engine, and the model that it runs."""

    kind: str
    model: str | None
    base_url: str | None

    def misfit(self, arm: Arm) -> str | None:
        """Return where else the arm exists, for a message; ``None`` if it exists here.

        A drafter that comes with the package fits the shipped target alone; what an attached server runs is checked there.
        """
        if arm.engine not in (None, self.kind):
            return f"on the engine {arm.engine}, this run is on {self.kind}"
        named = [value for value in (arm.draft_model, *arm.options.values()) if isinstance(value, str)]
        if self.base_url is None and self.model != TARGET and any(map(is_drafter, named)):
            return f"for the model {TARGET}, this run has {self.model}"
        return None


def apply(loaded: LoadedWorkload, overrides: Overrides) -> LoadedWorkload:
    """Return the workload with the overrides in place.

    Raises:
        UsageError: naming the option, if a value is not allowed or an arm is not in the file.
    """
    given = loaded.workload
    data = _scaled(given, overrides)
    changes = {
        "kind": overrides.engine,
        "model": overrides.model,
        "base_url": overrides.base_url,
        "context_tokens": overrides.context_tokens,
    }
    changed = {key: value for key, value in changes.items() if value is not None}
    data["engine"] |= changed
    options: dict[tuple[str | int, ...], str] = {
        ("engine", key): f"--{key.replace('_', '-')} {shown_address(str(value)) if key == 'base_url' else value}"
        for key, value in changed.items()
        if key != "kind"
    }
    if overrides.slo is not None:
        data["slo"] = dict(overrides.slo)
        options |= {("slo", name): f"--slo {name}={limit}" for name, limit in overrides.slo.items()}
    if overrides.engine is not None and overrides.engine != given.engine.kind:
        data["engine"] = _of_another_kind(data["engine"], overrides, given.engine.kind)
    if overrides.api_key_env is not None:
        data["engine"]["access"] = {**(data["engine"]["access"] or {}), "api_key_env": overrides.api_key_env}
    chosen = EngineChoice(**{key: data["engine"].get(key) for key in ("kind", "model", "base_url")})
    servers = _servers(loaded, overrides, chosen.kind)
    if servers is None:
        kept = _kept(loaded, chosen, overrides.arms)
        data["arms"] = [data["arms"][index] for index in kept]
        if overrides.base_url is not None:  # what runs already is measured, nothing is started
            data["arms"] = [{**arm, "base_url": None, "launch": None} for arm in data["arms"]]
    else:
        kept, data["arms"] = servers
        data["engine"]["base_url"] = None
        option = f"--base-url {shown_address(overrides.base_url or '')}"
        options |= {("arms", index, "base_url"): option for index in range(len(kept))}
    if overrides.base_url is not None:
        data["engine"]["launch"] = None
    try:
        workload = Workload.model_validate(data)
    except ValidationError as error:
        raise UsageError("\n".join(_explain(item) for item in error.errors())) from error
    if len(set(workload.concurrency)) != len(workload.concurrency):
        raise UsageError(
            f"--concurrency {','.join(map(str, workload.concurrency))} names a value twice; each must be different"
        )
    return replace(loaded, workload=workload, lines=_renumbered(loaded.lines, kept), options=options)


def _scaled(given: Workload, overrides: Overrides) -> dict[str, Any]:
    """Return the file's values with how much is sent changed."""
    data = given.model_dump()
    limit = overrides.limit_tasks
    if overrides.quick:
        data["concurrency"] = list(QUICK_CONCURRENCY)
        data["repeats"] = 1
        data["sampling"]["max_tokens"] = min(QUICK_MAX_TOKENS, given.sampling.max_tokens)
        limit = QUICK_TASKS if limit is None else limit
    if overrides.concurrency is not None:
        data["concurrency"] = list(overrides.concurrency)
    if overrides.max_tokens is not None:
        data["sampling"]["max_tokens"] = overrides.max_tokens
    for key, value in (
        ("repeats", overrides.repeats),
        ("tasks_per_cell", limit),
        ("steps_per_task", overrides.limit_steps),
    ):
        if value is not None:
            data[key] = value
    return data


def _of_another_kind(engine: dict[str, Any], overrides: Overrides, kind: str) -> dict[str, Any]:
    """Return the file's engine without what only the kind that the file names has."""
    engine |= {"options": {}, "access": None, "launch": None}
    if overrides.model is None and {overrides.engine, kind} & set(REMOTE_KINDS):
        del engine["model"]
    return engine


def _servers(loaded: LoadedWorkload, overrides: Overrides, kind: str) -> tuple[list[int], list[dict[str, Any]]] | None:
    """Return the arms of servers that the command line gives by address, with their places in the file (-1: not in it).

    ``NAME=URL,NAME=URL`` gives an arm a server each: the file's own arm of that name where it exists on this engine, otherwise a new
    one, a baseline if it is called ``baseline``, else a server as it is. A single address given to a file without arms for this kind of
    server is one such server. ``None`` where the arms are the file's.

    Raises:
        UsageError: if names are given to an engine that is not one server an arm, twice, or together with ``--arms``.
    """
    if overrides.base_url is None:
        return None
    pairs = [part.partition("=") for part in overrides.base_url.split(",")]
    named = all(_ARM_NAME.fullmatch(name) and equals for name, equals, _ in pairs)
    if not named:
        own = loaded.workload.engine.kind == kind or any(arm.engine == kind for arm in loaded.workload.arms)
        if kind not in REMOTE_KINDS or own or overrides.arms is not None:
            return None
        pairs = [("server", "=", overrides.base_url)]
    elif kind not in REMOTE_KINDS:
        raise UsageError(f"--base-url NAME=URL is for {', '.join(REMOTE_KINDS)}; for {kind} give one address")
    elif overrides.arms is not None:
        raise UsageError("--base-url NAME=URL names the arms already; leave --arms out")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise UsageError(f"--base-url {shown_address(overrides.base_url)} names an arm twice; each must be different")
    there = {arm.name: place for place, arm in enumerate(loaded.workload.arms) if arm.engine in (None, kind)}
    if named:
        _refuse_misspelt(overrides, loaded, kind, there, [name for name, _, _ in pairs])
    kept, arms = [], []
    for name, _, address in pairs:
        place = there.get(name) if named else None
        method = "none" if name == "baseline" else SERVED
        arm = Arm(name=name, method=method) if place is None else loaded.workload.arms[place]
        kept.append(-1 if place is None else place)
        arms.append({**arm.model_dump(), "base_url": address, "launch": None})
    return kept, arms


def _refuse_misspelt(
    overrides: Overrides, loaded: LoadedWorkload, kind: str, there: Mapping[str, int], given: Sequence[str]
) -> None:
    """Refuse a name that is nearly that of an arm of the file which got no server: it would silently be an arm of its own."""
    arms = loaded.workload.arms
    if loaded.workload.engine.kind != kind and not any(arm.engine == kind for arm in arms):
        return  # the file knows no arms for these servers, so the names are the user's own
    left = [name for name in there if name not in given]
    for name in given:
        close = difflib.get_close_matches(name, left, n=1, cutoff=0.75) if name not in there else []
        if close:
            raise UsageError(
                f"--base-url {shown_address(overrides.base_url or '')}: {loaded.where('arms')} has no arm {name!r}; did you mean "
                f"{close[0]}? Its arms: {', '.join(there)}; a further server needs a name that is less like one of them"
            )


def _kept(loaded: LoadedWorkload, engine: EngineChoice, wanted: Sequence[str] | None) -> list[int]:
    """Return the places of a run's arms: those wanted, all where nothing is, and of them those that exist on this engine and model.

    Raises:
        UsageError: if a wanted arm is not there, or nothing is left to compare because the others are for another engine or model.
    """
    arms = list(enumerate(loaded.workload.arms))
    if engine.kind not in KINDS:
        return [index for index, _ in arms]  # the check of the whole names the kinds that there are
    misfits = {index: engine.misfit(arm) for index, arm in arms}
    here = {arm.name: index for index, arm in arms if misfits[index] is None}
    elsewhere = {arm.name: told for index, arm in arms if (told := misfits[index]) is not None}
    place, names = loaded.where("arms"), ", ".join(here) or "none"
    if wanted is None:
        if elsewhere and all(loaded.workload.arms[index].method == "none" for index in here.values()):
            others = "; ".join(f"{name} exists only {told}" for name, told in elsewhere.items())
            raise UsageError(
                f"{place}: nothing to compare on the engine {engine.kind}: {others}; arms of this run: {names}; add one, or "
                "choose another --engine or --model"
            )
        return list(here.values())
    for index, name in enumerate(wanted):
        if name in wanted[:index]:
            raise UsageError(f"--arms names {name!r} twice")
        if name in here:
            continue
        if name in elsewhere:
            raise UsageError(
                f"--arms: {place}: the arm {name!r} exists only {elsewhere[name]}; arms of this run: {names}"
            )
        close = difflib.get_close_matches(name, here, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UsageError(f"--arms: {place} has no arm {name!r}; {hint}its arms: {names}")
    return [here[name] for name in wanted]


def _renumbered(lines: Lines, kept: Sequence[int]) -> Lines:
    """Return the lines of a file's keys, with the arms numbered as those that are kept."""
    now = {old: new for new, old in enumerate(kept) if old >= 0}
    found: Lines = {}
    for key, line in lines.items():
        if key[:1] != ("arms",) or len(key) == 1:
            found[key] = line
        elif key[1] in now:
            found["arms", now[int(key[1])], *key[2:]] = line
    return found


def _explain(item: Any) -> str:
    options = {"repeats": "--repeats", "engine": "--engine", "arms": "--arms", "concurrency": "--concurrency"}
    if "access" in item["loc"]:  # what was given may be the key itself
        return f"--api-key-env: {item['msg'].removeprefix('Value error, ')}"
    options |= {"tasks_per_cell": "--limit-tasks", "steps_per_task": "--limit-steps", "sampling": "--max-tokens"}
    own = "--context-tokens" if item["loc"][-1] == "context_tokens" else options.get(str(item["loc"][0]))
    option = own or ".".join(map(str, item["loc"]))
    return f"{option} is {item['input']!r:.80}: {item['msg'][0].lower()}{item['msg'][1:]}"
