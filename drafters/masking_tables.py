"""Columns of tables and of SQL that hold personal values, by their heads: CSV, TSV, Markdown, INSERT. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from drafters.masking_fields import Found, is_foreign_name, kind_of_key, looks_like_name, names_in, value_spans

__all__ = ["table_spans"]

INSERT = re.compile(r"\bINSERT\s+INTO\s+[^\s(]+\s*\(([^()]*)\)\s*VALUES\s*", re.I)
ROW = re.compile(r"\s*,?\s*\(((?:'(?:[^'\\]|\\.)*+'|\"[^\"]*+\"|[^()'\"])*+)\)")
CELL = re.compile(r"\s*(?:[nN]?'((?:[^'\\]|''|\\.)*+)'|\"([^\"]*+)\"|([^,'\"]*))\s*(?:,|$)")
"""One value of SQL: a text in quotes, or something else."""


def table_spans(text: str) -> Iterator[Found]:
    """Find the personal values of columns whose head names a kind."""
    yield from _lines(text)
    for insert in INSERT.finditer(text):
        heads = [kind_of_key(head.strip(' `"[]')) for head in insert[1].split(",")]
        kinds, at = {index: kind for index, kind in enumerate(heads) if kind}, insert.end()
        while kinds and (row := ROW.match(text, at)):
            at = row.end()
            cells = [
                next(cell.span(n) for n in (1, 2, 3) if cell[n] is not None)
                for cell in CELL.finditer(text, *row.span(1))
            ]
            if len(cells) >= len(heads):
                yield from _row(text, cells, kinds)


def _row(text: str, cells: Sequence[tuple[int, int]], kinds: Mapping[int, str]) -> Iterator[Found]:
    """The values of one row; ``cells`` are bounds in the text."""
    beside = set(kinds.values()) - {"?name", "name"}
    for column, kind in kinds.items():
        low, high = cells[column]
        value = text[low:high]
        if kind == "?name":
            is_name = beside and (re.fullmatch(r"[가-힣]{2,4}", value) or is_foreign_name(value))
            if is_name or looks_like_name(value):
                yield from names_in(value, low)
        elif re.search(r"\w", value):
            yield from value_spans(text, low, high, kind)


def _lines(text: str) -> Iterator[Found]:
    kinds: dict[int, str] = {}
    mark, width, at = "", 0, 0
    for line in text.splitlines(keepends=True):
        start, at = at, at + len(line)
        cells = [(start + low, start + high) for low, high in _cells(line, mark)] if kinds else []
        # a head where its own column's value should stand: this table has its heads in the first column
        is_head = any(kind_of_key(text[slice(*cells[column])]) for column in kinds if column < len(cells))
        if kinds and len(cells) == width and not is_head:
            yield from _row(text, cells, kinds)
            continue
        kinds = {}
        for candidate in ",\t;|":
            if line.count(candidate) < 1:
                continue
            heads = _cells(line, candidate)
            headers = {index: kind_of_key(line[low:high]) for index, (low, high) in enumerate(heads)}
            named = {index: head for index, head in headers.items() if head}
            if named and len(heads) >= 2:
                kinds, mark, width = named, candidate, len(heads)
                yield from _beside_head(text, [(start + low, start + high) for low, high in heads], named)
                break


def _beside_head(text: str, cells: Sequence[tuple[int, int]], named: Mapping[int, str]) -> Iterator[Found]:
    """A row of two cells, head and value, as in forms."""
    shown = [index for index, (low, high) in enumerate(cells) if low < high]
    if len(shown) == 2 and shown[0] in named and shown[1] not in named:
        low, high = cells[shown[1]]
        kind = named[shown[0]]
        if kind in ("name", "?name"):
            yield from names_in(text[low:high], low, strict=True)
        elif any(map(str.isdigit, text[low:high])) or kind == "email":
            yield from value_spans(text, low, high, kind)


def _cells(line: str, mark: str) -> list[tuple[int, int]]:
    """Bounds of a line's cells, without quotes and outer spaces."""
    spans, at, body = [], 0, line.rstrip("\r\n")
    inside = False
    for index, character in enumerate(body + mark):
        if character == '"':
            inside = not inside
        if index == len(body) or (character == mark and not inside):
            piece = body[at:index]
            low = at + len(piece) - len(piece.lstrip(' "'))
            spans.append((low, max(low, at + len(piece.rstrip(' "')))))
            at = index + 1
    return spans
