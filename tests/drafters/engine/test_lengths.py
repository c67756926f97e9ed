"""Draft length by table."""

from __future__ import annotations

import pytest

from drafters.engine.lengths import BatchTable, FullLength, Rest
from drafters.engine.sequence import Request, RunningSequence


def batch(size: int) -> list[RunningSequence]:
    """That many sequences."""
    return [RunningSequence(number, Request((1,), 5), 6) for number in range(size)]


def test_the_table_holds_from_its_key_on() -> None:
    """Eight alone, three from four on, none from six on; a bound below the table's length stays."""
    table = BatchTable({1: 8, 4: 3, 6: 0})
    assert table.choose(batch(1), [10], Rest()) == [8]
    assert table.choose(batch(3), [10, 2, 10], Rest()) == [8, 2, 8]
    assert table.choose(batch(5), [10] * 5, Rest()) == [3] * 5
    assert table.choose(batch(6), [10] * 6, Rest()) == [0] * 6


def test_full_length_is_what_is_allowed() -> None:
    """The fixed k is the bound itself."""
    assert FullLength().choose(batch(2), [4, 0], Rest()) == [4, 0]


@pytest.mark.parametrize("table", [{}, {0: 1}, {1: -1}])
def test_a_table_out_of_range_is_refused(table: dict[int, int]) -> None:
    """Batches from 1, lengths from 0, at least one entry."""
    with pytest.raises(ValueError, match="allowed"):
        BatchTable(table)
