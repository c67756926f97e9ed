"""Console tables and CSV files."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from harness.analysis import frames
from harness.analysis.frames import Finding
from reports.tables import CSV_FRAMES, FINDINGS, VERDICTS, break_even, console, guarded, table, write_csv
from reports.verdict import last_line
from reports.wording import LANGUAGES, UNKNOWN, text_width, wording
from tests.reports import sample

RUNS = (sample.small, sample.with_failures, sample.one_cell, sample.empty)


def table_lines(text: str) -> list[str]:
    """Return the lines of the first block: the summary table."""
    return text.partition("\n\n")[0].split("\n")


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_summary_table_keeps_to_the_width(lang: str, width: int) -> None:
    """Columns are dropped until it fits; workload, arm, concurrency and speed-up always stay."""
    text = console(sample.small(), lang, width)
    assert max(map(text_width, table_lines(text))) <= width
    assert all(word in text for word in ("office-ko", "ngram-map-k", "1.42 [1.31–1.55]"))


def test_hangul_headers_do_not_shift_the_columns() -> None:
    """Every line of a Korean table is as wide as the rule below its header."""
    lines = table_lines(console(sample.small(), "ko", 120))
    rule = next(line for line in lines if line.startswith("---"))
    assert {text_width(line) for line in lines if "ngram" in line or "[95" in line} == {text_width(rule)}


def test_the_console_leaves_the_verdict_to_the_last_line() -> None:
    """The caller prints it last, once; the other arms are said before."""
    run = sample.small()
    text = console(run, "en")
    assert last_line(run, "en") not in text
    assert "  ngram-mod (2 workloads pooled, by workload 0.93–1.31x at concurrency 1) finishes tasks 0.97 times" in text


def test_a_finding_of_many_arms_is_said_once_and_a_flood_is_cut() -> None:
    """Twelve lines at most, with the count of the rest."""
    alike = [Finding("few_tasks", "warning", "office-ko", arm, {"n_tasks": 3}) for arm in ("a", "b", "c")]
    text = console(replace(sample.small(), findings=tuple(alike)), "en")
    assert text.count("Few distinct tasks") == 1
    assert "(and 2 more like it)" in text
    flood = tuple(Finding("few_tasks", "warning", f"w{index}", None, {"n_tasks": 3}) for index in range(15))
    text = console(replace(sample.small(), findings=flood), "en")
    assert text.count("Few distinct tasks") == 12
    assert "3 more in report.html" in text


def test_unknown_is_a_dash_on_the_console() -> None:
    """The baseline has no acceptance length, which is not 0."""
    line = next(line for line in console(sample.small(), "en").split("\n") if "baseline" in line)
    assert UNKNOWN in line


def test_a_message_from_outside_cannot_break_a_line_of_the_console() -> None:
    """An engine's message of two lines stays on one."""
    lines = console(sample.with_failures(), "en").split("\n")
    assert any("HYPERLINK" in line and "둘째 줄" in line for line in lines)


def test_bounds_are_shown_with_their_estimate() -> None:
    """A speed-up is never shown without its interval where there is one."""
    content = table(sample.small().speed_up.head(1), ("workload", "speed_up"), wording("en"), "")
    assert content.headers == ("Workload", "Speed-up (x) [95\u00a0%]")
    assert content.rows == (("coding-en" if content.rows[0][0] == "coding-en" else "office-ko", "1.42 [1.31–1.55]"),)


@pytest.mark.parametrize("make", RUNS)
def test_every_frame_is_a_csv_with_its_machine_names(make: object, tmp_path: Path) -> None:
    """One header line, as many rows as the frame, also when there are none."""
    run = make()  # type: ignore[operator]
    paths = write_csv(run, tmp_path)
    assert [path.stem for path in paths] == [*CSV_FRAMES, "offer", "pareto", "findings", "verdicts"]
    for path in paths[: len(CSV_FRAMES)]:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            header, *rows = list(csv.reader(stream))
        assert tuple(header) == getattr(frames, path.stem.upper())
        assert len(rows) == getattr(run, path.stem).height


def test_a_csv_opens_in_a_korean_excel(tmp_path: Path) -> None:
    """Byte order mark in front, every line ends in CR LF."""
    write_csv(sample.small(), tmp_path)
    data = (tmp_path / "summary.csv").read_bytes()
    assert data.startswith(b"\xef\xbb\xbfworkload,arm,")
    assert data.count(b"\n") == data.count(b"\r\n") == 19


def test_unknown_is_an_empty_field_and_not_nought(tmp_path: Path) -> None:
    """Null and NaN are both empty; 0 stays 0."""
    summary = sample.small().summary.head(1).with_columns(speed_up=pl.lit(float("nan")))
    write_csv(replace(sample.small(), summary=summary), tmp_path)
    with (tmp_path / "summary.csv").open(encoding="utf-8-sig", newline="") as stream:
        row = next(csv.DictReader(stream))
    assert (row["speed_up"], row["acceptance_length"], row["n_steps_failed"]) == ("", "", "0")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "＋", "－", "＝", "＠"])
def test_text_that_a_spreadsheet_would_run_gets_an_apostrophe(start: str) -> None:
    """Task names and error messages come from outside."""
    plain = ["Zettel", "가나다", None]
    frame = pl.DataFrame({"task_id": [f"{start}1+1", "a=b", None], "kind": plain, "late_ms": [-1.0, 2.0, None]})
    assert guarded(frame).to_dict(as_series=False) == {
        "task_id": [f"'{start}1+1", "a=b", None],
        "kind": plain,
        "late_ms": [-1.0, 2.0, None],
    }


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_row_that_pools_says_so(tmp_path: Path) -> None:
    """Empty means unknown; a pooled concurrency is not."""
    write_csv(sample.small(), tmp_path)
    assert {row["concurrency"] for row in read(tmp_path / "acceptance.csv")} == {"(all)", "1", "4", "16"}
    assert {row["kind"] for row in read(tmp_path / "survival.csv")} == {"(all)"}
    assert read(tmp_path / "break_even.csv")[0]["workload"] == "(all)"


def test_findings_and_verdicts_are_files_too(tmp_path: Path) -> None:
    """A program learns how certain a figure is without reading the page."""
    write_csv(sample.small(), tmp_path)
    first, *others = read(tmp_path / "findings.csv")
    assert tuple(first) == FINDINGS
    assert (first["severity"], first["code"]) == ("warning", "output_language_mismatch")
    assert first["values"] == '{"language": "ko", "share": 0.62, "n_steps": 144}'
    assert others[0]["arm"] == "(all)"
    pooled = read(tmp_path / "verdicts.csv")[0]
    assert tuple(pooled) == VERDICTS
    assert (pooled["workload"], pooled["certainty"], pooled["n_tasks"], pooled["consistent"]) == (
        "(all)",
        "limited",
        "12",
        "true",
    )
    assert (pooled["speed_up_first"], pooled["speed_up_first_low"], pooled["unmeasured"]) == ("1.42", "1.31", "")


def test_an_open_break_even_is_shown_open_and_its_side_as_an_estimate() -> None:
    """The widest interval does not look like the surest figure, and a side without bounds is not stated."""
    run = sample.small()
    names = ("workload", "arm", "break_even", "side", "n_tasks")
    wide = run.break_even.with_columns(
        break_even_low=pl.lit(None, pl.Float64), break_even_high=pl.lit(None, pl.Float64), interval=pl.lit("open_both")
    )
    shown = break_even(replace(run, break_even=wide), names, wording("en"), "")
    assert shown.headers[-1] == "Distinct tasks"
    assert shown.rows[0] == ("all", "ngram-map-k", "9 […–…]", "break-even inside the range", "12")
    assert shown.rows[5][2:4] == ("13 […–…]", "estimate crosses 1 (not confirmed)")
    none = break_even(replace(run, break_even=wide.with_columns(interval=pl.lit("none"))), names, wording("en"), "")
    assert none.rows[0][2] == "9 [–]"


def test_the_console_marks_figures_of_acceptance_and_says_why() -> None:
    """The arm whose outputs are in another language has a sign behind its figures and a line below the table; the other arm has none."""
    text = console(sample.small(), "en", 200)
    assert "2.31 ⚠" in text
    assert "Acceptance of office-ko · ngram-map-k: ⚠ another language, cut at the token limit" in text
    assert "ngram-mod: ⚠" not in text
    korean = console(sample.small(), "ko", 200)
    assert "office-ko · ngram-map-k의 수락 수치: ⚠ 다른 언어, 토큰 한도에서 잘림" in korean


def test_csv_files_have_cautions_by_code(tmp_path: Path) -> None:
    """A program reads codes; a row that nothing speaks against has an empty field."""
    write_csv(sample.small(), tmp_path)
    for name in ("summary", "acceptance", "survival", "drafters", "verdicts"):
        frame = pl.read_csv(tmp_path / f"{name}.csv")
        own = frame.filter((pl.col("workload") == "office-ko") & (pl.col("arm") == "ngram-map-k"))
        assert set(own["cautions"]) == {"output_language_mismatch cut_by_max_tokens"}, name
        assert (
            frame.filter(pl.col("arm") == "ngram-mod")["cautions"].null_count() == (frame["arm"] == "ngram-mod").sum()
        )
