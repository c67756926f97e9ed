"""Two drawings of a comparison: acceptance length by language, and survival by draft position, before and after."""

from __future__ import annotations

import polars as pl

from harness.analysis.compare import Comparison
from reports import plot
from reports.charts import BASELINE_COLOUR, COLOURS, DASHES, Chart, chart, position_axis
from reports.plot import Plot, layer, named_rows
from reports.wording import Wording

ROW_PX = 34


def acceptance(comparison: Comparison, words: Wording) -> tuple[Chart, ...]:
    """Draw a row a language for each pair of arms: hollow before, filled after, the bar between them is the change."""
    charts = []
    pooled = (
        pl.col("workload").is_null()
        & pl.col("kind").is_null()
        & pl.col("language_group").is_null()
        & pl.col("genre").is_null()
        & pl.col("concurrency").is_null()
    )
    frame = comparison.acceptance.filter(pooled & pl.col("acceptance_length_change").is_not_null())
    for place, part in enumerate(frame.partition_by("arm_before", "arm_after", maintain_order=True)):
        rows = [{**row, "name": words.figure("language", row["language"])} for row in part.iter_rows(named=True)]
        names = [row["name"] for row in rows]
        y, scale, axis = named_rows("name", names), {"zero": False, "domainMin": 1}, {"tickCount": 6}
        title = words.header("acceptance_length")
        before, after = (
            {"x": plot.number(f"acceptance_length_{side}", title=title, axis=axis, scale=scale), "y": y}
            for side in ("before", "after")
        )
        change = {**before, "x2": {"field": "acceptance_length_after"}}
        layers = [
            layer(rows, "rule", change, opacity=0.6, strokeWidth=3, color=COLOURS[0]),
            layer(rows, "point", before, size=70, strokeWidth=1.8, opacity=1, color=BASELINE_COLOUR),
            layer(rows, "point", after, size=80, filled=True, opacity=1, color=COLOURS[0]),
        ]
        name = words.text("chart.compared_acceptance", arms=pair_name(part["arm_before"][0], part["arm_after"][0]))
        charts.append(chart(Plot(layers, ROW_PX * len(names)), name, f"acceptance-{place}"))
    return tuple(charts)


def survival(comparison: Comparison, words: Wording) -> tuple[Chart, ...]:
    """Draw the survival over the position, a dashed line before and a whole one after, for each pair of arms."""
    charts = []
    frame = comparison.survival.filter(pl.col("workload").is_null() & pl.col("language").is_null())
    sides = [words.text("comparison.before"), words.text("comparison.after")]
    for place, part in enumerate(frame.partition_by("arm_before", "arm_after", maintain_order=True)):
        rows = [
            {"side": name, "position": row["position"], "survival": row[f"survival_{side}"]}
            for row in part.iter_rows(named=True)
            for side, name in zip(("before", "after"), sides, strict=True)
            if row[f"survival_{side}"] is not None
        ]
        last = max((row["position"] for row in rows), default=0)
        if last < 2:
            continue
        scale = {"domain": sides, "range": [BASELINE_COLOUR, COLOURS[0]]}
        encoding = {
            "x": position_axis(last, words),
            "y": plot.number(
                "survival", title=words.header("survival"), axis={"format": ".0%"}, scale={"domain": [0, 1]}
            ),
            "color": plot.name("side", title=None, scale=scale),
        }
        dash = plot.name("side", title=None, scale={"domain": sides, "range": [DASHES[1], DASHES[0]]})
        layers = [
            layer(rows, "line", {**encoding, "strokeDash": dash}, strokeWidth=2.2),
            layer(rows, "point", encoding, filled=True, size=55, opacity=1),
        ]
        name = words.text("chart.compared_survival", arms=pair_name(part["arm_before"][0], part["arm_after"][0]))
        charts.append(chart(Plot(layers), name, f"survival-{place}"))
    return tuple(charts)


def pair_name(before: str, after: str) -> str:
    """Return a pair of arms as one name."""
    return after if before == after else f"{before} → {after}"
