"""What a buyer signs and trades: servers and relative cost by arm, and tasks an hour per server against those per agent."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from harness.analysis.frames import RunAnalysis
from harness.analysis.offer import pareto
from reports import plot, readings
from reports.charts import Chart, Pen, known, per_workload
from reports.headlines import carried
from reports.plot import Plot, Row, layer
from reports.sections import Section
from reports.tables import Table, offer_of, table
from reports.wording import UNKNOWN, Wording, is_unknown, number

SIZE = "harness size RUN --agents N --price P --power-watts W --kwh-price K --years Y"
LEVEL = " --slo task_time_p90=40s"  # where the run states none, sizing needs one


def offer_section(analysis: RunAnalysis, words: Wording) -> Section:
    """Return the table a buyer signs: one row an arm, for each workload and over all of them."""
    frame = offer_of(analysis)
    several = analysis.summary["workload"].n_unique() > 1
    shown = _offer(frame.sort(pl.col("workload").is_not_null(), maintain_order=True) if several else frame, words)
    notes = []
    if frame.is_empty():
        notes.append(words.text("missing.table"))
    elif analysis.agents.is_empty():
        notes.append(words.text("offer.no_slo"))
    elif several:
        notes.append(words.text("offer.equal_shares"))
    return Section(
        "offer",
        words.text("section.offer"),
        words.text("lead.offer"),
        tables=(shown,) if shown.rows else (),
        notes=tuple(notes),
        code=((words.text("offer.size"), SIZE + (LEVEL if analysis.agents.is_empty() else "")),),
        sign=bool(shown.rows),
    )


def _offer(frame: pl.DataFrame, words: Wording) -> Table:
    def agents(row: Row) -> str:
        return UNKNOWN if row["capacity"] is None else carried(row, words)

    def servers(row: Row) -> str:
        if is_unknown(row["servers_per_100"]):
            return UNKNOWN
        value = number(row["servers_per_100"])
        if row["capacity"] == "at_least" and not is_unknown(
            row["servers_per_100_high"]
        ):  # else nothing bounds them from above
            value = words.text("offer.at_most", n=value)
        if row["interval"] in (None, "none"):
            return f"{value} [{UNKNOWN}]"
        limits = (row["servers_per_100_low"], row["servers_per_100_high"])
        ends = ["…" if is_unknown(end) else number(end) for end in limits]
        return f"{value} [{'–'.join(ends)}]"

    names = ("workload", "arm", "slo", "agents", "limited_by", "servers_per_100", "concurrency", "n_tasks", "task_time_mean_s",
             "tasks_per_hour", "cost_ratio")  # fmt: skip
    special = {
        "agents": agents,
        "servers_per_100": servers,
        "concurrency": lambda row: words.figure("concurrency", row["concurrency"]),
        "slo": lambda row: row["slo"] or UNKNOWN,
        "limited_by": lambda row: row["limited_by"] or UNKNOWN,
    }
    return table(frame, names, words, words.text("table.offer"), shown=special)


def pareto_charts(analysis: RunAnalysis, words: Wording) -> tuple[Chart, ...] | None:
    """Draw tasks an hour per server over tasks an hour per agent: a line an arm through its loads, named at each point."""
    rows = known(pareto(analysis.summary), "tasks_per_hour_per_agent")

    def draw(_: str, own: Sequence[Row], pen: Pen) -> Plot:
        x = plot.number(
            "tasks_per_hour_per_agent",
            title=words.header("tasks_per_hour_per_agent"),
            scale={"zero": True},
            axis={"tickCount": 6},
        )
        y = plot.number("tasks_per_hour", title=words.header("tasks_per_hour"), scale={"zero": True})
        best = [row for row in own if row["frontier"]]
        place = {"x": x, "y": y, "color": pen.colour()}
        load = plot.number("concurrency")
        return Plot(
            [
                pen.line(own, x, y, order=load),
                pen.points(own, x, y),
                layer(best, "point", place, size=190, strokeWidth=1.4, opacity=1),
                layer(best, "text", {**place, "text": load}, dx=13, dy=-8, fontSize=11),
            ]
        )

    return per_workload(
        analysis, words, "pareto", rows, draw, over="concurrency", says=lambda own: readings.pareto(own, words)
    )


def pareto_table(analysis: RunAnalysis, words: Wording) -> Table:
    """Return the points of the charts."""
    names = (
        "workload",
        "arm",
        "concurrency",
        "n_tasks",
        "task_time_mean_s",
        "tasks_per_hour",
        "tasks_per_hour_per_agent",
        "frontier",
    )
    return table(pareto(analysis.summary), names, words, words.text("table.pareto"))
