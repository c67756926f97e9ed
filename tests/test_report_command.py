"""``harness report``: what cannot be written or worded is an error of its own."""

from __future__ import annotations

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.commands import report
from harness.errors import RunFolderError, UsageError
from harness.store import RunFolder
from reports import drawings
from tests.builders import cell_key, run_folder, step


def run(path: Path) -> RunFolder:
    """Return a run of one arm."""
    return RunFolder.open(run_folder(path, [step(cell_key(), f"t{number}") for number in (1, 2)]).path, append=False)


def told(stage: str, fraction: float) -> None:
    """Take what the command says of its progress."""


def test_a_language_without_texts_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    """Not even the steps."""
    folder = run(tmp_path / "run")
    with pytest.raises(UsageError):
        report.report(folder, "xx", told)
    assert not list(folder.path.glob("*.csv"))


def test_a_file_that_cannot_be_written_is_an_error_that_says_why(tmp_path: Path) -> None:
    """A folder stands where the steps should be."""
    folder = run(tmp_path / "run")
    (folder.path / "steps.csv").mkdir()
    with pytest.raises(RunFolderError, match=r"cannot write .*directory"):
        report.report(folder, "en", told)


def test_two_threads_get_their_reports_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share the process that draws: the second begins once the first let it go, and the interpreter is left as it was."""
    before = (gc.isenabled(), sys.getswitchinterval())
    order: list[str] = []
    end = drawings.end

    def ended() -> None:
        end()
        order.append("end")

    monkeypatch.setattr(drawings, "begin", lambda: order.append("begin"))
    monkeypatch.setattr(drawings, "end", ended)
    folders = [run(tmp_path / name) for name in ("a", "b")]
    with ThreadPoolExecutor(2) as threads:
        written = list(threads.map(lambda folder: report.report(folder, "en", told)[1], folders))
    assert order == ["begin", "end", "begin", "end"]
    assert [paths.html.read_text("utf-8").rstrip()[-7:] for paths in written] == ["</html>", "</html>"]
    assert (gc.isenabled(), sys.getswitchinterval()) == before
