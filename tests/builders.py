"""Small builders of records, manifests and run folders for tests: only what a test is about is said, the rest is plain.

Times are in milliseconds from the start of the cell, so that a test can be read without counting zeros.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.records import CellKey, CellRecord, SpecCounters, StepRecord
from harness.store import Output, RunFolder, text_sha256

MS = 1_000_000  # nanoseconds
UNSAID = -1  # tasks: as many as have rows
BASELINE, ARM = "baseline", "ngram"
TEXT = "The order left the warehouse on Monday and will arrive on Thursday before noon."


def cell_key(arm: str = ARM, concurrency: int = 1, repeat: int = 1, workload: str = "office") -> CellKey:
    """Return the key of a cell."""
    return CellKey(workload, arm, concurrency, repeat)


def counters(
    rounds: int | None, drafted: int, accepted: int, per_position: Sequence[int] | None = None
) -> SpecCounters:
    """Return speculative counters."""
    return SpecCounters(rounds, drafted, accepted, None if per_position is None else tuple(per_position))


def step(
    cell: CellKey,
    task_id: str = "t1",
    step_index: int = 0,
    *,
    due: float = 0,
    sent: float | None = None,
    first: float | None = None,
    end: float = 1000,
    text: str | None = TEXT,
    **fields: Any,
) -> StepRecord:
    """Return one step, sent as it was due and with its first token halfway to the end unless said otherwise.

    A step with ``error_kind`` has neither text nor token counts.
    """
    failed = fields.get("error_kind") is not None
    sent = due if sent is None else sent
    first = (sent + end) / 2 if first is None else first
    plain: dict[str, Any] = {
        "attempt": 1,
        "phase": "counted",
        "instance": int(task_id.removeprefix("t")) if task_id.removeprefix("t").isdecimal() else 0,
        "kind": "reply",
        "language": "en",
        "due_ns": round(due * MS),
        "sent_ns": round(sent * MS),
        "first_token_ns": None if failed else round(first * MS),
        "end_ns": round(end * MS),
        "tool_wait_ns": 0,
        "max_tokens": 100,
        "prompt_tokens": None if failed else 50 + 10 * step_index,  # a prompt holds those before it
        "cached_tokens": None if failed else 0,
        "output_tokens": None if failed else 11,
        "output_sha256": None if failed or text is None else text_sha256(text),
        "decode_passes": None,
        "spec": None,
        "spec_source": None,
        "finish_reason": None if failed else "stop",
        "chunks": 0 if failed else 10,
    }
    return StepRecord(cell=cell, task_id=task_id, step_index=step_index, **(plain | fields))


def cell(key: CellKey, status: str = "done", **fields: Any) -> CellRecord:
    """Return the record of a cell that ended; :func:`run_folder` writes how many tasks it counted, unless it is said here."""
    plain: dict[str, Any] = {
        "attempt": 1,
        "order": 0,
        "status": status,
        "start_ns": 0,
        "end_ns": 1000 * MS,
        "counted_tasks": UNSAID,
        "cache_policy": "salt",
    }
    return CellRecord(cell=key, **(plain | fields))


def workload_entry(
    name: str = "office",
    *,
    methods: Mapping[str, str] | None = None,
    concurrency: Sequence[int] = (1,),
    repeats: int = 1,
    temperature: float = 0.0,
    history: str = "recorded",
    slo: Mapping[str, str] | None = None,
    thresholds: Sequence[str] = (),
    **fields: Any,
) -> dict[str, Any]:
    """Return a workload as the manifest holds it: baseline and one drafting arm unless ``methods`` says otherwise."""
    arms = {BASELINE: "none", ARM: "ngram-map-k"} if methods is None else methods
    return {
        "name": name,
        "path": f"{name}.yaml",
        "sha256": "0" * 64,
        "tasks_sha256": "0" * 64,
        "description": "",
        "n_tasks": 1,
        "task_ids": [],
        "sampling": {"temperature": temperature, "top_p": 1.0, "seed": 1, "max_tokens": 160},
        "replay": {"history": history, "tool_wait": "recorded", "prompt_cache": "salt", "tools": "text"},
        "arms": [{"name": arm, "method": method, "options": {}} for arm, method in arms.items()],
        "concurrency": list(concurrency),
        "repeats": repeats,
        "slo": dict(slo or {}),
        "thresholds": list(thresholds),
        "languages": ["en"],
        **fields,
    }


def run_folder(
    path: Path,
    steps: Iterable[StepRecord],
    cells: Iterable[CellRecord] | None = None,
    workloads: Sequence[Mapping[str, Any]] | None = None,
    texts: Iterable[str] = (TEXT,),
    outputs: Iterable[Output] = (),
) -> RunFolder:
    """Write a run folder and open it; by default every cell that has steps is done, and one workload is planned.

    Args:
        path: where; must not hold a run.
        steps: rows, in order.
        cells: records of ended cells.
        workloads: entries of the manifest.
        texts: outputs that the steps refer to.
        outputs: the same with token ids.
    """
    steps = list(steps)
    if cells is None:
        cells = [cell(key, order=order) for order, key in enumerate(dict.fromkeys(record.cell for record in steps))]
    entries = [workload_entry()] if workloads is None else workloads
    folder = RunFolder.create(
        path, {"created": "2026-01-01T00:00:00+00:00", "engine": None, "workloads": list(entries)}
    )
    for text in texts:
        folder.append_output(Output(text_sha256(text), text, None))
    for output in outputs:
        folder.append_output(output)
    for record in steps:
        folder.append_step(record)
    tasks = {(record.cell, record.attempt, record.instance) for record in steps if record.phase == "counted"}
    begun = Counter((key, attempt) for key, attempt, _ in tasks)
    for ended in cells:
        known = ended.counted_tasks if ended.counted_tasks != UNSAID else begun[ended.cell, ended.attempt]
        folder.append_cell(replace(ended, counted_tasks=known))
    folder.close()
    return RunFolder.open(path)


def solo_tasks(key: CellKey, lengths: Sequence[float], **fields: Any) -> list[StepRecord]:
    """Return tasks t1, t2, … of one step each that run one after another, ``lengths`` milliseconds long."""
    found, due = [], 0.0
    for number, length in enumerate(lengths, start=1):
        found.append(step(key, f"t{number}", due=due, end=due + length, **fields))
        due += length
    return found


def waves(key: CellKey, lengths: Sequence[float], **fields: Any) -> list[StepRecord]:
    """Return tasks t1, t2, … of one step each, ``concurrency`` at a time; the next wave starts when the longest has ended."""
    found, due = [], 0.0
    for begin in range(0, len(lengths), key.concurrency):
        wave = lengths[begin : begin + key.concurrency]
        found += [
            step(key, f"t{begin + i}", due=due, end=due + length, **fields) for i, length in enumerate(wave, start=1)
        ]
        due += max(wave)
    return found
