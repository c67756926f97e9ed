"""``harness report``: the records of a run become figures, and the figures files."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.analysis.frames import RunAnalysis
    from harness.store import RunFolder
    from reports import Paths


def report(folder: RunFolder, lang: str, update: Callable[[str, float], None]) -> tuple[RunAnalysis, Paths]:
    """Analyse a run and write every derived file into its folder; ``update`` is told how far it is.

    Raises:
        RunFolderError: if the run is damaged or a file cannot be written.
        UsageError: if there are no texts in this language, or an objective or threshold in the manifest cannot be read.
    """
    with _no_collector():
        from harness.analysis.run import analyse

        update("reading the records", 0.0)
        # what writes is imported while records are read, most of it outside the interpreter
        with ThreadPoolExecutor(1) as beside:
            ready = beside.submit(_begin_reports)
            analysis = analyse(folder)
            ready.result()
        import reports

        update("writing the report", 0.5)
        try:
            return analysis, reports.write_all(analysis, folder.path, lang)
        finally:
            reports.end()


def _begin_reports() -> None:
    import reports

    reports.begin()


@contextmanager
def _no_collector() -> Iterator[None]:
    """Look for no cycles meanwhile: a report makes millions of objects, none of them worth the search, a tenth of its time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
