"""Writes all files of a report: CSV, Excel, one HTML page, a summary."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.analysis.frames import RunAnalysis
from harness.errors import RunFolderError
from reports.page import begun
from reports.summary import write_summary
from reports.tables import write_csv
from reports.wording import wording
from reports.workbook import write_workbook


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the files of a report were written."""

    html: Path
    workbook: Path
    csv: tuple[Path, ...]


def write_all(analysis: RunAnalysis, folder: Path, lang: str) -> Paths:
    """Write the CSV files, ``report.xlsx``, ``report.html`` and ``summary.json`` into a folder, over older ones of the same names.

    Raises:
        RunFolderError: if a file cannot be written.
        UsageError: if there are no texts in this language.
    """
    wording(lang)  # before anything is written
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / "report.html"
        # another process draws and this thread writes the workbook; beside them the CSV files, which take what cores are free
        with ThreadPoolExecutor(1) as beside:
            finish = begun(analysis, lang)
            written = beside.submit(write_csv, analysis, folder)
            workbook = write_workbook(analysis, folder / "report.xlsx", lang)
            page.write_text(finish(), encoding="utf-8", newline="\n")
            write_summary(analysis, folder, lang)
            return Paths(page, workbook, written.result())
    except OSError as error:
        place = error.filename or folder
        raise RunFolderError(
            f"cannot write {place}: {error.strerror or error}; close it where it is open, or choose another folder"
        ) from error
