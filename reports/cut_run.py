"""A run that lacks cells it planned: said with every verdict, since figures of the cells that are there look whole."""

from __future__ import annotations

from harness.analysis.frames import RunAnalysis
from reports.wording import Wording

CODE = "cells_unfinished"


def cut_run(analysis: RunAnalysis, words: Wording) -> str:
    """Return how many of the planned cells of all workloads are there, empty where all of them are."""
    found = [item.values for item in analysis.findings if item.code == CODE]
    if not found:
        return ""
    planned, done, failed = (sum(values[name] for values in found) for name in ("n_planned", "n_done", "n_failed"))
    short = {item.workload for item in analysis.findings if item.code == CODE}
    for workload in analysis.manifest.get("workloads") or ():
        if workload["name"] not in short:  # whole, so no finding counts it
            cells = len(workload["arms"]) * len(workload["concurrency"]) * workload["repeats"]
            planned, done = planned + cells, done + cells
    key = "headline.cut_failed" if failed else "headline.cut"
    return words.text(key, n_done=done, n_planned=planned, n_failed=failed)
