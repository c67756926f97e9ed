"""What an adaptation showed: one JSON of everything, and a verdict of a few lines in English or Korean. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from drafters.training.evaluate_input import BASELINE
from drafters.training.run_figures import POOLED, figure, identical, number, read_table
from drafters.training.stage import StageError

__all__ = ["TEXTS", "measured", "verdict"]

BEFORE, AFTER = "before", "after"
TEXTS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "all": "All steps",
        "ko": "Korean",
        "en": "English",
        "code": "Code",
        "ko+code": "Korean with code",
        "en+code": "English with code",
        "none": "Acceptance is not known: no step of both sides has known rounds.",
        "whole": "Of some loads whole cells were compared, ramp and tail included: no step lies inside both steady windows.",
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
        "ko+code": "코드가 섞인 한국어",
        "en+code": "코드가 섞인 영어",
        "none": "수락 길이를 알 수 없다. 양쪽 모두 라운드를 아는 단계가 없다.",
        "whole": "정상 상태 구간에 양쪽 모두 드는 단계가 없는 동시 작업 수에서는 시작과 끝을 포함한 셀 전체를 비교했다.",
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


def measured(run: Path, compared: Path | None) -> dict[str, Any]:
    """Return acceptance before and after, unchanged outputs and speed-ups, all as the harness has them.

    Args:
        run: folder of the run.
        compared: folder that ``harness compare`` wrote of its two arms, ``None`` where there was no drafter before: then acceptance
            is that of the run's own table, by single languages.

    Raises StageError for a folder that the harness did not finish.
    """
    arms = _arms(run)
    same = read_table(run / "lossless.csv")
    steady = [row for row in read_table(run / "speed_up.csv") if row["window"] == "steady"]
    findings = [row for row in read_table(run / "findings.csv") if row["severity"] == "invalid"]
    outputs = {arm: identical(row for row in same if row["arm"] == arm) for arm in arms if arm != BASELINE}
    return {
        "run": str(run),
        "arms": arms,
        "acceptance": list(_alone(run) if compared is None else _changes(compared)),
        "outputs": {
            arm: {"steps": counts["n_steps"], "identical": counts["n_identical"]}
            for arm, counts in outputs.items()
            if counts["n_steps"]
        },
        "speed_up": [_speed_up(row) for row in steady],
        "invalid": [{key: row[key] for key in ("code", "workload", "arm", "values")} for row in findings],
    }


def verdict(found: Mapping[str, Any], lang: str) -> list[str]:
    """Say it in a few lines. A difference whose interval holds zero, or that has none, is not shown."""
    texts = TEXTS[lang]
    pooled = [row for row in found["acceptance"] if row["workload"] is None]
    lines = [_acceptance(row, texts) for row in pooled] or [texts["none"]]
    if any(row["window"] == "whole" for row in pooled):
        lines.append(texts["whole"])
    for arm, counts in found["outputs"].items():
        key = "outputs" if counts["identical"] == counts["steps"] else "outputs_differ"
        lines.append(texts[key].format(arm=arm, **counts))
    lines += _speeds(found["speed_up"], texts)
    if found["invalid"]:
        codes = ", ".join(sorted({finding["code"] for finding in found["invalid"]}))
        lines.insert(0, texts["invalid"].format(count=len(found["invalid"]), codes=codes))
    return lines


def _arms(run: Path) -> list[str]:
    """Return the run's arms in the order in which they were given."""
    try:
        workloads = json.loads((run / "manifest.json").read_text(encoding="utf-8"))["workloads"]
        return list(dict.fromkeys(arm["name"] for workload in workloads for arm in workload["arms"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StageError(f"{run} is no run of the harness ({error!r:.200}); measure again") from error


def _changes(compared: Path) -> Iterator[dict[str, Any]]:
    """Yield the change of all steps and of each group of languages, per workload and over all."""
    told_apart = ("concurrency", "kind", "language", "genre")
    for row in read_table(compared / "compared_acceptance.csv"):
        if (row["arm_before"], row["arm_after"]) != (BEFORE, AFTER) or any(row[name] != POOLED for name in told_apart):
            continue
        change = figure(row, "acceptance_length_change")
        sides = {end: number(row[f"acceptance_length_{end}"]) for end in ("before", "after")}
        yield _row(row, row["language_group"]) | sides | {
            "difference": change["value"], "low": change["low"], "high": change["high"],
            "window": row["window"], "shown": _shown(change["low"], change["high"]),
        }  # fmt: skip


def _alone(run: Path) -> Iterator[dict[str, Any]]:
    """Yield the acceptance of the new drafter, of all steps and of each language, per workload and over all."""
    for row in read_table(run / "drafters.csv"):
        if row["arm"] == AFTER and row["genre"] == POOLED and row["concurrency"] == POOLED:
            yield _row(row, row["language"]) | {
                "before": None, "after": number(row["acceptance_length"]),
                "difference": None, "low": None, "high": None, "window": "steady", "shown": False,
            }  # fmt: skip


def _row(row: Mapping[str, str], language: str) -> dict[str, Any]:
    place = {"workload": row["workload"], "language": language}
    counts = {"tasks": int(row["n_tasks"]), "steps": int(row["n_steps"])}
    return {key: None if value == POOLED else value for key, value in place.items()} | counts


def _shown(low: float | None, high: float | None) -> bool:
    """Whether other tasks of this kind would show a difference as well, judged on the figures as they are printed."""
    return low is not None and high is not None and (round(low, 2) > 0 or round(high, 2) < 0)


def _speed_up(row: Mapping[str, str]) -> dict[str, Any]:
    told = figure(row, "speed_up")
    return {
        "workload": row["workload"],
        "arm": row["arm"],
        "concurrency": int(row["concurrency"]),
        "n_tasks": int(row["n_tasks"]),
        "speed_up": told["value"],
        "speed_up_low": told["low"],
        "speed_up_high": told["high"],
    }


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
