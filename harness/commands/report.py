"""``harness report``: the records of a run become figures, and the figures files."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.analysis.frames import RunAnalysis
    from harness.store import RunFolder
    from reports.files import Paths

SWITCH_S = 0.0002  # between two threads that both want the interpreter; as a rule 0.005, several times what most calls of polars take
_ALONE = Lock()


def report(folder: RunFolder, lang: str, update: Callable[[str, float], None]) -> tuple[RunAnalysis, Paths]:
    """Analyse a run and write every derived file into its folder; ``update`` is told how far it is.

    Of several threads that ask, one after another gets its report: the process that draws is shared.

    Raises:
        RunFolderError: if the run is damaged or a file cannot be written.
        UsageError: if there are no texts in this language, or an objective or threshold in the manifest cannot be read.
    """
    from reports import drawings

    update("reading the records", 0.0)
    with _ALONE, _undisturbed():
        drawings.begin()
        try:
            from harness.analysis.loading import read_records

            # most of the reading runs outside the interpreter, in which meanwhile is imported what comes after
            with ThreadPoolExecutor(1) as beside:
                records = beside.submit(read_records, folder)
                from harness.analysis.run import analyse
                from reports.files import write_all

                analysis = analyse(folder, records=records.result())
            update("writing the report", 0.5)
            return analysis, write_all(analysis, folder.path, lang)
        finally:
            drawings.end()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Look for no cycles meanwhile: a report makes millions of objects, none of them worth the search, a tenth of its time.

    And let no thread wait for the interpreter longer than its call of polars takes.
    """
    collecting, switch = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(switch)
        if collecting:
            gc.enable()
