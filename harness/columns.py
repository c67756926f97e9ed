"""The one vocabulary of figures: every column of CSV, Excel, HTML and console, with header, unit and definition.

The names are the machine names that ``harness/analysis/frames.py`` uses. Units: ``s`` and ``ms`` for times, ``x`` for a
ratio to the baseline (1 = no change), ``share`` for 0 to 1 (shown as %), otherwise what is counted; ``None``: no unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from harness.acceptance_columns import ACCEPTED
from harness.baseline_columns import BESIDE_BASELINE
from harness.column_form import Better, Column, bounds, column
from harness.compared_columns import COMPARED
from harness.decision_columns import DECISION
from harness.predicted_columns import MODELLED
from harness.sizing_columns import SIZED
from harness.time_columns import COUNTS, TIMES

__all__ = ["COLUMNS", "Better", "Column"]

# fmt: off
_PLACE = (
    column("workload", ("Workload", "워크로드"), None, None, (
        "The named set of recorded agent tasks that was replayed.",
        "재생한 에이전트 작업 기록의 이름 있는 묶음.",
    )),
    column("arm", ("Arm", "구성"), None, None, (
        "One engine configuration under comparison; the baseline drafts nothing, one marked synthetic accepts by a fixed rule.",
        "비교하는 엔진 구성 하나. 기준 구성(baseline)은 초안을 사용하지 않고, 합성 구성은 정해진 규칙대로 수락합니다.",
    )),
    column("concurrency", ("Concurrency", "동시 작업 수"), "tasks", None, (
        "Tasks in progress at once, those waiting for a tool included; requests in flight are fewer.",
        "동시에 진행 중인 작업 수. 도구를 기다리는 작업도 포함합니다. 처리 중인 요청 수는 이보다 적습니다.",
    )),
    column("repeat", ("Repeat", "반복"), None, None, (
        "Which repetition of the same cell, from 1.", "같은 셀의 몇 번째 반복인지, 1부터.")),
    column("attempt", ("Attempt", "시도"), None, None, (
        "Which attempt at the cell; a resumed run makes another.",
        "셀의 몇 번째 시도인지. 이어서 실행하면 늘어납니다.",
    )),
    column("order", ("Order", "실행 순서"), None, None, (
        "When the cell ran, counted from the first cell of the run.", "실행 전체에서 셀이 측정된 순서.")),
    column("phase", ("Phase", "구간"), None, None, (
        "warm_up and cool_down are recorded but not counted; counted is.",
        "warm_up, cool_down은 기록만 하고 집계하지 않습니다. counted만 집계합니다.",
    )),
    column("window", ("Window", "집계 구간"), None, None, (
        "steady: only tasks wholly inside the time with the full concurrency in progress; whole: every counted task.",
        "steady: 목표 동시 작업 수가 유지된 동안의 작업만. whole: 집계 대상 작업 전부.",
    )),
    column("steady", ("Steady", "정상 상태"), None, None, (
        "Whether it lies wholly inside the time with the full concurrency in progress.",
        "목표 동시 작업 수가 유지된 구간 안에 온전히 드는지.",
    )),
    column("instance", ("Instance", "작업 회차"), None, None, (
        "Numbers the starts of tasks within a cell; a task can start more than once.",
        "셀 안에서 시작한 작업의 번호. 한 작업이 여러 번 시작될 수 있습니다.",
    )),
    column("task_id", ("Task", "작업"), None, None, ("Name of the recorded task.", "기록된 작업의 이름.")),
    column("step_index", ("Step no.", "단계 번호"), None, None, (
        "Position of the model call within its task, from 0.", "작업 안에서 모델 호출의 위치, 0부터.")),
    column("genre", ("Genre", "텍스트 종류"), None, None, (
        "What kind of text the task is about, as its file says (report, mail, essay …); (all) or empty: all.",
        "작업 파일에 적힌 텍스트의 종류(report, mail, essay …). (all)이거나 비면 전체.",
    )),
    column("kind", ("Step kind", "단계 종류"), None, None, (
        "What the step does: plan, tool_call, summarize, write, revise, reply, code_edit, review; (all) or empty: all.",
        "단계가 하는 일: plan, tool_call, summarize, write, revise, reply, code_edit, review. (all)이거나 비면 전체.",
    )),
    column("language", ("Language", "언어"), None, None, (
        "Language the step's output is in: ko, ko+code, en, en+code, code; (all) or empty: all.",
        "단계의 출력 언어: ko, ko+code, en, en+code, code. (all)이거나 비면 전체.",
    )),
)

_WORDS = (  # of findings.csv and verdicts.csv
    column("severity", ("Severity", "심각도"), None, None, (
        "note, warning, or invalid: then the figures must not be carried over.", "note, warning, invalid(수치를 인용하지 말 것).")),
    column("code", ("Code", "코드"), None, None, (
        "Machine name of the finding.", "타당성 검사 결과의 기계용 이름.")),
    column("values", ("Values", "값"), None, None, (
        "The figures of the finding as JSON.", "타당성 검사 결과의 수치(JSON).")),
    column("certainty", ("Certainty", "확실성"), None, None, (
        "clear, limited, unsure (an interval includes 1), unknown (too little to compare), invalid (a check failed).",
        "clear, limited, unsure(구간이 1을 포함), unknown(자료 부족), invalid(검사 불통과).",
    )),
    column("speed_up_first", ("Speed-up at the lowest", "최저 부하의 속도 향상"), "x", "higher", (
        "Speed-up at the lowest concurrency compared; empty without an interval.",
        "비교한 최저 동시 작업 수의 속도 향상. 구간이 없으면 비어 있습니다.",
    )),
    *bounds("speed_up_first", ("Speed-up at the lowest", "최저 부하의 속도 향상"), "x", "higher"),
    column("speed_up_last", ("Speed-up at the highest", "최고 부하의 속도 향상"), "x", "higher", (
        "Speed-up at the highest concurrency compared; empty without an interval.",
        "비교한 최고 동시 작업 수의 속도 향상. 구간이 없으면 비어 있습니다.",
    )),
    *bounds("speed_up_last", ("Speed-up at the highest", "최고 부하의 속도 향상"), "x", "higher"),
    column("unmeasured", ("Not measured", "측정하지 못함"), None, None, (
        "Planned concurrencies without an estimate.", "계획했으나 추정값이 없는 동시 작업 수.")),
    column("consistent", ("Repeats agree", "반복 일치"), None, None, (
        "Whether every repeat by itself is on the same side of 1, and their number is even.",
        "반복마다 따로 보아도 1의 같은 쪽이고 반복 횟수가 짝수인지.",
    )),
)

_OUTCOME = (
    column("ok", ("Succeeded", "성공"), None, None, (
        "Whether every step of the task has a complete answer.", "작업의 모든 단계가 온전한 응답을 받았는지.")),
    column("status", ("Status", "상태"), None, None, (
        "done, failed, unfinished (cut short) or foreign (not in the run's plan); only done cells count.",
        "done, failed, unfinished(중단), foreign(계획에 없음). done만 집계합니다.",
    )),
    column("cache_policy", ("Prompt cache", "프롬프트 캐시"), None, None, (
        "How cells were kept out of each other's prompt cache: salt, reset or shared.",
        "셀끼리 프롬프트 캐시를 나눈 방법: salt, reset, shared.",
    )),
    column("finish_reason", ("Finish reason", "종료 사유"), None, None, (
        "Why the engine stopped; length means the token limit cut the answer.",
        "엔진이 중단한 사유. length는 토큰 한도에서 잘렸다는 뜻입니다.",
    )),
    column("output_sha256", ("Output SHA-256", "출력 SHA-256"), None, None, (
        "Hash of the output text; the text itself stays in the run folder.",
        "출력 텍스트의 해시. 텍스트 자체는 실행 폴더에만 있습니다.",
    )),
    column("error_kind", ("Error", "오류 종류"), None, None, (
        "Class of the failure; empty for a success.", "실패의 유형. 성공이면 비어 있습니다.")),
    column("error_message", ("Error message", "오류 내용"), None, None, (
        "What went wrong, in the words of the client or the engine.", "클라이언트나 엔진이 보고한 실패 내용.")),
)
# fmt: on

COLUMNS: Mapping[str, Column] = MappingProxyType(
    {
        item.name: item
        for item in (
            *_PLACE,
            *TIMES,
            *COUNTS,
            *ACCEPTED,
            *BESIDE_BASELINE,
            *_OUTCOME,
            *_WORDS,
            *COMPARED,
            *SIZED,
            *DECISION,
            *MODELLED,
        )
    }
)
