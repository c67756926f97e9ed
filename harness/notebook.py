"""A run in a notebook: every frame of its analysis as pandas, unknown as NA, what a column is in its ``attrs``.

from harness.notebook import frames
summary = frames("reports/runs/20261130-101500-office-ko")["summary"]
summary.attrs["acceptance_length"]  # header, unit, definition
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import polars as pl

from harness.analysis.offer import pareto
from harness.analysis.run import analyse
from harness.columns import COLUMNS
from harness.store import RunFolder
from reports.tables import findings_frame, offer_of, verdicts_frame


def frames(run: str | Path, lang: str = "en") -> dict[str, pd.DataFrame]:
    """Return the frames of a run folder by name, those that are CSV files beside the report; times in the units of ``attrs``.

    Args:
        run: a folder that ``harness run`` wrote.
        lang: language of headers and definitions, ``en`` or ``ko``.

    Raises:
        RunFolderError: if the folder is no run or is damaged.
    """
    analysis = analyse(RunFolder.open(Path(run)))
    found = {name: getattr(analysis, name) for name in analysis.__dataclass_fields__}
    known = {name: frame for name, frame in found.items() if isinstance(frame, pl.DataFrame)}
    known |= {"offer": offer_of(analysis), "pareto": pareto(analysis.summary)}
    known |= {"findings": findings_frame(analysis), "verdicts": verdicts_frame(analysis)}
    return {name: to_pandas(frame, lang) for name, frame in known.items()}


def to_pandas(frame: pl.DataFrame, lang: str = "en") -> pd.DataFrame:
    """Return a polars frame with pandas' nullable types, so that an unknown whole number stays whole and unknown."""
    columns = {name: pd.Series(frame[name].to_list(), dtype=_dtype(frame.schema[name])) for name in frame.columns}
    made = pd.DataFrame(columns)
    for name in frame.columns:
        if name in COLUMNS:
            column = COLUMNS[name]
            made.attrs[name] = {
                "header": column.header[lang],
                "unit": column.unit,
                "definition": column.definition[lang],
            }
    return made


def _dtype(kind: pl.DataType) -> str:
    if kind.is_integer():
        return "Int64"
    if kind.is_float():
        return "Float64"
    return {pl.Boolean: "boolean", pl.String: "string"}.get(type(kind), "object")
