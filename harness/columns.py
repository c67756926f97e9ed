"""The one vocabulary of figures: every column of CSV, Excel, HTML and console, with header, unit and definition.

The names are the machine names that ``harness/analysis/frames.py`` uses. Units: ``s`` and ``ms`` for times, ``x`` for a
ratio to the baseline (1 = no change), ``share`` for 0 to 1 (shown as %), otherwise what is counted; ``None``: no unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from harness.column_form import Better, Column
from harness.column_form import bounds as _bounds
from harness.column_form import column as _column
from harness.column_form import percentiles as _percentiles
from harness.compared_columns import COMPARED
from harness.decision_columns import DECISION
from harness.predicted_columns import MODELLED
from harness.sizing_columns import SIZED

__all__ = ["COLUMNS", "Better", "Column"]

# fmt: off
_PLACE = (
    _column("workload", ("Workload", "워크로드"), None, None, (
        "The named set of recorded agent tasks that was replayed.",
        "재생한 에이전트 작업 기록의 이름 있는 묶음.",
    )),
    _column("arm", ("Arm", "구성"), None, None, (
        "One engine configuration under comparison; the baseline drafts nothing, one marked synthetic accepts by a fixed rule.",
        "비교하는 엔진 구성 하나. 기준 구성(baseline)은 초안을 쓰지 않고, 합성 구성은 정해진 규칙대로 수락한다.",
    )),
    _column("concurrency", ("Concurrency", "동시 작업 수"), "tasks", None, (
        "Tasks in progress at once, those waiting for a tool included; requests in flight are fewer.",
        "동시에 진행 중인 작업 수. 도구를 기다리는 작업도 센다. 처리 중인 요청 수는 이보다 적다.",
    )),
    _column("repeat", ("Repeat", "반복"), None, None, (
        "Which repetition of the same cell, from 1.", "같은 셀의 몇 번째 반복인지, 1부터.")),
    _column("attempt", ("Attempt", "시도"), None, None, (
        "Which attempt at the cell; a resumed run makes another.",
        "셀의 몇 번째 시도인지. 이어서 실행하면 늘어난다.",
    )),
    _column("order", ("Order", "실행 순서"), None, None, (
        "When the cell ran, counted from the first cell of the run.", "실행 전체에서 셀이 측정된 순서.")),
    _column("phase", ("Phase", "구간"), None, None, (
        "warm_up and cool_down are recorded but not counted; counted is.",
        "warm_up, cool_down은 기록만 하고 집계하지 않는다. counted만 집계한다.",
    )),
    _column("window", ("Window", "집계 구간"), None, None, (
        "steady: only tasks wholly inside the time with the full concurrency in progress; whole: every counted task.",
        "steady: 목표 동시 작업 수가 유지된 동안의 작업만. whole: 집계 대상 작업 전부.",
    )),
    _column("steady", ("Steady", "정상 상태"), None, None, (
        "Whether it lies wholly inside the time with the full concurrency in progress.",
        "목표 동시 작업 수가 유지된 구간 안에 온전히 드는지.",
    )),
    _column("instance", ("Instance", "작업 회차"), None, None, (
        "Numbers the starts of tasks within a cell; a task can start more than once.",
        "셀 안에서 시작한 작업의 번호. 한 작업이 여러 번 시작될 수 있다.",
    )),
    _column("task_id", ("Task", "작업"), None, None, ("Name of the recorded task.", "기록된 작업의 이름.")),
    _column("step_index", ("Step no.", "단계 번호"), None, None, (
        "Position of the model call within its task, from 0.", "작업 안에서 모델 호출의 위치, 0부터.")),
    _column("genre", ("Genre", "글 종류"), None, None, (
        "What kind of text the task is about, as its file says (report, mail, essay …); (all) or empty: all.",
        "작업 파일에 적힌 글의 종류(report, mail, essay …). (all)이거나 비면 전체.",
    )),
    _column("kind", ("Step kind", "단계 종류"), None, None, (
        "What the step does: plan, tool_call, summarize, write, revise, reply, code_edit, review; (all) or empty: all.",
        "단계가 하는 일: plan, tool_call, summarize, write, revise, reply, code_edit, review. (all)이거나 비면 전체.",
    )),
    _column("language", ("Language", "언어"), None, None, (
        "Language the step's output is in: ko, ko+code, en, en+code, code; (all) or empty: all.",
        "단계의 출력 언어: ko, ko+code, en, en+code, code. (all)이거나 비면 전체.",
    )),
)

_TIMES = (
    _column("due_s", ("Due", "예정 시각"), "s", None, (
        "When the step should have been sent, since the first step of the cell was due.",
        "요청을 보내야 했던 시각(셀의 첫 단계 예정 시각 기준).",
    )),
    _column("sent_s", ("Sent", "보낸 시각"), "s", None, (
        "When the request left, on the same clock as Due.", "요청이 실제로 나간 시각(예정 시각과 같은 기준).")),
    _column("first_token_s", ("First token", "첫 토큰 시각"), "s", None, (
        "When the first chunk with content arrived.", "내용이 있는 첫 조각이 도착한 시각.")),
    _column("end_s", ("End", "끝난 시각"), "s", None, (
        "When the answer was complete or had failed.", "응답이 끝났거나 실패한 시각.")),
    _column("late_ms", ("Late", "지연 발송"), "ms", "lower", (
        "How long after its due time the request left; the client's own delay.",
        "예정보다 늦게 나간 시간. 측정 도구 자신의 지연이다.",
    )),
    _column("late_p99_ms", ("Late p99", "지연 발송 p99"), "ms", "lower", (
        "99 % of the requests left at most this late.", "요청의 99 %가 이 값 이하로 늦게 나갔다.")),
    _column("ttft_s", ("TTFT", "첫 토큰 시간(TTFT)"), "s", "lower", (
        "Time to first token: from sending the request to the first chunk with content.",
        "요청을 보낸 때부터 내용이 있는 첫 조각까지의 시간.",
    )),
    *_percentiles("ttft", "s", ("TTFT", "TTFT"), ("steps' times to first token", "단계별 첫 토큰 시간")),
    _column("tpot_ms", ("TPOT", "출력 토큰당 시간(TPOT)"), "ms", "lower", (
        "Time per output token: (end − first token) ÷ (output tokens − 1), of one step; never taken from chunk gaps.",
        "단계별 (끝 − 첫 토큰) ÷ (출력 토큰 − 1). 조각 간격으로 재지 않는다.",
    )),
    *_percentiles("tpot", "ms", ("TPOT", "TPOT"), ("steps' times per output token", "단계별 출력 토큰당 시간")),
    _column("step_latency_s", ("Step latency", "단계 시간"), "s", "lower", (
        "From the due time of a step to the end of its answer, queueing at the client included.",
        "단계 예정 시각부터 응답이 끝날 때까지. 보내기 전 대기도 포함한다.",
    )),
    *_percentiles("step_latency", "s", ("Step latency", "단계 시간"), ("step latencies", "단계 시간")),
    _column("tool_wait_s", ("Tool wait", "도구 대기"), "s", None, (
        "How long the tools called by the step took before the next step was due.",
        "단계가 부른 도구를 기다린 시간. 그 뒤에 다음 단계가 예정된다.",
    )),
    _column("task_time_s", ("Task time", "작업 시간"), "s", "lower", (
        "From the due time of a task's first step to the end of its last, tool waits included.",
        "첫 단계 예정 시각부터 마지막 단계 끝까지. 도구 대기를 포함한다.",
    )),
    _column("slot_s", ("Time in its slot", "자리를 차지한 시간"), "s", "lower", (
        "From the due time of a task's first step to the end of its last, whether the task succeeded or failed.",
        "작업의 첫 단계 예정 시각부터 마지막 단계 끝까지. 실패한 작업에도 있다.",
    )),
    _column("task_time_mean_s", ("Task time, mean", "작업 시간 평균"), "s", "lower", (
        "Mean task time of the counted tasks that succeeded, tool waits included.",
        "성공한 집계 대상 작업의 평균 작업 시간. 도구 대기를 포함한다.",
    )),
    *_percentiles("task_time", "s", ("Task time", "작업 시간"), ("task times", "작업 시간")),
    _column("task_time_no_wait_s", ("Task time without tools", "작업 시간(도구 제외)"), "s", "lower", (
        "Sum of the latencies of the task's steps; the tool waits as they really were are left out.",
        "단계 시간의 합. 실제 도구 대기 시간은 빠진다.",
    )),
    _column("task_time_no_wait_mean_s", ("Task time without tools, mean", "작업 시간(도구 제외) 평균"), "s", "lower", (
        "Mean over tasks of the summed step latencies.", "작업별 단계 시간 합의 평균.")),
    _column("duration_s", ("Duration", "셀 시간"), "s", None, ("Wall time of the whole cell.", "셀 전체에 걸린 시간.")),
    _column("steady_s", ("Steady time", "정상 상태 시간"), "s", None, (
        "How long the full concurrency was in progress.", "목표 동시 작업 수가 유지된 시간.")),
)

_COUNTS = (
    _column("max_tokens", ("Token limit", "토큰 한도"), "tokens", None, (
        "The output limit sent with the step.", "단계와 함께 보낸 출력 한도.")),
    _column("prompt_tokens", ("Prompt tokens", "프롬프트 토큰"), "tokens", None, (
        "Tokens of the prompt, as the engine counted them.", "엔진이 센 프롬프트 토큰 수.")),
    _column("cached_tokens", ("Cached tokens", "캐시된 토큰"), "tokens", None, (
        "Prompt tokens that the engine took from its cache.", "엔진이 캐시에서 가져온 프롬프트 토큰 수.")),
    _column("cached_share", ("Cached share", "캐시 비율"), "share", None, (
        "Cached tokens ÷ prompt tokens, sums over the counted steps of the cell.", "집계한 단계의 캐시된 토큰 합 ÷ 프롬프트 토큰 합.")),
    _column("output_tokens", ("Output tokens", "출력 토큰"), "tokens", None, (
        "Tokens the engine says it produced; never a count of chunks.",
        "엔진이 보고한 출력 토큰 수. 조각 수가 아니다.",
    )),
    _column("chunks", ("Chunks", "조각 수"), "chunks", None, (
        "Pieces the answer arrived in; one can hold the tokens of a whole round.",
        "응답이 나뉘어 온 조각 수. 조각 하나에 라운드 하나의 토큰이 모두 들 수 있다.",
    )),
    _column("steps", ("Steps", "단계 수"), "steps", None, ("Model calls of the task.", "작업의 모델 호출 수.")),
    _column("n_tasks", ("Task runs", "작업 실행 수"), "tasks", None, (
        "Counted runs of tasks behind the figure, repeats included; for speed-up, break-even, drafters and comparisons distinct tasks.",
        "수치의 근거가 된 작업 실행 수(반복 포함). 속도 향상, 손익분기, 드래프터, 비교에서는 서로 다른 작업 수.",
    )),
    _column("n_tasks_failed", ("Failed tasks", "실패한 작업"), "tasks", "lower", (
        "Counted tasks with at least one failed step.", "실패한 단계가 하나라도 있는 집계 대상 작업 수.")),
    _column("n_steps", ("Steps", "단계 수"), "steps", None, (
        "Counted steps behind the figure.", "수치의 근거가 된 단계 수.")),
    _column("n_steps_failed", ("Failed steps", "실패한 단계"), "steps", "lower", (
        "Counted steps without a complete answer.", "온전한 응답을 받지 못한 집계 대상 단계 수.")),
    _column("n_steps_with_rounds", ("Steps with known rounds", "라운드를 아는 단계"), "steps", None, (
        "Steps whose rounds the engine told; acceptance length rests on these.",
        "엔진이 라운드 수를 알려 준 단계 수. 수락 길이의 근거이다.")),
    _column("n", ("Observations", "관측 수"), None, None, (
        "Observations behind the figure.", "수치의 근거가 된 관측 수.")),
    _column("requests_in_flight", ("Requests in flight", "처리 중 요청"), "requests", None, (
        "Mean number of requests the engine had at once.", "엔진이 동시에 처리한 요청 수의 평균.")),
    _column("output_tokens_per_s", ("Output tokens/s", "초당 출력 토큰"), "tokens/s", "higher", (
        "Output tokens of the steady window up to its first cut-off step ÷ that time, repeats pooled; empty where tokens are unknown.",
        "정상 상태 구간(처음 중단된 단계 전까지)의 출력 토큰 합 ÷ 그 시간(반복 합산). 토큰 수를 모르면 비어 있다.",
    )),
    _column("output_tokens_per_s_whole", ("Output tokens/s, cell", "초당 출력 토큰(셀 전체)"), "tokens/s", "higher", (
        "Output tokens of the whole cell ÷ its duration.", "셀 전체의 출력 토큰 합 ÷ 셀 시간.")),
    _column("tasks_per_hour", ("Tasks/h", "시간당 작업"), "tasks/h", "higher", (
        "Concurrency × 3600 × tasks that succeeded ÷ seconds that all took, failed ones included; counted tasks of the steady window.",
        "동시 작업 수 × 3600 × 성공한 작업 수 ÷ 모든 작업이 쓴 시간(초, 실패 포함). 정상 상태 구간의 집계 대상 작업.",
    )),
    _column("tasks_per_hour_whole", ("Tasks/h, whole cell", "시간당 작업(셀 전체)"), "tasks/h", "higher", (
        "Tasks finished in the whole cell, warm-up aside, per hour of it.", "셀 전체에서(준비 제외) 끝난 작업 수를 시간당으로.")),
)

_ACCEPTANCE = (
    _column("decode_passes", ("Decode passes", "디코딩 패스"), "passes", None, (
        "Forward passes of the target after the prompt, those without a draft included.",
        "프롬프트 이후 대상 모델의 순전파 수. 초안이 없던 것도 센다.",
    )),
    _column("num_drafts", ("Rounds", "검증 라운드"), "rounds", None, (
        "Propose-and-verify rounds in which at least one token was drafted.",
        "초안 토큰이 하나라도 제안되어 검증한 횟수.",
    )),
    _column("num_draft_tokens", ("Drafted tokens", "초안 토큰"), "tokens", None, (
        "Tokens the drafter proposed.", "드래프터가 제안한 토큰 수.")),
    _column("num_accepted_tokens", ("Accepted tokens", "수락된 토큰"), "tokens", None, (
        "Drafted tokens the target accepted; the bonus token is left out.",
        "대상 모델이 받아들인 초안 토큰 수. 보너스 토큰은 뺀다.",
    )),
    _column("num_accepted_in_rounds", ("Accepted in known rounds", "라운드를 아는 수락 토큰"), "tokens", None, (
        "Accepted tokens of the steps whose rounds are known; acceptance length = 1 + this ÷ rounds.",
        "라운드를 아는 단계의 수락된 토큰 합. 수락 길이 = 1 + 이 값 ÷ 라운드.",
    )),
    _column("server_num_drafts", ("Rounds, server", "검증 라운드(서버)"), "rounds", None, (
        "The server's own count over the cell.", "셀 동안 서버 자신이 센 수.")),
    _column("server_num_draft_tokens", ("Drafted tokens, server", "초안 토큰(서버)"), "tokens", None, (
        "The server's own count over the cell.", "셀 동안 서버 자신이 센 수.")),
    _column("server_num_accepted_tokens", ("Accepted tokens, server", "수락된 토큰(서버)"), "tokens", None, (
        "The server's own count over the cell.", "셀 동안 서버 자신이 센 수.")),
    _column("counters_match", ("Counters match", "계수 일치"), None, None, (
        "Whether the sums over requests equal the server's own counters.", "요청별 합이 서버 계수와 같은지.")),
    _column("foreign_requests", ("Requests of others", "다른 사용자 요청"), "requests", "lower", (
        "Requests of others that the server worked on while the cell ran; empty where it does not tell.",
        "셀이 도는 동안 서버가 처리한 다른 사용자의 요청 수. 서버가 알려 주지 않으면 비어 있다.")),
    _column("acceptance_length", ("Acceptance length", "수락 길이"), "tokens/round", "higher", (
        "1 + accepted ÷ rounds, ratio of sums: tokens a round yields, the target's bonus token included.",
        "1 + 수락된 토큰 합 ÷ 라운드 합. 라운드 하나가 내는 토큰 수이며 보너스 토큰을 포함한다.",
    )),
    *_bounds("acceptance_length", ("Acceptance length", "수락 길이"), "tokens/round", "higher"),
    _column("acceptance_length_macro", ("Acceptance length, macro", "수락 길이(매크로)"), "tokens/round", "higher", (
        "Mean of the steps' own acceptance lengths: every step weighs the same, however long.",
        "단계별 수락 길이의 단순 평균. 길이에 상관없이 모든 단계의 무게가 같다.",
    )),
    _column("acceptance_rate", ("Acceptance rate", "수락률"), "share", "higher", (
        "Accepted ÷ drafted tokens, ratio of sums, bonus token left out; falls when more is drafted at a time.",
        "수락된 토큰 합 ÷ 초안 토큰 합. 보너스 제외. 한 번에 많이 제안할수록 낮아진다.",
    )),
    _column("tokens_per_pass", ("Tokens per pass", "패스당 토큰"), "tokens/pass", "higher", (
        "1 + accepted ÷ decode passes, ratio of sums, passes without a draft included.",
        "1 + 수락된 토큰 합 ÷ 디코딩 패스 합. 초안 없는 패스도 센다.",
    )),
    *_bounds("tokens_per_pass", ("Tokens per pass", "패스당 토큰"), "tokens/pass", "higher"),
    _column("spec_source", ("Source of counts", "계수 출처"), None, None, (
        "Where the counts come from: round, request (the engine tells each), or window (server counters).",
        "계수의 출처: round, request(엔진이 각각 보고), window(서버 계수).",
    )),
    _column("position", ("Draft position", "초안 위치"), None, None, (
        "Place of a token in the draft, from 1.", "초안 안에서 토큰의 위치, 1부터.")),
    _column("survival", ("Survival", "생존율"), "share", "higher", (
        "Share of rounds with at least this many drafted tokens accepted; acceptance length = 1 + their sum.",
        "초안이 이 위치까지 모두 수락된 라운드의 비율. 수락 길이 = 1 + 생존율의 합.",
    )),
    _column("repetitive", ("Repetitive", "반복 출력"), None, None, (
        "Whether the output repeats itself, which inflates acceptance.",
        "출력이 되풀이되는지. 수락 수치를 부풀린다.",
    )),
    _column("repetitive_share", ("Repetitive share", "반복 출력 비율"), "share", "lower", (
        "Share of steps whose output repeats itself.", "출력이 되풀이되는 단계의 비율.")),
    _column("cut_share", ("Cut at the limit", "한도에서 잘린 비율"), "share", "lower", (
        "Share of steps whose output the token limit cut; what their last round accepted beyond the limit is counted by some engines.",
        "출력이 토큰 한도에서 잘린 단계의 비율. 한도 뒤로 수락된 토큰까지 세는 엔진도 있다.",
    )),
    _column("cautions", ("Cautions", "주의 사항"), None, None, (
        "Findings that bear on the acceptance figures of the row, by code; empty: none was found.",
        "이 행의 수락 수치에 영향을 주는 타당성 검사 결과의 코드. 없으면 비어 있다.",
    )),
)

_COMPARISON = (
    _column("speed_up", ("Speed-up", "속도 향상"), "x", "higher", (
        "Task time of the baseline ÷ task time of the arm, paired by task; below 1 the arm is slower.",
        "같은 작업끼리 짝지은 기준 구성 작업 시간 ÷ 이 구성 작업 시간. 1보다 작으면 느려진 것.",
    )),
    *_bounds("speed_up", ("Speed-up", "속도 향상"), "x", "higher"),
    _column("speed_up_no_wait", ("Speed-up without tools", "속도 향상(도구 제외)"), "x", "higher", (
        "The same with the tool waits taken out of both times.", "양쪽에서 도구 대기를 뺀 속도 향상.")),
    *_bounds("speed_up_no_wait", ("Speed-up without tools", "속도 향상(도구 제외)"), "x", "higher"),
    _column("step_speed_up", ("Speed-up of steps", "단계 속도 향상"), "x", "higher", (
        "Step latencies of the baseline ÷ those of the arm, sums over the same steps; tells languages apart that one task mixes.",
        "같은 단계끼리 짝지은 기준 구성 단계 시간 합 ÷ 이 구성 단계 시간 합. 한 작업에 섞인 언어를 나누어 볼 수 있다.",
    )),
    *_bounds("step_speed_up", ("Speed-up of steps", "단계 속도 향상"), "x", "higher"),
    _column("break_even", ("Break-even", "손익분기 동시 작업 수"), "tasks", "higher", (
        "Concurrency at which the paired speed-up crosses 1, empty: not in the range; the interval allows for what lies between loads.",
        "작업 시간의 속도 향상이 1을 지나는 동시 작업 수. 범위에서 지나지 않으면 비어 있다. 구간은 부하 사이를 모르는 것도 감안한다.",
    )),
    *_bounds("break_even", ("Break-even", "손익분기"), "tasks", "higher", (
        ", or where it lies beyond the measured range (see interval)", "(측정 범위 밖일 때도, interval 참고)")),
    _column("interval", ("Ends of the interval", "구간의 끝"), None, None, (
        "Which ends are beyond the measured range: both (known), open_low, open_high, open_both; none: there is no interval.",
        "측정 범위 밖에 있는 끝. both(양 끝을 앎), open_low, open_high, open_both. none은 구간이 없다는 뜻.",
    )),
    _column("side", ("Side", "판정"), None, None, (
        "Where the estimate crosses 1: crossed (in the range), above (1 or more at every load), below (less at the lowest), unknown.",
        "추정값이 1을 지나는 곳. crossed: 범위 안. above: 모든 부하에서 1 이상. below: 최저 부하에서 1 미만. unknown: 알 수 없음.",
    )),
    _column("lowest_concurrency", ("Lowest concurrency", "최저 동시 작업 수"), "tasks", None, (
        "Lowest concurrency that was compared.", "비교한 가장 낮은 동시 작업 수.")),
    _column("highest_concurrency", ("Highest concurrency", "최고 동시 작업 수"), "tasks", None, (
        "Highest concurrency that was compared.", "비교한 가장 높은 동시 작업 수.")),
    _column("identical_share", ("Identical outputs", "동일 출력 비율"), "share", "higher", (
        "Share of steps whose output equals the baseline's exactly, at temperature 0; in a comparison that of before.",
        "온도 0에서 출력이 기준 구성(비교에서는 이전 쪽)과 완전히 같은 단계의 비율.",
    )),
    _column("n_identical", ("Identical steps", "동일한 단계"), "steps", "higher", (
        "Steps whose output equals the baseline's exactly; in a comparison that of before.",
        "출력이 기준 구성(비교에서는 이전 쪽)과 완전히 같은 단계 수.")),
    _column("first_difference_token_min", ("First difference, earliest", "첫 차이(가장 이른)"), "tokens", None, (
        "Earliest position (from 1) at which an output differs from the baseline's, in tokens of the two texts tokenised again.",
        "기준 구성과 처음 달라지는 위치(1부터) 중 가장 이른 것. 두 글을 다시 토큰으로 나누어 센다.",
    )),
    _column("first_difference_token_p50", ("First difference, median", "첫 차이(중앙값)"), "tokens", None, (
        "Median of the first difference, of the outputs that differ.", "달라진 출력에서 첫 차이 위치의 중앙값.")),
    _column("example_step", ("Example", "예시 단계"), None, None, (
        "One step whose output differs.", "출력이 달라진 단계 하나.")),
    _column("slo_attainment", ("SLO attainment", "SLO 충족률"), "share", "higher", (
        "Share of tasks in the steady window that succeeded and kept every objective of the workload with every step.",
        "정상 상태 구간의 작업 중 성공하고 모든 단계에서 워크로드의 모든 목표를 지킨 비율.")),
    _column("objective", ("Objective", "목표"), None, None, (
        "The service level objective as the workload states it.", "워크로드에 적힌 서비스 수준 목표.")),
    _column("limit", ("Limit", "한도"), None, "lower", (
        "The objective's limit, in the metric's own unit.", "목표의 한도(지표의 단위).")),
    _column("observed", ("Observed", "관측값"), None, None, (
        "What was measured, in the metric's own unit.", "측정된 값(지표의 단위).")),
    _column("attained_share", ("Attained", "충족 비율"), "share", "higher", (
        "Share of observations within the limit; a failure never is.", "한도 안에 든 관측의 비율. 실패는 한도 밖으로 친다.")),
    _column("met", ("Met", "충족"), None, None, (
        "Whether it was met, failures counting against it; empty where it could not be judged.",
        "충족 여부. 실패도 미달로 친다. 판정할 수 없으면 비어 있다.")),
    _column("threshold", ("Threshold", "합격 기준"), None, None, (
        "The condition the workload demands after the run.", "워크로드가 실행 뒤에 요구하는 조건.")),
    _column("reason", ("Reason", "까닭"), None, None, (
        "Why a threshold could not be judged; empty where it was.", "합격 기준을 판정할 수 없는 까닭. 판정했으면 비어 있다.")),
)

_WORDS = (  # of findings.csv and verdicts.csv
    _column("severity", ("Severity", "심각도"), None, None, (
        "note, warning, or invalid: then the figures must not be carried over.", "note, warning, invalid(수치를 옮겨 쓰지 말 것).")),
    _column("code", ("Code", "코드"), None, None, (
        "Machine name of the finding.", "타당성 검사 결과의 기계용 이름.")),
    _column("values", ("Values", "값"), None, None, (
        "The figures of the finding as JSON.", "타당성 검사 결과의 수치(JSON).")),
    _column("certainty", ("Certainty", "확실성"), None, None, (
        "clear, limited, unsure (an interval includes 1), unknown (too little to compare), invalid (a check failed).",
        "clear, limited, unsure(구간이 1을 포함), unknown(자료 부족), invalid(검사 불통과).",
    )),
    _column("speed_up_first", ("Speed-up at the lowest", "최저 부하의 속도 향상"), "x", "higher", (
        "Speed-up at the lowest concurrency compared; empty without an interval.",
        "비교한 가장 낮은 동시 작업 수의 속도 향상. 구간이 없으면 비어 있다.",
    )),
    *_bounds("speed_up_first", ("Speed-up at the lowest", "최저 부하의 속도 향상"), "x", "higher"),
    _column("speed_up_last", ("Speed-up at the highest", "최고 부하의 속도 향상"), "x", "higher", (
        "Speed-up at the highest concurrency compared; empty without an interval.",
        "비교한 가장 높은 동시 작업 수의 속도 향상. 구간이 없으면 비어 있다.",
    )),
    *_bounds("speed_up_last", ("Speed-up at the highest", "최고 부하의 속도 향상"), "x", "higher"),
    _column("unmeasured", ("Not measured", "측정하지 못함"), None, None, (
        "Planned concurrencies without an estimate.", "계획했으나 추정값이 없는 동시 작업 수.")),
    _column("consistent", ("Repeats agree", "반복 일치"), None, None, (
        "Whether every repeat by itself is on the same side of 1, and their number is even.",
        "반복마다 따로 보아도 1의 같은 쪽이고 반복 횟수가 짝수인지.",
    )),
)

_OUTCOME = (
    _column("ok", ("Succeeded", "성공"), None, None, (
        "Whether every step of the task has a complete answer.", "작업의 모든 단계가 온전한 응답을 받았는지.")),
    _column("status", ("Status", "상태"), None, None, (
        "done, failed, unfinished (cut short) or foreign (not in the run's plan); only done cells count.",
        "done, failed, unfinished(중단), foreign(계획에 없음). done만 집계한다.",
    )),
    _column("cache_policy", ("Prompt cache", "프롬프트 캐시"), None, None, (
        "How cells were kept out of each other's prompt cache: salt, reset or shared.",
        "셀끼리 프롬프트 캐시를 나눈 방법: salt, reset, shared.",
    )),
    _column("finish_reason", ("Finish reason", "종료 사유"), None, None, (
        "Why the engine stopped; length means the token limit cut the answer.",
        "엔진이 멈춘 까닭. length는 토큰 한도에서 잘렸다는 뜻.",
    )),
    _column("output_sha256", ("Output SHA-256", "출력 SHA-256"), None, None, (
        "Hash of the output text; the text itself stays in the run folder.",
        "출력 글의 해시. 글 자체는 실행 폴더에만 있다.",
    )),
    _column("error_kind", ("Error", "오류 종류"), None, None, (
        "Class of the failure; empty for a success.", "실패의 갈래. 성공이면 비어 있다.")),
    _column("error_message", ("Error message", "오류 내용"), None, None, (
        "What went wrong, in the words of the client or the engine.", "클라이언트나 엔진이 말한 실패 내용.")),
)
# fmt: on

COLUMNS: Mapping[str, Column] = MappingProxyType(
    {
        column.name: column
        for column in (
            *_PLACE,
            *_TIMES,
            *_COUNTS,
            *_ACCEPTANCE,
            *_COMPARISON,
            *_OUTCOME,
            *_WORDS,
            *COMPARED,
            *SIZED,
            *DECISION,
            *MODELLED,
        )
    }
)
