"""Charts as inline SVG: no script, no font file, no network. Text stays text, so Korean needs a font only where it is read.

Every function returns one chart a workload, and ``None`` where no workload has enough points to draw: a line needs two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from itertools import pairwise
from typing import Any

import polars as pl

from harness.analysis.frames import RunAnalysis
from harness.columns import COLUMNS
from reports import drawings, plot, readings
from reports.plot import INK, WIDTH, Channel, Layer, Plot, Row, layer, named_rows
from reports.wording import Wording, is_unknown, number

Draw = Callable[[str, Sequence[Row], "Pen"], Plot]
STRETCHES = 8  # of a line between two measured loads that is straight only in logarithms
FONTS = "system-ui, 'Malgun Gothic', 'Apple SD Gothic Neo', 'Noto Sans KR', 'Noto Sans CJK KR', NanumGothic, sans-serif"
BASELINE_COLOUR = "#808080"
# After Okabe and Ito, the light ones darkened until each has 3:1 against white and against the dark page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#B0609A", "#C47F00", "#2E93CC")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
DASHES: tuple[list[int], ...] = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 4], [12, 4])


@dataclass(frozen=True, slots=True)
class Chart:
    """One drawing: ``title`` is its heading, ``says`` the sentence below it; both are its name for screen readers."""

    title: str
    drawing: Future[str]
    says: str = ""

    @property
    def svg(self) -> str:
        """The drawing, once it is made: the charts of a page are drawn while its tables are written."""
        return self.drawing.result()


@dataclass(frozen=True, slots=True)
class Pen:
    """How the arms of a run are drawn: an arm has the same colour, shape and dash in every chart."""

    names: tuple[str, ...]
    baseline: frozenset[str]
    shown: tuple[str, ...]

    @classmethod
    def of(cls, analysis: RunAnalysis) -> Pen:
        """Take the arms in the order in which the workload files name them, then those that only the frames know."""
        declared = [arm for workload in analysis.manifest.get("workloads") or () for arm in workload.get("arms") or ()]
        frames = (analysis.summary, analysis.speed_up, analysis.acceptance)
        names = tuple(
            dict.fromkeys([arm["name"] for arm in declared] + [name for frame in frames for name in frame["arm"]])
        )
        baseline = {arm["name"] for arm in declared if arm.get("method") == "none"}
        return cls(names, frozenset(baseline) if declared else frozenset({"baseline"}), names)

    def showing(self, rows: Sequence[Row]) -> Pen:
        """Return the same pen for a chart of these rows: its legend names no arm that is not drawn."""
        present = {row["arm"] for row in rows}
        return replace(self, shown=tuple(name for name in self.names if name in present))

    def _scale(self, of_baseline: Any, of_others: Sequence[Any]) -> dict[str, Any]:
        place = {name: index for index, name in enumerate(name for name in self.names if name not in self.baseline)}
        values = [of_others[place[name] % len(of_others)] if name in place else of_baseline for name in self.shown]
        return {"domain": list(self.shown), "range": values}

    def colour(self) -> Channel:
        """Colour by arm."""
        # the band's own opacity would wash the legend out
        legend = {"symbolOpacity": 1, "symbolStrokeWidth": 2}
        return plot.name("arm", title=None, scale=self._scale(BASELINE_COLOUR, COLOURS), legend=legend)

    def line(self, rows: Sequence[Row], x: Channel, y: Channel, **further: Channel) -> Layer:
        """Return a line for each arm."""
        dash = plot.name("arm", title=None, scale=self._scale([1, 0], DASHES))
        encoding = {"x": x, "y": y, "color": self.colour(), "strokeDash": dash, **further}
        return layer(rows, "line", encoding, strokeWidth=2.2)

    def points(self, rows: Sequence[Row], x: Channel, y: Channel) -> Layer:
        """Return a point for each row."""
        shape = plot.name("arm", title=None, scale=self._scale("circle", SHAPES))
        encoding = {"x": x, "y": y, "color": self.colour(), "shape": shape}
        return layer(rows, "point", encoding, filled=True, size=55, opacity=1)


def speed_up(analysis: RunAnalysis, words: Wording) -> tuple[Chart, ...] | None:
    """Draw speed-up of task time over concurrency: a line and a 95 % band an arm, the line at 1, break-even marked on it."""
    rows = known(primary_window(analysis.speed_up), "speed_up")
    ends = [
        row[name] for row in rows for name in ("speed_up", "speed_up_low", "speed_up_high") if not is_unknown(row[name])
    ]
    if not ends:
        return None
    # one range for all workloads, so that they compare by eye, and never so narrow that noise looks like an effect
    lowest, highest = min(*ends, 0.85), max(*ends, 1.15)
    margin = 0.06 * (highest - lowest)
    domain = [lowest - margin, highest + margin]
    crossings = [
        {**row, "one": 1.0, "label": number(row["break_even"], "tasks")}
        for row in known(analysis.break_even, "break_even")
    ]

    def draw(workload: str, own: Sequence[Row], pen: Pen) -> Plot:
        x, colour = concurrency_axis(own, words), pen.colour()
        y = plot.number(
            "speed_up", title=words.header("speed_up"), scale={"domain": domain, "nice": False, "zero": False}
        )
        marks = [row for row in crossings if row["workload"] == workload and row["arm"] in pen.shown]
        spans = [{**row, **bar} for row in marks if (bar := reach(row)) is not None]
        between, one = interpolated(own), plot.number("one")
        band = {"y": plot.number("speed_up_low"), "y2": {"field": "speed_up_high"}}
        at_one = {"x": plot.number("break_even"), "y": one, "color": colour}
        span = {"x": plot.number("from"), "x2": {"field": "to"}, "y": one, "color": colour}
        return Plot(
            [
                layer([{"one": 1.0}], "rule", {"y": one}, color=INK, opacity=0.7),
                layer(between, "area", {"x": x, **band, "color": colour}, opacity=0.16),
                pen.line(between, x, y),
                pen.points(own, x, y),
                layer(spans, "rule", span, strokeWidth=5, opacity=0.45),
                layer(marks, "point", at_one, shape="diamond", filled=True, size=120, opacity=1),
                layer(marks, "text", {**at_one, "text": plot.name("label")}, dy=-12, fontWeight="bold", fontSize=12),
            ]
        )

    found = {(row["workload"], row["arm"]): row for row in analysis.break_even.iter_rows(named=True)}
    return per_workload(
        analysis,
        words,
        "speed_up",
        rows,
        draw,
        over="concurrency",
        says=lambda own: readings.speed_up(own, found, words),
    )


def interpolated(rows: Sequence[Row]) -> list[Row]:
    """Return rows of ``frames.SPEED_UP`` of one workload with further ones between every two loads of an arm.

    They are linear in log2(concurrency) and log(speed-up), as the break-even is interpolated: so the line crosses 1 where it says.
    """
    found: list[Row] = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        own = sorted((row for row in rows if row["arm"] == arm), key=lambda row: int(row["concurrency"]))
        for left, right in pairwise(own):
            found.append(left)
            found += [_between(left, right, step / STRETCHES) for step in range(1, STRETCHES)]
        found.append(own[-1])
    return found


def _between(left: Row, right: Row, share: float) -> Row:
    def at(name: str) -> float | None:
        ends = (left[name], right[name])
        if any(is_unknown(end) or end <= 0 for end in ends):
            return None
        return float(ends[0] * (ends[1] / ends[0]) ** share)

    return {**left, **{name: at(name) for name in ("concurrency", "speed_up", "speed_up_low", "speed_up_high")}}


def task_time(analysis: RunAnalysis, words: Wording) -> tuple[Chart, ...] | None:
    """Draw the median task time over concurrency, a line an arm, with a thin dashed line at p90 where there are enough tasks."""

    def draw(_: str, own: Sequence[Row], pen: Pen) -> Plot:
        x = concurrency_axis(own, words)
        y = plot.number("task_time_p50_s", title=words.text("chart.task_time_axis"), scale={"zero": True})
        high = [row for row in own if not is_unknown(row["task_time_p90_s"])]
        p90 = {"x": x, "y": plot.number("task_time_p90_s"), "color": pen.colour()}
        return Plot(
            [
                layer(high, "line", p90, strokeWidth=1.2, strokeDash=[2, 3], opacity=0.9),
                pen.line(own, x, y),
                pen.points(own, x, y),
            ]
        )

    rows = known(analysis.summary, "task_time_p50_s")
    return per_workload(
        analysis, words, "task_time", rows, draw, over="concurrency", says=lambda own: readings.task_time(own, words)
    )


def acceptance(analysis: RunAnalysis, words: Wording) -> tuple[Chart, ...] | None:
    """Draw acceptance length (filled) and tokens per pass (hollow) for each kind of step and language, pooled over loads."""
    names = ("acceptance_length", "tokens_per_pass")
    rows = [
        {**row, "step": f"{words.figure('kind', row['kind'])} · {words.figure('language', row['language'])}"}
        for row in by_kind_and_language(analysis.acceptance).iter_rows(named=True)
        if not all(is_unknown(row[name]) for name in names)
    ]

    def draw(_: str, own: Sequence[Row], pen: Pen) -> Plot:
        steps = list(dict.fromkeys(row["step"] for row in own))
        place = {
            "y": named_rows("step", steps),
            "yOffset": plot.name("arm", sort=list(pen.shown)),
            "color": pen.colour(),
        }
        x = plot.number(
            "value",
            title=words.text("chart.acceptance_axis"),
            axis={"tickCount": 6},
            scale={"zero": False, "domainMin": 1},
        )
        length, passes = ([{**row, "value": row[name]} for row in own if not is_unknown(row[name])] for name in names)
        both = [row for row in own if not any(is_unknown(row[name]) for name in names)]
        span = {"x": plot.number("tokens_per_pass"), "x2": {"field": "acceptance_length"}}
        return Plot(
            [
                layer(both, "rule", {**span, **place}, opacity=0.4),
                layer(passes, "point", {"x": x, **place}, size=55, strokeWidth=1.6, opacity=1),
                layer(length, "point", {"x": x, **place}, size=70, filled=True, opacity=1),
            ],
            height=len(steps) * max(26, 14 * len(pen.shown)),
        )

    return per_workload(
        analysis, words, "acceptance", rows, draw, over=None, says=lambda own: readings.acceptance(own, words)
    )


def survival(analysis: RunAnalysis, words: Wording) -> tuple[Chart, ...] | None:
    """Draw the share of rounds that accept at least so many drafted tokens, over the position in the draft."""
    pooled = all_steps(analysis.survival)

    def draw(_: str, own: Sequence[Row], pen: Pen) -> Plot:
        x, y = position_axis(max(row["position"] for row in own), words), _share("survival", words)
        return Plot([pen.line(own, x, y), pen.points(own, x, y)])

    rows = known(pooled, "survival")
    return per_workload(
        analysis, words, "survival", rows, draw, over="position", says=lambda own: readings.survival(own, words)
    )


def lossless(analysis: RunAnalysis, words: Wording) -> tuple[Chart, ...] | None:
    """Draw the share of steps whose output equals the baseline's, over concurrency."""

    def draw(_: str, own: Sequence[Row], pen: Pen) -> Plot:
        x, y = concurrency_axis(own, words), _share("identical_share", words)
        return Plot([pen.line(own, x, y), pen.points(own, x, y)])

    rows = known(analysis.lossless, "identical_share")
    return per_workload(
        analysis, words, "lossless", rows, draw, over="concurrency", says=lambda own: readings.lossless(own, words)
    )


def primary_window(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the speed-ups of the steady window; for an arm that has none on a workload, those of the whole cell."""
    if frame.is_empty():
        return frame
    steady = (pl.col("window") == "steady") & pl.col("speed_up").is_not_null()
    wanted = pl.when(steady.any().over("workload", "arm")).then(pl.lit("steady")).otherwise(pl.lit("whole"))
    return frame.filter(pl.col("window") == wanted)


def reach(row: Row) -> dict[str, float] | None:
    """Return the interval of a break-even as far as it lies in the measured range, ``None`` where there is none."""
    if row["interval"] in (None, "none"):
        return None
    low, high = row["break_even_low"], row["break_even_high"]
    return {
        "from": row["lowest_concurrency"] if is_unknown(low) else low,
        "to": row["highest_concurrency"] if is_unknown(high) else high,
    }


def all_steps(survival: pl.DataFrame) -> pl.DataFrame:
    """Return the survival of all steps of a workload and arm together."""
    pooled = pl.all_horizontal(pl.col(name).is_null() for name in ("kind", "language", "genre"))
    return survival.filter(pooled & pl.col("workload").is_not_null())


def by_kind_and_language(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of acceptance that tell kind and language apart and pool over concurrency."""
    apart = pl.col("kind").is_not_null() & pl.col("language").is_not_null()
    return frame.filter(apart & pl.col("concurrency").is_null()).sort(
        "workload", "language", "kind", maintain_order=True
    )


def known(frame: pl.DataFrame, name: str) -> list[Row]:
    """Return the rows of a frame that have a value of this column."""
    return [row for row in frame.iter_rows(named=True) if not is_unknown(row[name])]


def concurrency_axis(rows: Iterable[Row], words: Wording) -> Channel:
    """Return the axis of tasks in progress, by doubling."""
    levels = sorted({row["concurrency"] for row in rows})
    axis = {"values": levels, "format": "d", "grid": False, "labelFlush": False}
    scale = {"type": "log", "base": 2, "domain": [levels[0], levels[-1]], "nice": False}
    return plot.number("concurrency", title=words.text("chart.concurrency_axis"), axis=axis, scale=scale)


def position_axis(last: int, words: Wording) -> Channel:
    """Return the axis of positions in a draft, from 1."""
    axis = {"values": list(range(1, last + 1, 1 + last // 16)), "format": "d", "grid": False}
    scale = {"domain": [1, last], "nice": False}
    return plot.number("position", title=words.header("position"), axis=axis, scale=scale)


def _share(name: str, words: Wording) -> Channel:
    title = COLUMNS[name].header[words.lang]
    return plot.number(name, title=title, axis={"format": ".0%"}, scale={"domain": [0, 1]})


def per_workload(
    analysis: RunAnalysis,
    words: Wording,
    key: str,
    rows: Sequence[Row],
    draw: Draw,
    *,
    over: str | None,
    says: Callable[[Sequence[Row]], str],
) -> tuple[Chart, ...] | None:
    """Return one chart a workload that has at least two values of ``over``, each with its sentence; ``None`` if there is none."""
    pen = Pen.of(analysis)
    charts: list[Chart] = []
    for workload in dict.fromkeys(row["workload"] for row in rows):
        own = [row for row in rows if row["workload"] == workload]
        if over is None or len({row[over] for row in own}) >= 2:
            title, sentence = words.text(f"chart.{key}", workload=workload), says(own)
            charts.append(chart(draw(workload, own, pen.showing(own)), title, f"{key}-{len(charts)}", sentence))
    return tuple(charts) or None


def chart(content: Plot, title: str, prefix: str, says: str = "") -> Chart:
    """Return a plot as SVG, whose name is its title and what it says; ``prefix`` keeps ids apart from those of other drawings."""
    finish = partial(_finished, title=title, prefix=prefix, says=says)
    return Chart(title, drawings.svg(content.specification(), finish), says)


def _finished(svg: str, *, title: str, prefix: str, says: str) -> str:
    # ids are unique only within one drawing, and a page holds many; the font is set once, on the root
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg).replace(' font-family="sans-serif"', "")
    svg = re.sub(r"(\d\.\d\d)\d+", r"\1", svg)  # a hundredth of a pixel is seen by nobody
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
    width = size.group(1) if size else str(WIDTH)
    name = escape(f"{title}. {says}" if says else title, quote=True)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{name}" font-family="{FONTS}" '
    view = re.search(r'viewBox="[^"]+"', svg)
    opening = f'{head}style="max-width:{width}px" {view.group(0) if view else ""}><title>{escape(title)}</title>'
    return re.sub(r"^.*?<svg[^>]*>", lambda _: opening, svg, count=1, flags=re.DOTALL)
