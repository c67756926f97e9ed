"""The headline figures of a run of the harness, copied out of its CSV files: nothing is computed anew. Imports no torch."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from drafters.training.stage import StageError

__all__ = ["POOLED", "TABLES", "figure", "figures", "identical", "number", "read_table"]

POOLED = "(all)"  # how the files mark a row that pools
TABLES = ("drafters.csv", "summary.csv", "speed_up.csv", "lossless.csv", "verdicts.csv", "findings.csv")


def figures(folder: Path, arms: Sequence[str]) -> dict[str, Any]:
    """Return the headline figures of a run from its CSV files: acceptance by language, speed-up by load, outputs, break-even.

    A figure is ``{"value", "low", "high"}``, unknown is null. Languages pool workloads; ``(all)`` pools languages too.
    """
    drafters, speed_ups, same, verdicts, findings = (
        read_table(folder / name)
        for name in ("drafters.csv", "speed_up.csv", "lossless.csv", "verdicts.csv", "findings.csv")
    )
    report: dict[str, Any] = {"run": folder.name, "arms": {}}
    for arm in arms:
        own = [row for row in drafters if row["arm"] == arm and row["genre"] == POOLED]
        pooled = [row for row in own if row["concurrency"] == POOLED]
        languages = {row["language"]: _acceptance(row) for row in pooled if row["workload"] == POOLED}
        report["arms"][arm] = {
            "acceptance_length": languages,
            "acceptance_length_by_workload": {
                row["workload"]: _acceptance(row)
                for row in pooled
                if row["workload"] != POOLED and row["language"] == POOLED
            },
            "speed_up": [
                {"workload": row["workload"], "concurrency": int(row["concurrency"]), **figure(row, "speed_up")}
                for row in speed_ups
                if row["arm"] == arm and row["window"] == "steady"
            ],
            "identical_outputs": identical([row for row in same if row["arm"] == arm]),
            "break_even": [
                {
                    "workload": row["workload"],
                    "side": row["side"],
                    "certainty": row["certainty"],
                    **figure(row, "break_even"),
                }
                for row in verdicts
                if row["arm"] == arm
            ],
        }
    report["invalid"] = [
        {key: row[key] for key in ("code", "workload", "arm", "values")}
        for row in findings
        if row["severity"] == "invalid"
    ]
    return report


def _acceptance(row: Mapping[str, str]) -> dict[str, Any]:
    return {
        **figure(row, "acceptance_length"),
        "n_tasks": int(row["n_tasks"]),
        "n_steps": int(row["n_steps"]),
        "tokens_per_pass": number(row["tokens_per_pass"]),
    }


def figure(row: Mapping[str, str], name: str) -> dict[str, float | None]:
    """Return a figure of a row with its interval."""
    return {"value": number(row[name]), "low": number(row[f"{name}_low"]), "high": number(row[f"{name}_high"])}


def identical(rows: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """Count the steps of an arm whose output is that of the baseline, from rows of ``lossless.csv``."""
    rows = list(rows)
    n, same = (sum(int(row[name]) for row in rows) for name in ("n_steps", "n_identical"))
    return {"n_steps": n, "n_identical": same, "share": same / n if n else None}


def number(text: str) -> float | None:
    """Return what a field says, ``None`` for an empty one."""
    return float(text) if text else None


def read_table(path: Path) -> list[dict[str, str]]:
    """Read one of the harness's CSV files. Raises StageError where it is missing."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return list(csv.DictReader(stream))
    except OSError as error:
        raise StageError(
            f"{path} cannot be read: {error.strerror}; it is written when a run ends: 'harness report {path.parent}'"
        ) from error
