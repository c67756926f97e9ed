"""The Excel workbook, read back with another library."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import openpyxl  # type: ignore[import-untyped]
import polars as pl
import pytest

from harness.errors import RunFolderError, UsageError
from reports.files import write_all
from reports.workbook import write_workbook
from tests.reports import sample


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> openpyxl.Workbook:
    """Return the workbook of the run with failures, read back."""
    return openpyxl.load_workbook(
        write_workbook(sample.with_failures(), tmp_path_factory.mktemp("book") / "report.xlsx", "ko")
    )


def test_the_sheets_are_named_in_the_language_of_the_report(book: openpyxl.Workbook) -> None:
    """One sheet a frame, summary first."""
    assert book.sheetnames == [
        "요약", "구성별 수용", "속도 향상", "손익분기", "판정에 필요한 반복 및 작업 수", "서버와 에이전트", "수락", "언어 손실", "생존율",
        "드래프터", "무손실", "서버당 에이전트", "SLO", "백분위수", "합격 기준", "예측(모형)", "손익분기(모형)", "비용 모형", "셀",
        "작업", "단계", "타당성", "용어",
    ]  # fmt: skip


def test_headers_carry_units_and_stay_in_sight(book: openpyxl.Workbook) -> None:
    """Row 2 holds the headers and is frozen."""
    sheet = book["요약"]
    assert sheet.freeze_panes == "A3"
    assert [cell.value for cell in sheet[2]][:3] == ["워크로드", "구성", "동시 작업 수"]
    assert "작업 시간 평균 (s)" in [cell.value for cell in sheet[2]]


def test_figures_are_numbers_and_unknown_is_empty(book: openpyxl.Workbook) -> None:
    """A spreadsheet can reckon with them."""
    sheet = book["요약"]
    names = [cell.value for cell in sheet[2]]
    first = dict(zip(names, [cell.value for cell in sheet[3]], strict=True))
    assert first["구성"] == "baseline"
    assert first["작업 실행 수"] == 12
    assert first["수락 길이"] is None
    share = sheet.cell(6, names.index("동일 출력 비율 (%)") + 1)
    assert (share.value, share.number_format) == (0.98, "0.0%")


def test_text_from_outside_is_never_a_formula(book: openpyxl.Workbook) -> None:
    """An error message that begins with = stays a message."""
    cells = [
        cell
        for row in book["단계"].iter_rows(min_row=3)
        for cell in row
        if isinstance(cell.value, str) and "HYPERLINK" in cell.value
    ]
    assert cells
    assert {cell.data_type for cell in cells} == {"s"}


def test_the_speed_up_has_a_native_chart_for_each_workload(tmp_path: Path) -> None:
    """One series an arm, over the sheet's own cells."""
    with zipfile.ZipFile(write_workbook(sample.small(), tmp_path / "report.xlsx", "en")) as archive:
        drawings = [name for name in archive.namelist() if name.startswith("xl/charts/chart")]
        xml = archive.read(drawings[0]).decode()
    assert len(drawings) == 2
    assert xml.count("<c:ser>") == 2
    assert "<c:f>'Speed-up'!$C$3:$C$5</c:f>" in xml


def test_infinite_and_nan_become_unknown(tmp_path: Path) -> None:
    """Excel has no cell for either."""
    run = sample.small()
    odd = pl.Series("tasks_per_hour", [float("nan"), float("inf"), 2.0] * 6)
    path = write_workbook(replace(run, summary=run.summary.with_columns(odd)), tmp_path / "report.xlsx", "en")
    sheet = openpyxl.load_workbook(path)["Summary"]
    column = [cell.value for cell in sheet[2]].index("Tasks/h") + 1
    assert [sheet.cell(row, column).value for row in (3, 4, 5)] == [None, None, 2]


@pytest.mark.parametrize("make", [sample.empty, sample.one_cell])
def test_a_run_with_next_to_nothing_still_makes_every_file(make: object, tmp_path: Path) -> None:
    """A killed run has a report too."""
    paths = write_all(make(), tmp_path / "new" / "run", "ko")  # type: ignore[operator]
    assert paths.html.stat().st_size > 0
    assert paths.workbook.stat().st_size > 0
    assert len(paths.csv) == 23


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The message says which file and what to do."""
    (tmp_path / "report.xlsx").mkdir()
    with pytest.raises(RunFolderError, match=r"cannot write .*report\.xlsx.*choose another folder"):
        write_all(sample.empty(), tmp_path, "en")


def test_an_unknown_language_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Nothing half-written is left behind."""
    with pytest.raises(UsageError):
        write_all(sample.empty(), tmp_path, "de")
    assert list(tmp_path.iterdir()) == []


def test_a_step_sheet_that_is_cut_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rows and the count of all, with the place where the rest is."""
    monkeypatch.setattr("reports.workbook.MAX_STEPS", 4)
    sheet = openpyxl.load_workbook(write_workbook(sample.small(), tmp_path / "report.xlsx", "en"))["Steps"]
    assert sheet["A1"].value == "Only the first 4 of 15 rows; all of them are in steps.csv."
    assert sheet.max_row == 6


def test_tasks_behind_a_speed_up_are_headed_as_distinct(book: openpyxl.Workbook) -> None:
    """Runs of tasks and tasks are two counts."""
    assert "서로 다른 작업" in [cell.value for cell in book["속도 향상"][2]]
    assert "작업 실행 수" in [cell.value for cell in book["셀"][2]]


def test_cautions_are_words_in_the_language_of_the_report(book: openpyxl.Workbook) -> None:
    """Beside the figures of acceptance stands what speaks against them, not a code."""
    for name in ("요약", "수락", "생존율", "드래프터"):
        sheet = book[name]
        assert sheet.cell(2, sheet.max_column).value == "유의 사항"
        said = {
            row[-1].value
            for row in sheet.iter_rows(min_row=3)
            if row[1].value == "ngram-map-k" and row[0].value == "office-ko"
        }
        assert "⚠ 다른 언어, 토큰 한도에서 잘림" in said, name
