"""Steps as columns, most of them without parsing JSON: a run writes its keys in one order, so that a line can be cut at its colons.

Between two colons stand a value and the next key, as in ``4,"repeat"``. A line in which one of these pieces is not as it must be (a
colon or an escaped letter in a text, keys in another order, damage) is parsed as JSON, and where such lines are many, all of them are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from io import BytesIO
from pathlib import Path

import polars as pl

BLOCK = 64 << 20  # bytes of lines that are parsed at a time
MOST_ODD = 0.1  # share of the lines that are parsed one by one
_FIRST = "\x00first"  # what stands before the first colon; no key has this name
_WHOLE_NUMBERS = pl.List(pl.Int64)


def read_lines(path: Path, schema: pl.Schema, many: Collection[str]) -> pl.DataFrame:
    """Return one row a line, without a half-written last one.

    Args:
        path: of a file of JSON lines, each an object.
        schema: its keys in the order in which they are written: texts, whole numbers, lists of whole numbers, or null.
        many: those with whole numbers of which hardly any two are equal; of the others each value is looked at once.

    Raises:
        PolarsError: if a line is damaged.
    """
    found = _cut(path, schema, many)
    if found is None:
        return parsed(path, schema)
    odd = found["odd"].arg_true()
    rows = found.drop("odd")
    if not odd.len():
        return rows
    again = pl.read_ndjson(BytesIO(b"".join(_lines(path, odd.to_list()))), schema=schema)
    if again.height != odd.len():
        return parsed(path, schema)
    number = pl.int_range(pl.len(), dtype=pl.UInt32)
    rows = rows.with_columns(line=number).filter(~found["odd"])
    return pl.concat([rows, again.with_columns(line=odd.cast(pl.UInt32))]).sort("line").drop("line")


def parsed(path: Path, schema: pl.Schema) -> pl.DataFrame:
    """Return the same with every line parsed: the slow twin of the cut."""
    parts = [pl.read_ndjson(block, schema=schema) for block in blocks(path)]
    return pl.concat(parts) if parts else pl.DataFrame(schema=schema)


def blocks(path: Path) -> Iterator[BytesIO]:
    """Yield the whole lines of a file, so many bytes at a time that a file of any size needs little memory beside its columns.

    A kill cuts the last line, which is left out.
    """
    left = b""
    with path.open("rb") as stream:
        while data := stream.read(BLOCK):
            end = data.rfind(b"\n") + 1
            if end:
                yield BytesIO(left + data[:end])
                left = data[end:]
            else:
                left += data


def _cut(path: Path, schema: pl.Schema, many: Collection[str]) -> pl.DataFrame | None:
    """Return the rows with ``odd``, whether a line is to be parsed; ``None`` where too many are, or the file is not even text."""
    names = list(schema)
    ends = dict(zip(names, [*(f',"{name}"' for name in names[1:]), "}"], strict=True))
    pieces: dict[str, pl.DataType] = {
        name: pl.String() if name in many else pl.Categorical(pl.Categories.random()) for name in (_FIRST, *names)
    }
    times = {name: _number(pl.col(name), ends[name]) for name in many}
    odd = ~pl.all_horizontal(fits for _, fits in times.values()).fill_null(False)
    try:
        found = (
            pl.scan_csv(
                path, has_header=False, separator=":", quote_char=None, schema=pieces, truncate_ragged_lines=True
            )
            .with_columns(odd=odd, **{name: value for name, (value, _) in times.items()})
            .collect(engine="streaming")
        )
    except pl.exceptions.PolarsError:
        return None
    first = found[_FIRST].unique().cast(pl.String).to_list()
    if first != [f'{{"{names[0]}"']:
        return None
    numbered = found.select(pl.col(name).to_physical() for name in names if name not in many)
    columns, odd_lines = [], [pl.col("odd")]
    for name, most in numbered.max().row(0, named=True).items():
        numbers = pl.select(piece=pl.int_range((most or 0) + 1, dtype=pl.UInt32))
        told = numbers.select(pl.col("piece").cat.to(found.schema[name]).cast(pl.String))
        value, fits = _KINDS[schema[name]](pl.col("piece"), ends[name])
        told = told.select(value=value, odd=~fits.fill_null(False))
        if told["odd"].any() or numbered[name].null_count():
            odd_lines.append(pl.lit(told["odd"]).gather(pl.col(name)).fill_null(True))
        columns.append(pl.lit(told["value"]).gather(pl.col(name)).alias(name))
    odd_rows = numbered.with_columns(found["odd"]).select(odd=pl.any_horizontal(odd_lines))
    found = found.select(many).hstack(numbered.select(columns)).hstack(odd_rows).select(*names, "odd")
    with path.open("rb") as stream:
        stream.seek(-1, 2)
        found = found if stream.read(1) == b"\n" else found.head(-1)
    return None if found["odd"].sum() > MOST_ODD * found.height else found


def _lines(path: Path, numbers: Sequence[int]) -> Iterator[bytes]:
    """Yield the lines with these numbers, rising, from 0; an empty line has none."""
    wanted = iter([*numbers, -1])
    number = next(wanted)
    with path.open("rb") as stream:
        for place, line in enumerate(line for line in stream if line != b"\n"):
            if place == number:
                yield line
                number = next(wanted)


def _text(piece: pl.Expr, end: str) -> tuple[pl.Expr, pl.Expr]:
    """Return the value in a piece that ends in ``end``, and whether the piece is as it must be."""
    value = piece.str.strip_prefix('"').str.strip_suffix(f'"{end}')
    null = piece == f"null{end}"
    whole = piece.str.len_bytes() - value.str.len_bytes() == 2 + len(end.encode())
    return pl.when(~null).then(value), null | (whole & ~value.str.contains(r'["\\]'))


def _number(piece: pl.Expr, end: str) -> tuple[pl.Expr, pl.Expr]:
    value = piece.str.strip_suffix(end).cast(pl.Int64, strict=False)
    return value, value.is_not_null() | (piece == f"null{end}")


def _numbers(piece: pl.Expr, end: str) -> tuple[pl.Expr, pl.Expr]:
    inside = piece.str.strip_prefix("[").str.strip_suffix(f"]{end}")
    null = piece == f"null{end}"
    whole = piece.str.len_bytes() - inside.str.len_bytes() == 2 + len(end.encode())
    value = inside.str.split(",").cast(_WHOLE_NUMBERS, strict=False)
    known = value.list.drop_nulls().list.len() == value.list.len()
    empty = inside == ""
    value = pl.when(empty).then(value.list.drop_nulls()).when(~null).then(value)
    return value, null | (whole & (known | empty))


_KINDS = {pl.String(): _text, pl.Int64(): _number, _WHOLE_NUMBERS: _numbers}
