"""What an adaptation showed: one JSON of everything, and a verdict of a few lines in English or Korean. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from drafters.training.before_after import Comparison, Step, compare, numbers, read_steps, read_table, same_outputs

__all__ = ["TEXTS", "measured", "verdict"]

BASELINE, BEFORE, AFTER = "baseline", "before", "after"
SPEED_UP = ("concurrency", "n_tasks", "speed_up", "speed_up_low", "speed_up_high")
TEXTS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "all": "All steps",
        "ko": "Korean",
        "en": "English",
        "code": "Code",
        "shown": "{name}: acceptance length {before:.2f} before, {after:.2f} after; {difference:+.2f}, "
        "95 % interval {low:+.2f} to {high:+.2f}, {tasks} tasks.",
        "not_shown": "{name}: acceptance length {before:.2f} before, {after:.2f} after; no difference shown "
        "(95 % interval {low:+.2f} to {high:+.2f}, {tasks} tasks).",
        "no_interval": "{name}: acceptance length {before:.2f} before, {after:.2f} after; no difference shown: "
        "{tasks} tasks are too few for an interval.",
        "alone": "{name}: acceptance length {after:.2f}, {tasks} tasks; there was no drafter before to compare with.",
        "unknown": "{name}: nothing was drafted before or after, so no acceptance length is known ({tasks} tasks).",
        "invalid": "NOT VALID as it stands: the run has {count} findings that forbid the conclusion ({codes}); its report "
        "explains them.",
        "outputs": "Outputs of {arm}: {identical} of {steps} steps identical to those without a drafter.",
        "outputs_differ": "Outputs of {arm}: ONLY {identical} of {steps} steps identical to those without a drafter; "
        "see lossless.csv of the run.",
        "speed": "Speed-up of task time of {arm} at {concurrency} tasks in progress, {workload}: {speed_up:.2f} "
        "({low:.2f} to {high:.2f}).",
        "speed_open": "Speed-up of task time of {arm} at {concurrency} tasks in progress, {workload}: {speed_up:.2f} "
        "(too few tasks for an interval).",
    },
    "ko": {
        "all": "전체 단계",
        "ko": "한국어",
        "en": "영어",
        "code": "코드",
        "shown": "{name}: 수락 길이 학습 전 {before:.2f}, 학습 후 {after:.2f} ({difference:+.2f}, "
        "95 % 구간 {low:+.2f} ~ {high:+.2f}, 작업 {tasks}개).",
        "not_shown": "{name}: 수락 길이 학습 전 {before:.2f}, 학습 후 {after:.2f}. 차이를 확인할 수 없다"
        "(95 % 구간 {low:+.2f} ~ {high:+.2f}, 작업 {tasks}개).",
        "no_interval": "{name}: 수락 길이 학습 전 {before:.2f}, 학습 후 {after:.2f}. 작업이 {tasks}개뿐이라 구간을 낼 수 없어 "
        "차이를 확인할 수 없다.",
        "alone": "{name}: 수락 길이 {after:.2f}, 작업 {tasks}개. 비교할 학습 전 드래프터가 없다.",
        "unknown": "{name}: 초안이 없어 수락 길이를 알 수 없다(작업 {tasks}개).",
        "invalid": "이대로는 유효하지 않다. 결론을 낼 수 없게 하는 소견이 {count}건 있다({codes}). 측정 보고서에 설명이 있다.",
        "outputs": "{arm} 출력: {steps}단계 중 {identical}단계가 드래프터 없는 출력과 같다.",
        "outputs_differ": "{arm} 출력: {steps}단계 중 {identical}단계만 드래프터 없는 출력과 같다. 측정 결과의 lossless.csv를 "
        "확인해야 한다.",
        "speed": "{arm}의 작업 시간 속도 향상, 동시 작업 {concurrency}개, {workload}: {speed_up:.2f}배"
        "({low:.2f} ~ {high:.2f}).",
        "speed_open": "{arm}의 작업 시간 속도 향상, 동시 작업 {concurrency}개, {workload}: {speed_up:.2f}배"
        "(작업이 적어 구간 없음).",
    },
}


def measured(run: Path) -> dict[str, Any]:
    """Return acceptance before and after, unchanged outputs and speed-ups of a run's folder.

    Raises StageError for a folder that the harness did not finish.
    """
    steps = read_steps(run)
    arms = list(dict.fromkeys(step.arm for step in steps))
    drafting = [arm for arm in arms if arm != BASELINE]
    steady = [row for row in read_table(run / "speed_up.csv") if row["window"] == "steady"]
    findings = [row for row in read_table(run / "findings.csv") if row["severity"] == "invalid"]
    return {
        "run": str(run),
        "arms": arms,
        "acceptance": [found.to_json() for found in _compared(steps, arms)],
        "outputs": same_outputs(steps, BASELINE, drafting) if BASELINE in arms else {},
        "speed_up": [
            {"workload": row["workload"], "arm": row["arm"], **_picked(row)} for row in numbers(steady, SPEED_UP)
        ],
        "invalid": [{key: row[key] for key in ("code", "workload", "arm", "values")} for row in findings],
    }


def verdict(found: Mapping[str, Any], lang: str) -> list[str]:
    """Say it in a few lines. A difference whose interval holds zero, or that has none, is not shown."""
    texts = TEXTS[lang]
    pooled = [row for row in found["acceptance"] if row["workload"] is None]
    lines = [_acceptance(row, texts) for row in pooled]
    for arm, counts in found["outputs"].items():
        key = "outputs" if counts["identical"] == counts["steps"] else "outputs_differ"
        lines.append(texts[key].format(arm=arm, **counts))
    lines += _speeds(found["speed_up"], texts)
    if found["invalid"]:
        codes = ", ".join(sorted({finding["code"] for finding in found["invalid"]}))
        lines.insert(0, texts["invalid"].format(count=len(found["invalid"]), codes=codes))
    return lines


def _compared(steps: Sequence[Step], arms: Sequence[str]) -> list[Comparison]:
    if BEFORE in arms:
        return compare(steps, BEFORE, AFTER)
    return [replace(found, before=None, difference=None, low=None, high=None) for found in compare(steps, AFTER, AFTER)]


def _picked(row: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: row[key] for key in SPEED_UP}
    return values | {key: int(values[key]) for key in ("concurrency", "n_tasks") if values[key] is not None}


def _acceptance(row: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    name = texts[row["language"] or "all"]
    if row["after"] is None:
        key = "unknown"
    elif row["before"] is None:
        key = "alone"
    elif row["shown"]:
        key = "shown"
    else:
        key = "no_interval" if row["low"] is None else "not_shown"
    return texts[key].format(**{**row, "name": name})


def _speeds(rows: Sequence[Mapping[str, Any]], texts: Mapping[str, str]) -> Iterator[str]:
    for row in rows:
        if row["arm"] not in (BEFORE, AFTER) or row["speed_up"] is None:
            continue
        key = "speed_open" if row["speed_up_low"] is None or row["speed_up_high"] is None else "speed"
        yield texts[key].format(**{**row, "low": row["speed_up_low"], "high": row["speed_up_high"]})
