"""Rounds of a run as columns, as many of each cell as a fit needs: a file of ten million rounds is scanned, not parsed.

Of each finished cell the rounds around its middle are taken, in one stretch. Of a few cells of each arm and load the stretch is so long
that rounds which many requests shared are complete in it: all workloads of a run have one engine, so that these tell its costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import fields
from io import BytesIO
from mmap import ACCESS_READ, mmap
from typing import Any

import orjson
import polars as pl

from harness.analysis.frames import CELL
from harness.analysis.round_lines import cell_place, round_lines
from harness.errors import RunFolderError
from harness.records import Round
from harness.store import RunFolder

SAMPLE = 100_000  # rounds of single requests in all; a fit over medians gains nothing from more
LEAST = 300  # of each cell, however many cells there are
DEEP_CELLS = 3  # of each arm and load
DEEP_TURNS = 4  # their calls in the stretch, for each task in progress
FIELDS = tuple(item.name for item in fields(Round))
LEAST_FIELDS = 3  # of a round: those of engines that tell nothing else
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
    of_cell = pl.format('["{}","{}",{},{},{}', *CELL, "attempt").cast(pl.Binary)
    found = round_lines(folder) if lines is None else lines
    deep = pl.int_range(pl.len()).over("arm", "concurrency") < DEEP_CELLS
    turns = done.select(
        "cell", of_cell=of_cell, turns=pl.when(deep).then(DEEP_TURNS * pl.col("concurrency")).otherwise(1)
    )
    places = found.select(of_cell=cell_place(), row=pl.int_range(pl.len()))
    places = places.filter(
        (pl.col("of_cell") != pl.col("of_cell").shift(1)).fill_null(True)
    )  # a cell's lines stand together
    stretches = places.with_columns(end=pl.col("row").shift(-1).fill_null(found.height))
    parts = (
        stretches.join(turns, on="of_cell", how="inner", maintain_order="left")
        .group_by("cell", "turns", maintain_order=True)
        .agg(row=pl.int_ranges("row", "end").explode())
    )
    if parts.is_empty():
        return pl.DataFrame(schema=ROUNDS)
    share = max(LEAST, sample // parts.height)
    own: list[pl.DataFrame] = []
    bodies: list[bytes] = []
    with folder.rounds_file().open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as text:
        for number, least, rows in zip(parts["cell"], parts["turns"], parts["row"], strict=True):
            lines_of_cell, texts = _middle(found, rows, text, share, least)
            own.append(lines_of_cell.select(pl.lit(number, pl.UInt32).alias("cell"), "place"))
            bodies += texts
    lines_read = pl.concat(own)
    columns = _columns(lines_read, bodies)
    return _rows(lines_read, bodies, folder) if columns is None else columns


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


def _middle(
    lines: pl.DataFrame, rows: pl.Series, text: mmap, share: int, least: int
) -> tuple[pl.DataFrame, Sequence[bytes]]:
    """Return the lines around the middle and what they say: so many that they hold ``share`` rounds, and ``least`` at the least."""
    most, middle = max(share, least), len(rows) // 2  # every line holds a round
    first = max(0, middle - most)
    near = lines[rows.slice(first, 2 * most)]
    spans = near.select("offset", end=pl.col("offset") + pl.col("length")).rows()
    found: deque[bytes] = deque()
    low = high = middle - first
    taken = 0
    while (taken < share or high - low < least) and (low > 0 or high < len(spans)):
        if high < len(spans):
            found.append(text[slice(*spans[high])])
            taken += _count(found[-1])
            high += 1
        if low > 0 and (taken < share or high - low < least):
            low -= 1
            found.appendleft(text[slice(*spans[low])])
            taken += _count(found[0])
    return near.slice(low, high - low), found


def _count(line: bytes) -> int:
    return line.count(b"],[") + 1


def _columns(lines: pl.DataFrame, bodies: Sequence[bytes]) -> pl.DataFrame | None:
    """Return the rounds of some lines, ``None`` where one is not as a run writes it."""
    schema = {"task_id": pl.String(), "rounds": pl.List(pl.List(pl.Int64))}
    try:
        read = pl.read_ndjson(BytesIO(b"".join(bodies)), schema=schema)
    except pl.exceptions.PolarsError:
        return None
    counts = pl.Series([_count(body) for body in bodies])
    if read.height != lines.height or not (read["rounds"].list.len().clip(1) == counts).fill_null(False).all():
        return None
    instance, step_index = (
        pl.col("place").str.extract(pattern).cast(pl.Int64) for pattern in (r",(\d+),\d+\]$", r",(\d+)\]$")
    )
    one = pl.col("rounds").list
    rounds = lines.select("cell", instance=instance, step_index=step_index).hstack(read)
    rounds = rounds.filter(one.len() > 0).explode("rounds")
    if not rounds.select(one.len().is_between(LEAST_FIELDS, len(FIELDS)).fill_null(False).all()).item():
        return None
    rounds = rounds.with_columns(one.get(place, null_on_oob=True).alias(name) for place, name in enumerate(FIELDS))
    return rounds.select(ROUNDS.names())


def _rows(lines: pl.DataFrame, bodies: Sequence[bytes], folder: RunFolder) -> pl.DataFrame:
    """Return the same line by line: slower, and it names what is damaged."""
    rows: list[tuple[Any, ...]] = []
    for number, body in zip(lines["cell"], bodies, strict=True):
        try:
            line = orjson.loads(body)
            place = (number, line["task_id"], line["step"][5], line["step"][6])
            for item in line["rounds"]:
                if not isinstance(item, list) or not LEAST_FIELDS <= len(item) <= len(FIELDS):
                    raise ValueError("a round is no list of numbers")
                rows.append((*place, *item, *[None] * (len(FIELDS) - len(item))))  # rows of older runs are shorter
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise RunFolderError(f"{folder.rounds_file()}: damaged line ({error}); restore it or run again") from error
    return pl.DataFrame(rows, schema=ROUNDS, orient="row")
