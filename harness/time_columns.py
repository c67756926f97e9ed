"""The columns of times and of what was counted while they were taken; part of the vocabulary of ``harness.columns``."""

from __future__ import annotations

from harness.column_form import column, percentiles

# fmt: off
TIMES = (
    column("due_s", ("Due", "예정 시각"), "s", None, (
        "When the step should have been sent, since the first step of the cell was due.",
        "요청을 보내야 했던 시각(셀의 첫 단계 예정 시각 기준).",
    )),
    column("sent_s", ("Sent", "보낸 시각"), "s", None, (
        "When the request left, on the same clock as Due.", "요청이 실제로 나간 시각(예정 시각과 같은 기준).")),
    column("first_token_s", ("First token", "첫 토큰 시각"), "s", None, (
        "When the first chunk with content arrived.", "내용이 있는 첫 청크가 도착한 시각.")),
    column("end_s", ("End", "끝난 시각"), "s", None, (
        "When the answer was complete or had failed.", "응답이 끝났거나 실패한 시각.")),
    column("late_ms", ("Late", "지연 발송"), "ms", "lower", (
        "How long after its due time the request left; the client's own delay.",
        "예정보다 늦게 나간 시간. 측정 도구 자체의 지연입니다.",
    )),
    column("late_p99_ms", ("Late p99", "지연 발송 p99"), "ms", "lower", (
        "99 % of the requests left at most this late.", "요청의 99 %가 이 값 이하로 지연 발송되었습니다.")),
    column("ttft_s", ("TTFT", "첫 토큰 시간(TTFT)"), "s", "lower", (
        "Time to first token: from sending the request to the first chunk with content.",
        "요청을 보낸 때부터 내용이 있는 첫 청크까지의 시간.",
    )),
    *percentiles("ttft", "s", ("TTFT", "TTFT"), ("steps' times to first token", "단계별 첫 토큰 시간")),
    column("tpot_ms", ("TPOT", "출력 토큰당 시간(TPOT)"), "ms", "lower", (
        "Time per output token: (end − first token) ÷ (output tokens − 1), of one step; never taken from chunk gaps.",
        "단계별 (끝 − 첫 토큰) ÷ (출력 토큰 − 1). 청크 간격으로 측정하지 않습니다.",
    )),
    *percentiles("tpot", "ms", ("TPOT", "TPOT"), ("steps' times per output token", "단계별 출력 토큰당 시간")),
    column("step_latency_s", ("Step latency", "단계 시간"), "s", "lower", (
        "From the due time of a step to the end of its answer, queueing at the client included.",
        "단계 예정 시각부터 응답이 끝날 때까지. 보내기 전 대기도 포함합니다.",
    )),
    *percentiles("step_latency", "s", ("Step latency", "단계 시간"), ("step latencies", "단계 시간")),
    column("tool_wait_s", ("Tool wait", "도구 대기"), "s", None, (
        "How long the tools called by the step took before the next step was due.",
        "단계가 부른 도구를 기다린 시간. 그 뒤에 다음 단계가 예정됩니다.",
    )),
    column("task_time_s", ("Task time", "작업 시간"), "s", "lower", (
        "From the due time of a task's first step to the end of its last, tool waits included.",
        "첫 단계 예정 시각부터 마지막 단계 끝까지. 도구 대기를 포함합니다.",
    )),
    column("slot_s", ("Time in its slot", "점유 시간"), "s", "lower", (
        "From the due time of a task's first step to the end of its last, whether the task succeeded or failed.",
        "작업의 첫 단계 예정 시각부터 마지막 단계 끝까지. 실패한 작업에도 있습니다.",
    )),
    column("task_time_mean_s", ("Task time, mean", "작업 시간 평균"), "s", "lower", (
        "Mean task time of the counted tasks that succeeded, tool waits included.",
        "성공한 집계 대상 작업의 평균 작업 시간. 도구 대기를 포함합니다.",
    )),
    *percentiles("task_time", "s", ("Task time", "작업 시간"), ("task times", "작업 시간")),
    column("task_time_no_wait_s", ("Task time without tools", "작업 시간(도구 제외)"), "s", "lower", (
        "Sum of the latencies of the task's steps; the tool waits as they really were are left out.",
        "단계 시간의 합. 실제 도구 대기 시간은 빠집니다.",
    )),
    column("task_time_no_wait_mean_s", ("Task time without tools, mean", "작업 시간(도구 제외) 평균"), "s", "lower", (
        "Mean over tasks of the summed step latencies.", "작업별 단계 시간 합의 평균.")),
    column("duration_s", ("Duration", "셀 시간"), "s", None, ("Wall time of the whole cell.", "셀 전체에 걸린 시간.")),
    column("steady_s", ("Steady time", "정상 상태 시간"), "s", None, (
        "How long the full concurrency was in progress.", "목표 동시 작업 수가 유지된 시간.")),
)

COUNTS = (
    column("max_tokens", ("Token limit", "토큰 한도"), "tokens", None, (
        "The output limit sent with the step.", "단계와 함께 보낸 출력 한도.")),
    column("prompt_tokens", ("Prompt tokens", "프롬프트 토큰"), "tokens", None, (
        "Tokens of the prompt, as the engine counted them.", "엔진이 센 프롬프트 토큰 수.")),
    column("cached_tokens", ("Cached tokens", "캐시된 토큰"), "tokens", None, (
        "Prompt tokens that the engine took from its cache.", "엔진이 캐시에서 가져온 프롬프트 토큰 수.")),
    column("cached_share", ("Cached share", "캐시 비율"), "share", None, (
        "Cached tokens ÷ prompt tokens, sums over the counted steps of the cell.", "집계한 단계의 캐시된 토큰 합 ÷ 프롬프트 토큰 합.")),
    column("output_tokens", ("Output tokens", "출력 토큰"), "tokens", None, (
        "Tokens the engine says it produced; never a count of chunks.",
        "엔진이 보고한 출력 토큰 수. 청크 수가 아닙니다.",
    )),
    column("chunks", ("Chunks", "청크 수"), "chunks", None, (
        "Pieces the answer arrived in; one can hold the tokens of a whole round.",
        "응답이 나뉘어 온 청크 수. 청크 하나에 라운드 하나의 토큰이 모두 들 수 있습니다.",
    )),
    column("steps", ("Steps", "단계 수"), "steps", None, ("Model calls of the task.", "작업의 모델 호출 수.")),
    column("n_tasks", ("Task runs", "작업 실행 수"), "tasks", None, (
        "Counted runs of tasks behind the figure, repeats included; for speed-up, break-even, drafters and comparisons distinct tasks.",
        "수치의 근거가 된 작업 실행 수(반복 포함). 속도 향상, 손익분기, 드래프터, 비교에서는 서로 다른 작업 수.",
    )),
    column("n_tasks_failed", ("Failed tasks", "실패한 작업"), "tasks", "lower", (
        "Counted tasks with at least one failed step.", "실패한 단계가 하나라도 있는 집계 대상 작업 수.")),
    column("n_steps", ("Steps", "단계 수"), "steps", None, (
        "Counted steps behind the figure.", "수치의 근거가 된 단계 수.")),
    column("n_steps_failed", ("Failed steps", "실패한 단계"), "steps", "lower", (
        "Counted steps without a complete answer.", "온전한 응답을 받지 못한 집계 대상 단계 수.")),
    column("n_steps_with_rounds", ("Steps with known rounds", "라운드를 아는 단계"), "steps", None, (
        "Steps whose rounds the engine told; acceptance length rests on these.",
        "엔진이 라운드 수를 알려 준 단계 수. 수락 길이의 근거입니다.")),
    column("n", ("Observations", "관측 수"), None, None, (
        "Observations behind the figure.", "수치의 근거가 된 관측 수.")),
    column("requests_in_flight", ("Requests in flight", "처리 중 요청"), "requests", None, (
        "Mean number of requests the engine had at once.", "엔진이 동시에 처리한 요청 수의 평균.")),
    column("output_tokens_per_s", ("Output tokens/s", "초당 출력 토큰"), "tokens/s", "higher", (
        "Output tokens of the steady window up to its first cut-off step ÷ that time, repeats pooled; empty where tokens are unknown.",
        "정상 상태 구간(처음 중단된 단계 전까지)의 출력 토큰 합 ÷ 그 시간(반복 합산). 토큰 수를 모르면 비어 있습니다.",
    )),
    column("output_tokens_per_s_whole", ("Output tokens/s, cell", "초당 출력 토큰(셀 전체)"), "tokens/s", "higher", (
        "Output tokens of the whole cell ÷ its duration.", "셀 전체의 출력 토큰 합 ÷ 셀 시간.")),
    column("tasks_per_hour", ("Tasks/h", "시간당 작업"), "tasks/h", "higher", (
        "Concurrency × 3600 × tasks that succeeded ÷ seconds that all took, failed ones included; counted tasks of the steady window.",
        "동시 작업 수 × 3600 × 성공한 작업 수 ÷ 모든 작업이 쓴 시간(초, 실패 포함). 정상 상태 구간의 집계 대상 작업.",
    )),
    column("tasks_per_hour_whole", ("Tasks/h, whole cell", "시간당 작업(셀 전체)"), "tasks/h", "higher", (
        "Tasks finished in the whole cell, warm-up aside, per hour of it.", "셀 전체에서(준비 제외) 완료된 작업 수를 시간당으로.")),
)
# fmt: on
