"""Who works when: a plan of shifts read from a table."""

import csv
from collections import defaultdict
from pathlib import Path

SHIFTS = ("early", "late", "night")


def read_plan(path: Path) -> dict[str, list[str]]:
    """Return the names of each shift."""
    plan: dict[str, list[str]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["shift"] not in SHIFTS:
                raise ValueError(f"unknown shift {row['shift']!r}; allowed: {', '.join(SHIFTS)}")
            plan[row["shift"]].append(row["name"])
    return dict(plan)


def smallest(plan: dict[str, list[str]]) -> str:
    """Return the shift with the fewest people."""
    return min(plan, key=lambda shift: len(plan[shift]))
