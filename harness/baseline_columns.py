"""The columns of an arm beside its baseline, and beside what the workload demands; part of the vocabulary of ``harness.columns``."""

from __future__ import annotations

from harness.column_form import bounds, column

# fmt: off
BESIDE_BASELINE = (
    column("speed_up", ("Speed-up", "속도 향상"), "x", "higher", (
        "Task time of the baseline ÷ task time of the arm, paired by task; below 1 the arm is slower.",
        "같은 작업끼리 짝지은 기준 구성 작업 시간 ÷ 이 구성 작업 시간. 1보다 작으면 느려진 것입니다.",
    )),
    *bounds("speed_up", ("Speed-up", "속도 향상"), "x", "higher"),
    column("speed_up_no_wait", ("Speed-up without tools", "속도 향상(도구 제외)"), "x", "higher", (
        "The same with the tool waits taken out of both times.", "양쪽에서 도구 대기를 뺀 속도 향상.")),
    *bounds("speed_up_no_wait", ("Speed-up without tools", "속도 향상(도구 제외)"), "x", "higher"),
    column("step_speed_up", ("Speed-up of steps", "단계 속도 향상"), "x", "higher", (
        "Step latencies of the baseline ÷ those of the arm, sums over the same steps; tells languages apart that one task mixes.",
        "같은 단계끼리 짝지은 기준 구성 단계 시간 합 ÷ 이 구성 단계 시간 합. 한 작업에 섞인 언어를 나누어 볼 수 있습니다.",
    )),
    *bounds("step_speed_up", ("Speed-up of steps", "단계 속도 향상"), "x", "higher"),
    column("break_even", ("Break-even", "손익분기(동시 작업 수)"), "tasks", "higher", (
        "Concurrency at which the paired speed-up crosses 1, empty: not in the range; the interval allows for what lies between loads.",
        "작업 시간의 속도 향상이 1을 지나는 동시 작업 수. 범위에서 지나지 않으면 비어 있으며, 구간은 부하 사이의 불확실성도 반영합니다.",
    )),
    *bounds("break_even", ("Break-even", "손익분기"), "tasks", "higher", (
        ", or where it lies beyond the measured range (see interval)", "(측정 범위 밖일 때도, interval 참고)")),
    column("interval", ("Ends of the interval", "구간의 끝"), None, None, (
        "Which ends are beyond the measured range: both (known), open_low, open_high, open_both; none: there is no interval.",
        "측정 범위 밖에 있는 끝. both(양 끝을 앎), open_low, open_high, open_both. none은 구간이 없다는 뜻입니다.",
    )),
    column("side", ("Side", "판정"), None, None, (
        "Where the estimate crosses 1: crossed (in the range), above (1 or more at every load), below (less at the lowest), unknown.",
        "추정값이 1을 지나는 곳. crossed: 범위 안. above: 모든 부하에서 1 이상. below: 최저 부하에서 1 미만. unknown: 알 수 없음.",
    )),
    column("lowest_concurrency", ("Lowest concurrency", "최저 동시 작업 수"), "tasks", None, (
        "Lowest concurrency that was compared.", "비교한 최저 동시 작업 수.")),
    column("highest_concurrency", ("Highest concurrency", "최고 동시 작업 수"), "tasks", None, (
        "Highest concurrency that was compared.", "비교한 최고 동시 작업 수.")),
    column("identical_share", ("Identical outputs", "동일 출력 비율"), "share", "higher", (
        "Share of steps whose output equals the baseline's exactly, at temperature 0; in a comparison that of before.",
        "온도 0에서 출력이 기준 구성(비교에서는 이전 쪽)과 완전히 같은 단계의 비율.",
    )),
    column("n_identical", ("Identical steps", "동일한 단계"), "steps", "higher", (
        "Steps whose output equals the baseline's exactly; in a comparison that of before.",
        "출력이 기준 구성(비교에서는 이전 쪽)과 완전히 같은 단계 수.")),
    column("first_difference_token_min", ("First difference, earliest", "첫 차이(가장 이른)"), "tokens", None, (
        "Earliest position (from 1) at which an output differs from the baseline's, in tokens of the two texts tokenised again.",
        "기준 구성과 처음 달라지는 위치(1부터) 중 가장 이른 것. 두 텍스트를 다시 토큰으로 나누어 셉니다.",
    )),
    column("first_difference_token_p50", ("First difference, median", "첫 차이(중앙값)"), "tokens", None, (
        "Median of the first difference, of the outputs that differ.", "달라진 출력에서 첫 차이 위치의 중앙값.")),
    column("example_step", ("Example", "예시 단계"), None, None, (
        "One step whose output differs.", "출력이 달라진 단계 하나.")),
    column("slo_attainment", ("SLO attainment", "SLO 충족률"), "share", "higher", (
        "Share of tasks in the steady window that succeeded and kept every objective of the workload with every step.",
        "정상 상태 구간의 작업 중 성공하고 모든 단계에서 워크로드의 모든 목표를 충족한 비율.")),
    column("objective", ("Objective", "목표"), None, None, (
        "The service level objective as the workload states it.", "워크로드에 적힌 서비스 수준 목표.")),
    column("limit", ("Limit", "한도"), None, "lower", (
        "The objective's limit, in the metric's own unit.", "목표의 한도(지표의 단위).")),
    column("observed", ("Observed", "관측값"), None, None, (
        "What was measured, in the metric's own unit.", "측정된 값(지표의 단위).")),
    column("attained_share", ("Attained", "충족 비율"), "share", "higher", (
        "Share of observations within the limit; a failure never is.", "한도 안에 든 관측의 비율. 실패는 한도 초과로 간주합니다.")),
    column("met", ("Met", "충족"), None, None, (
        "Whether it was met, failures counting against it; empty where it could not be judged.",
        "충족 여부. 실패도 미달로 간주합니다. 판정할 수 없으면 비어 있습니다.")),
    column("threshold", ("Threshold", "합격 기준"), None, None, (
        "The condition the workload demands after the run.", "워크로드가 실행 뒤에 요구하는 조건.")),
    column("reason", ("Reason", "사유"), None, None, (
        "Why a threshold could not be judged; empty where it was.", "합격 기준을 판정할 수 없는 사유. 판정했으면 비어 있습니다.")),
)
# fmt: on
