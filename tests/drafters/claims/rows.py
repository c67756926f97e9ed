"""Rows with counts a reader knows by heart."""

from __future__ import annotations

from typing import Any

from drafters.claims.counts import Row

TASKS = 8


def row(label: str, task: int = 1, **fields: Any) -> Row:
    """A step of ten rounds with ten accepted tokens, which took one second."""
    plain: dict[str, Any] = {
        "form": "plain", "label": label, "seed": 1, "workload": "w", "concurrency": 1, "repeat": 1, "task": f"t{task}",
        "instance": task, "step": 0, "kind": "reply", "language": "ko", "genre": "", "rounds": 10, "drafted": 40, "accepted": 10,
        "passes": 10, "output_tokens": 20, "seconds": 1.0, "repetitive": False, "output": "same",
    }  # fmt: skip
    return Row(**{**plain, **fields})


def rows(label: str, accepted: int | None = 10, tasks: int = TASKS, **fields: Any) -> list[Row]:
    """The same step of so many tasks."""
    return [row(label, task, accepted=accepted, **fields) for task in range(1, tasks + 1)]
