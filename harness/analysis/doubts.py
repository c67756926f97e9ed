"""Every reason to trust a figure of a run less, from all that look for one."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from harness.analysis import guards, server_flags, validity, wholeness
from harness.analysis.cells import add_figures
from harness.analysis.frames import Finding
from harness.analysis.loading import Records
from harness.analysis.outputs import add_text_traits
from harness.store import RunFolder


def doubts(
    folder: RunFolder, records: Records, steps: pl.DataFrame, cells: pl.DataFrame, more: Iterable[Finding] = ()
) -> list[Finding]:
    """Return what was found, invalid first, then warnings, then notes.

    ``steps`` have the traits of their texts, ``cells`` their figures; ``more`` was found before.
    """
    others = (
        *wholeness.findings(records.whole),
        *more,
        *validity.of_versions(folder.manifest),
        *server_flags.findings(folder.manifest, records.plans),
        *guards.findings(steps, cells, records.plans, folder.manifest),
    )
    return validity.findings(steps, records.tasks, cells, records.plans, records.unread, records.deaths, others)


def doubts_of(folder: RunFolder, records: Records) -> list[Finding]:
    """Return the same for records as they were read."""
    cells = add_figures(records.cells, records.steps, records.tasks)
    steps = add_text_traits(records.steps, tuple(records.texts.values()), records.signs, records.prompts)
    return doubts(folder, records, steps, cells)
