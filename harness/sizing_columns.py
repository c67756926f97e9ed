"""The columns of percentiles, agents per server, needed repeats and sizing; part of the vocabulary of ``harness.columns``."""

from __future__ import annotations

from harness.column_form import bounds, column, order_bounds

# fmt: off
_INTERVALS = (
    *bounds("task_time_mean_s", ("Task time, mean", "작업 시간 평균"), "s", "lower"),
    *bounds("tasks_per_hour", ("Tasks/h", "시간당 작업"), "tasks/h", "higher"),
    *bounds("identical_share", ("Identical outputs", "동일 출력 비율"), "share", "higher"),
    *bounds("slo_attainment", ("SLO attainment", "SLO 충족률"), "share", "higher"),
    column("good_tasks_per_hour", ("Goodput", "유효 처리량"), "tasks/h", "higher", (
        "Tasks per hour that succeeded and kept every objective of the workload with every step; failed tasks took their time too.",
        "성공하고 모든 단계에서 워크로드의 모든 목표를 충족한 작업의 시간당 수. 실패한 작업이 쓴 시간도 계산에 포함합니다.",
    )),
    *bounds("good_tasks_per_hour", ("Goodput", "유효 처리량"), "tasks/h", "higher"),
)

_PERCENTILES = (
    column("metric", ("Metric", "지표"), None, None, (
        "Which time: ttft, tpot (ms), step_latency, task_time, task_time_no_wait (s).",
        "어떤 시간인지: ttft, tpot(ms), step_latency, task_time, task_time_no_wait(s).",
    )),
    column("percent", ("Percentile", "백분위"), None, None, (
        "Which percentile: so many per cent of the values are at or below it.", "백분위수의 백분율. 값의 해당 %가 그 이하임을 뜻합니다.")),
    column("n_needed", ("Tasks needed", "필요한 작업 수"), "tasks", None, (
        "Distinct tasks from which on the percentile can be relied on: with 99 % confidence two of them lie beyond it.",
        "백분위수를 신뢰할 수 있는 최소한의 서로 다른 작업 수. 99 % 신뢰수준에서 둘 이상이 그 값을 초과합니다.",
    )),
    *order_bounds("observed", ("Observed", "관측값"), None, None, (
        "order statistics, each task one look; empty where the sample does not reach so far",
        "순서 통계량이며 작업 하나를 관측값 하나로 간주합니다. 표본이 거기까지 미치지 않으면 비어 있습니다")),
)

_AGENTS = (
    column("slo", ("Service level", "서비스 수준"), None, None, (
        "The objectives that every load must keep.", "모든 부하가 충족하여야 하는 목표.")),
    column("agents", ("Agents per server", "서버당 에이전트 수"), "agents", "higher", (
        "Largest number of tasks in progress at once that keeps the service level: fit that rises with load, read between measured loads; "
        "of the tasks that ran at every load, where these are enough.",
        "서비스 수준을 충족하는 가장 큰 동시 작업 수. 부하에 따라 단조 증가하는 적합선에서 측정한 부하 사이의 값을 산출합니다. "
        "충분하면 모든 부하에서 실행한 작업만으로 구합니다.",
    )),
    *order_bounds("agents", ("Agents per server", "서버당 에이전트 수"), "agents", "higher", (
        "from the bounds of the percentiles, each task one look; empty where the tasks are too few or it lies beyond the measured range",
        "백분위수의 한계에서 구하며 작업 하나를 관측값 하나로 간주합니다. 작업이 부족하거나 측정 범위 밖이면 비어 있습니다")),
    column("capacity", ("Found", "판정"), None, None, (
        "found (missed first inside the range), at_least (kept at the highest load too), none (missed at the lowest), unknown.",
        "found(범위 내에서 최초 미충족), at_least(최고 부하에서도 충족), none(최저 부하에서 이미 미충족), unknown(알 수 없음).",
    )),
    column("limited_by", ("Limited by", "제한 요인"), None, None, (
        "The objective that gives way first; where workloads are mixed, with the workload that takes the largest part of a server.",
        "가장 먼저 충족하지 못하는 목표. 워크로드를 섞으면 서버를 가장 많이 차지하는 워크로드도 함께 적습니다.",
    )),
)

_REPEATS = (
    column("repeats", ("Repeats", "반복 수"), None, None, (
        "How often the load was run in both arms.", "두 구성 모두에서 이 부하를 측정한 횟수.")),
    column("decided", ("Decided", "판정됨"), None, None, (
        "Whether the speed-up differs from 1 by more than the spread over tasks and over repeats explains.",
        "속도 향상이 작업과 반복의 편차로 설명되는 것보다 1에서 더 벗어나 있는지.",
    )),
    column("repeats_more", ("More repeats", "더 필요한 반복"), None, "lower", (
        "Repeats to add until a difference as large as the one seen is shown; empty where no number suffices, or one alone was run.",
        "관측한 만큼의 차이가 확인되려면 더해야 할 반복 수. 아무리 더해도 부족하거나 한 번만 측정했으면 비어 있습니다.",
    )),
    column("tasks_needed", ("Distinct tasks needed", "필요한 서로 다른 작업"), "tasks", "lower", (
        "Distinct tasks with which, at these repeats, a difference as large as the one seen is shown; empty where it cannot be said.",
        "지금의 반복 수로 관측한 만큼의 차이가 확인되는 서로 다른 작업 수. 산정할 수 없으면 비어 있습니다.",
    )),
)

_SIZING = (
    column("servers", ("Servers", "서버 대수"), "servers", "lower", (
        "Servers for the stated agents: agents × busy share ÷ (agents per server before rounding × (1 − headroom)), rounded up.",
        "입력한 에이전트 수에 필요한 서버 대수: 에이전트 × 동시 작업 비율 ÷ (반올림하지 않은 서버당 에이전트 × (1 − 여유율)), 올림.",
    )),
    *order_bounds("servers", ("Servers", "서버 대수"), "servers", "lower", (
        "that of the agents per server turned over; empty where that is not known",
        "서버당 에이전트 수의 구간에서 역산한 값. 해당 한계를 알 수 없으면 비어 있습니다")),
    column("agents_per_server", ("Agents on each", "서버당 동시 작업 에이전트 수"), "agents", None, (
        "Tasks in progress on each server when all busy agents are spread evenly over the servers.",
        "동시에 작업하는 에이전트를 서버에 고르게 분산할 때 서버 하나에서 동시에 진행되는 작업 수.",
    )),
    column("fleet_tasks_per_hour", ("Tasks/h, all servers", "시간당 작업(전체 서버)"), "tasks/h", "higher", (
        "Tasks that the busy agents finish in an hour on all servers: busy agents × 3600 ÷ time per finished task, failed ones included.",
        "동시에 작업하는 에이전트가 전체 서버에서 시간당 완료하는 작업 수: 동시 작업 에이전트 수 × 3600 ÷ 완료 작업당 시간"
        "(실패한 작업의 시간 포함).",
    )),
    column("power_watts", ("Power per server", "서버당 전력"), "W", "lower", (
        "Mean power of one server under this load; of a cell that of its graphics processors alone; empty where it is not known.",
        "이 부하에서 서버 하나의 평균 전력. 셀에서는 GPU만의 전력. 모르면 비어 있습니다.",
    )),
    column("power_source", ("Source of power", "전력 출처"), None, None, (
        "stated (by whoever sizes) or nvml (measured during the run, the GPUs alone).",
        "stated(사용자 입력) 또는 nvml(실행 중 측정, GPU만).",
    )),
    column("kwh_per_1000_tasks", ("Energy per 1,000 tasks", "작업 1,000개당 전력량"), "kWh", "lower", (
        "Energy of all servers while 1,000 tasks are finished, at the busiest load: a best case.",
        "최대 부하에서 작업 1,000개를 완료하는 동안 전체 서버가 사용하는 전력량. 최선의 경우입니다.")),
    column("cost_per_1000_tasks", ("Cost per 1,000 tasks", "작업 1,000개당 비용"), None, "lower", (
        "Price of the servers spread over their hours in use, plus energy, for 1,000 finished tasks at the busiest load in every hour in "
        "use (a best case); in the currency of the stated prices.",
        "서버 가격을 가동 시간에 배분하고 전력 요금을 더한, 완료 작업 1,000개당 비용. "
        "가동 시간 내내 최대 부하임을 전제한 최선의 경우입니다. 통화는 입력값의 통화.",
    )),
    *order_bounds("cost_per_1000_tasks", ("Cost per 1,000 tasks", "작업 1,000개당 비용"), None, "lower", (
        "agents per server and task time both at that end, which is on the safe side",
        "서버당 에이전트 수와 작업 시간이 모두 해당 한계일 때의 값으로, 보수적인 산정입니다")),
    column("cost_per_year", ("Cost per year", "연간 비용"), None, "lower", (
        "Price of the servers ÷ years, plus energy of the hours in use.", "서버 가격 ÷ 연수에 가동 시간의 전력 요금을 더한 것.")),
    column("servers_saved", ("Servers saved", "절감 서버 대수"), "servers", "higher", (
        "Servers fewer than without a drafter; negative: more; empty without a baseline.",
        "드래프터 미사용 시와 비교하여 절감되는 서버 대수. 음수이면 증가한 것입니다. 기준 구성이 없으면 비어 있습니다.",
    )),
    *order_bounds("servers_saved", ("Servers saved", "절감 서버 대수"), "servers", "higher", (
        "of the paired difference: both arms in the same draws of the same tasks; a difference is shown where 0 lies outside",
        "짝지은 차이의 구간으로, 두 구성에 같은 작업을 같은 표본으로 다시 추출하여 산출함. 구간이 0을 포함하지 않으면 차이가 확인된 것임")),
    column("assumption", ("Assumption", "가정"), None, None, (
        "What is moved while everything else stays.", "다른 가정은 유지한 채 변경한 가정.")),
    column("source", ("Source", "출처"), None, None, (
        "measured: moved to the ends of its interval; stated: moved by a fifth up and down (headroom by 0.1, years by 1); "
        "modelled: computed from the cost model, not measured.",
        "measured: 구간의 하한과 상한으로 변경. stated: 20 %씩 증감(여유율은 0.1, 사용 연수는 1). "
        "modelled: 비용 모형으로 계산한 것이며 측정값이 아닙니다.",
    )),
    column("value", ("Value", "값"), None, None, ("What the sizing itself uses.", "산정에 쓴 값.")),
    *order_bounds("value", ("Value", "값"), None, None, (
        "or, of what was stated, the value tried on that side", "입력값이면 그 방향으로 변경한 값")),
    *(
        item
        for end, en, ko in (("low", "lower", "하한"), ("high", "upper", "상한"))
        for item in (
            column(f"servers_at_{end}", (f"Servers at the {en} value", f"{ko}에서의 서버 대수"), "servers", "lower", (
                f"Servers when the assumption has its {en} value.", f"가정이 {ko}일 때의 서버 대수.")),
            column(f"cost_at_{end}", (f"Cost per 1,000 tasks at the {en} value", f"{ko}에서의 작업 1,000개당 비용"), None, "lower", (
                f"Cost per 1,000 tasks when the assumption has its {en} value.", f"가정이 {ko}일 때의 작업 1,000개당 비용.")),
        )
    ),
    column("swing", ("Swing", "변동 폭"), "share", None, (
        "How far the answer moves between both values, relative to it: cost or servers before rounding up, whichever moves more.",
        "두 값 사이에서 결과가 변동하는 폭(결과 대비). 비용과 올림 전 서버 대수 중 더 크게 변동하는 값.",
    )),
)
# fmt: on

SIZED = (*_INTERVALS, *_PERCENTILES, *_AGENTS, *_REPEATS, *_SIZING)
