"""The report as one HTML page: no script, no network, every chart beside its table, readable on a phone and on A4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from harness.analysis.cautions import of_place
from harness.analysis.frames import RunAnalysis, Verdict
from harness.columns import COLUMNS
from reports import buyer, charts, drafters, languages, objectives, predictions, servers, sizing, trust
from reports.fitting import fitted
from reports.headlines import headlines
from reports.sections import Section, page
from reports.synthetic import marked
from reports.tables import Table, break_even, count, header, hint, table
from reports.verdict import Context, certainty, last_line, leading, side_text
from reports.wording import Wording, crossing, interval, wording

MOST_PERCENTILES = 120  # rows on the page; percentiles.csv has all of them
TERMS = ("cell", "round", "pass")  # words of the column definitions that are no columns themselves


def render(analysis: RunAnalysis, lang: str) -> str:
    """Return the whole page as text, no larger than ``fitting.MOST_BYTES``."""
    return begun(analysis, lang)()


def begun(analysis: RunAnalysis, lang: str) -> Callable[[], str]:
    """Return what finishes the page; its charts are drawn from now on, whatever else is done before."""
    words = wording(lang)
    analysis = marked(analysis, words.text("synthetic"))
    manifest = analysis.manifest
    engine = manifest.get("engine") or {}
    content = {
        "title": words.text("title"),
        "subtitle": words.text(
            "subtitle",
            workloads=", ".join(str(item.get("name")) for item in manifest.get("workloads") or ()) or None,
            engine=" ".join(str(engine[key]) for key in ("engine", "version") if engine.get(key)) or None,
            created=trust.started(manifest),
        ),
        "headlines": headlines(analysis, words),
        "nothing": None if leading(analysis) else last_line(analysis, lang),
    }
    parts = sections(analysis, words)
    return lambda: fitted(parts, words, lambda shown: page(words, {**content, "sections": shown}))


def sections(analysis: RunAnalysis, words: Wording) -> list[Section]:
    """Return the parts of the page in reading order; a part without any content still says why it is empty."""
    load = ("workload", "arm", "concurrency")
    parts = [
        buyer.offer_section(analysis, words),
        Section("verdicts", words.text("table.verdicts"), _legend(analysis, words), (), _some(_verdicts(analysis, words))),
        _figure(
            analysis, words, "speed_up", charts.speed_up,
            _speed_up(analysis, words), break_even(analysis, ("workload", "arm", "break_even", "side", "lowest_concurrency",
                                                              "highest_concurrency", "n_tasks"), words, words.text("table.break_even")),
            sizing.repeats(analysis, words),
        ),
        _figure(
            analysis, words, "task_time", charts.task_time,
            _of(analysis.summary, (*load, "n_tasks", "n_steps_failed", "task_time_mean_s", "task_time_p50_s", "task_time_p90_s",
                                   "task_time_no_wait_mean_s", "tasks_per_hour", "output_tokens_per_s"), words, "task_time"),
            _of(analysis.summary, (*load, "n_steps", "ttft_p50_s", "ttft_p90_s", "tpot_p50_ms", "tpot_p90_ms", "step_latency_p50_s",
                                   "step_latency_p90_s"), words, "latency"),
            _of(charts.by_kind_and_language(analysis.acceptance), ("workload", "arm", "language", "kind", "n_steps", "ttft_p50_s",
                                                                   "tpot_p50_ms", "step_latency_p50_s"), words, "latency_by_step"),
            _percentiles(analysis, words),
        ),
        _figure(
            analysis, words, "acceptance", charts.acceptance,
            _acceptance(analysis, words),
            _of(_drafting(_by_load(analysis.acceptance)), (*load, "n_steps", "n_steps_with_rounds", "num_drafts", "num_accepted_in_rounds",
                                                "acceptance_length", "num_draft_tokens", "num_accepted_tokens", "acceptance_rate",
                                                "tokens_per_pass", "cautions"), words, "acceptance_by_load"),
        ),
        languages.section(analysis, words),
        _figure(analysis, words, "survival", charts.survival, _survival(analysis, words)),
        drafters.section(analysis, words),
        _figure(analysis, words, "pareto", buyer.pareto_charts, buyer.pareto_table(analysis, words)),
        predictions.section(analysis, words),
        _figure(
            analysis, words, "lossless", charts.lossless,
            _of(analysis.lossless, (*load, "n_steps", "n_identical", "identical_share", "first_difference_token_min",
                                    "first_difference_token_p50", "example_step"), words, "lossless"),
        ),
    ]  # fmt: skip
    goals = _some(objectives.slo(analysis, words), objectives.thresholds(analysis, words))
    if goals:
        parts.append(
            Section("objectives", words.text("section.objectives"), words.text("lead.objectives"), tables=goals)
        )
    found = _some(_findings(analysis, words))
    parts += [
        Section("findings", words.text("section.findings"), words.text("lead.findings" if found else "lead.findings_none"), tables=found),
        Section("not-measured", words.text("section.not_measured"), words.text("lead.not_measured"),
                bullets=tuple(trust.not_measured(analysis, words))),
        _trust(analysis, words),
        Section("glossary", words.text("section.glossary"), words.text("lead.glossary"), tables=(glossary(words),), detail=True),
    ]  # fmt: skip
    return [part for part in parts if part.id != "verdicts" or analysis.verdicts]


def glossary(words: Wording) -> Table:
    """Return the words of the instrument, then every column with unit, definition and direction."""
    terms = tuple((words.text(f"term.{key}.name"), words.text(f"term.{key}.definition"), "", "") for key in TERMS)
    rows = tuple(
        (
            f"{column.header[words.lang]} ({column.name})",
            column.definition[words.lang],
            words.unit(column.unit),
            words.text(f"better.{column.better}") if column.better else "",
        )
        for column in COLUMNS.values()
    )
    headers = tuple(words.text(f"table.{key}") for key in ("column", "definition", "unit", "direction"))
    return Table(words.text("table.glossary"), headers, (False,) * 4, terms + rows)


def _figure(
    analysis: RunAnalysis,
    words: Wording,
    key: str,
    draw: Callable[[RunAnalysis, Wording], tuple[charts.Chart, ...] | None],
    *shown: Table,
) -> Section:
    drawn, rows = draw(analysis, words), _some(*shown)
    notes = [] if drawn else [words.text(f"missing.{key}_chart")]
    if not rows:
        notes.append(words.text("missing.table"))
    return Section(
        key.replace("_", "-"), words.text(f"section.{key}"), words.text(f"lead.{key}"), drawn or (), rows, tuple(notes)
    )


def _trust(analysis: RunAnalysis, words: Wording) -> Section:
    again = trust.rerun(analysis.manifest)
    code = [(words.text("trust.report_again"), "harness report RUN")]
    if again:
        code.insert(0, (f"{words.text('trust.rerun')} ({words.text('trust.rerun_same')})", again))
    notes = [words.text("trust.not_recorded")] if again is None else []
    if (servers_differ := servers.note(analysis.manifest, words)) is not None:
        notes.insert(0, servers_differ)
    if not trust.errors(analysis, words).rows:
        notes.append(words.text("trust.no_errors"))
    shown = tuple(trust.tables(analysis, words))
    return Section(
        "trust",
        words.text("section.trust"),
        words.text("lead.trust"),
        (),
        shown,
        tuple(notes),
        (),
        tuple(code),
        detail=True,
    )


def _of(frame: pl.DataFrame, names: Sequence[str], words: Wording, caption: str) -> Table:
    return table(frame, names, words, words.text(f"table.{caption}"))


def _percentiles(analysis: RunAnalysis, words: Wording) -> Table:
    """Return the percentiles of what an agent waits for: the first token and the whole task."""
    frame = analysis.percentiles.filter(pl.col("metric").is_in(["ttft", "task_time"]))
    shown = sizing.percentiles(frame.head(MOST_PERCENTILES), words)
    rest = frame.height - MOST_PERCENTILES
    caption = f"{shown.caption} ({words.text('table.capped', n=rest)})" if rest > 0 else shown.caption
    return replace(shown, caption=caption)


def _some(*tables: Table) -> tuple[Table, ...]:
    return tuple(item for item in tables if item.rows)


def _drafting(frame: pl.DataFrame) -> pl.DataFrame:
    names = ("num_draft_tokens", "acceptance_length", "tokens_per_pass")
    return frame.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in names))


def _by_load(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("kind").is_null() & pl.col("language").is_null() & pl.col("concurrency").is_not_null())


def _acceptance(analysis: RunAnalysis, words: Wording) -> Table:
    """Return acceptance by kind and language."""
    return _of(
        _drafting(charts.by_kind_and_language(analysis.acceptance)),
        ("workload", "arm", "language", "kind", "n_steps", "n_steps_with_rounds", "num_drafts", "num_accepted_in_rounds",
         "acceptance_length", "acceptance_length_macro", "tokens_per_pass", "acceptance_rate", "repetitive_share", "cut_share",
         "identical_share", "cautions"),
        words,
        "acceptance",
    )  # fmt: skip


def _speed_up(analysis: RunAnalysis, words: Wording) -> Table:
    main = charts.primary_window(analysis.speed_up)
    names = ("workload", "arm", "concurrency", "n_tasks", "window", "speed_up", "speed_up_no_wait")
    shown = table(main, names, words, words.text("table.speed_up"), distinct=True)
    whole = {
        (row["workload"], row["arm"], row["concurrency"]): words.figure("speed_up", row["speed_up"])
        for row in analysis.speed_up.filter(pl.col("window") == "whole").iter_rows(named=True)
    }
    keys = main.select("workload", "arm", "concurrency").iter_rows()
    cells = [(whole.get(key, words.figure("speed_up", None)),) for key in keys]
    return shown.with_columns((words.text("table.whole_window"),), (True,), cells, (hint("window", words),))


def _survival(analysis: RunAnalysis, words: Wording) -> Table:
    pooled = charts.all_steps(analysis.survival)
    positions = sorted(pooled["position"].drop_nulls().unique().to_list())
    by_arm: dict[tuple[str, str], dict[int, str]] = {}
    cautions = {(row["workload"], row["arm"]): words.cautions(row["cautions"]) for row in pooled.iter_rows(named=True)}
    for row in pooled.iter_rows(named=True):
        by_arm.setdefault((row["workload"], row["arm"]), {})[row["position"]] = words.figure(
            "survival", row["survival"]
        )
    rows = tuple(
        (*key, *(values.get(position, "") for position in positions), cautions[key]) for key, values in by_arm.items()
    )
    headers = (words.header("workload"), words.header("arm"), *map(str, positions), words.header("cautions"))
    of_positions = [hint("survival", words)] * len(positions)
    hints = (hint("workload", words), hint("arm", words), *of_positions, hint("cautions", words))
    rounds = {(row["workload"], row["arm"]): count(row, words) for row in pooled.iter_rows(named=True)}
    counts = tuple(rounds[key] for key in by_arm)
    numeric = (False, False, *[True] * len(positions), False)
    return Table(f"{words.text('table.survival')} (%)", headers, numeric, rows, hints, counts)


def _verdicts(analysis: RunAnalysis, words: Wording) -> Table:
    context = Context.of(analysis)
    found = {(row["workload"], row["arm"]): row["interval"] for row in analysis.break_even.iter_rows(named=True)}

    def at(point: tuple[float, float, float] | None, load: int | None) -> str:
        return f"{interval(*point, 'x')} @ {load}" if point else words.figure("speed_up", None)

    def row(item: Verdict) -> tuple[str, ...]:
        ends = found.get((item.workload, item.arm))
        reached = crossing(item.break_even, item.break_even_low, item.break_even_high, ends)
        share = words.figure("identical_share", item.identical_share)
        length = words.figure("acceptance_length", item.acceptance_length)
        place = item.workload or words.text("all")
        level = certainty(item, context)
        bearing = "" if item.acceptance_length is None else of_place(analysis.findings, item.workload, item.arm, None)
        points = (at(item.speed_up_first, item.lowest_concurrency), at(item.speed_up_last, item.highest_concurrency))
        return (
            place,
            item.arm,
            *points,
            reached,
            side_text(item, words),
            words.figure("n_tasks", item.n_tasks),
            share,
            length,
            words.cautions(bearing),
            words.text(f"certainty.short.{level}"),
        )

    headers = (
        words.header("workload"), words.header("arm"), words.text("table.at_lowest"), words.text("table.at_highest"),
        f"{words.header('break_even')} [95\u00a0%]", words.header("side"), header("n_tasks", words, True), words.header("identical_share"),
        words.header("acceptance_length"), words.header("cautions"), words.text("certainty.title"),
    )  # fmt: skip
    numeric = (False, False, True, True, True, False, True, True, True, False, False)
    names = (
        "workload", "arm", "speed_up", "speed_up", "break_even", "side", "n_tasks", "identical_share", "acceptance_length", "cautions",
    )  # fmt: skip
    hints = (*(hint(name, words) for name in names), _legend(analysis, words))
    return Table(words.text("table.verdicts"), headers, numeric, tuple(row(item) for item in analysis.verdicts), hints)


def _legend(analysis: RunAnalysis, words: Wording) -> str:
    context = Context.of(analysis)
    levels = dict.fromkeys(certainty(item, context) for item in analysis.verdicts)
    meanings = (f"{words.text(f'certainty.short.{level}')} = {words.text(f'certainty.{level}')}" for level in levels)
    return f"{words.text('certainty.title')}: {'; '.join(meanings)}."


def _findings(analysis: RunAnalysis, words: Wording) -> Table:
    headers = (words.text("table.severity"), words.header("workload"), words.header("arm"), words.text("table.finding"))
    rows = tuple(
        (
            words.text(f"severity.{item.severity}"),
            item.workload or words.text("all"),
            item.arm or words.text("all"),
            words.finding(item),
        )
        for item in analysis.findings
    )
    return Table(words.text("table.findings"), headers, (False,) * 4, rows)
