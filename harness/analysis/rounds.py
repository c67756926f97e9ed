"""Rounds of a run as columns, as many of each cell as a fit needs: a file of ten million rounds is scanned, not parsed.

Of each finished cell the rounds around its middle are taken, in one stretch, so that rounds that several requests shared are complete.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import BinaryIO

import orjson
import polars as pl

from harness.analysis.frames import CELL
from harness.errors import RunFolderError
from harness.records import Round
from harness.store import RunFolder

SAMPLE = 200_000  # rounds of single requests in all; a fit over medians gains nothing from more
LEAST = 2_000  # of each cell, however many cells there are
FIELDS = tuple(item.name for item in fields(Round))
ROUNDS = pl.Schema(
    {"cell": pl.UInt32, "task_id": pl.String, "instance": pl.Int64, "step_index": pl.Int64}
    | dict.fromkeys(FIELDS, pl.Int64)
)
"""One row a request and round; ``cell`` is the number that joins with cells and steps."""
ENGINE_ROUNDS = pl.Schema(
    {"cell": pl.UInt32}
    | dict.fromkeys(
        ("round_index", "batch_size", "num_draft_tokens", "longest", "draft_ns", "verify_ns", "host_ns"), pl.Int64
    )
    | dict.fromkeys(("prefill_tokens", "context_tokens"), pl.Int64)
)
"""One row a round of the engine: drafted tokens are summed over its requests, ``longest`` is the longest draft among them."""
_CellKey = tuple[str, str, int, int, int]


@dataclass(slots=True)
class _Places:
    """Where the lines of one cell are in the file: offset, length and how many rounds each holds."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    rounds: array[int] = field(default_factory=lambda: array("q"))


def read_rounds(folder: RunFolder, cells: pl.DataFrame, sample: int = SAMPLE) -> pl.DataFrame:
    """Return rounds of finished cells, ``ROUNDS``; none for a run whose engine tells no rounds.

    Args:
        folder: the run.
        cells: of ``rows.read_rows``; the attempts of cells that count.
        sample: how many rows at most, shared evenly among the cells (but ``LEAST`` for each).

    Raises:
        RunFolderError: if one of the lines that are read is damaged.
    """
    file = folder.rounds_file()
    done = cells.filter(pl.col("status") == "done")
    numbers: dict[_CellKey, int] = {
        (row[0], row[1], row[2], row[3], row[4]): row[5] for row in done.select(*CELL, "attempt", "cell").iter_rows()
    }
    if not numbers or not file.exists():
        return pl.DataFrame(schema=ROUNDS)
    with file.open("rb") as stream:
        places = _places(stream, numbers)
        share = max(LEAST, sample // max(1, len(places)))
        columns: list[list[object]] = [[] for _ in ROUNDS]
        for number, found in places.items():
            for offset, length in _middle(found, share):
                stream.seek(offset)
                _append(columns, number, stream.read(length), folder)
    return pl.DataFrame(dict(zip(ROUNDS.names(), columns, strict=True)), schema=ROUNDS)


def engine_rounds(rounds: pl.DataFrame) -> pl.DataFrame:
    """Return the engine's own rounds, ``ENGINE_ROUNDS``: only those with times of which every request is there.

    A request that was cut off tells no rounds; a round that it shared is then short of its drafted tokens, and left out.
    """
    known = rounds.filter(pl.col("round_index").is_not_null() & pl.col("verify_ns").is_not_null())
    first = ("batch_size", "draft_ns", "verify_ns", "host_ns", "prefill_tokens", "context_tokens")
    return (
        known.group_by("cell", "round_index", maintain_order=True)
        .agg(
            *(pl.col(name).first() for name in first),
            pl.col("num_draft_tokens").sum(),
            longest=pl.col("num_draft_tokens").max(),
            there=pl.len().cast(pl.Int64),
        )
        .filter(pl.col("there") == pl.col("batch_size"))
        .select(pl.col(name).cast(kind) for name, kind in ENGINE_ROUNDS.items())
    )


def _places(stream: BinaryIO, numbers: Mapping[_CellKey, int]) -> dict[int, _Places]:
    found: dict[int, _Places] = {}
    offset = 0
    for line in stream:
        key = _key(line)
        number = numbers.get(key) if key is not None and line.endswith(b"\n") else None
        if number is not None:
            own = found.setdefault(number, _Places())
            own.offsets.append(offset)
            own.lengths.append(len(line))
            own.rounds.append(line.count(b"],[") + 1)
        offset += len(line)
    return found


def _key(line: bytes) -> _CellKey | None:
    """Return of which cell a line is; lines that are not as the store writes them are damaged or of another kind, and left out here."""
    begin, end = line.find(b"["), line.find(b'],"task_id"')
    if begin < 0 or end < 0:
        return None
    try:
        place = orjson.loads(line[begin : end + 1])
        return (place[0], place[1], place[2], place[3], place[4])
    except (orjson.JSONDecodeError, IndexError):
        return None


def _middle(found: _Places, share: int) -> Iterator[tuple[int, int]]:
    """Yield offset and length of the lines around the middle that hold about ``share`` rounds."""
    low = high = len(found.offsets) // 2
    taken = 0
    while taken < share and (low > 0 or high < len(found.offsets)):
        if high < len(found.offsets):
            taken += found.rounds[high]
            high += 1
        if low > 0 and taken < share:
            low -= 1
            taken += found.rounds[low]
    yield from zip(found.offsets[low:high], found.lengths[low:high], strict=True)


def _append(columns: list[list[object]], number: int, line: bytes, folder: RunFolder) -> None:
    try:
        row = orjson.loads(line)
        own: list[object] = [number, row["task_id"], row["step"][5], row["step"][6]]
        for values in row["rounds"]:
            padded = own + values + [None] * (len(FIELDS) - len(values))
            for column, value in zip(columns, padded, strict=True):
                column.append(value)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise RunFolderError(f"{folder.rounds_file()}: damaged line ({error}); restore it or run again") from error
