"""The columns that only a comparison of two runs, or of two arms, has; part of the vocabulary of ``harness.columns``."""

from __future__ import annotations

from collections.abc import Iterator

from harness.column_form import Better, Column, Pair, bounds, column


def _sides(stem: str, header: Pair, unit: str | None, better: Better | None, about: Pair) -> Iterator[Column]:
    """Yield the columns of a figure before and after."""
    for end, en, ko in (("before", "before", "이전"), ("after", "after", "이후")):
        sentence = (f"{about[0]}, {en}.", f"{about[1]}({ko}).")
        yield column(f"{stem}_{end}", (f"{header[0]}, {en}", f"{header[1]}({ko})"), unit, better, sentence)


# fmt: off
COMPARED = (
    column("arm_before", ("Arm, before", "구성(이전)"), None, None, (
        "The arm that is the starting point of the comparison.", "비교의 출발점이 되는 구성.")),
    column("arm_after", ("Arm, after", "구성(이후)"), None, None, (
        "The arm that is compared with the one before.", "이전 구성과 비교하는 구성.")),
    column("when", ("Side", "쪽"), None, None, ("before or after.", "before(이전) 또는 after(이후).")),
    column("language_group", ("Language group", "언어 묶음"), None, None, (
        "Languages taken together: ko is ko and ko+code, en is en and en+code, code is code; (all) or empty: all.",
        "묶어서 본 언어: ko는 ko와 ko+code, en은 en과 en+code, code는 code. (all)이거나 비면 전체.",
    )),
    *_sides("task_time_mean", ("Task time, mean", "작업 시간 평균"), "s", "lower", (
        "Mean task time in seconds of the paired tasks", "짝지은 작업의 평균 작업 시간(초)")),
    column("task_time_ratio", ("Task time, before ÷ after", "작업 시간, 이전 ÷ 이후"), "x", "higher", (
        "Task time before ÷ task time after, sums over the same tasks; above 1 after is faster.",
        "같은 작업끼리 짝지은 이전 작업 시간 합 ÷ 이후 작업 시간 합. 1보다 크면 이후가 빠릅니다.",
    )),
    *bounds("task_time_ratio", ("Task time, before ÷ after", "작업 시간, 이전 ÷ 이후"), "x", "higher"),
    *_sides("speed_up", ("Speed-up", "속도 향상"), "x", "higher", (
        "Speed-up over the baseline of the same run, over the paired tasks that the baselines have too",
        "같은 실행의 기준 구성 대비 속도 향상, 기준 구성에도 있는 짝지은 작업으로 구함")),
    column("speed_up_ratio", ("Speed-up, after ÷ before", "속도 향상, 이후 ÷ 이전"), "x", "higher", (
        "Speed-up after ÷ speed-up before, each against the baseline of its own run: what the machine did between the runs cancels.",
        "이후 속도 향상 ÷ 이전 속도 향상. 각각 해당 실행의 기준 구성과 비교하므로 두 실행 사이의 장비 변동이 상쇄됩니다.",
    )),
    *bounds("speed_up_ratio", ("Speed-up, after ÷ before", "속도 향상, 이후 ÷ 이전"), "x", "higher"),
    *_sides("acceptance_length", ("Acceptance length", "수락 길이"), "tokens/round", "higher", (
        "1 + accepted ÷ rounds, ratio of sums over the steps that both sides have",
        "1 + 수락된 토큰 합 ÷ 라운드 합, 양쪽에 있는 단계만")),
    column("acceptance_length_change", ("Acceptance length, change", "수락 길이 변화"), "tokens/round", "higher", (
        "Acceptance length after − before, over the same steps.", "같은 단계에서 이후 수락 길이 − 이전 수락 길이.")),
    *bounds("acceptance_length_change", ("Acceptance length, change", "수락 길이 변화"), "tokens/round", "higher"),
    *_sides("tokens_per_pass", ("Tokens per pass", "패스당 토큰"), "tokens/pass", "higher", (
        "1 + accepted ÷ decode passes, ratio of sums over the steps that both sides have",
        "1 + 수락된 토큰 합 ÷ 디코딩 패스 합, 양쪽에 있는 단계만")),
    column("tokens_per_pass_change", ("Tokens per pass, change", "패스당 토큰 변화"), "tokens/pass", "higher", (
        "Tokens per pass after − before, over the same steps.", "같은 단계에서 이후 패스당 토큰 − 이전 패스당 토큰.")),
    *bounds("tokens_per_pass_change", ("Tokens per pass, change", "패스당 토큰 변화"), "tokens/pass", "higher"),
    *_sides("survival", ("Survival", "생존율"), "share", "higher", (
        "Share of rounds with at least this many drafted tokens accepted, over the steps that both sides have",
        "초안이 이 위치까지 모두 수락된 라운드의 비율, 양쪽에 있는 단계만")),
    *_sides("cautions", ("Cautions", "유의 사항"), None, None, (
        "Findings of this side's run that bear on the acceptance figures of the row, by code; empty: none was found",
        "이쪽 실행에서 이 행의 수락 수치에 영향을 주는 타당성 검사 결과의 코드, 없으면 비어 있음")),
    column("first_difference_character_min", ("First difference, character", "첫 차이(글자)"), None, None, (
        "Earliest position (from 1) at which an output differs from that of before, in characters.",
        "이전 출력과 처음 달라지는 위치(1부터, 글자 단위) 중 가장 이른 것.",
    )),
    *_sides("n_steps_only", ("Steps only", "한쪽에만 있는 단계"), "steps", None, (
        "Counted steps that only this side has, failed ones included", "한쪽에만 있는 집계 대상 단계 수, 실패 포함")),
    *_sides("n_steps_failed", ("Failed steps", "실패한 단계"), "steps", "lower", (
        "Counted steps without a complete answer", "온전한 응답을 받지 못한 집계 대상 단계 수")),
    column("setting", ("Setting", "설정"), None, None, (
        "What was set otherwise on the two sides, or what a run folder lacks.", "양쪽에서 다르게 정해진 것, 또는 실행 폴더에 빠진 것.")),
    *_sides("value", ("Value", "값"), None, None, ("Its value, or how many there are", "설정된 값 또는 개수")),
)
# fmt: on
