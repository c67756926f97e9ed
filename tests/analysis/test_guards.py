"""What makes a count of accepted tokens be about something else than the drafter is found, and stands beside the figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from harness.analysis.cautions import BEARING
from harness.analysis.run import analyse
from harness.analysis.validity import CODES
from harness.records import StepRecord
from tests.analysis.test_validity import LOOP, SPEC, both, found
from tests.builders import ARM, BASELINE, TEXT, cell, cell_key, counters, run_folder, solo_tasks, step, workload_entry

NOISE = "".join(chr(0xAC00 + 37 * i % 11_172) for i in range(120))
CALL = '<tool_call>find {"q": "a long black suitcase with two wheels"}</tool_call>'
BROKEN = '<tool_call>find {"q": "a long black suitcase with two wheels</tool_call>'
TURNS = f"{TEXT}\n<|im_start|>user\nThank you."
PAST = f"{TEXT}<|im_end|>\n{TEXT}"


def with_texts(folder: Path, records: Sequence[StepRecord], *texts: str, **entry: Any) -> dict[str, Any]:
    """Return the findings, by code, of a run whose steps wrote these texts."""
    run = run_folder(folder, records, None, [workload_entry(**entry)], texts=(TEXT, *texts))
    return {item.code: item for item in analyse(run).findings}


def test_every_caution_is_a_finding() -> None:
    """No caution names a finding that cannot be made."""
    assert set(BEARING) <= set(CODES)


def test_noise(tmp_path: Path) -> None:
    """An arm that writes syllables drawn blindly has broken weights: its acceptance is nobody's."""
    finding = with_texts(tmp_path, both(text=NOISE, language="ko"), NOISE)["random_output"]
    assert (finding.arm, finding.severity, finding.values["share"]) == (ARM, "invalid", 1)


@pytest.mark.parametrize(
    "options", [{"ignore_eos": True}, {"request": {"min_tokens": 64}}, {"flags": ["serve", "--ignore-eos"]}]
)
def test_an_end_of_text_that_the_settings_ask_to_ignore(tmp_path: Path, options: dict[str, Any]) -> None:
    """However deep the option stands, and whether in a request or among a server's flags, it is found for the arm that has it."""
    arms = [
        {"name": BASELINE, "method": "none", "options": {}},
        {"name": ARM, "method": "ngram-map-k", "options": options},
    ]
    finding = found(tmp_path, both(), arms=arms)["end_ignored"]
    assert (finding.arm, finding.values["sign"], finding.values["share"]) == (ARM, "asked", 0)


def test_an_option_that_is_off_is_no_finding(tmp_path: Path) -> None:
    """``ignore_eos: false`` and a least length of one token ask for nothing."""
    arms = [
        {"name": BASELINE, "method": "none", "options": {}},
        {"name": ARM, "method": "ngram-map-k", "options": {"ignore_eos": False, "min_tokens": 1}},
    ]
    assert "end_ignored" not in found(tmp_path, both(), arms=arms)


def test_text_behind_the_end_mark(tmp_path: Path) -> None:
    """Every answer of the arm goes on behind its end mark: invalid, with the sign by which it was seen."""
    finding = with_texts(tmp_path, both(text=PAST), PAST)["end_ignored"]
    assert (finding.severity, finding.values) == ("invalid", {"sign": "text", "share": 1.0, "n_steps": 10})


@pytest.mark.parametrize(("n_cut", "expected"), [(20, True), (19, False)])
def test_answers_that_never_end_by_themselves(tmp_path: Path, n_cut: int, expected: bool) -> None:
    """Twenty answers of twenty cut at the limit are told, without a claim of why; nineteen of twenty are a model that writes much."""
    records = both([100] * 20)
    ends = ["length" if i < n_cut else "stop" for i in range(20)]
    arm = [
        step(cell_key(), f"t{i}", due=100 * i, end=100 * i + 100, spec=SPEC, finish_reason=end)
        for i, end in enumerate(ends)
    ]
    finding = found(tmp_path, [*records[:20], *arm]).get("never_ended")
    assert (finding is not None) is expected
    if finding is not None:
        assert (finding.severity, finding.values) == ("note", {"n_steps": 20})


def test_a_model_without_its_chat_template(tmp_path: Path) -> None:
    """Answers that open the next turn themselves are what a model writes that was not shown whose turn it is."""
    finding = with_texts(tmp_path, both(text=TURNS), TURNS)["chat_template_missing"]
    assert (finding.arm, finding.severity, finding.values["share"]) == (ARM, "invalid", 1)


def test_prompts_that_the_server_cut(tmp_path: Path) -> None:
    """A second step whose prompt is as long as the first's, which it contains: one of two such steps of the arm is half of them."""
    records = [step(cell_key(arm), end=100) for arm in (BASELINE, ARM)]
    records += [
        step(cell_key(arm), "t1", index, due=100 * index, end=100 * index + 100)
        for arm in (BASELINE, ARM)
        for index in (1, 2)
    ]
    records[-1] = step(cell_key(), "t1", 2, due=200, end=300, prompt_tokens=60)
    findings = found(tmp_path, records)
    assert dict(findings["prompts_truncated"].values) == {"share": 0.5, "n_steps": 2, "example": "t1:2"}
    assert findings["prompts_truncated"].severity == "warning"
    assert dict(findings["prompts_differ"].values) == {
        "share": 1 / 3, "n_steps": 3, "example": "t1:2", "prompt_tokens": 60, "baseline_prompt_tokens": 70
    }  # fmt: skip


def test_prompts_of_another_template(tmp_path: Path) -> None:
    """Every prompt is four tokens longer in the arm than in the baseline: they did not do the same work."""
    finding = found(tmp_path, both(prompt_tokens=54))["prompts_differ"]
    assert (finding.severity, finding.values["prompt_tokens"], finding.values["baseline_prompt_tokens"]) == (
        "invalid",
        54,
        50,
    )


def test_prompts_that_hold_live_answers_may_differ(tmp_path: Path) -> None:
    """With the arms' own answers in later prompts only first steps must be equally long."""
    records = [step(cell_key(arm), end=100) for arm in (BASELINE, ARM)]
    records += [
        step(cell_key(), "t1", 1, due=100, end=200, prompt_tokens=99),
        step(cell_key(BASELINE), "t1", 1, due=100, end=200),
    ]
    assert "prompts_differ" not in found(tmp_path, records, history="live")


@pytest.mark.parametrize(("cached", "expected"), [(5, False), (25, True)])
def test_a_cell_that_begins_with_a_warm_cache(tmp_path: Path, cached: int, expected: bool) -> None:
    """The first request of a cell found half of its prompt in the cache: another cell left it there; a tenth is the template's head."""
    warm = step(cell_key(), "w", due=0, end=50, phase="warm_up", cached_tokens=cached)
    later = [
        step(cell_key(), f"t{i}", due=100 * i, end=100 * i + 100, spec=SPEC, cached_tokens=40) for i in range(1, 11)
    ]
    findings = found(tmp_path, [warm, *later, *solo_tasks(cell_key(BASELINE), [100] * 10)])
    assert ("cache_contaminated" in findings) is expected
    if expected:
        assert dict(findings["cache_contaminated"].values) == {"concurrency": [1], "n_cells": 1, "cached_share": 0.5}


@pytest.mark.parametrize(
    "spec", [counters(2, 4, 5), counters(14, 14, 0), counters(9, 36, 18, (9, 9, 0, 0))],
    ids=["more accepted than drafted", "more rounds than tokens", "more tokens than the answer"],
)  # fmt: skip
def test_counts_that_cannot_be_those_of_the_answer(tmp_path: Path, spec: Any) -> None:
    """An answer of eleven tokens holds no fourteen rounds, and no nine rounds that yielded 27 tokens."""
    records = both()
    records[-1] = step(cell_key(), "t10", due=900, end=1000, spec=spec)
    finding = found(tmp_path, records)["counts_impossible"]
    assert (finding.severity, dict(finding.values)) == ("invalid", {"share": 0.1, "n_steps": 10, "example": "t10:0"})


def test_an_answer_whose_last_round_was_cut_is_possible(tmp_path: Path) -> None:
    """Three rounds of four drafted tokens, all accepted, and the first token are 16; the limit cut them to 11."""
    assert "counts_impossible" not in found(
        tmp_path, both(spec=counters(3, 12, 12, (3, 3, 3, 3)), finish_reason="length")
    )


def test_counts_that_are_sums_over_the_server_s_life(tmp_path: Path) -> None:
    """Drafted tokens 4, 8, 12 … from request to request: no request's own."""
    arm = [
        step(cell_key(), f"t{i}", due=100 * i, end=100 * i + 100, spec=counters(i, 4 * i, 2 * i)) for i in range(1, 11)
    ]
    findings = found(tmp_path, [*solo_tasks(cell_key(BASELINE), [100] * 10), *arm])
    assert (findings["counts_cumulative"].severity, findings["counts_cumulative"].values) == (
        "invalid",
        {"n_steps": 10},
    )
    assert "counts_impossible" not in findings


def test_a_drafter_that_rarely_drafts_is_none_of_that(tmp_path: Path) -> None:
    """Nothing drafted in nine steps and three tokens in the last rises too, and is no sum."""
    specs = [counters(0, 0, 0)] * 9 + [counters(1, 3, 1)]
    arm = [step(cell_key(), f"t{i}", due=100 * i, end=100 * i + 100, spec=spec) for i, spec in enumerate(specs)]
    assert "counts_cumulative" not in found(tmp_path, [*solo_tasks(cell_key(BASELINE), [100] * 10), *arm])


def test_server_counters_that_went_back(tmp_path: Path) -> None:
    """Counters that are lower after the cell than before are told as that, not as somebody else's tokens."""
    ended = cell(cell_key(), server_before=counters(50, 200, 100), server_after=counters(10, 40, 20))
    findings = found(tmp_path, both(), [cell(cell_key(BASELINE)), ended])
    assert (findings["counters_went_back"].arm, findings["counters_went_back"].severity) == (ARM, "invalid")
    assert "counters_mismatch" not in findings


@pytest.mark.parametrize(("others", "expected"), [(None, False), (0, False), (3, True)])
def test_requests_of_others(tmp_path: Path, others: int | None, expected: bool) -> None:
    """Three requests of others in a cell are told; none, and a server that does not tell, are not."""
    cells = [cell(cell_key(BASELINE)), cell(cell_key(), foreign_requests=others)]
    finding = found(tmp_path, both(), cells).get("foreign_traffic")
    assert (finding is not None) is expected
    if finding is not None:
        assert dict(finding.values) == {"concurrency": [1], "n_cells": 1, "n_requests": 3}


def test_tool_calls_that_parse_in_one_arm_only(tmp_path: Path) -> None:
    """Of three steps with calls the baseline's first and the arm's second cannot be read by the other; the third is whole in both."""
    written = {BASELINE: (CALL, BROKEN, CALL), ARM: (BROKEN, CALL, CALL)}
    records = [
        step(cell_key(arm), f"t{i}", due=100 * i, end=100 * i + 100, kind="tool_call", language="code", text=text)
        for arm, texts in written.items()
        for i, text in enumerate(texts, start=1)
    ]
    finding = with_texts(tmp_path, records, CALL, BROKEN)["tool_calls_one_sided"]
    assert dict(finding.values) == {"n_steps": 3, "n_only_baseline": 1, "n_only_arm": 1, "example": "t1:0"}


def test_cautions_stand_in_the_rows_they_bear_on(tmp_path: Path) -> None:
    """Loops in Korean are a caution of the Korean rows and of those that pool languages, not of the English ones; cuts are one of all."""
    records = both([100] * 8, finish_reason="length")
    for arm in (BASELINE, ARM):
        for i in (8, 9):
            records.append(
                step(
                    cell_key(arm),
                    f"t{i + 1}",
                    due=100 * i,
                    end=100 * i + 100,
                    language="ko",
                    text=LOOP,
                    spec=SPEC if arm == ARM else None,
                )
            )
    run = analyse(run_folder(tmp_path, records, None, [workload_entry()], texts=(TEXT, LOOP)))
    frame = run.acceptance.filter(pl.col("concurrency").is_null() & pl.col("kind").is_null() & (pl.col("arm") == ARM))
    cautions = dict(frame.select("language", "cautions").iter_rows())
    assert cautions == {
        None: "repetitive_output output_language_mismatch cut_by_max_tokens",
        "ko": "repetitive_output output_language_mismatch cut_by_max_tokens",
        "en": "cut_by_max_tokens",
    }
    shares = dict(frame.select("language", "cut_share").iter_rows())
    assert shares == {None: 0.8, "ko": 0.0, "en": 1.0}
    baseline = run.acceptance.filter(pl.col("arm") == BASELINE)["cautions"]
    assert baseline.null_count() == baseline.len()  # it has no figure of acceptance to warn of
    for name in ("summary", "survival", "drafters"):
        frame = getattr(run, name).filter(pl.col("arm") == ARM)
        frame = frame.filter(pl.col("language").is_null()) if "language" in frame.columns else frame
        assert all("repetitive_output" in codes for codes in frame["cautions"].drop_nulls()), name
