"""The workload file: what is replayed, against what, at which loads. Read, checked and frozen before any request is sent.

Every complaint names file and line, what was given and what is allowed.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.access import AccessSpec
from harness.errors import WorkloadError
from harness.redaction import holds_secret, plain_secrets, redacted
from harness.tasks import Task, read_tasks
from harness.workload_launch import Launch, LaunchSpec, launch_of
from harness.yaml_lines import Lines, Options, nearest_line, parse

MAX_CONCURRENCY = 4096
EngineKind = Literal["llamacpp", "builtin", "vllm", "sglang", "trtllm", "lmdeploy", "openai"]
KINDS: tuple[str, ...] = get_args(EngineKind)
REMOTE_KINDS: tuple[str, ...] = ("vllm", "sglang", "trtllm", "lmdeploy", "openai")
"""Servers that the package does not bring: each arm has an address or a command that starts one."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Concurrency = Annotated[int, Field(ge=1, le=MAX_CONCURRENCY, strict=True)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class TaskSource(_Strict):
    """Some tasks of one file: ``take`` of them, spread evenly over the file (all where it is absent)."""

    file: str
    take: Annotated[int, Field(ge=1)] | None = None


class EngineSpec(_Strict):
    """The engine under test.

    ``model`` is a name from ``harness models list`` or a path: to a GGUF file (llamacpp), to a Hugging Face folder (builtin); for a
    remote kind it is the name that requests carry, and empty the only one that the server tells.
    ``base_url`` attaches to what runs already instead of starting it: llamacpp has a server for each arm, so each arm needs its
    own address (an arm's ``base_url`` overrides this one); builtin has one for all. ``context_tokens`` is the room of one request:
    prompt plus output. ``options`` are further settings that only this kind of engine has. ``access`` is how servers that
    run already are reached, ``launch`` what the arms' own ``launch`` have in common, for remote kinds.
    """

    kind: EngineKind = "llamacpp"
    model: str = "smollm2-135m"
    base_url: str | None = None
    context_tokens: Annotated[int, Field(ge=256, le=1_048_576)] = 4096
    threads: Annotated[int, Field(ge=1, le=512)] = 1
    start_timeout_s: Annotated[float, Field(gt=0, le=7200)] = 120.0
    request_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    max_requests_per_s: Annotated[float, Field(gt=0)] | None = None
    options: Options = {}
    access: AccessSpec | None = None
    launch: LaunchSpec | None = None

    @model_validator(mode="before")
    @classmethod
    def _no_model_of_ours(cls, data: Any) -> Any:
        remote = isinstance(data, Mapping) and data.get("kind") in REMOTE_KINDS
        return {"model": "", **data} if remote else data

    def launch_for(self, arm: Arm) -> Launch | None:
        """Return how an arm's server is started, ``None`` where no command of the file starts it."""
        drafts = arm.method != "none"
        return launch_of(arm.name, self.launch, arm.launch, drafts=drafts, context_tokens=self.context_tokens)


class Arm(_Strict):
    """One engine configuration under comparison; ``method: none`` is the baseline.

    An arm that names an ``engine`` exists only in runs on it, so that one file can hold arms for several engines, each under the
    same name if it is meant to be the same thing there.
    """

    name: Name
    method: str
    engine: EngineKind | None = None
    options: Options = {}
    draft_model: str | None = None
    base_url: str | None = None
    launch: LaunchSpec | None = None


class WarmUp(_Strict):
    """Single steps (the first of as many tasks) sent in every cell before counting starts; recorded, never counted."""

    steps: Annotated[int, Field(ge=0, le=256)] = 1


class Replay(_Strict):
    """How tasks are replayed.

    ``history``: recorded answers or the engine's own (live) stand in later prompts. ``tool_wait``: as recorded, scaled by
    ``tool_wait_scale``, or none. ``prompt_cache``: ``salt`` puts a short label in front of each cell's system prompt so that
    no cell finds another's prompts in the cache (where all arms have one server, its cache is emptied too); ``reset`` empties the
    server's caches where it can; ``shared`` leaves them.
    ``tools``: schemas and calls as text in the prompt, or in the request's own ``tools`` field (native).
    """

    history: Literal["recorded", "live"] = "recorded"
    tool_wait: Literal["recorded", "scaled", "none"] = "recorded"
    tool_wait_scale: Annotated[float, Field(gt=0, le=1000)] = 1.0
    prompt_cache: Literal["salt", "reset", "shared"] = "salt"
    tools: Literal["text", "native"] = "text"


class Sampling(_Strict):
    """Sampling parameters sent with every request; ``max_tokens`` caps the tasks' own limits."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Annotated[int, Field(ge=0)] = 1
    max_tokens: Annotated[int, Field(ge=1)] = 160


class Workload(_Strict):
    """One workload file.

    A cell counts ``tasks_per_cell`` tasks (all of them where it is absent), and never fewer than its concurrency; of each
    task it sends the first ``steps_per_task`` steps (all where it is absent). ``slo`` maps
    ``metric_pNN`` to a limit such as ``2s``; ``thresholds`` are checked after the run.
    ``order: alternate`` runs the arms A B B A over the repeats: inside each concurrency where all servers are up at once, otherwise all
    of a repeat's loads before the servers change. ``per_arm`` finishes one arm before the next, so each server starts once.
    """

    name: Name
    description: str = ""
    tasks: str | list[TaskSource]
    engine: EngineSpec = EngineSpec()
    arms: Annotated[list[Arm], Field(min_length=1)]
    concurrency: Annotated[list[Concurrency], Field(min_length=1)]
    repeats: Annotated[int, Field(ge=1, le=1000)] = 2
    order: Literal["alternate", "per_arm"] = "alternate"
    tasks_per_cell: Annotated[int, Field(ge=1)] | None = None
    steps_per_task: Annotated[int, Field(ge=1)] | None = None
    warm_up: WarmUp = WarmUp()
    replay: Replay = Replay()
    sampling: Sampling = Sampling()
    slo: dict[str, str] = {}
    thresholds: list[str] = []

    @property
    def baseline(self) -> Arm | None:
        """The arm without a drafter, ``None`` where the file has none."""
        return next((arm for arm in self.arms if arm.method == "none"), None)


@dataclass(frozen=True, slots=True)
class LoadedWorkload:
    """A checked workload with its tasks and the means to name the line of any of its keys.

    ``options`` are the options of the command line that stand over keys of the file: what is wrong with those is no line's fault.
    """

    path: Path
    sha256: str
    workload: Workload
    tasks: tuple[Task, ...]
    lines: Lines
    options: Mapping[tuple[str | int, ...], str] = field(default_factory=dict)

    def where(self, *location: str | int) -> str:
        """Return ``file:line`` of a key, or of the nearest enclosing key that the file spells out, or the option that gave its value."""
        if location in self.options:
            return self.options[location]
        return f"{self.path}:{nearest_line(self.lines, location)}"


def load(path: Path) -> LoadedWorkload:
    """Read and check a workload file and its task files.

    Raises:
        WorkloadError: with file and line, on anything that is not as described in ``workloads/README.md``.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise WorkloadError(
            f"{path}:0: cannot read the workload: {error.strerror}; give the path of a .yaml file"
        ) from error
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path}:1: not UTF-8; save the file as UTF-8") from error
    data, lines = parse(path, text, "a workload", Workload.model_fields)
    try:
        workload = Workload.model_validate(data)
    except ValidationError as error:
        raise WorkloadError("\n".join(_explain(path, lines, item) for item in error.errors())) from error
    _check_secrets(path, lines, data)
    _check_unique(path, lines, "concurrency", list(workload.concurrency))
    for kind in KINDS:
        _check_arms(path, lines, workload, kind)
    return LoadedWorkload(path, hashlib.sha256(raw).hexdigest(), workload, _read_sources(path, lines, workload), lines)


def _read_sources(path: Path, lines: Lines, workload: Workload) -> tuple[Task, ...]:
    sources = [TaskSource(file=workload.tasks)] if isinstance(workload.tasks, str) else workload.tasks
    if not sources:
        raise WorkloadError(f"{path}:{nearest_line(lines, ('tasks',))}: tasks is empty; name at least one .jsonl file")
    tasks: dict[str, Task] = {}
    for index, source in enumerate(sources):
        line = nearest_line(lines, ("tasks", index, "file"))
        file = path.parent / source.file
        if not file.is_file():
            raise WorkloadError(
                f"{path}:{line}: task file {source.file!r} does not exist; paths are relative to the workload file"
            )
        found = read_tasks(file)
        if source.take is not None and source.take > len(found):
            at = nearest_line(lines, ("tasks", index, "take"))
            raise WorkloadError(f"{path}:{at}: take is {source.take}, but {source.file} holds {len(found)} tasks")
        for task in spread(found, source.take or len(found)):
            if task.id in tasks:
                raise WorkloadError(
                    f"{path}:{line}: task {task.id!r} comes from two sources; task names must be unique"
                )
            tasks[task.id] = task
    return tuple(tasks.values())


def spread(tasks: Sequence[Task], count: int) -> tuple[Task, ...]:
    """Return ``count`` tasks spread evenly over the sequence, the first always among them."""
    count = min(count, len(tasks))
    return tuple(tasks[index * len(tasks) // count] for index in range(count))


def _check_secrets(path: Path, lines: Lines, data: Mapping[str, Any]) -> None:
    """Check that no key stands in the file: it would be in every record and report of a run."""
    places = [place for key in ("engine", "arms") for place in plain_secrets(data.get(key), (key,))]
    if places:
        raise WorkloadError(
            "\n".join(
                f"{path}:{nearest_line(lines, place)}: {'.'.join(map(str, place))} looks like a key, and a key never stands in a workload "
                "file; put it into an environment variable: a server started here gets it from there (in launch also as ${NAME}), one "
                "that runs is told it by engine.access.api_key_env"
                for place in places
            )
        )


def _check_unique(path: Path, lines: Lines, key: str, values: Sequence[str | int]) -> None:
    for index, value in enumerate(values):
        if value in values[:index]:
            line = nearest_line(lines, (key, index, "name"))
            raise WorkloadError(f"{path}:{line}: {key} has {value!r} twice; each must be different")


def _check_arms(path: Path, lines: Lines, workload: Workload, kind: str) -> None:
    """Check that the arms of one engine have different names and one baseline at most."""
    seen: set[str] = set()
    baselines = 0
    for index, arm in enumerate(workload.arms):
        if arm.engine not in (None, kind):
            continue
        if arm.name in seen:
            line = nearest_line(lines, ("arms", index, "name"))
            raise WorkloadError(f"{path}:{line}: arms has {arm.name!r} twice; each must be different")
        seen.add(arm.name)
        baselines += arm.method == "none"
        if arm.method == "none" and baselines > 1:
            line = nearest_line(lines, ("arms", index, "method"))
            raise WorkloadError(
                f"{path}:{line}: a second arm with method none; one arm is the baseline, remove the other"
            )


def _fields_at(location: Sequence[str | int]) -> list[str]:
    model: Any = Workload
    for part in location:
        if isinstance(part, int):
            continue
        annotation = {
            "engine": EngineSpec, "arms": Arm, "warm_up": WarmUp, "replay": Replay, "sampling": Sampling, "tasks": TaskSource,
            "access": AccessSpec, "launch": LaunchSpec,
        }.get(part)  # fmt: skip
        if annotation is not None:
            model = annotation
    return list(model.model_fields)


def _explain(path: Path, lines: Lines, item: Any) -> str:
    # pydantic adds the names of union members to the location ("str", "list[TaskSource]"); they are not keys of the file
    location = tuple(part for part in item["loc"] if isinstance(part, int) or not re.search(r"^(str|list)\b|\[", part))
    line = nearest_line(lines, location)
    key = ".".join(map(str, location))
    hidden = "access" in location or holds_secret(str(location[-1] if location else ""))  # it may be a key
    given = "not as it should be" if hidden else f"{redacted(item['input'])!r:.80}"
    if item["type"] == "extra_forbidden":
        allowed = _fields_at(location[:-1])
        close = difflib.get_close_matches(str(location[-1]), allowed, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return f"{path}:{line}: unknown key {key!r}; {hint}allowed: {', '.join(allowed)}"
    if item["type"] == "missing":
        return f"{path}:{line}: key {key!r} is missing; add it"
    return f"{path}:{line}: {key} is {given}: {item['msg'][0].lower()}{item['msg'][1:]}"
