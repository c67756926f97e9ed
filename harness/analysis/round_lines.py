"""Where the rounds of each step are in their file: it is scanned in columns, and its rounds are not parsed.

A line begins with the place of its step, ``{"step":["office-ko","ngram",4,1,1,17,3],"task_id":…``; the text of that list is the key by
which lines and steps find each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import polars as pl

from harness.store import RunFolder

LINES = pl.Schema({"place": pl.String(), "offset": pl.Int64(), "length": pl.Int64()})
"""One row a line: the place as text, where the line begins, and its bytes."""
_START = '{"step":'
_PLACE = r'^\["[^"\\]*","[^"\\]*",\d+,\d+,\d+,\d+,\d+\]$'
_BEHIND = b',"task_id":"'
_NEVER = "\x01"  # JSON has no such byte, so that a line is one field


def round_lines(folder: RunFolder) -> pl.DataFrame:
    """Return ``LINES`` of a run folder, without a half-written last line; none where the engine told no rounds.

    Raises:
        RunFolderError: if a line is damaged; what is inside a line's rounds is checked by whoever reads them.
    """
    file = folder.rounds_file()
    if not file.exists() or file.stat().st_size == 0:
        return pl.DataFrame(schema=LINES)
    found = _scanned(file)
    return _read(folder) if found is None else found


def cell_place() -> pl.Expr:
    """Return what the places of a cell's steps have in common, as bytes: workload, arm, concurrency, repeat and attempt."""
    end = pl.col("place").str.find(r",\d+,\d+\]$")
    return _bytes(pl.col("place"), pl.lit(0), end)


def _bytes(text: pl.Expr, start: pl.Expr, length: pl.Expr) -> pl.Expr:
    return text.cast(pl.Binary).bin.slice(start, length)


def _scanned(file: Path) -> pl.DataFrame | None:
    """Return the lines, ``None`` where one is not as a run writes it, or too plain a look at them does not add up."""
    line, end = pl.col("line"), pl.col("end")
    behind = _bytes(line, end + 1, pl.lit(len(_BEHIND)))
    try:
        found = (
            pl.scan_csv(file, has_header=False, schema={"line": pl.String}, separator=_NEVER, quote_char=None)
            .with_columns(end=line.str.find("]", literal=True).cast(pl.Int64))
            .select(
                place=_bytes(line, pl.lit(len(_START)), end + 1 - len(_START)).cast(pl.String),
                length=line.str.len_bytes().cast(pl.Int64) + 1,
                whole=line.str.starts_with(_START) & line.str.ends_with("]}") & (behind == _BEHIND),
            )
            .with_columns(whole=pl.col("whole") & pl.col("place").str.contains(_PLACE))
            .collect(engine="streaming")
        )
    except pl.exceptions.PolarsError:
        return None
    with file.open("rb") as stream:
        stream.seek(-1, 2)
        cut = stream.read(1) != b"\n"
    size = file.stat().st_size + cut  # a last line without its end was counted with one
    lines = found.head(-1) if cut else found
    if found["length"].sum() != size or not lines["whole"].fill_null(False).all():
        return None
    return lines.with_columns(offset=pl.col("length").cum_sum() - pl.col("length")).select(LINES.names())


def _read(folder: RunFolder) -> pl.DataFrame:
    """Return the same line by line: slower, and it names a damaged line."""
    for _ in folder.round_places():
        pass
    return pl.DataFrame(_rows(folder.rounds_file()), schema=LINES, orient="row")


def _rows(file: Path) -> Iterator[tuple[str, int, int]]:
    offset = 0
    with file.open("rb") as stream:
        for line in stream:
            if line.endswith(b"\n"):
                row = orjson.loads(line)
                yield orjson.dumps(row["step"]).decode(), offset, len(line)
            offset += len(line)
