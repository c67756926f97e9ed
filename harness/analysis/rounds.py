"""Rounds of a run as columns, as many of each cell as a fit needs: a file of ten million rounds is scanned, not parsed.

Of each finished cell the rounds around its middle are taken, in one stretch. Of a few cells of each arm and load the stretch is so long
that rounds which many requests shared are complete in it: all workloads of a run have one engine, so that these tell its costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import zip_longest

import orjson
import polars as pl

from harness.analysis.frames import CELL
from harness.analysis.round_lines import round_lines
from harness.errors import RunFolderError
from harness.records import Round
from harness.store import RunFolder

SAMPLE = 100_000  # rounds of single requests in all; a fit over medians gains nothing from more
LEAST = 300  # of each cell, however many cells there are
DEEP_CELLS = 3  # of each arm and load
DEEP_TURNS = 4  # their calls in the stretch, for each task in progress
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


def read_rounds(
    folder: RunFolder, cells: pl.DataFrame, sample: int = SAMPLE, lines: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return rounds of finished cells, ``ROUNDS``; none for a run whose engine tells no rounds.

    Args:
        folder: the run.
        cells: of ``rows.read_rows``; the attempts of cells that count.
        sample: how many rows at most, shared evenly among the cells (but ``LEAST`` for each).
        lines: of ``round_lines.round_lines``, where that was called before.

    Raises:
        RunFolderError: if one of the lines that are read is damaged.
    """
    done = cells.filter(pl.col("status") == "done")
    of_cell = pl.format('["{}","{}",{},{},{}', *CELL, "attempt")
    found = round_lines(folder) if lines is None else lines
    deep = pl.int_range(pl.len()).over("arm", "concurrency") < DEEP_CELLS
    turns = done.select(
        "cell", of_cell=of_cell, turns=pl.when(deep).then(DEEP_TURNS * pl.col("concurrency")).otherwise(1)
    )
    found = found.with_columns(of_cell=pl.col("place").str.extract(r"^(.*),\d+,\d+\]$")).join(
        turns, on="of_cell", how="inner", maintain_order="left"
    )
    if found.is_empty():
        return pl.DataFrame(schema=ROUNDS)
    parts = found.partition_by("cell", maintain_order=True)
    share = max(LEAST, sample // len(parts))
    rows: list[list[int | None]] = []
    places: list[tuple[int, str, int, int]] = []
    with folder.rounds_file().open("rb") as stream:
        for part in parts:
            number, least = part["cell"][0], part["turns"][0]
            for offset, length in _middle(part, share, least):
                stream.seek(offset)
                own = _rounds(stream.read(length), folder, number, places)
                rows += own
    if not rows:
        return pl.DataFrame(schema=ROUNDS)
    values = [*zip_longest(*rows), *[(None,) * len(rows)] * len(FIELDS)][
        : len(FIELDS)
    ]  # rows of older runs are shorter
    columns = [*zip(*places, strict=True), *values]
    return pl.DataFrame(
        [pl.Series(name, column, kind) for (name, kind), column in zip(ROUNDS.items(), columns, strict=True)]
    )


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


def _middle(lines: pl.DataFrame, share: int, least: int) -> Iterator[tuple[int, int]]:
    """Yield offset and length of the lines around the middle: so many that they hold ``share`` rounds, and ``least`` at the least."""
    rounds = lines["rounds"].to_list()
    low = high = len(rounds) // 2
    taken = 0
    while (taken < share or high - low < least) and (low > 0 or high < len(rounds)):
        if high < len(rounds):
            taken += rounds[high]
            high += 1
        if low > 0 and (taken < share or high - low < least):
            low -= 1
            taken += rounds[low]
    yield from lines.slice(low, high - low).select("offset", "length").iter_rows()


def _rounds(
    line: bytes, folder: RunFolder, number: int, places: list[tuple[int, str, int, int]]
) -> list[list[int | None]]:
    """Return the rounds of one line as lists, and add where each belongs to ``places``."""
    try:
        row = orjson.loads(line)
        own: list[list[int | None]] = row["rounds"]
        place = (number, row["task_id"], row["step"][5], row["step"][6])
        if not all(isinstance(item, list) and 3 <= len(item) <= len(FIELDS) for item in own):
            raise ValueError("a round is no list of numbers")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise RunFolderError(f"{folder.rounds_file()}: damaged line ({error}); restore it or run again") from error
    places += [place] * len(own)
    return own
