"""Marks the arms whose acceptance is made up, so that no reader of any output takes one for a real drafter."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import polars as pl

from harness.analysis.frames import RunAnalysis
from harness.analysis.plan import SYNTHETIC_METHOD


def marked(analysis: RunAnalysis, word: str) -> RunAnalysis:
    """Return the run with the word behind the name of every synthetic arm: in the frames, the findings and the manifest."""
    workloads = analysis.manifest.get("workloads") or ()
    arms = [arm for workload in workloads for arm in workload.get("arms") or ()]
    names: dict[str | None, str] = {
        arm["name"]: f"{arm['name']} ({word})" for arm in arms if arm.get("method") == SYNTHETIC_METHOD
    }
    if not names:
        return analysis
    engine = analysis.manifest.get("engine")
    manifest: dict[str, Any] = {
        **analysis.manifest,
        "workloads": [
            {**item, "arms": [{**arm, "name": names.get(arm["name"], arm["name"])} for arm in item.get("arms") or ()]}
            for item in workloads
        ],
    }
    if engine and engine.get("arms"):
        manifest["engine"] = {**engine, "arms": {names.get(arm, arm): value for arm, value in engine["arms"].items()}}
    frames = {
        field.name: frame.with_columns(pl.col("arm").cast(pl.String).replace(names))
        for field in fields(analysis)
        if isinstance(frame := getattr(analysis, field.name), pl.DataFrame)
    }
    findings = tuple(replace(finding, arm=names.get(finding.arm, finding.arm)) for finding in analysis.findings)
    return replace(
        analysis,
        manifest=manifest,
        findings=findings,
        verdicts=analysis.verdicts,
        hand_overs=analysis.hand_overs,
        **frames,
    )
