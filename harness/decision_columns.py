"""The columns of what a buyer compares: servers for a hundred agents, relative cost, and the trade between server and agent."""

from __future__ import annotations

from harness.column_form import column, order_bounds

# fmt: off
DECISION = (
    column("servers_per_100", ("Servers per 100 agents", "에이전트 100개당 서버 대수"), "servers", "lower", (
        "Servers to buy for 100 agents that all work at once: 100 ÷ agents per server before rounding, rounded up, without headroom; what "
        "harness size says for --agents 100. Servers come whole, agents are spread over them; tied to a server each, they need whole ones.",
        "동시에 작업하는 에이전트 100개를 위해 구매할 서버 대수. 100 ÷ 서버당 에이전트 수(반올림하지 않은 값)를 올림한 값. "
        "여유율은 적용하지 않으며 harness size --agents 100의 결과와 같음. 에이전트를 서버에 고르게 분산한다고 전제함. "
        "서버마다 고정 배정하는 경우에는 서버당 에이전트 수의 정수값으로 산정하여야 함.",
    )),
    *order_bounds("servers_per_100", ("Servers per 100 agents", "에이전트 100개당 서버 대수"), "servers", "lower", (
        "from that of the agents per server, before rounding; empty where that end is not known",
        "서버당 에이전트 수 구간(반올림하지 않은 값)에서 산출함. 해당 한계를 알 수 없으면 비어 있음")),
    column("cost_ratio", ("Cost per task, baseline = 1", "작업당 비용(기준 구성 = 1)"), "x", "lower", (
        "Server time of a finished task ÷ that in the baseline, each at its load; on the same server the price cancels.",
        "완료 작업 하나가 사용하는 서버 시간 ÷ 기준 구성의 서버 시간, 각 구성의 해당 부하 기준. 동일한 서버이므로 가격은 상쇄됩니다.",
    )),
    column("tasks_per_hour_per_agent", ("Tasks/h per agent", "에이전트당 시간당 작업"), "tasks/h", "higher", (
        "Tasks that one agent finishes in an hour at this load: tasks/h of the server ÷ concurrency.",
        "이 부하에서 에이전트 하나가 한 시간에 끝내는 작업 수: 서버의 시간당 작업 ÷ 동시 작업 수.",
    )),
    column("frontier", ("Best trade", "최적 절충점"), None, None, (
        "No other measured point of the workload finishes more tasks an hour per server without finishing fewer per agent.",
        "이 워크로드의 다른 어느 측정점도 에이전트당 작업을 줄이지 않고 서버당 작업을 더 끝내지 못합니다.",
    )),
)
# fmt: on
