"""A run folder as large as one likes, written in columns: the committed workloads replayed by an engine that does not exist.

Every file has the form that ``harness.store`` writes. Texts are the recorded answers, one in a hundred with another ending; the
times are drawn, and mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from harness import manifest
from harness.records import CellKey, CellRecord, SpecCounters
from harness.store import CELLS, OUTPUTS, ROUNDS, STEPS, Output, RunFolder, text_sha256
from harness.workload import LoadedWorkload, load

WORKLOADS = ("office-ko", "dev-ko", "essay-ko", "mixed", "coding-en", "support-en")
ARMS = {"baseline": "none", "prompt-lookup": "prompt_lookup", "ngram": "ngram"}
LOADS, REPEATS, DRAFTED = (1, 4, 16, 64), 4, 4
GAIN = {"baseline": 1.0, "prompt-lookup": 1.5, "ngram": 1.2}
VARIANTS = 0.01  # of the steps have a text of their own
MS, SECOND = 1_000_000, 1_000_000_000


@dataclass(frozen=True, slots=True)
class Size:
    """What was written."""

    steps: int
    rounds: int
    cells: int
    outputs: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Work:
    """The steps of one workload in the order of its tasks, and where each task begins."""

    loaded: LoadedWorkload
    steps: pl.DataFrame
    first: np.ndarray[Any, np.dtype[np.int64]]
    lengths: np.ndarray[Any, np.dtype[np.int64]]


def write_run(path: Path, n_steps: int, rounds_per_step: int) -> Size:
    """Write a run of about so many steps, each with about so many rounds, and return what it holds."""
    works = [_work(load(Path("workloads") / f"{name}.yaml")) for name in WORKLOADS]
    entries = manifest.build([work.loaded for work in works], ["run", "generated"], "en", path)
    for entry in entries["workloads"]:
        entry["arms"] = [{"name": arm, "method": method, "options": {}} for arm, method in ARMS.items()]
        entry |= {"concurrency": list(LOADS), "repeats": REPEATS, "slo": {"task_time_p90": "60s", "ttft_p90": "2s"}}
    folder = RunFolder.create(path, entries | {"engine": {"engine": "builtin", "version": "generated", "arms": {}}})
    keys = [
        CellKey(work.loaded.workload.name, arm, load_, repeat)
        for work in works
        for load_ in LOADS
        for repeat in range(1, REPEATS + 1)
        for arm in (ARMS if repeat % 2 else reversed(ARMS))
    ]
    by_name = {work.loaded.workload.name: work for work in works}
    rng = np.random.default_rng(1)
    texts: dict[str, str] = {}
    totals = [0, 0]
    with (path / STEPS).open("ab") as steps_file, (path / ROUNDS).open("ab") as rounds_file:
        for order, key in enumerate(keys):
            steps, cell, rounds = _cell(by_name[key.workload], key, order, n_steps / len(keys), rounds_per_step, rng)
            texts.update(zip(steps["output_sha256"], steps["text"], strict=True))
            steps.drop("text", "rounds").write_ndjson(steps_file)
            rounds_file.writelines(rounds)
            folder.append_cell(cell)
            totals[0] += steps.height
            totals[1] += int(steps["rounds"].sum())
    for sha, text in texts.items():
        ids = tuple(ord(letter) for letter in text[:160])
        folder.append_output(Output(sha, text, ids))
    folder.manifest["status"] = "complete"
    folder.write_manifest()
    folder.close()
    size = sum((path / name).stat().st_size for name in (STEPS, ROUNDS, OUTPUTS, CELLS))
    return Size(totals[0], totals[1], len(keys), len(texts), size)


def _work(loaded: LoadedWorkload) -> _Work:
    rows = [
        {
            "task_id": task.id,
            "step_index": index,
            "kind": step.kind,
            "language": step.language,
            "tool_wait_ns": round(step.tool_wait_s * SECOND),
            "max_tokens": step.max_tokens,
            "text": step.recorded.content or json.dumps([call.arguments for call in step.recorded.tool_calls]),
        }
        for task in loaded.tasks
        for index, step in enumerate(task.steps)
    ]
    lengths = np.array([len(task.steps) for task in loaded.tasks])
    return _Work(loaded, pl.DataFrame(rows), np.cumsum(lengths) - lengths, lengths)


def _cell(
    work: _Work, key: CellKey, order: int, n_steps: float, rounds_per_step: int, rng: np.random.Generator
) -> tuple[pl.DataFrame, CellRecord, Iterator[bytes]]:
    n_tasks = max(key.concurrency, round(n_steps / work.lengths.mean()))
    tasks = np.arange(n_tasks) % len(work.lengths)
    instance = np.repeat(np.arange(n_tasks), work.lengths[tasks])
    row = np.concatenate([np.arange(work.first[task], work.first[task] + work.lengths[task]) for task in tasks])
    n = len(row)
    wait = work.steps["tool_wait_ns"].to_numpy()[row]
    gain = 1 + (GAIN[key.arm] - 1) * max(0.0, 1 - np.log2(key.concurrency) / 5)
    busy = (0.4 * SECOND * key.concurrency**0.6 / gain * rng.lognormal(0, 0.25, n)).astype(np.int64)
    start = _starts(busy + wait, instance, n_tasks, key.concurrency) + order * 3600 * SECOND
    drafted = key.arm != "baseline"
    rounds = np.maximum(1, rng.poisson(rounds_per_step, n))
    accepted = rng.binomial(DRAFTED, 0.4, (n, rounds.max())) * (np.arange(rounds.max()) < rounds[:, None])
    accepted = accepted if drafted else np.zeros_like(accepted)
    at_least = np.stack([(accepted >= position).sum(axis=1) for position in range(1, DRAFTED + 1)], axis=1)
    own = work.steps[row].with_columns(own=pl.Series(rng.random(n) < VARIANTS), number=pl.int_range(pl.len()))
    own = own.with_columns(
        text=pl.when("own").then(pl.format("{} ({}-{})", "text", pl.lit(order), "number")).otherwise("text")
    )
    hashes = {text: text_sha256(text) for text in own["text"].unique()}
    counts: Sequence[tuple[str, Any]] = (
        ("num_drafts", rounds),
        ("num_draft_tokens", rounds * DRAFTED),
        ("num_accepted_tokens", accepted.sum(axis=1)),
        ("num_accepted_tokens_per_pos", at_least),
    )
    steps = own.select(
        pl.lit(key.workload).alias("workload"), pl.lit(key.arm).alias("arm"), pl.lit(key.concurrency).alias("concurrency"),
        pl.lit(key.repeat).alias("repeat"), pl.lit(1).alias("attempt"), pl.lit("counted").alias("phase"),
        pl.Series("instance", instance), "task_id", "step_index", "kind", "language",
        pl.Series("due_ns", start), pl.Series("sent_ns", start + MS // 5), pl.Series("first_token_ns", start + busy // 4),
        pl.Series("end_ns", start + busy), "tool_wait_ns", "max_tokens",
        pl.Series("prompt_tokens", 400 + 10 * row), pl.lit(200).alias("cached_tokens"),
        pl.Series("output_tokens", 1 + rounds + accepted.sum(axis=1)), "text",
        pl.col("text").replace_strict(hashes).alias("output_sha256"), pl.Series("decode_passes", rounds),
        *(pl.Series(name, values if drafted else [None] * n, strict=False) for name, values in counts),
        pl.lit("round" if drafted else None, pl.String).alias("spec_source"), pl.lit("stop").alias("finish_reason"),
        pl.Series("chunks", rounds), pl.lit(None, pl.String).alias("error_kind"), pl.lit(None, pl.String).alias("error_message"),
        pl.Series("rounds", rounds),
    )  # fmt: skip
    counters = SpecCounters(int(rounds.sum()), DRAFTED * int(rounds.sum()), int(accepted.sum())) if drafted else None
    nothing = SpecCounters(0, 0, 0) if drafted else None
    end = int((start + busy).max())
    cell = CellRecord(
        key, 1, order, "done", int(start.min()), end, n_tasks, "salt", nothing, counters, None, None, True, n
    )
    return steps, cell, _round_lines(steps, accepted, key)


def _starts(
    spans: np.ndarray[Any, np.dtype[np.int64]], instance: np.ndarray[Any, np.dtype[np.int64]], n_tasks: int, slots: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return when each step is due: ``slots`` tasks at once, the next of a slot as soon as the last has ended."""
    of_task = np.bincount(instance, weights=spans, minlength=n_tasks).astype(np.int64)
    begin = np.zeros(n_tasks, dtype=np.int64)
    for slot in range(slots):
        begin[slot::slots] = np.cumsum(of_task[slot::slots]) - of_task[slot::slots]
    before = np.cumsum(spans) - spans
    first = np.searchsorted(instance, instance)
    return np.asarray(begin[instance] + before - before[first])


def _round_lines(steps: pl.DataFrame, accepted: np.ndarray[Any, Any], key: CellKey) -> Iterator[bytes]:
    head = json.dumps([key.workload, key.arm, key.concurrency, key.repeat, 1])[:-1].replace(", ", ",")
    drafted = DRAFTED if key.arm != "baseline" else 0
    places = steps.select("task_id", "instance", "step_index", "rounds", "due_ns").iter_rows()
    for index, (task_id, instance, step_index, rounds, due) in enumerate(places):
        rows = ",".join(
            f"[{due + 20 * MS * number},{drafted},{taken},{key.concurrency},{number},{MS},{18 * MS},{MS}]"
            for number, taken in enumerate(accepted[index, :rounds].tolist())
        )
        yield f'{{"step":{head},{instance},{step_index}],"task_id":"{task_id}","rounds":[{rows}]}}\n'.encode()
