"""Charts as inline SVG."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest

from harness.analysis.frames import RunAnalysis
from reports import charts
from reports.charts import Chart, Pen
from reports.wording import wording
from tests.reports import sample

KO = wording("ko")
SVG = "{http://www.w3.org/2000/svg}"
DRAWINGS = (charts.speed_up, charts.task_time, charts.acceptance, charts.survival, charts.lossless)


@pytest.fixture(scope="module")
def drawn() -> dict[str, tuple[Chart, ...] | None]:
    """Return every chart of the small run, drawn once."""
    return {draw.__name__: draw(sample.small(), KO) for draw in DRAWINGS}


def chart(drawn: dict[str, tuple[Chart, ...] | None], name: str, index: int = 0) -> ElementTree.Element:
    """Return one drawn chart as a parsed tree."""
    found = drawn[name]
    assert found is not None
    return ElementTree.fromstring(found[index].svg)


def texts(tree: ElementTree.Element) -> list[str]:
    """Return every text of a drawing."""
    return [node.text for node in tree.iter(f"{SVG}text") if node.text]


@pytest.mark.parametrize("name", [draw.__name__ for draw in DRAWINGS])
def test_a_chart_is_one_named_image_for_each_workload(drawn: dict[str, tuple[Chart, ...] | None], name: str) -> None:
    """A screen reader hears its title and what it says; the drawing has its title too."""
    found = drawn[name]
    assert found is not None
    assert len(found) == 2
    for item in found:
        tree = ElementTree.fromstring(item.svg)
        title = tree.find(f"{SVG}title")
        assert (tree.get("role"), tree.get("aria-label")) == ("img", f"{item.title}. {item.says}")
        assert title is not None
        assert title.text == item.title


@pytest.mark.parametrize("name", [draw.__name__ for draw in DRAWINGS])
def test_a_chart_loads_nothing_and_runs_nothing(drawn: dict[str, tuple[Chart, ...] | None], name: str) -> None:
    """No script, no link, no picture, no font file."""
    found = drawn[name]
    assert found is not None
    for tree in (ElementTree.fromstring(item.svg) for item in found):
        tags = {node.tag.removeprefix(SVG) for node in tree.iter()}
        assert tags <= {"svg", "title", "g", "path", "line", "text", "rect", "defs", "clipPath", "tspan"}
        assert not any("href" in key or key.startswith("on") for node in tree.iter() for key in node.attrib)


def test_korean_text_stays_text(drawn: dict[str, tuple[Chart, ...] | None]) -> None:
    """Labels are letters for the reader's font, not outlines and not boxes."""
    found = texts(chart(drawn, "acceptance", 0)) + texts(chart(drawn, "acceptance", 1))
    assert "도구 호출 · 한국어" in found
    assert "동시 작업 수(log₂)" in texts(chart(drawn, "speed_up"))


def test_the_break_even_is_marked_in_the_chart_of_its_workload(drawn: dict[str, tuple[Chart, ...] | None]) -> None:
    """8.6 for one arm of office-ko, 13 for the other arm of coding-en."""
    first, second = texts(chart(drawn, "speed_up", 0)), texts(chart(drawn, "speed_up", 1))
    assert "8.6" in first
    assert "8.6" not in second
    assert "13" in second


def test_the_axis_shows_the_measured_loads_only(drawn: dict[str, tuple[Chart, ...] | None]) -> None:
    """A reader sees where points are, not round numbers between them."""
    assert [text for text in texts(chart(drawn, "task_time")) if text in ("1", "2", "4", "8", "16")] == ["1", "4", "16"]


def test_ids_of_two_charts_never_meet() -> None:
    """All drawings share one page, where an id counts once."""
    found = charts.speed_up(sample.small(), KO)
    assert found is not None
    ids = [[node.get("id") for node in ElementTree.fromstring(item.svg).iter() if node.get("id")] for item in found]
    assert not set(ids[0]) & set(ids[1])


def test_an_arm_keeps_its_colour_where_another_is_missing() -> None:
    """The second arm is not repainted as the first because the first has no row."""
    run = sample.small()
    pen = Pen.of(run)
    everyone = pen.colour()
    alone = pen.showing([{"arm": "ngram-mod"}]).colour()
    assert everyone["scale"]["range"][2] == alone["scale"]["range"][0]
    assert everyone["scale"]["range"][0] == charts.BASELINE_COLOUR


@pytest.mark.parametrize("draw", DRAWINGS)
@pytest.mark.parametrize("make", [sample.empty, sample.one_cell])
def test_too_little_to_draw_is_no_chart(draw: object, make: object) -> None:
    """No axes without points."""
    assert draw(make(), KO) is None  # type: ignore[operator]


def test_one_concurrency_is_a_point_and_no_line() -> None:
    """A single load draws nothing over concurrency."""
    run: RunAnalysis = sample.small()
    one = replace(run, speed_up=run.speed_up.filter(pl.col("concurrency") == 1))
    assert charts.speed_up(one, KO) is None


def test_without_a_steady_window_the_whole_cell_is_drawn() -> None:
    """Short runs have no steady state, but they have a speed-up."""
    frame = sample.small().speed_up
    assert set(charts.primary_window(frame)["window"]) == {"steady"}
    assert set(charts.primary_window(frame.filter(pl.col("window") == "whole"))["window"]) == {"whole"}


def test_an_arm_without_a_steady_window_does_not_change_the_others() -> None:
    """Each arm on each workload is shown from its own best window."""
    frame = sample.small().speed_up
    short = (pl.col("workload") == "office-ko") & (pl.col("arm") == "ngram-mod")
    main = charts.primary_window(frame.filter(~short | (pl.col("window") == "whole")))
    windows = {(row["workload"], row["arm"]): row["window"] for row in main.iter_rows(named=True)}
    assert windows.pop(("office-ko", "ngram-mod")) == "whole"
    assert set(windows.values()) == {"steady"}
    assert main.height == 12


def test_the_line_of_speed_ups_crosses_one_at_the_break_even() -> None:
    """From 4 at one task to a half at eight it halves with each doubling: 1 at four tasks, as the break-even is interpolated."""
    ends: dict[str, Any] = {"arm": "ngram", "speed_up_low": None, "speed_up_high": 5.0}
    last, first = {**ends, "concurrency": 8, "speed_up": 0.5}, {**ends, "concurrency": 1, "speed_up": 4.0}
    drawn = charts.interpolated([last, first])
    assert (drawn[0], drawn[-1]) == (first, last)
    assert all(row["concurrency"] * row["speed_up"] == pytest.approx(4) for row in drawn)
    assert all(row["speed_up_low"] is None and row["speed_up_high"] == pytest.approx(5) for row in drawn)
    assert len(drawn) > 3


@pytest.mark.parametrize(
    ("low", "high", "ends", "bar"),
    [
        (6.0, 14.0, "both", (6.0, 14.0)),
        (None, 14.0, "open_low", (1, 14.0)),
        (6.0, None, "open_high", (6.0, 16)),
        (None, None, "open_both", (1, 16)),
        (None, None, "none", None),
    ],
)
def test_the_bar_of_an_open_break_even_goes_to_the_edge(
    low: float | None, high: float | None, ends: str, bar: tuple[float, float] | None
) -> None:
    """The least certain crossing has the longest bar, not the shortest; without an interval there is none."""
    row = {"break_even_low": low, "break_even_high": high, "interval": ends}
    found = charts.reach(row | {"lowest_concurrency": 1, "highest_concurrency": 16})
    assert (None if found is None else (found["from"], found["to"])) == bar


def test_a_hostile_arm_name_is_only_text() -> None:
    """Markup in a name neither runs nor breaks the drawing."""
    run = sample.small()
    name = "<script>alert(1)</script>&\"'"
    renamed = replace(run, speed_up=run.speed_up.with_columns(pl.col("arm").replace("ngram-mod", name)))
    found = charts.speed_up(renamed, KO)
    assert found is not None
    tree = ElementTree.fromstring(found[0].svg)
    assert not list(tree.iter(f"{SVG}script"))
    assert any(text.startswith("<script>") for text in texts(tree))
