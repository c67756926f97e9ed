"""The three sentences with which a report begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from harness.analysis.frames import Finding, RunAnalysis
from reports.headlines import headlines
from reports.verdict import last_line
from reports.wording import LANGUAGES, wording
from tests.reports import sample

EN = wording("en")


def quiet() -> RunAnalysis:
    """Return the small run without a finding."""
    return replace(sample.small(), findings=())


def agents(**changes: Any) -> RunAnalysis:
    """Return the quiet run with other figures in the agents of its leading arm over all workloads."""
    run = quiet()
    own = pl.col("workload").is_null() & (pl.col("arm") == "ngram-map-k")
    kinds = run.agents.schema
    return replace(
        run,
        agents=run.agents.with_columns(
            pl.when(own).then(pl.lit(value, kinds[name])).otherwise(pl.col(name)).alias(name)
            for name, value in changes.items()
        ),
    )


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_report_begins_with_three_sentences(lang: str) -> None:
    """Speed-up and break-even, agents per server, the language: each with a certainty of its own."""
    found = headlines(quiet(), wording(lang))
    assert [item.certainty for item in found] == ["clear", "limited", "clear"]
    assert all(part in found[0].text for part in ("1.42", "0.84", "6–14"))
    assert "[13–…]" in found[1].text
    assert "9 [8–11]" in found[1].text
    assert all(part in found[2].text for part in ("2.10", "2.90", "0.50–1.10", "25"))


def test_what_gives_reason_for_doubt_leaves_no_sentence_clear() -> None:
    """The small run has two warnings about the leading arm."""
    assert [item.certainty for item in headlines(sample.small(), EN)] == ["limited", "limited", "limited"]


def test_what_voids_one_sentence_voids_all() -> None:
    """No figure of a run that failed a validity check is said as if it held."""
    assert {item.certainty for item in headlines(sample.with_failures(), EN)} == {"invalid"}


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        ({"agents": 14, "agents_low": 12, "agents_high": 15, "interval": "both", "capacity": "found"}, "clear", "14 [12–15] agents"),
        ({"agents": 10, "agents_low": 9, "agents_high": 12, "interval": "both", "capacity": "found"}, "unsure", "10 [9–12] agents"),
        ({"agents": 6, "agents_low": 5, "agents_high": 7, "interval": "both", "capacity": "found"}, "clear", "6 [5–7] agents"),
        ({"agents": 12, "interval": "none"}, "unsure", "12 or more [–]"),
        ({"capacity": "none", "agents": 0, "interval": "both"}, "limited", "none (missed at 1 already)"),
        ({"capacity": "unknown", "agents": None}, "unknown", "cannot be said"),
    ],
)  # fmt: skip
def test_agents_are_called_different_only_where_their_intervals_are_apart(
    changes: dict[str, Any], level: str, words: str
) -> None:
    """Without a drafter the server carries 8 to 11."""
    if changes.get("capacity") == "none":
        changes |= {"agents_low": None, "agents_high": 2}
    found = headlines(agents(**changes), EN)[1]
    assert words in found.text
    assert found.certainty in (level, "clear" if changes.get("capacity") == "none" else level)


def test_percentiles_of_few_tasks_leave_the_agents_in_doubt() -> None:
    """Both ends of the interval are known, yet fewer tasks than p90 needs stand behind it; the other sentences stay as they are."""
    run = agents(agents=14, agents_low=12, agents_high=15, interval="both", capacity="found")
    values = {"objective": "task_time_p90", "concurrency": 1, "n_needed": 64, "n_tasks": 20}
    note = Finding("percentile_unsure", "note", run.summary["workload"][0], None, values)
    assert [item.certainty for item in headlines(run, EN)] == ["clear", "clear", "clear"]
    assert [item.certainty for item in headlines(replace(run, findings=(note,)), EN)] == ["clear", "limited", "clear"]


def test_agents_that_are_unknown_are_said_with_their_counts() -> None:
    """p90 needs ten tasks and p50 one: the more demanding one is named with what it needs, once for each arm that lacks it."""
    run = agents(capacity="unknown", agents=None, n_tasks=6)
    for item in run.manifest["workloads"]:
        item["slo"] = {"task_time_p50": "9s", "ttft_p90": "2s"}
    found = headlines(run, EN)[1]
    said = "cannot be said: ngram-map-k has 6 distinct tasks at its best load, ttft_p90 needs at least 10"
    assert (found.text, found.certainty) == (f"How many agents one server carries {said}.", "unknown")
    assert (
        "작업이 가장 많은 부하에서도 6개로, ttft_p90 산출에 필요한 10개에 미달" in headlines(run, wording("ko"))[1].text
    )


def test_agents_without_a_baseline_are_unknown_for_that_reason() -> None:
    """Nothing is said of too few tasks."""
    run = quiet()
    bare = replace(run, agents=run.agents.filter(pl.col("arm") != "baseline"))
    assert "no baseline to compare ngram-map-k with" in headlines(bare, EN)[1].text


def unfinished(run: RunAnalysis, failed: int = 0) -> RunAnalysis:
    """Return a run in which 5 of the 18 cells of one workload are there, and all of the other."""
    values = {
        "n_planned": 18,
        "n_done": 5,
        "n_failed": failed,
        "n_unfinished": 13 - failed,
        "missing": "ngram-mod at 4",
    }
    missing = Finding("cells_unfinished", "warning", "coding-en", None, values)
    return replace(run, findings=(*run.findings, missing))


@pytest.mark.parametrize(
    ("lang", "said"),
    [("en", "Cut run: 23 of 36 planned cells. "), ("ko", "중단된 실행: 계획한 셀 36개 중 23개만 측정됨. ")],
)
def test_each_sentence_of_a_cut_run_says_so_and_none_is_clear(lang: str, said: str) -> None:
    """Two workloads of 18 cells were planned, one is whole; the line at the end of the command says it, too."""
    run = unfinished(agents(agents=14, agents_low=12, agents_high=15, interval="both", capacity="found"))
    found = headlines(run, wording(lang))
    assert [item.text.startswith(said) for item in found] == [True] * 3
    assert {item.certainty for item in found} == {"limited"}
    assert said in last_line(run, lang)


def test_failed_cells_are_told_from_those_that_were_never_run() -> None:
    """Two of the cells that are missing were tried."""
    found = headlines(unfinished(quiet(), failed=2), EN)[0]
    assert found.text.startswith("Incomplete run: 23 of 36 planned cells, 2 failed. ")


def test_without_a_service_level_the_second_sentence_says_what_to_state() -> None:
    """Nobody asked how many agents are enough."""
    run = quiet()
    found = headlines(replace(run, agents=run.agents.clear()), EN)[1]
    assert (found.certainty, "(slo)" in found.text) == ("unknown", True)


def test_without_two_languages_the_third_sentence_is_about_the_outputs() -> None:
    """98 % of them are those of the baseline."""
    run = quiet()
    found = headlines(replace(run, language_loss=run.language_loss.clear()), EN)[2]
    assert found.text == "98 % of the outputs with ngram-map-k are identical to those of the baseline."
    assert found.certainty == "limited"


def test_a_run_without_a_verdict_has_no_sentences() -> None:
    """The page says why instead."""
    assert headlines(sample.empty(), EN) == []
