"""Analyses built by hand: figures of a believable small run, and the runs that reports must survive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from harness.analysis import cautions, frames
from harness.analysis.frames import Finding, RunAnalysis, Verdict
from tests.reports import decisions

WORKLOADS = ("office-ko", "coding-en")
ARMS = ("baseline", "ngram-map-k", "ngram-mod")
LOADS = (1, 4, 16)
# (estimate, low, high) of the speed-up at 1, 4 and 16
SPEED_UPS: Mapping[tuple[str, str], tuple[tuple[float, float, float], ...]] = {
    ("office-ko", "ngram-map-k"): ((1.42, 1.31, 1.55), (1.18, 1.09, 1.27), (0.84, 0.78, 0.91)),
    ("office-ko", "ngram-mod"): ((0.93, 0.89, 0.97), (0.86, 0.81, 0.92), (0.71, 0.66, 0.77)),
    ("coding-en", "ngram-map-k"): ((1.88, 1.70, 2.05), (1.52, 1.40, 1.66), (1.12, 1.04, 1.20)),
    ("coding-en", "ngram-mod"): ((1.31, 1.22, 1.41), (1.12, 1.03, 1.21), (0.97, 0.90, 1.05)),
}
STEPS_OF = {
    "office-ko": (("plan", "ko"), ("tool_call", "ko"), ("write", "ko")),
    "coding-en": (("plan", "en"), ("code_edit", "code")),
}


def frame(names: Sequence[str], rows: Sequence[Mapping[str, Any]] = ()) -> pl.DataFrame:
    """Return rows as a frame with exactly these columns, null where a row has no value."""
    data = {name: [row.get(name) for row in rows] for name in names}
    return pl.DataFrame({name: pl.Series(name, values, strict=False) for name, values in data.items()})


def empty() -> RunAnalysis:
    """Return the analysis of a run that was killed before its first step, with nothing known but the manifest's form."""
    nothing: dict[str, Any] = {name: frame(columns) for name, columns in FRAMES.items()}
    finding = Finding("no_finished_cell", "invalid", None, None, {"n_cells": 0})
    return RunAnalysis(manifest={"format": 1}, findings=(finding,), verdicts=(), **nothing)


def small() -> RunAnalysis:
    """Return two workloads and three arms: one crossed, one above, one below and one that cannot be told from 1."""
    cells = _cells()
    run = RunAnalysis(
        manifest=manifest(),
        steps=frame(frames.STEPS, _steps()),
        tasks=frame(frames.TASKS),
        cells=frame(frames.CELLS, cells),
        summary=frame(frames.SUMMARY, _summary()),
        acceptance=frame(frames.ACCEPTANCE, _acceptance()),
        survival=frame(frames.SURVIVAL, _survival()),
        drafters=frame(frames.DRAFTERS, _drafters()),
        speed_up=frame(frames.SPEED_UP, _speed_up()),
        break_even=frame(frames.BREAK_EVEN, _break_even()),
        lossless=frame(frames.LOSSLESS, _lossless()),
        slo=frame(frames.SLO, _slo()),
        thresholds=frame(frames.THRESHOLDS, [THRESHOLD]),
        findings=(
            Finding(
                "output_language_mismatch",
                "warning",
                "office-ko",
                "ngram-map-k",
                {"language": "ko", "share": 0.62, "n_steps": 144},
            ),
            Finding("few_tasks", "warning", "coding-en", None, {"n_tasks": 8}),
            Finding("cut_by_max_tokens", "note", "office-ko", "ngram-map-k", {"share": 0.4, "n_steps": 144}),
        ),
        verdicts=tuple(_verdicts()),
        **decisions.frames_of_decisions(),
    )
    return replace(
        run,
        summary=cautions.add(run.summary, run.findings),
        acceptance=cautions.add(run.acceptance, run.findings),
        survival=cautions.add(run.survival, run.findings),
        drafters=cautions.add(run.drafters, run.findings),
    )


def never_crossing() -> RunAnalysis:
    """Return the small run with the arms that stay faster at every load: no break-even anywhere."""
    run = small()
    stay = [item for item in run.verdicts if item.side == "above"]
    kept = pl.col("arm").is_in(["baseline", "ngram-map-k"]) & (pl.col("workload") == "coding-en")
    names = ("cells", "summary", "acceptance", "survival", "speed_up", "break_even", "lossless", "agents")
    return replace(run, verdicts=tuple(stay), **{name: getattr(run, name).filter(kept) for name in names})


def with_failures() -> RunAnalysis:
    """Return the small run with failed steps, hostile texts and an arm whose acceptance nobody knows."""
    run = small()
    text = "=HYPERLINK(\"http://x\") <script>alert('x')</script>\r\n둘째 줄"
    steps = run.steps.with_columns(
        pl.when(pl.col("step_index") == 1).then(pl.lit("http_status")).alias("error_kind"),
        pl.when(pl.col("step_index") == 1).then(pl.lit(text)).alias("error_message"),
    )
    acceptance = run.acceptance.with_columns(
        pl.when(pl.col("arm") != "ngram-mod").then(pl.col(name)).alias(name)
        for name in ("acceptance_length", "tokens_per_pass")
    )
    values = {
        "concurrency": 1,
        "n_failed": 4,
        "n_steps": 12,
        "share": 1 / 3,
        "error_kind": "http_status",
        "example": text,
    }
    failed = Finding("steps_failed", "warning", "office-ko", "ngram-map-k", values)
    strange = Finding("never_heard_of", "invalid", "office-ko", "ngram-map-k", {"what": "<b>x</b>", "limits": [1, 2]})
    return replace(run, steps=steps, acceptance=acceptance, findings=(strange, failed, *run.findings))


def one_cell() -> RunAnalysis:
    """Return a run of which only the baseline at one concurrency was finished."""
    run = small()
    only = (pl.col("workload") == "office-ko") & (pl.col("arm") == "baseline") & (pl.col("concurrency") == 1)
    none = empty()
    return replace(
        none,
        manifest=manifest(),
        cells=run.cells.filter(only).head(1),
        summary=run.summary.filter(only),
        findings=(
            Finding(
                "cells_unfinished",
                "warning",
                "office-ko",
                None,
                {"n_planned": 18, "n_done": 1, "n_failed": 0, "n_unfinished": 17, "missing": "ngram-mod at 4"},
            ),
        ),
    )


def verdict(**changes: Any) -> Verdict:
    """Return the verdict of the small run on ngram-map-k with changes."""
    return replace(POOLED, **changes)


def manifest() -> dict[str, Any]:
    """Return a manifest as a run writes it."""
    arms = [
        {"name": "baseline", "method": "none", "options": {}, "draft_model": None, "base_url": None},
        {
            "name": "ngram-map-k",
            "method": "ngram-map-k",
            "options": {"size_n": 3, "size_m": 8},
            "draft_model": None,
            "base_url": None,
        },
        {"name": "ngram-mod", "method": "ngram-mod", "options": {"n_match": 8}, "draft_model": None, "base_url": None},
    ]
    workloads = [
        {
            "name": name,
            "path": f"workloads/{name}.yaml",
            "sha256": "ab" * 32,
            "tasks_sha256": "cd" * 32,
            "arms": arms,
            "concurrency": list(LOADS),
            "repeats": 2,
            "n_tasks": 12,
            "n_steps": 48,
            "languages": sorted({language for _, language in STEPS_OF[name]}),
            "kinds": sorted({kind for kind, _ in STEPS_OF[name]}),
            "sampling": {"temperature": 0.0, "top_p": 1.0, "seed": 1, "max_tokens": 160},
            "slo": {},
            "task_ids": ["t1", "t2"],
        }
        for name in WORKLOADS
    ]
    flags = {"ctx_size": 4096, "threads": 1, "parallel": 16}
    return {
        "format": 1,
        "created": "2026-11-29T09:30:00+00:00",
        "argv": ["run", "workloads/office-ko.yaml", "workloads/coding-en.yaml", "--concurrency", "1,4,16"],
        "lang": "ko",
        "workloads": workloads,
        "versions": {"python": "3.11.2", "spec-harness": "0.1.0", "xllamacpp": "2026.10.11549", "torch": None},
        "machine": {"processor": "Example CPU", "cores": 2, "memory_bytes": 8 << 30, "system": "Linux 6.1 x86_64"},
        "git": {"commit": "0123456789abcdef", "dirty": True},
        "engine": {
            "engine": "llamacpp",
            "version": "b11549",
            "model": {"path": "smollm2-135m.gguf", "sha256": "ef" * 32},
            "arms": {
                "baseline": {"flags": flags},
                "ngram-map-k": {"flags": {**flags, "spec_type": "ngram-map-k", "size_n": 3}},
                "ngram-mod": {"flags": {**flags, "spec_type": "ngram-mod"}},
            },
        },
        "status": "complete",
    }


FRAMES = {
    "steps": frames.STEPS, "tasks": frames.TASKS, "cells": frames.CELLS, "summary": frames.SUMMARY,
    "acceptance": frames.ACCEPTANCE, "survival": frames.SURVIVAL, "drafters": frames.DRAFTERS,
    "speed_up": frames.SPEED_UP, "break_even": frames.BREAK_EVEN,
    "lossless": frames.LOSSLESS, "slo": frames.SLO, "thresholds": frames.THRESHOLDS,
}  # fmt: skip

POOLED = Verdict(
    workload=None, arm="ngram-map-k", side="crossed", break_even=9.0, break_even_low=6.0, break_even_high=14.0,
    lowest_concurrency=1, highest_concurrency=16, speed_up_first=(1.42, 1.31, 1.55), speed_up_last=(0.84, 0.78, 0.91),
    identical_share=0.98, acceptance_length=2.31, n_tasks=12, consistent=True,
)  # fmt: skip


THRESHOLD = {
    "workload": "coding-en", "arm": "ngram-map-k", "threshold": "speed_up{concurrency=4} > 1.2", "observed": 1.52, "met": True,
}  # fmt: skip


def _slo() -> list[dict[str, Any]]:
    return [
        {"workload": "coding-en", "arm": arm, "concurrency": 4, "objective": "ttft_p90", "limit": 2.0, "observed": 1.4, "n": 48,
         "attained_share": 0.979, "met": True}
        for arm in ARMS
    ]  # fmt: skip


def _verdicts() -> list[Verdict]:
    return [
        POOLED,
        verdict(arm="ngram-mod", side="below", break_even=None, break_even_low=None, break_even_high=5.0,
                speed_up_first=(0.97, 0.93, 1.02), speed_up_last=(0.76, 0.71, 0.81), identical_share=1.0, acceptance_length=1.4),
        verdict(workload="office-ko", break_even=8.6, break_even_low=6.1),
        verdict(workload="office-ko", arm="ngram-mod", side="below", break_even=None, break_even_low=None, break_even_high=None,
                speed_up_first=(0.93, 0.89, 0.97), speed_up_last=(0.71, 0.66, 0.77), identical_share=1.0, acceptance_length=1.3),
        verdict(workload="coding-en", side="above", break_even=None, break_even_low=None, break_even_high=None,
                speed_up_first=(1.88, 1.70, 2.05), speed_up_last=(1.12, 1.04, 1.20), identical_share=0.996, acceptance_length=2.9),
        verdict(workload="coding-en", arm="ngram-mod", break_even=13.1, break_even_low=8.0, break_even_high=None,
                speed_up_first=(1.31, 1.22, 1.41), speed_up_last=(0.97, 0.90, 1.05), identical_share=None, acceptance_length=None),
    ]  # fmt: skip


def _speed_up() -> list[dict[str, Any]]:
    rows = []
    for (workload, arm), points in SPEED_UPS.items():
        for load, (estimate, low, high) in zip(LOADS, points, strict=True):
            for window in ("steady", "whole"):
                row = {"workload": workload, "arm": arm, "concurrency": load, "window": window, "n_tasks": 12}
                row |= {"speed_up": estimate, "speed_up_low": low, "speed_up_high": high}
                row |= {
                    "speed_up_no_wait": estimate + 0.1,
                    "speed_up_no_wait_low": low + 0.1,
                    "speed_up_no_wait_high": high + 0.1,
                }
                rows.append(row)
    return rows


def _break_even() -> list[dict[str, Any]]:
    place = {"lowest_concurrency": 1, "highest_concurrency": 16, "n_tasks": 12}
    names = ("workload", "arm", "break_even", "break_even_low", "break_even_high", "side")
    return [{name: getattr(item, name) for name in names} | place | {"interval": _ends(item)} for item in _verdicts()]


def _ends(item: Verdict) -> str:
    if item.break_even_low is None:
        return "open_both" if item.break_even_high is None else "open_low"
    return "open_high" if item.break_even_high is None else "both"


def _summary() -> list[dict[str, Any]]:
    speed = {
        (*key, load): point for key, points in SPEED_UPS.items() for load, point in zip(LOADS, points, strict=True)
    }
    rows = []
    for workload in WORKLOADS:
        for arm in ARMS:
            for load in LOADS:
                point = speed.get((workload, arm, load), (None, None, None))
                base = 8.0 * load**0.6
                time = base / (point[0] or 1.0)
                row: dict[str, Any] = {
                    "workload": workload,
                    "arm": arm,
                    "concurrency": load,
                    "n_tasks": 12,
                    "n_steps": 48,
                }
                row |= {
                    "n_steps_failed": 0,
                    "ttft_p50_s": 0.2 * load,
                    "ttft_p90_s": 0.4 * load,
                    "tpot_p50_ms": 18.0 * load**0.5,
                }
                row |= {"tpot_p90_ms": 24.0 * load**0.5, "step_latency_p50_s": time / 4, "step_latency_p90_s": time / 3}
                row |= {
                    "task_time_mean_s": time,
                    "task_time_p50_s": time * 0.97,
                    "task_time_p90_s": time * 1.4 if load > 1 else None,
                }
                row |= {
                    "task_time_no_wait_mean_s": time - 1,
                    "output_tokens_per_s": 55.0 * load**0.4,
                    "tasks_per_hour": 3600 * load / time,
                }
                if point[0] is not None:
                    row |= {
                        "acceptance_length": 2.31,
                        "acceptance_length_macro": 2.2,
                        "acceptance_rate": 0.41,
                        "tokens_per_pass": 1.52,
                    }
                    row |= {
                        "speed_up": point[0],
                        "speed_up_low": point[1],
                        "speed_up_high": point[2],
                        "identical_share": 0.98,
                    }
                rows.append(row)
    return rows


def _acceptance() -> list[dict[str, Any]]:
    return [
        {"workload": workload, "arm": arm, "concurrency": load, "kind": kind, "language": language, "n_steps": 24,
         "n_steps_with_rounds": 20, "num_drafts": 120 + index, "num_accepted_in_rounds": 145, "num_draft_tokens": 600,
         "num_accepted_tokens": 150, "acceptance_length": 2.2 + 0.5 * index, "acceptance_length_macro": 2.1, "acceptance_rate": 0.25,
         "tokens_per_pass": 1.4 + 0.3 * index, "output_tokens": 1900, "ttft_p50_s": 0.3, "tpot_p50_ms": 20.0,
         "step_latency_p50_s": 1.9, "repetitive_share": 0.1, "identical_share": 0.98}
        for workload in WORKLOADS
        for arm in ARMS[1:]
        for index, (kind, language) in enumerate(STEPS_OF[workload])
        for load in (None, *LOADS)
    ]  # fmt: skip


def _survival() -> list[dict[str, Any]]:
    return [
        {"workload": workload, "arm": arm, "position": position, "num_drafts": 480, "survival": 0.62**position}
        for workload in WORKLOADS
        for arm in ARMS[1:]
        for position in range(1, 9)
    ]


def _drafters() -> list[dict[str, Any]]:
    length = {
        "acceptance_length": 2.31,
        "acceptance_length_low": 2.1,
        "acceptance_length_high": 2.5,
        "tokens_per_pass": 1.8,
    }
    steps = {"step_speed_up": 1.4, "step_speed_up_low": 1.3, "step_speed_up_high": 1.5}
    return [
        {"workload": workload, "arm": arm, "language": language, "genre": genre, "concurrency": load, "n_tasks": 12, "n_steps": 48,
         "num_drafts": 480, **length, **({} if load is None else steps)}
        for workload in WORKLOADS for arm in ARMS[1:] for language in (None, STEPS_OF[workload][0][1]) for genre in (None, "report")
        for load in (None, *LOADS)
    ]  # fmt: skip


def _lossless() -> list[dict[str, Any]]:
    return [
        {"workload": workload, "arm": arm, "concurrency": load, "n_steps": 48, "n_identical": 48 - index, "identical_share": 1 - index / 48,
         "first_difference_token_min": 31 if index else None, "first_difference_token_p50": 66.0 if index else None,
         "example_step": "office-ko-03:2" if index else None}
        for workload in WORKLOADS for arm in ARMS[1:] for index, load in enumerate(LOADS)
    ]  # fmt: skip


def _cells() -> list[dict[str, Any]]:
    keys = [
        (workload, arm, load, repeat) for workload in WORKLOADS for load in LOADS for repeat in (1, 2) for arm in ARMS
    ]
    return [
        dict(zip(frames.CELL, key, strict=True))
        | {
            "attempt": 1,
            "order": order,
            "status": "done",
            "duration_s": 31.5,
            "steady_s": 24.0,
            "n_tasks": 12,
            "n_tasks_failed": 0,
        }
        | {
            "n_steps": 48,
            "n_steps_failed": 0,
            "output_tokens_per_s": 61.0,
            "tasks_per_hour": 1200.0,
            "late_p99_ms": 0.8,
        }
        | {"requests_in_flight": 0.9 * key[2], "cache_policy": "salt", "cached_share": 0.55, "counters_match": True}
        for order, key in enumerate(keys)
    ]


def _steps() -> list[dict[str, Any]]:
    return [
        dict(zip(frames.CELL, (workload, arm, 1, 1), strict=True))
        | {
            "attempt": 1,
            "phase": "counted",
            "instance": 0,
            "task_id": f"{workload}-01",
            "step_index": index,
            "kind": kind,
        }
        | {
            "language": language,
            "steady": True,
            "due_s": 1.0 * index,
            "sent_s": 1.0 * index,
            "first_token_s": index + 0.2,
        }
        | {
            "end_s": index + 0.9,
            "late_ms": 0.1,
            "ttft_s": 0.2,
            "tpot_ms": 18.0,
            "output_tokens": 40,
            "finish_reason": "stop",
        }
        for workload in WORKLOADS
        for arm in ARMS
        for index, (kind, language) in enumerate(STEPS_OF[workload])
    ]
