"""The figures of a run as one JSON file for programs, ``summary.json``, with a published schema: ``reports/summary.schema.json``.

Unknown is null. ``python -m reports.summary`` prints the schema; a test holds the file to it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from harness.analysis.frames import RunAnalysis
from harness.analysis.handover import aiconfigurator, vllm
from reports.languages import widest as widest_languages
from reports.predictions import widest
from reports.verdict import Context, certainty, last_line, sentence

FILE = "summary.json"
SCHEMA_FILE = "summary.schema.json"
Source = Literal["measured", "modelled"]
Share = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Interval(_Part):
    """An estimate with its 95 % interval; an end that is null is unknown or beyond what was measured."""

    estimate: float | None
    low: float | None
    high: float | None


class Place(_Part):
    """Of what a figure is; ``workload`` null: all workloads of the run together."""

    workload: str | None
    arm: str


class VerdictPart(Place):
    """One sentence of the report, and how certain it is: clear, limited, unsure, unknown or invalid."""

    sentence: str
    certainty: str
    identical_share: Share | None


class BreakEvenPart(Place):
    """Tasks in progress at which the speed-up of task time crosses 1; side: crossed, above, below or unknown."""

    side: str
    break_even: Interval
    interval: str
    lowest_concurrency: int | None
    highest_concurrency: int | None
    n_tasks: int
    source: Source = "measured"


class LoadPart(Place):
    """One arm on one workload at one load: times in seconds, tasks an hour, tokens a round."""

    concurrency: int
    n_tasks: int
    task_time_mean_s: float | None
    tasks_per_hour: float | None
    output_tokens_per_s: float | None
    acceptance_length: float | None
    tokens_per_pass: float | None
    speed_up: Interval


class SurvivalPart(Place):
    """Share of rounds in which at least 1, 2, … drafted tokens were accepted, by language (null: all)."""

    language: str | None
    num_drafts: int
    survival: list[float]


class AgentsPart(Place):
    """Largest number of tasks in progress that keeps the service level; capacity: found, at_least, none or unknown."""

    slo: str | None
    agents: int | None
    low: int | None
    high: int | None
    capacity: str
    limited_by: str | None


class LanguagePart(Place):
    """What a group of languages loses against another; ``concurrency`` null: all loads, without times. Times are modelled."""

    language_group: str
    reference_group: str
    concurrency: int | None
    n_tasks: int
    n_tasks_reference: int
    acceptance_length: float | None
    acceptance_length_reference: float | None
    acceptance_length_loss: Interval
    time_loss_s: float | None
    time_loss_share: Interval
    win_back: float | None


class PredictedPart(Place):
    """Fastest draft length of one batch size; 0 is no drafts."""

    batch_size: int
    num_tokens: int
    decode_speed_up: float
    source: Source = "modelled"


class PredictedBreakEvenPart(Place):
    """Where one draft length stops paying, in requests of a round and, where that is known, in tasks in progress."""

    num_tokens: int
    side: str
    batch: float | None
    concurrency: float | None
    source: Source = "modelled"


class CostPart(_Part):
    """One part of a round, measured and modelled, in ms."""

    part: str
    arm: str | None
    batch_size: float
    round_tokens: float
    context_tokens: float
    n_rounds: int
    measured_ms: float
    modelled_ms: float


class HandOverPart(_Part):
    """What other tools take; ``vllm`` (modelled) goes into ``--speculative-config``, ``aiconfigurator`` are its own two settings."""

    arm: str
    vllm: dict[str, Any] | None
    aiconfigurator: dict[str, Any]


class FindingPart(_Part):
    """A reason to trust a figure less."""

    code: str
    severity: str
    workload: str | None
    arm: str | None
    values: dict[str, Any]


class ThresholdPart(_Part):
    """A demand of a workload file; ``met`` null: it could not be judged."""

    workload: str
    arm: str | None
    threshold: str
    met: bool | None


class Summary(_Part):
    """The figures of one run of spec-harness."""

    format: Literal[1]
    created: str | None
    harness_version: str | None
    engine: str | None
    engine_version: str | None
    model: str | None
    model_sha256: str | None
    status: str | None
    last_line: str
    verdicts: list[VerdictPart]
    break_even: list[BreakEvenPart]
    loads: list[LoadPart]
    survival: list[SurvivalPart]
    agents: list[AgentsPart]
    language_loss: list[LanguagePart]
    costs: list[CostPart]
    predicted: list[PredictedPart]
    predicted_break_even: list[PredictedBreakEvenPart]
    hand_overs: list[HandOverPart]
    thresholds: list[ThresholdPart]
    findings: list[FindingPart]


def write_summary(analysis: RunAnalysis, folder: Path, lang: str) -> Path:
    """Write ``summary.json`` into a folder, over an older one; sentences are in ``lang``, everything else is the same in all.

    Raises:
        OSError: if it cannot be written.
    """
    path = folder / FILE
    text = json.dumps(summary(analysis, lang).model_dump(mode="json"), ensure_ascii=False, indent=1)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")
    return path


def summary(analysis: RunAnalysis, lang: str) -> Summary:
    """Return the summary of a run."""
    manifest = analysis.manifest
    engine = manifest.get("engine") or {}
    model = engine.get("model") or {}
    context = Context.of(analysis)
    return Summary(
        format=1,
        created=manifest.get("created"),
        harness_version=(manifest.get("versions") or {}).get("spec-harness"),
        engine=engine.get("engine"),
        engine_version=engine.get("version"),
        model=model.get("name"),
        model_sha256=model.get("sha256"),
        status=manifest.get("status"),
        last_line=last_line(analysis, lang),
        verdicts=[
            VerdictPart(
                workload=item.workload,
                arm=item.arm,
                sentence=sentence(item, lang, context),
                certainty=certainty(item, context),
                identical_share=item.identical_share,
            )
            for item in analysis.verdicts
        ],
        break_even=[
            BreakEvenPart(**_fields(row, BreakEvenPart, break_even=_interval(row, "break_even")))
            for row in _rows(analysis.break_even)
        ],
        loads=[
            LoadPart(**_fields(row, LoadPart, speed_up=_interval(row, "speed_up"))) for row in _rows(analysis.summary)
        ],
        survival=_survival(analysis.survival),
        agents=[
            AgentsPart(**_fields(row, AgentsPart, low=row["agents_low"], high=row["agents_high"]))
            for row in _rows(analysis.agents)
        ],
        language_loss=[
            LanguagePart(
                **_fields(
                    row,
                    LanguagePart,
                    acceptance_length_loss=_interval(row, "acceptance_length_loss"),
                    time_loss_share=_interval(row, "time_loss_share"),
                )
            )
            for row in _rows(widest_languages(analysis.language_loss))
        ],
        costs=[CostPart(**_fields(row, CostPart)) for row in _rows(analysis.costs)],
        predicted=[
            PredictedPart(**_fields(row, PredictedPart)) for row in _rows(widest(analysis.predicted).filter("best"))
        ],
        predicted_break_even=[
            PredictedBreakEvenPart(
                **_fields(
                    row, PredictedBreakEvenPart, batch=row["batch_break_even"], concurrency=row["break_even_modelled"]
                )
            )
            for row in _rows(analysis.predicted_break_even)
        ],
        hand_overs=[
            HandOverPart(arm=item.arm, vllm=vllm(item), aiconfigurator=aiconfigurator(item))
            for item in analysis.hand_overs
        ],
        thresholds=[ThresholdPart(**_fields(row, ThresholdPart)) for row in _rows(analysis.thresholds)],
        findings=[
            FindingPart(
                code=item.code,
                severity=item.severity,
                workload=item.workload,
                arm=item.arm,
                values=json.loads(json.dumps(dict(item.values), default=str)),
            )
            for item in analysis.findings
        ],
    )


def schema() -> str:
    """Return the JSON schema of the file as text."""
    own = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Summary.model_json_schema(mode="serialization")}
    return json.dumps(own, ensure_ascii=False, indent=1) + "\n"


def _rows(frame: pl.DataFrame) -> Sequence[dict[str, Any]]:
    return [{name: _known(value) for name, value in row.items()} for row in frame.iter_rows(named=True)]


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _interval(row: dict[str, Any], name: str) -> Interval:
    return Interval(estimate=row[name], low=row[f"{name}_low"], high=row[f"{name}_high"])


def _fields(row: dict[str, Any], part: type[BaseModel], **other: Any) -> dict[str, Any]:
    return {name: row[name] for name in part.model_fields if name in row and name not in other} | other


def _survival(frame: pl.DataFrame) -> list[SurvivalPart]:
    own = frame.filter(pl.col("kind").is_null() & pl.col("genre").is_null()).sort("position")
    return [
        SurvivalPart(
            workload=None if workload is None else str(workload),
            arm=str(arm),
            language=None if language is None else str(language),
            num_drafts=int(rows["num_drafts"].max() or 0),  # type: ignore[arg-type]
            survival=[_known(value) or 0.0 for value in rows["survival"].to_list()],
        )
        for (workload, arm, language), rows in own.group_by("workload", "arm", "language", maintain_order=True)
    ]


if __name__ == "__main__":
    import sys

    sys.stdout.write(schema())
