"""Command-line overrides of workload files: applied to the checked file, then checked again."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import ValidationError

from harness.errors import UsageError
from harness.workload import LoadedWorkload, Workload

QUICK_TASKS = 5  # the fewest for which an interval is given
QUICK_CONCURRENCY = (1, 4)
QUICK_MAX_TOKENS = 48


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

    def to_json(self) -> dict[str, Any]:
        """Return the overrides for the manifest, so that a run can be continued as it was started."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Overrides:
        """Inverse of :meth:`to_json`."""
        lists = {key: tuple(value[key]) for key in ("concurrency", "arms") if value[key] is not None}
        return cls(**{**value, **lists})


def apply(loaded: LoadedWorkload, overrides: Overrides) -> LoadedWorkload:
    """Return the workload with the overrides in place.

    Raises:
        UsageError: naming the option, if a value is not allowed or an arm is not in the file.
    """
    given = loaded.workload
    data = given.model_dump()
    if overrides.quick:
        data["concurrency"] = list(QUICK_CONCURRENCY)
        data["repeats"] = 1
        data["sampling"]["max_tokens"] = min(QUICK_MAX_TOKENS, given.sampling.max_tokens)
    if overrides.concurrency is not None:
        data["concurrency"] = list(overrides.concurrency)
    if overrides.max_tokens is not None:
        data["sampling"]["max_tokens"] = overrides.max_tokens
    if overrides.repeats is not None:
        data["repeats"] = overrides.repeats
    for option, value in (("kind", overrides.engine), ("model", overrides.model), ("base_url", overrides.base_url)):
        if value is not None:
            data["engine"][option] = value
    if overrides.arms is not None:
        data["arms"] = _select(data["arms"], overrides.arms, loaded)
    if overrides.base_url is not None:
        data["arms"] = [{**arm, "base_url": None} for arm in data["arms"]]
    limit = overrides.limit_tasks if overrides.limit_tasks is not None else QUICK_TASKS if overrides.quick else None
    if limit is not None:
        data["tasks_per_cell"] = limit
    if overrides.limit_steps is not None:
        data["steps_per_task"] = overrides.limit_steps
    try:
        workload = Workload.model_validate(data)
    except ValidationError as error:
        raise UsageError("\n".join(_explain(item) for item in error.errors())) from error
    if len(set(workload.concurrency)) != len(workload.concurrency):
        raise UsageError(
            f"--concurrency {','.join(map(str, workload.concurrency))} names a value twice; each must be different"
        )
    return replace(loaded, workload=workload)


def _select(arms: list[dict[str, Any]], wanted: Sequence[str], loaded: LoadedWorkload) -> list[dict[str, Any]]:
    by_name = {arm["name"]: arm for arm in arms}
    for index, name in enumerate(wanted):
        if name in wanted[:index]:
            raise UsageError(f"--arms names {name!r} twice")
        if name not in by_name:
            close = difflib.get_close_matches(name, by_name, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UsageError(
                f"--arms: {loaded.where('arms')} has no arm {name!r}; {hint}its arms: {', '.join(by_name)}"
            )
    return [by_name[name] for name in wanted]


def _explain(item: Any) -> str:
    options = {"repeats": "--repeats", "engine": "--engine", "arms": "--arms", "concurrency": "--concurrency"}
    options |= {"tasks_per_cell": "--limit-tasks", "steps_per_task": "--limit-steps", "sampling": "--max-tokens"}
    option = options.get(str(item["loc"][0]), ".".join(map(str, item["loc"])))
    return f"{option} is {item['input']!r:.80}: {item['msg'][0].lower()}{item['msg'][1:]}"
