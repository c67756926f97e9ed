"""The HTML page."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from harness.analysis import frames
from harness.analysis.frames import RunAnalysis
from harness.analysis.run import analyse
from harness.columns import COLUMNS
from harness.records import ENGINE_DIED
from reports.page import render, sections
from reports.sections import Section
from reports.trust import errors, not_measured, rerun, settings, started, tables
from reports.wording import LANGUAGES, wording
from tests.builders import cell, cell_key, run_folder, step
from tests.reports import sample
from tests.reports.conftest import RUNS, Pages

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """Collects the tags of a page and checks that they nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Check that the innermost open tag is the one that ends."""
        assert self.open.pop() == tag

    def all(self, *names: str) -> list[dict[str, str | None]]:
        """Return the attributes of every tag of these names."""
        return [attrs for tag, attrs in self.tags if tag in names]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", RUNS)
def test_a_page_is_well_formed_and_loads_nothing(pages: Pages, name: str, lang: str) -> None:
    """No script, no link, no frame, no address but anchors into the page, and a policy that forbids the rest."""
    reader = Reader(pages[name, lang])
    assert reader.open == []
    assert reader.all("script", "link", "iframe", "object", "embed", "img", "base", "form") == []
    assert {key for _, attrs in reader.tags for key in attrs} & {
        "src",
        "srcset",
        "action",
        "xlink:href",
        "onclick",
        "onload",
    } == set()
    assert all((attrs["href"] or "").startswith("#") for attrs in reader.all("a"))
    policy = next(
        attrs["content"] for attrs in reader.all("meta") if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert "@import" not in pages[name, lang]
    assert reader.all("html")[0]["lang"] == lang


@pytest.mark.parametrize("name", RUNS)
def test_headings_are_in_order_and_every_id_counts_once(pages: Pages, name: str) -> None:
    """One h1, then h2; every anchor has its place."""
    reader = Reader(pages[name, "ko"])
    headings = [tag for tag, _ in reader.tags if tag in ("h1", "h2", "h3", "h4")]
    assert headings == ["h1", *["h2"] * (len(headings) - 1)]
    ids = [attrs["id"] for _, attrs in reader.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    assert {(attrs["href"] or "")[1:] for attrs in reader.all("a")} <= set(ids)
    assert {attrs["aria-labelledby"] for _, attrs in reader.tags if "aria-labelledby" in attrs} <= set(ids)


def test_the_parts_come_in_the_order_in_which_they_are_read() -> None:
    """After the verdict what a buyer signs, glossary last."""
    assert [section.id for section in sections(sample.small(), wording("en"))] == [
        "offer", "verdicts", "speed-up", "task-time", "acceptance", "language-loss", "survival", "drafters", "pareto", "predicted",
        "lossless", "objectives", "findings", "not-measured", "trust", "glossary",
    ]  # fmt: skip


def test_every_chart_stands_beside_its_table() -> None:
    """No drawing without its figures."""
    drawn = [section for section in sections(sample.small(), wording("en")) if section.charts]
    assert len(drawn) == 6
    assert all(section.tables and section.lead for section in drawn)
    assert all(chart.says for section in drawn for chart in section.charts)


@pytest.mark.parametrize("make", [sample.one_cell, sample.empty])
def test_a_part_without_a_chart_says_why(make: Any) -> None:
    """An empty space is never left unexplained."""
    parts = {section.id: section for section in sections(make(), wording("en"))}
    for name in ("speed-up", "task-time", "acceptance", "survival", "lossless"):
        assert parts[name].charts == ()
        assert parts[name].notes


def test_texts_from_outside_are_escaped(pages: Pages) -> None:
    """An error message with markup is shown as it is, and runs nothing."""
    page = pages["with_failures", "en"]
    assert "<script" not in page
    assert "&lt;script&gt;alert" in page
    assert "never_heard_of: what=&lt;b&gt;x&lt;/b&gt;" in page


def test_an_empty_run_says_that_nothing_can_be_said(pages: Pages) -> None:
    """No verdict, and the reason in its place."""
    assert "nothing can be said, no cell was finished" in pages["empty", "en"]


def test_every_column_is_in_the_glossary(pages: Pages) -> None:
    """A reader finds every name of the CSV files."""
    assert all(f"({name})" in pages["small", "ko"] for name in COLUMNS)


def test_wide_tables_scroll_in_their_own_box_and_print_whole(pages: Pages) -> None:
    """On a phone the page itself never scrolls sideways; on paper the head is repeated."""
    page = pages["small", "ko"]
    reader = Reader(page)
    assert len(reader.all("table")) == len([attrs for attrs in reader.all("div") if attrs.get("class") == "scroll"])
    assert "display: table-header-group" in page
    assert "prefers-color-scheme: dark" in page


def test_settings_of_the_arms_are_told_apart_from_common_ones() -> None:
    """What differs between arms stands side by side; what does not is listed once."""
    differing, same = settings(sample.manifest(), wording("en"))
    assert ("flags.spec_type", "–", "ngram-map-k", "ngram-mod") in differing
    assert same["flags.threads"] == "1"
    assert not {row[0] for row in differing} & set(same)


def test_flags_given_as_a_command_line_are_compared_one_by_one() -> None:
    """Two launch commands that differ in one flag differ in one row."""
    arms = {
        "a": {"command": ["server", "--threads", "1", "--mlock"]},
        "b": {"command": ["server", "--threads", "2", "--mlock"]},
    }
    differing, same = settings({"engine": {"arms": arms}}, wording("en"))
    assert differing == [("--threads", "1", "2")]
    assert same == {"command": "server", "--mlock": "yes"}


def test_the_command_to_run_again_is_quoted_for_a_shell() -> None:
    """A path with a space survives being pasted."""
    assert rerun({"argv": ["run", "my file.yaml"]}) == "harness run 'my file.yaml'"
    assert rerun({}) is None


def test_what_was_not_measured_names_the_arms() -> None:
    """An arm whose acceptance the engine does not tell is named; one that it tells is not."""
    found = " ".join(not_measured(sample.with_failures(), wording("en")))
    assert "Acceptance of ngram-mod: the engine does not tell it." in found
    assert "Concurrencies outside 1–16" in found


@pytest.mark.parametrize("given", [["--out", "runs/a"], ["--out=runs/a"], ["--ou", "runs/a"]])
def test_a_run_is_started_again_in_a_folder_of_its_own(given: list[str]) -> None:
    """The old folder holds the old run, and a second run there is refused."""
    assert rerun({"argv": ["run", "a.yaml", *given, "--quick"]}) == "harness run a.yaml --quick"


def test_the_tail_that_is_cut_off_on_purpose_is_no_error() -> None:
    """One failed step and one cancelled cool-down step are one error."""
    run = sample.small()
    steps = run.steps.head(2).with_columns(
        phase=pl.Series(["counted", "cool_down"]),
        error_kind=pl.Series(["timeout", "cancelled"]),
        error_message=pl.Series(["no answer", "cut off"]),
    )
    rows = errors(replace(run, steps=steps), wording("en")).rows
    assert [(row[3], row[4]) for row in rows] == [("timeout", "1")]


def test_what_ran_stands_beside_what_was_planned() -> None:
    """Two runs of one task, of twelve planned."""
    run = sample.small()
    one = {"workload": "office-ko", "arm": "baseline", "phase": "counted", "task_id": "t1"}
    ran = replace(run, tasks=sample.frame(frames.TASKS, [one | {"repeat": 1}, one | {"repeat": 2}]))
    rows = [row for item in tables(ran, wording("en")) for row in item.rows]
    assert ("counted", "1 of 12 tasks, 2 runs of tasks") in rows


def test_machine_and_times_are_written_for_people() -> None:
    """Bytes have a unit, a time has no T and no offset, yes is a word."""
    rows = [row for item in tables(sample.small(), wording("ko")) for row in item.rows]
    assert ("memory_bytes", "8.0 GiB") in rows
    assert ("상태", "완료") in rows
    assert started({"created": "2026-11-29T18:30:00+09:00"}) == "2026-11-29 09:30 UTC"
    assert not any("True" in cell or "False" in cell for row in rows for cell in row)


def parts(run: RunAnalysis) -> dict[str, Section]:
    """Return the parts of a page by name."""
    return {section.id: section for section in sections(run, wording("en"))}


def test_acceptance_has_its_cautions_in_its_row() -> None:
    """Korean outputs of one arm on one workload are in another language and cut; the rest is not marked, in no table of acceptance."""
    found = parts(sample.small())
    shown = found["acceptance"].tables[0]
    assert shown.headers[-1] == "Cautions"
    marked = {row[:3] for row in shown.rows if row[-1]}
    assert marked == {("office-ko", "ngram-map-k", "Korean")}
    for content in (*found["acceptance"].tables, *found["survival"].tables, *found["drafters"].tables):
        assert content.headers[-1] == "Cautions"
        assert {row[-1] for row in content.rows if "office-ko" in row and "ngram-map-k" in row} == {
            "⚠ another language, cut at the token limit"
        }
        assert {row[-1] for row in content.rows if "ngram-mod" in row} == {""}
    verdicts = found["verdicts"].tables[0]
    assert verdicts.headers[-2] == "Cautions"
    assert {row[:2]: row[-2] for row in verdicts.rows}[
        "all", "ngram-map-k"
    ] == "⚠ another language, cut at the token limit"


def test_the_printed_acceptance_length_can_be_checked_against_its_columns() -> None:
    """Accepted tokens of known rounds and the number of such steps stand beside the rounds."""
    headers = parts(sample.small())["acceptance"].tables[0].headers
    assert {"Steps with known rounds", "Rounds", "Accepted in known rounds"} <= set(headers)


def test_times_are_told_by_step_kind_and_language() -> None:
    """One row a kind and language, all loads together."""
    shown = parts(sample.small())["task-time"].tables[2]
    assert shown.headers[-3:] == ("TTFT p50 (s)", "TPOT p50 (ms)", "Step latency p50 (s)")
    assert ("office-ko", "ngram-mod", "Korean", "tool call", "24", "0.300", "20.0", "1.90") in shown.rows


def test_runs_of_tasks_and_distinct_tasks_have_two_headers() -> None:
    """A reader who compares the two tables sees why the counts differ."""
    found = parts(sample.small())
    assert "Task runs" in found["task-time"].tables[0].headers
    assert "Distinct tasks" in found["speed-up"].tables[0].headers


def test_cells_and_rounds_are_explained(pages: Pages) -> None:
    """Words that the definitions use and that are no columns."""
    assert "the unit of measurement" in pages["small", "en"]
    assert "측정의 단위" in pages["small", "ko"]


@pytest.mark.parametrize(
    ("lang", "died", "none_failed"),
    [
        ("en", "The engine ended 1 time(s) in 1 cell(s)", "No step failed in the attempts that count."),
        ("ko", "1번 비정상 종료되었습니다", "집계한 시도에서 실패한 단계가 없습니다."),
    ],
)
def test_a_cell_that_was_run_again_is_told(tmp_path: Path, lang: str, died: str, none_failed: str) -> None:
    """The failed steps of a first attempt are left out; the page says that there was one, and of which attempts it speaks."""
    first = step(cell_key(), end=100, error_kind="engine_dead")
    ended = [cell(cell_key(), "failed", error_message=ENGINE_DIED), cell(cell_key(), attempt=2)]
    run = run_folder(tmp_path, [first, step(cell_key(), attempt=2)], ended)
    page = render(analyse(run), lang)
    assert died in page
    assert none_failed in page
