"""Two drawings of a comparison: acceptance length by language, and survival by draft position, before and after."""

from __future__ import annotations

import altair as alt
import polars as pl

from harness.analysis.compare import Comparison
from reports.charts import BASELINE_COLOUR, COLOURS, DASHES, LABEL_PX, Chart, chart, inline
from reports.wording import Wording, text_width

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
        extent = LABEL_PX * max(map(text_width, names)) + 8
        y = alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelLimit=extent, minExtent=extent, grid=True))
        scale = alt.Scale(zero=False, domainMin=1)
        axis = alt.Axis(tickCount=6)
        title = words.header("acceptance_length")
        before, after = (
            inline(rows).encode(x=alt.X(f"acceptance_length_{side}:Q", title=title, axis=axis, scale=scale), y=y)
            for side in ("before", "after")
        )
        layers = [
            before.mark_rule(opacity=0.6, strokeWidth=3, color=COLOURS[0])
            .encode(x2="acceptance_length_after:Q")
            .properties(height=ROW_PX * len(names)),
            before.mark_point(size=70, strokeWidth=1.8, opacity=1, color=BASELINE_COLOUR),
            after.mark_point(size=80, filled=True, opacity=1, color=COLOURS[0]),
        ]
        name = words.text("chart.compared_acceptance", arms=pair_name(part["arm_before"][0], part["arm_after"][0]))
        charts.append(chart(layers, name, f"acceptance-{place}"))
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
        axis = alt.Axis(values=list(range(1, last + 1, 1 + last // 16)), format="d", grid=False)
        x = alt.X(
            "position:Q", title=words.header("position"), axis=axis, scale=alt.Scale(domain=[1, last], nice=False)
        )
        y = alt.Y(
            "survival:Q", title=words.header("survival"), axis=alt.Axis(format=".0%"), scale=alt.Scale(domain=[0, 1])
        )
        colour = alt.Color("side:N", title=None, scale=alt.Scale(domain=sides, range=[BASELINE_COLOUR, COLOURS[0]]))
        dash = alt.StrokeDash("side:N", title=None, scale=alt.Scale(domain=sides, range=[DASHES[1], DASHES[0]]))
        base = inline(rows).encode(x=x, y=y, color=colour)
        layers = [
            base.mark_line(strokeWidth=2.2).encode(strokeDash=dash),
            base.mark_point(filled=True, size=55, opacity=1),
        ]
        name = words.text("chart.compared_survival", arms=pair_name(part["arm_before"][0], part["arm_after"][0]))
        charts.append(chart(layers, name, f"survival-{place}"))
    return tuple(charts)


def pair_name(before: str, after: str) -> str:
    """Return a pair of arms as one name."""
    return after if before == after else f"{before} → {after}"
