"""Every sentence that a sizing can say, in both languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from harness.analysis.fleet import Assumptions
from harness.analysis.frames import PERCENTILES_SCHEMA, SIZING, TORNADO, Finding
from harness.analysis.sizing import Sizing, schema
from reports import sizing as rendered
from reports.wording import LANGUAGES, Wording, wording

SLO = "task_time_p90 ≤ 40s"
PLAIN = {
    "agents": 8, "agents_low": 7, "agents_high": 9, "capacity": "found", "servers": 13, "servers_low": 12, "servers_high": 15,
    "agents_per_server": 7.7, "task_time_mean_s": 20.0, "fleet_tasks_per_hour": 18_000.0,
}  # fmt: skip
COSTS = {
    "cost_per_1000_tasks": 3.0,
    "cost_per_1000_tasks_low": 2.0,
    "cost_per_1000_tasks_high": 5.0,
    "cost_per_year": 9e4,
}


def sizing(*arms: dict[str, Any], tornado: tuple[dict[str, Any], ...] = (), **changes: Any) -> Sizing:
    """Return a sizing of a baseline with 20 servers and the given arms; ``changes`` are fields of it or of its assumptions."""
    power = changes.get("power_watts")
    bare = PLAIN | {"arm": "baseline", "servers": 20, "servers_low": 18, "servers_high": 22, "power_watts": power}
    rows = [dict.fromkeys(SIZING) | row for row in (bare, *(PLAIN | {"arm": "eagle3"} | arm for arm in arms))]
    moved = [dict.fromkeys(TORNADO) | {"arm": "eagle3", "source": "stated"} | row for row in tornado]
    fields = {name: changes.pop(name) for name in ("doubts", "reasons", "baseline", "arms") if name in changes}
    given = Assumptions(agents=100, mix={"office": 1.0})
    return replace(
        Sizing(
            run="runs/x",
            assumptions=replace(given, **changes),
            slo=SLO,
            baseline="baseline",
            arms=pl.DataFrame(rows, schema=schema(SIZING)),
            tornado=pl.DataFrame(moved, schema=schema(TORNADO)),
            percentiles=pl.DataFrame(schema=PERCENTILES_SCHEMA),
            doubts=(),
            reasons={},
        ),
        **fields,
    )


def moved(assumption: str, **values: Any) -> dict[str, Any]:
    """Return one row of a tornado table."""
    plain = {
        "value": 8.0,
        "value_low": 7.0,
        "value_high": 9.0,
        "servers_at_low": 15,
        "servers_at_high": 12,
        "swing": 0.3,
    }
    return {"assumption": assumption} | plain | values


UNKNOWN = {name: None for name in PLAIN if name != "capacity"}
FAILED = {"load": 1, "n": 6, "failed": 4, "objective": SLO}
CASES: dict[str, tuple[Sizing, str, str]] = {
    "without a price": (
        sizing({"servers_saved": 7, "servers_saved_low": 5, "servers_saved_high": 8}),
        "eagle3: 13 servers (95 % interval 12–15) for 100 agents at task_time_p90 ≤ 40s. That is 7 fewer than without a drafter "
        "(baseline; 95 % interval of the difference 5–8",
        "eagle3: 에이전트 100개 기준 서버 13대(95 % 구간 12–15), 서비스 수준 task_time_p90 ≤ 40s. 드래프터 미사용(baseline; 차이의 95 % "
        "구간 5 ~ 8",
    ),
    "more servers than the baseline": (
        sizing({"servers": 25, "servers_saved": -5, "servers_saved_low": -9, "servers_saved_high": -2}),
        "That is 5 more than without a drafter (baseline; 95 % interval of the difference 2–9",
        "대비 5대 많음",
    ),
    "the same number": (
        sizing({"servers": 20, "servers_saved": 0, "servers_saved_low": -1, "servers_saved_high": 2}),
        "As many as without a drafter (baseline; 95 % interval of the difference -1–2",
        "과 같음",
    ),
    "no drafter gain shown, too few tasks": (
        sizing({"servers_saved": 7}),
        "No difference in servers is shown to no drafter (baseline; no interval of the difference",
        "서버 대수의 차이가 확인되지 않음",
    ),
    "one end of the difference": (
        sizing({"servers_saved": 7, "servers_saved_low": 2}),
        "95 % interval of the difference 2–…",
        "차이의 95 % 구간 2 ~ …",
    ),
    "no baseline": (sizing({}, baseline=None), "what the drafter saves cannot be said", "절감 서버 대수는 산정할 수 없음"),
    "kept at the highest load": (
        sizing({"capacity": "at_least", "servers_low": None}),
        "(95 % interval: 15 or fewer; the highest load tried was kept too, so fewer may do)",
        "(95 % 구간: 15 이하; 측정한 최고 부하에서도",
    ),
    "no upper end": (sizing({"servers_high": None}), "12 or more, how many more is not known", "12 이상, 상한은 알 수 없음"),
    "no interval": (sizing({"servers_low": None, "servers_high": None}), "(no interval: too few tasks", "(구간 없음: 작업 수가"),
    "a price, no power": (
        sizing(COSTS, price=8000.0, years=4.0, kwh_price=0.2, currency="EUR"),
        "1,000 tasks cost 3 [2–5] EUR at best",
        "작업 1,000개당 비용은 3 [2–5] EUR",
    ),
    "a price without an interval": (
        sizing(COSTS | {"cost_per_1000_tasks_low": None, "cost_per_1000_tasks_high": None}, price=8000.0, years=4.0),
        "1,000 tasks cost 3 (no interval) at best",
        "3(구간 없음)",
    ),
    "power, no price": (
        sizing({"power_watts": 700.0}, power_watts=700.0),
        "Costs are left out; give --price, --years and --kwh-price too.",
        "비용은 산정에서 제외되어 있습니다. --price, --years, --kwh-price도 입력하십시오.",
    ),
    "no service level for lack of tasks": (
        sizing({**UNKNOWN, "capacity": "unknown"}, reasons={"eagle3": {"key": "few", "n": 6, "needed": 10}}),
        "eagle3: no figure, too few tasks for the percentiles of the service level: there are 6 distinct tasks, at least 10",
        "eagle3: 수치 없음, 서비스 수준의 백분위수를 구하기에 작업 수가 부족함(서로 다른 작업 6개, 적어도 10개 필요).",
    ),
    "unknown agents": (sizing(UNKNOWN, reasons={"eagle3": {"key": "unknown"}}), "it cannot be said", "알 수 없음"),
    "none carried": (sizing(UNKNOWN, reasons={"eagle3": {"key": "none"}}), "is missed at the lowest", "충족하지 못함"),
    "all failed": (sizing(UNKNOWN, reasons={"eagle3": {"key": "all_failed", **FAILED}}), "all 6 failed", "6개 모두 실패함"),
    "some failed": (sizing(UNKNOWN, reasons={"eagle3": {"key": "failed", **FAILED}}), "4 of 6 failed", "4개가 실패하여"),
    "missed": (
        sizing(UNKNOWN, reasons={"eagle3": {"key": "missed", **FAILED, "observed": 52.0, "metric": "task_time"}}),
        "task_time_p90 ≤ 40s is asked, 52.0 s was measured",
        "목표 task_time_p90 ≤ 40s, 측정값 52.0 s",
    ),
    "a mix": (sizing({}, mix={"office": 0.6, "code": 0.4}), "office 60.0 %, code 40.0 %", "office 60.0 %, code 40.0 %"),
    "what moves it": (
        sizing(
            {},
            tornado=(moved("headroom", value_low=0.1, value_high=0.3), moved("years", servers_at_low=None, value_low=None),
                     moved("task_time", source="measured", swing=None, value_low=None, value_high=None)),
        ),
        "What moves the answer of eagle3 most: headroom (30.0 % between 10.0 % and 30.0 %).",
        "eagle3의 결과에 가장 큰 영향을 미치는 가정: 여유율(10.0 %–30.0 %에서 변동 폭 30.0 %).",
    ),
    "doubts": (
        sizing(
            {},
            doubts=(
                Finding("few_tasks", "warning", "office", None, {"n_tasks": 6}),
                Finding("percentile_unsure", "note", "office", None,
                        {"objective": "task_time_p90", "concurrency": 1, "n_needed": 64, "n_tasks": 12}),
                Finding("cells_unfinished", "warning", "office", None,
                        {"n_planned": 24, "n_done": 9, "n_failed": 0, "n_unfinished": 15, "missing": "eagle3 at 8"}),
            ),
        ),
        "Reasons for doubt: cut run: 9 of 24 planned cells, ",
        "유의 사유: 중단된 실행: 계획한 셀 24개 중 9개만 측정됨, ",
    ),
    "hours": (sizing({}, hours=2000.0, price=1.0, years=1.0, power_watts=1.0), "2,000", "2,000"),
}  # fmt: skip


def said(given: Sizing, lang: str) -> str:
    """Return everything that the command, its page and its last line say, tags left out."""
    page = re.sub(r"<style>.*?</style>|<[^>]+>", " ", rendered.render(given, lang), flags=re.DOTALL)
    return "\n".join((rendered.console(given, lang), rendered.headline(given, lang), page))


@pytest.mark.parametrize("name", CASES)
def test_each_branch_is_said_in_both_languages(name: str) -> None:
    """The words of the branch stand there, no place is left unfilled, and nothing of the program shows through."""
    given, en, ko = CASES[name]
    for lang, words in (("en", en), ("ko", ko)):
        text = said(given, lang)
        lines = "\n".join((*rendered.sentences(given, wording(lang)), rendered.headline(given, lang)))
        assert words in text
        assert not re.search(r"\{\w*\}|\bNone\b|\bnan\b", lines)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Collect the keys of all texts that are asked for."""
    keys: set[str] = set()
    plain = Wording.text

    def noted(self: Wording, key: str, /, **values: Any) -> str:
        keys.add(key)
        return plain(self, key, **values)

    monkeypatch.setattr(Wording, "text", noted)
    yield keys


def test_no_wording_of_a_sizing_is_left_untried(used: set[str]) -> None:
    """The cases above ask for every text that begins with ``sizing.``: a new one needs a case."""
    for given, _, _ in CASES.values():
        said(given, "en")
    for lang in LANGUAGES:
        assert {key for key in wording(lang).texts if key.startswith("sizing.")} - used == set()
