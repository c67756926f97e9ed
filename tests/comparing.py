"""Run folders for tests of comparisons: six tasks of a Korean and an English step, with counts a reader knows by heart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from harness.store import RunFolder
from tests.builders import BASELINE, MS, cell, cell_key, counters, run_folder, step, workload_entry

TASKS = 6
MODEL = "a" * 64
Accepted = Mapping[str, Sequence[int]]
"""Accepted tokens by position in the ten rounds of a step, by language."""
TWO = (6, 4)  # 10 accepted in 10 rounds: acceptance length 2
THREE = (10, 6, 4)  # 20 accepted in 10 rounds: 3


def run(
    path: Path,
    arms: Mapping[str, Accepted],
    *,
    milliseconds: Mapping[str, float] | None = None,
    tasks: int = TASKS,
    texts: Mapping[str, str] | None = None,
    manifest: Mapping[str, Any] | None = None,
    step_fields: Mapping[str, Any] | None = None,
    repeats: int = 2,
    **entry: Any,
) -> RunFolder:
    """Write a run with a baseline and these arms at concurrency 1: tasks t1 … of a Korean and an English step.

    Args:
        path: the folder.
        arms: of each, the accepted tokens by position in ten rounds, for ``ko`` and ``en``.
        milliseconds: of one step, by arm; 1000 where it is not said.
        tasks: how many.
        texts: what an arm writes, where it is not what all write.
        manifest: further keys of the manifest.
        step_fields: further fields of every step of the drafting arms.
        repeats: how often.
        entry: keys of the workload in the manifest.
    """
    records = []
    for repeat in range(1, repeats + 1):
        for arm in (BASELINE, *arms):
            key = cell_key(arm, repeat=repeat)
            length, due = (milliseconds or {}).get(arm, 1000.0), 0.0
            for number in range(1, tasks + 1):
                for index, language in enumerate(("ko", "en")):
                    per_position = arms.get(arm, {}).get(language, ())
                    spec = counters(10, 40, sum(per_position), per_position) if arm in arms else None
                    fields: dict[str, Any] = {"kind": "write" if index else "plan", "language": language, "spec": spec}
                    fields |= {"decode_passes": 20, "output_tokens": 41}
                    records.append(
                        step(
                            key, f"t{number}", index, due=due, end=due + length, text=(texts or {}).get(arm, "text"),
                            **{**fields, **(dict(step_fields or {}) if arm in arms else {})},
                        )
                    )  # fmt: skip
                    due += length
    names = [f"t{number}" for number in range(1, tasks + 1)]
    plain = {
        "methods": {BASELINE: "none", **dict.fromkeys(arms, "dflash2")},
        "task_ids": names,
        "genres": {name: "mail" if int(name[1:]) % 2 else "report" for name in names},
        "task_sha256": {name: name * 8 for name in names},
        "repeats": repeats,
    }
    begun = crc32(str(path).encode())  # on a machine's clock: no two runs have that in common
    folder = run_folder(
        path,
        records,
        [
            cell(key, order=order, start_ns=begun, end_ns=begun + 1000 * MS)
            for order, key in enumerate(dict.fromkeys(record.cell for record in records))
        ],
        [workload_entry(**{**plain, **entry})],
        texts=("text", *(texts or {}).values()),
    )
    engine = {"engine": "builtin", "model": {"sha256": MODEL}, "arms": {}}
    folder.manifest |= {"engine": engine, "status": "complete", **(manifest or {})}
    folder.write_manifest()
    return folder
