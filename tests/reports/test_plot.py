"""Charts as specifications."""

from __future__ import annotations

import pytest
import vl_convert

from reports import plot
from reports.plot import LEGEND_PX, Channel, Plot, Row, layer, named_rows

ROWS: list[Row] = [
    {"arm": "a", "load": 1, "x": 1.5, "idle": "never drawn"},
    {"arm": "b", "load": 2, "x": 2.5, "idle": "never drawn"},
]


def colour(*names: str) -> Channel:
    """Return a channel with a legend."""
    return plot.name("arm", title=None, scale={"domain": list(names), "range": ["#000000"] * len(names)})


def test_rows_stand_in_it_once_and_with_what_is_drawn_alone() -> None:
    """Two layers share rows; one of them draws a column more."""
    place = {"x": plot.number("x"), "y": plot.number("load")}
    found = Plot([layer(ROWS, "line", place), layer(ROWS, "point", {**place, "color": colour("a", "b")})])
    spec = found.specification()
    assert spec["datasets"] == {"data0": [{"x": 1.5, "load": 1, "arm": "a"}, {"x": 2.5, "load": 2, "arm": "b"}]}
    assert [part["data"]["name"] for part in spec["layer"]] == ["data0", "data0"]


@pytest.mark.parametrize(
    ("name", "limit"),
    [("prompt-lookup", 0), ("W" * 15, 0), ("W" * 16, LEGEND_PX), ("가" * 8, LEGEND_PX)],
)
def test_a_legend_has_a_limit_where_a_name_comes_near_it(name: str, limit: int) -> None:
    """What cannot reach the limit is not measured against it."""
    spec = Plot([layer(ROWS, "point", {"x": plot.number("x"), "color": colour("a", name)})]).specification()
    assert spec["config"]["legend"]["labelLimit"] == limit


def test_names_of_a_vertical_axis_are_never_cut() -> None:
    """However long: they are what the row is."""
    rows: list[Row] = [{"name": "한국어 문서 " * 8, "x": 1.0}, {"name": "short", "x": 2.0}]
    names = [row["name"] for row in rows]
    drawn = vl_convert.vegalite_to_svg(
        Plot([layer(rows, "point", {"x": plot.number("x"), "y": named_rows("name", names)})]).specification()
    )
    assert names[0].strip() in drawn
    assert "…" not in drawn


def test_the_engine_draws_as_high_as_was_asked_for() -> None:
    """Rows of a table need room."""
    low, high = (
        vl_convert.vegalite_to_svg(Plot([layer(ROWS, "point", {"x": plot.number("x")})], height).specification())
        for height in (50, 500)
    )
    assert low != high
    assert [float(drawn.split('height="')[1].split('"')[0]) for drawn in (low, high)] == pytest.approx(
        [50, 500], abs=60
    )
