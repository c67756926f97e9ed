"""The table a buyer signs."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from reports.buyer import offer_section
from reports.wording import wording
from tests.reports import sample


@pytest.mark.parametrize(
    ("low", "ends", "said"), [(10, "open_high", True), (0, "open_high", False), (None, "none", False)]
)
def test_servers_are_at_most_so_many_only_where_an_upper_end_is_known(low: int | None, ends: str, said: bool) -> None:
    """The highest load is kept by 16; if it may be none of them, or nobody knows, no number of servers is an upper bound."""
    run = sample.small()
    kinds = run.agents.schema
    changed = {"agents": 16, "agents_low": low, "agents_high": None, "interval": ends, "capacity": "at_least"}
    changed |= {"servers_per_100": 7, "servers_per_100_low": None, "servers_per_100_high": 10 if low else None}
    frame = run.agents.with_columns(pl.lit(value, kinds[name]).alias(name) for name, value in changed.items())
    section = offer_section(replace(run, agents=frame), wording("en"))
    column = list(section.tables[0].headers).index(next(h for h in section.tables[0].headers if "per 100" in h))
    shown = [row[column] for row in section.tables[0].rows]
    assert any(cell.startswith("7 ") for cell in shown)
    assert any("or fewer" in cell for cell in shown) is said
