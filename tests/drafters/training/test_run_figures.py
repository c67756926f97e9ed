"""The headline figures of a run, from files whose answers are known."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drafters.training.run_figures import figures


def table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as the harness writes its CSV files, unknown as an empty field."""
    with path.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), restval="")
        writer.writeheader()
        writer.writerows(rows)


def test_headline_figures_are_those_of_the_files(tmp_path: Path) -> None:
    """Acceptance by language over all workloads, speed-up of the steady window, 39 of 40 outputs, a break-even with its interval."""
    figure = {
        "acceptance_length": 2.5,
        "acceptance_length_low": 2.25,
        "acceptance_length_high": 2.75,
        "tokens_per_pass": 2,
    }
    place = {"arm": "a", "genre": "(all)", "concurrency": "(all)", "n_tasks": 6, "n_steps": 12, **figure}
    table(
        tmp_path / "drafters.csv",
        [
            {"workload": "(all)", "language": "ko", **place},
            {"workload": "w", "language": "(all)", **place, "acceptance_length_low": ""},
            {"workload": "(all)", "language": "ko", **place, "genre": "mail", "acceptance_length": 9},
            {"workload": "(all)", "language": "ko", **place, "concurrency": "1", "acceptance_length": 9},
        ],
    )
    speed_up = {
        "workload": "w",
        "arm": "a",
        "concurrency": 4,
        "speed_up": 1.5,
        "speed_up_low": 1.25,
        "speed_up_high": "",
    }
    table(tmp_path / "speed_up.csv", [speed_up | {"window": window} for window in ("steady", "whole")])
    table(tmp_path / "lossless.csv", [{"arm": "a", "n_steps": 20, "n_identical": n} for n in (20, 19)])
    verdict = {"break_even": 8, "break_even_low": 4, "break_even_high": ""}
    table(
        tmp_path / "verdicts.csv", [{"workload": "w", "arm": "a", "side": "crossed", "certainty": "limited", **verdict}]
    )
    finding = {"code": "counters_mismatch", "workload": "w", "arm": "a", "values": "{}"}
    table(tmp_path / "findings.csv", [finding | {"severity": severity} for severity in ("invalid", "note")])

    report = figures(tmp_path, ["a"])

    arm = report["arms"]["a"]
    told = {"value": 2.5, "low": 2.25, "high": 2.75, "n_tasks": 6, "n_steps": 12, "tokens_per_pass": 2}
    assert arm["acceptance_length"] == {"ko": told}
    assert arm["acceptance_length_by_workload"] == {"w": told | {"low": None}}
    assert arm["speed_up"] == [{"workload": "w", "concurrency": 4, "value": 1.5, "low": 1.25, "high": None}]
    assert arm["identical_outputs"] == {"n_steps": 40, "n_identical": 39, "share": 0.975}
    assert arm["break_even"][0] == {
        "workload": "w",
        "side": "crossed",
        "certainty": "limited",
        "value": 8,
        "low": 4,
        "high": None,
    }
    assert report["invalid"] == [finding]
