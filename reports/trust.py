"""What a run was made of and what it did not measure, as tables and sentences from the manifest and the frames."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import polars as pl

from harness.analysis.frames import RunAnalysis
from harness.analysis.steps import FAILED
from reports import servers
from reports.tables import Table, table, unique_sorted
from reports.wording import UNKNOWN, Wording

MAX_CELLS = 400  # rows of the cell table on the page; cells.csv has all of them
_ELSEWHERE = ("arms", "probed", "flag_differences")  # of the engine's description: each has a table of its own
LONGEST_VALUE = 300  # letters of one setting or message; a list of task names can be thousands
_WORKLOAD_KEYS = (
    "path", "sha256", "tasks_sha256", "n_tasks", "n_steps", "tasks_per_cell", "languages", "kinds", "concurrency", "repeats", "order",
    "replay", "sampling", "warm_up",
)  # fmt: skip


def tables(analysis: RunAnalysis, words: Wording) -> list[Table]:
    """Return what a reader needs to judge the run, in order: settings, engine, data, versions, machine, cells, errors."""
    manifest = analysis.manifest
    engine = manifest.get("engine") or {}
    differing, same = settings(manifest, words)
    arms = tuple(_arm_names(manifest))
    headers = (words.text("table.name"), *arms)
    run = {
        words.text("trust.created"): started(manifest),
        words.text("trust.status"): _status(manifest.get("status"), words),
    }
    git = manifest.get("git") or {}
    if git:
        dirty, commit = git.get("dirty"), git.get("commit")
        state = words.text("trust.dirty" if dirty else "trust.clean")
        run[words.text("trust.commit")] = commit if dirty is None else f"{commit} ({state})"
    workloads = manifest.get("workloads") or ()
    found = [
        _pairs(words.text("table.run"), run, words),
        servers.flags(manifest, words),
        Table(words.text("table.flags_differ"), headers, (False,) * len(headers), tuple(differing)),
        _pairs(words.text("table.flags_same"), same, words),
        _pairs(
            words.text("table.engine"), {key: value for key, value in engine.items() if key not in _ELSEWHERE}, words
        ),
        servers.facts(manifest, words),
        *(
            _pairs(
                f"{words.text('table.workloads')}: {item.get('name')}",
                {key: item.get(key) for key in _WORKLOAD_KEYS} | _ran(analysis, item, words),
                words,
            )
            for item in workloads
        ),
        _pairs(words.text("table.versions"), manifest.get("versions") or {}, words),
        _pairs(words.text("table.machine"), manifest.get("machine") or {}, words),
        cells(analysis, words),
        errors(analysis, words),
    ]
    return [item for item in found if item.rows]


def settings(manifest: Mapping[str, Any], words: Wording) -> tuple[list[tuple[str, ...]], dict[str, str]]:
    """Return the arms' settings that differ (name, then one value an arm) and those that are equal, flags as the engine has them."""
    declared = {arm["name"]: arm for workload in manifest.get("workloads") or () for arm in workload.get("arms") or ()}
    effective = (manifest.get("engine") or {}).get("arms") or {}
    by_arm = {
        name: {**dict(_flat(declared.get(name, {}), "")), **dict(_flat(effective.get(name) or {}, ""))}
        for name in _arm_names(manifest)
    }
    keys = dict.fromkeys(key for values in by_arm.values() for key in values if key != "name")
    rows = [(key, *(_shown(key, values.get(key), words) for values in by_arm.values())) for key in keys]
    differing = [
        row for row in rows if len(set(row[1:])) > 1 and not row[0].startswith(("flags.values.", "flags.source"))
    ]  # those have a table
    same = {
        row[0].removeprefix("flags.values."): row[1] for row in rows if len(set(row[1:])) == 1 and row[1] != UNKNOWN
    }
    return differing, same


def rerun(manifest: Mapping[str, Any]) -> str | None:
    """Return the command line that starts the same run again, in a folder of its own; ``None`` where it was not recorded."""
    kept: list[str] = []
    after_out = False
    for part in map(str, manifest.get("argv") or ()):
        option, equals, _ = part.partition("=")
        # the parser takes the beginning of an option for the whole, as long as no other begins so
        is_out = len(option) > 2 and "--out".startswith(option)
        if not after_out and not is_out:
            kept.append(part)
        after_out = is_out and not equals and not after_out
    return shlex.join(["harness", *kept]) if kept else None


def started(manifest: Mapping[str, Any]) -> str | None:
    """Return when the run was started as people write it, to the minute; ``None`` where it was not recorded.

    What is no date stands as it was written.
    """
    created = manifest.get("created")
    if created is None:
        return None
    try:
        return f"{datetime.fromisoformat(str(created)).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return _short(created)


def cells(analysis: RunAnalysis, words: Wording) -> Table:
    """Return the cells in the order in which they ran."""
    names = ("order", "workload", "arm", "concurrency", "repeat", "attempt", "status", "duration_s", "steady_s", "n_tasks",
             "n_tasks_failed", "late_p99_ms", "requests_in_flight", "cache_policy", "cached_share", "counters_match")  # fmt: skip
    frame = analysis.cells.sort("order", nulls_last=True) if analysis.cells.height else analysis.cells
    caption = words.text("table.cells")
    if frame.height > MAX_CELLS:
        caption += f" ({words.text('table.capped', n=frame.height - MAX_CELLS)})"
    return table(frame.head(MAX_CELLS), names, words, caption)


def errors(analysis: RunAnalysis, words: Wording) -> Table:
    """Return failed steps by workload, arm, concurrency and class, with the first message of each.

    The tail of a cell, cut off on purpose once its last counted task has ended, is no error.
    """
    headers = (*(words.header(name) for name in ("workload", "arm", "concurrency", "error_kind")), words.text("table.count"),
               words.text("table.example"))  # fmt: skip
    failed = analysis.steps.filter(FAILED) if analysis.steps.height else analysis.steps
    groups: dict[tuple[str, ...], list[str]] = {}
    for row in failed.iter_rows(named=True):
        key = tuple(words.figure(name, row[name]) for name in ("workload", "arm", "concurrency", "error_kind"))
        groups.setdefault(key, []).append(_short(row["error_message"]))
    rows = tuple((*key, f"{len(messages):,}", messages[0]) for key, messages in groups.items())
    return Table(words.text("table.errors"), headers, (False, False, True, False, True, False), rows)


def not_measured(analysis: RunAnalysis, words: Wording) -> list[str]:
    """Return what the figures do not tell, in general and in this run."""
    found = [words.text("not_measured.quality"), words.text("not_measured.cost")]
    loads = analysis.summary["concurrency"].drop_nulls().to_list()
    if loads:
        found.append(words.text("not_measured.range", lowest=min(loads), highest=max(loads)))
    for what, key in (("language", "languages"), ("kind", "kinds")):
        seen = [words.label(what, value) for value in unique_sorted(analysis.acceptance, what)]
        if seen:
            found.append(words.text(f"not_measured.{key}", **{key: ", ".join(seen)}))
    compared = unique_sorted(analysis.speed_up, "arm")
    for name, frame, column in (
        ("acceptance", analysis.acceptance, "acceptance_length"),
        ("position", analysis.survival, "survival"),
        ("lossless", analysis.lossless, "identical_share"),
    ):
        known = set(frame.filter(pl.col(column).is_not_null())["arm"].to_list())
        lacking = [arm for arm in compared if arm not in known]
        if lacking:
            found.append(words.text(f"not_measured.{name}", arms=", ".join(lacking)))
    cells_done = analysis.cells.filter(pl.col("status") == "done") if analysis.cells.height else analysis.cells
    if cells_done.height and cells_done["cached_share"].null_count() == cells_done.height:
        found.append(words.text("not_measured.cache"))
    if analysis.cells.height > cells_done.height:
        found.append(words.text("not_measured.cells", n=analysis.cells.height - cells_done.height))
    lacking_p90 = analysis.summary["task_time_p90_s"].null_count()
    if lacking_p90:
        found.append(words.text("not_measured.p90", n=lacking_p90))
    if analysis.slo.is_empty():
        found.append(words.text("not_measured.slo"))
    return found


def _arm_names(manifest: Mapping[str, Any]) -> list[str]:
    declared = [arm["name"] for workload in manifest.get("workloads") or () for arm in workload.get("arms") or ()]
    return list(dict.fromkeys([*declared, *((manifest.get("engine") or {}).get("arms") or ())]))


def _pairs(caption: str, values: Mapping[str, Any], words: Wording) -> Table:
    rows = tuple((key, _shown(key, value, words)) for key, value in _flat(values, "") if value is not None)
    return Table(caption, (words.text("table.name"), words.text("table.value")), (False, False), rows)


def _flat(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str) and _is_command(value):
        yield from _flags(value, prefix)
    else:
        yield prefix, value


def _is_command(value: Sequence[Any]) -> bool:
    return any(isinstance(item, str) and item.startswith("--") for item in value)


def _flags(command: Iterable[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Turn a command line into names and values, so that two arms can be compared flag by flag."""
    name, values = prefix, list[str]()
    for item in map(str, command):
        if item.startswith("--"):
            if values or name != prefix:
                yield name, " ".join(values) or True
            name, values = item, []
        else:
            values.append(item)
    yield name, " ".join(values) or True


def _status(status: Any, words: Wording) -> str | None:
    if status is None:
        return None
    word, colon, why = str(status).partition(": ")  # "stopped: why", in the engine's own words
    return f"{words.label('status', word)}{colon}{why}"


def _ran(analysis: RunAnalysis, workload: Mapping[str, Any], words: Wording) -> dict[str, str]:
    """Return what was really run of a workload: a limit on tasks, or a run cut short, leaves less than was planned."""
    if analysis.tasks.is_empty():
        return {}
    own = analysis.tasks.filter((pl.col("workload") == workload.get("name")) & (pl.col("phase") == "counted"))
    distinct = own["task_id"].n_unique() if own.height else 0
    text = words.text("trust.ran", distinct=distinct, planned=workload.get("n_tasks"), n=own.height)
    return {words.text("trust.ran_name"): text}


def _shown(key: str, value: Any, words: Wording) -> str:
    if isinstance(value, bool):
        return words.text("yes" if value else "no")
    if key.endswith("_bytes") and isinstance(value, int):
        return f"{value / (1 << 30):.1f} GiB"
    return _short(value)


def _short(value: Any) -> str:
    if value is None:
        return UNKNOWN
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
