"""A sizing, and what a run says of agents per server, percentiles and repeats, as tables, sentences and one HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from harness.analysis.fleet import HOURS
from harness.analysis.frames import Finding, RunAnalysis
from harness.analysis.sizing import Sizing
from harness.analysis.tornado import MIX
from harness.columns import COLUMNS
from harness.errors import RunFolderError
from reports.sections import Headline, Section, page
from reports.tables import Table, drawn, table, write_frame
from reports.wording import UNKNOWN, Wording, interval, is_unknown, number, percent, wording

PAGE = "sizing.html"
MOST_REASONS = 6
MOST_MOVED = 6  # assumptions on the console; the page and tornado.csv have all of them
_SERVERS = (
    "arm", "agents", "limited_by", "servers", "servers_saved", "agents_per_server", "task_time_mean_s", "fleet_tasks_per_hour",
)  # fmt: skip
_COSTS = ("arm", "power_watts", "power_source", "kwh_per_1000_tasks", "cost_per_1000_tasks", "cost_per_year")
_TORNADO = (
    "arm", "assumption", "source", "value", "servers_at_low", "servers_at_high", "cost_at_low", "cost_at_high", "swing",
)  # fmt: skip
_PERCENTILES = ("workload", "arm", "concurrency", "metric", "percent", "n", "n_tasks", "n_needed", "observed")
_UNIT_OF = {"tpot": "ms"}  # of the metrics of percentiles; the others are seconds
_SHARES = frozenset({"busy_share", "headroom"})

Row = Mapping[str, Any]


def agents_text(row: Row) -> str:
    """Return agents per server with their interval: "9 [7–11]", "≥ 16" where the highest measured load is carried too."""
    if is_unknown(row["agents"]):
        return UNKNOWN
    if row["capacity"] == "at_least":
        return f"≥ {number(row['agents'])}" + (
            f" [{number(row['agents_low'])}–…]" if row["agents_low"] is not None else ""
        )
    return interval(row["agents"], row["agents_low"], row["agents_high"])


def agents(analysis: RunAnalysis, words: Wording) -> Table:
    """Return the agents per server of a run, by workload and arm."""

    def workload(row: Row) -> str:
        return str(row["workload"] or words.text("agents.equal_shares"))

    names = ("workload", "arm", "slo", "agents", "capacity", "limited_by", "highest_concurrency", "n_tasks")
    return table(
        analysis.agents,
        names,
        words,
        words.text("agents.title"),
        shown={"agents": agents_text, "workload": workload},
        distinct=True,
    )


def percentiles(frame: pl.DataFrame, words: Wording) -> Table:
    """Return percentiles with bounds; one that cannot be said tells how many tasks it needs."""

    def observed(row: Row) -> str:
        unit = _UNIT_OF.get(row["metric"], "s")
        if row["observed"] is not None:
            return f"{interval(row['observed'], row['observed_low'], row['observed_high'], unit)} {unit}"
        needs = words.text("percentiles.needs", percent=row["percent"], needed=row["n_needed"], n=row["n_tasks"])
        return needs if row["observed_low"] is None else f"≥ {number(row['observed_low'], unit)} {unit} ({needs})"

    return table(
        frame, _PERCENTILES, words, words.text("percentiles.title"), shown={"observed": observed}, distinct=True
    )


def needed(row: Row, words: Wording) -> str:
    """Return what it takes to decide on one row of ``frames.REPEATS``, as a phrase."""
    if row["decided"]:
        return words.text("repeats.decided")
    known = (row["repeats_more"] is not None, row["tasks_needed"] is not None)
    key = {(True, True): "more", (True, False): "only_repeats", (False, True): "only_tasks"}.get(known, "never")
    return words.text(f"repeats.{key}", repeats=row["repeats_more"], tasks=row["tasks_needed"])


def repeats(analysis: RunAnalysis, words: Wording) -> Table:
    """Return what it takes to decide, by workload, arm and concurrency."""
    names = ("workload", "arm", "concurrency", "n_tasks", "repeats", "decided", "repeats_more", "tasks_needed")
    return table(analysis.repeats, names, words, words.text("repeats.title"), distinct=True)


def tables(sizing: Sizing, words: Wording) -> dict[str, tuple[Table, ...]]:
    """Return the tables of a sizing by section: servers, tornado, assumptions, percentiles."""
    shown = {"agents": agents_text}
    title = words.text("sizing.section.servers")
    servers = [table(sizing.arms, _SERVERS, words, title, shown=shown)]
    if any(sizing.arms[name].null_count() < sizing.arms.height for name in _COSTS[3:]):
        names = [name for name in _COSTS if sizing.arms[name].null_count() < sizing.arms.height]
        caption = f"{words.header('cost_per_1000_tasks')}{_currency(sizing)} ({words.text('sizing.best_case')})"
        servers.append(table(sizing.arms, names, words, caption))
    moved = _tornado(sizing.tornado, words)
    return {
        "servers": tuple(servers),
        "tornado": (moved,) if moved.rows else (),
        "assumptions": (_assumptions(sizing, words),),
        "percentiles": (percentiles(sizing.percentiles, words),),
    }


def _tornado(frame: pl.DataFrame, words: Wording) -> Table:
    def value(row: Row) -> str:
        tried = (row["tried_low"], row["tried_high"])
        ends = UNKNOWN if tried == (None, None) else "–".join(_value(row, end) for end in tried)
        return f"{_value(row, row['value'])} [{ends}]"

    def swing(row: Row) -> str:
        if row["swing"] is None:
            return UNKNOWN
        return f"{'≥ ' if _one_sided(row) else ''}{percent(row['swing'])} %"

    # what was stated has no interval, so the header must not say that it has one
    frame = frame.rename({f"value_{end}": f"tried_{end}" for end in ("low", "high")})
    names = [name for name in _TORNADO if name == "value" or frame[name].null_count() < frame.height]
    shown = {"value": value, "swing": swing, "assumption": lambda row: _named(row, words)}
    return table(frame, names, words, words.text("sizing.section.tornado"), shown=shown)


def _named(row: Row, words: Wording) -> str:
    """Return the assumption in words; a share of the mix names its workload."""
    name = str(row["assumption"])
    if name.startswith(MIX):
        return words.text("assumption.mix_of", workload=name.removeprefix(MIX))
    return words.text(f"assumption.{name}")


def _one_sided(row: Row) -> bool:
    return (row["servers_at_low"] is None) != (row["servers_at_high"] is None)


def moving(sizing: Sizing, words: Wording) -> str:
    """Return what moves the answer of the best arm most, and which inputs have no interval, or one end of it; empty without one."""
    moved = sizing.tornado.filter(pl.col("arm") == _in_order(sizing)["arm"][0])
    if moved.is_empty():
        return ""
    rows = list(moved.iter_rows(named=True))
    top = rows[0]
    place = {
        "swing": f"{'≥ ' if _one_sided(top) else ''}{percent(top['swing'])} %",
        "low": _value(top, top["value_low"]),
        "high": _value(top, top["value_high"]),
    }
    name = _named(top, words)
    said = [words.text("sizing.moves_most", arm=top["arm"], assumption=name, **place)]
    for key, of in (
        ("one_sided", [row for row in rows if _one_sided(row)]),
        ("no_interval", [row for row in rows if row["swing"] is None]),
    ):
        if of:
            names = ", ".join(_named(row, words) for row in of)
            said.append(words.text(f"sizing.{key}", names=names))
    return " ".join(said)


def _value(row: Row, value: float | None) -> str:
    if value is None:
        return "…"
    return f"{percent(value)} %" if row["assumption"] in _SHARES or row["assumption"].startswith(MIX) else number(value)


def _assumptions(sizing: Sizing, words: Wording) -> Table:
    given = sizing.assumptions
    missing = words.text("sizing.not_stated")
    rows = [
        ("slo", sizing.slo),
        ("mix", _mix(sizing)),
        ("agents", number(given.agents)),
        ("busy_share", f"{percent(given.busy_share)} %"),
        ("headroom", f"{percent(given.headroom)} %"),
        ("price", missing if given.price is None else number(given.price) + _currency(sizing)),
        ("years", missing if given.years is None else number(given.years)),
        ("hours", words.text("sizing.all_hours") if given.hours == HOURS else number(given.hours)),
        ("power_watts", missing if given.power_watts is None else number(given.power_watts)),
        ("kwh_price", missing if given.kwh_price is None else number(given.kwh_price) + _currency(sizing)),
    ]
    headers = (words.header("assumption"), words.header("value"))
    named = tuple((words.text(f"assumption.{key}"), value) for key, value in rows)
    return Table(words.text("sizing.section.assumptions"), headers, (False, False), named)


def _mix(sizing: Sizing) -> str:
    return ", ".join(f"{name} {percent(share)} %" for name, share in sizing.assumptions.mix.items())


def _currency(sizing: Sizing) -> str:
    return f" {sizing.assumptions.currency}" if sizing.assumptions.currency else ""


def sentences(sizing: Sizing, words: Wording) -> list[str]:
    """Return one sentence an arm, the cheapest (or the one with the fewest servers) with a drafter first, the baseline last."""
    return [_sentence(row, sizing, words) for row in _in_order(sizing).iter_rows(named=True)]


def _in_order(sizing: Sizing) -> pl.DataFrame:
    order = ("cost_per_1000_tasks", "servers")
    return sizing.arms.sort(pl.col("arm") == pl.lit(sizing.baseline), *order, nulls_last=True, maintain_order=True)


def _sentence(row: Row, sizing: Sizing, words: Wording) -> str:
    if row["servers"] is None:
        place = dict(sizing.reasons[row["arm"]])
        if "observed" in place:
            unit = _UNIT_OF.get(place["metric"], "s")
            place["observed"] = f"{number(place['observed'], unit)} {unit}"
        reason = words.text(f"sizing.reason.{place.pop('key')}", **place)
        return words.text("sizing.arm_without", arm=row["arm"], reason=reason)
    low, high = row["servers_low"], row["servers_high"]
    ends = (low is not None, high is not None)
    key = {(True, True): "both", (True, False): "low", (False, True): "high"}.get(ends, "none")
    fewer = words.text("sizing.verdict.limit_fewer") if row["capacity"] == "at_least" else ""
    limits = words.text(f"sizing.verdict.limit_{key}", low=low, high=high, fewer=fewer)
    place = {"agents": number(sizing.assumptions.agents), "slo": sizing.slo, "interval": limits}
    text = words.text("sizing.verdict.line", arm=row["arm"], servers=row["servers"], **place)
    saved = row["servers_saved"]
    if sizing.baseline is None:
        text += words.text("sizing.verdict.no_baseline")
    elif saved is not None:
        text += _difference(saved, (row["servers_saved_low"], row["servers_saved_high"]), sizing, words)
    if row["cost_per_1000_tasks"] is not None:
        figures = [row[f"cost_per_1000_tasks{end}"] for end in ("", "_low", "_high")]
        cost, currency = interval(*figures), _currency(sizing)
        if figures[1] is figures[2] is None:
            cost = words.text("sizing.verdict.without_interval", cost=number(figures[0]), currency=currency)
            currency = ""
        text += words.text("sizing.verdict.cost", cost=cost, currency=currency)
    return text


def _difference(saved: int, ends: tuple[int | None, int | None], sizing: Sizing, words: Wording) -> str:
    """Say how many servers fewer, or more, than without a drafter, where the interval of the paired difference bears it out."""
    shown = (ends[0] is not None and ends[0] > 0) or (ends[1] is not None and ends[1] < 0)
    key = "same" if saved == 0 else "not_shown" if not shown else "saved" if saved > 0 else "more"
    if saved < 0 and shown:
        ends = (None if ends[1] is None else -ends[1], None if ends[0] is None else -ends[0])
    low, high = ("…" if end is None else number(end) for end in ends)
    known = ends != (None, None)
    limits = words.text(f"sizing.verdict.difference_{'ends' if known else 'none'}", low=low, high=high)
    return words.text(f"sizing.verdict.{key}", n=abs(saved), baseline=sizing.baseline, interval=limits)


def left_out(sizing: Sizing, words: Wording) -> str:
    """Return what the costs leave out and which options would add it, empty where nothing was asked of costs or all is there."""
    given = sizing.assumptions
    sized = sizing.arms.filter(pl.col("servers").is_not_null())
    known = {
        "--price": given.price is not None,
        "--power-watts": sized["power_watts"].null_count() == 0,
        "--kwh-price": given.kwh_price is not None,
    }
    asked = known["--price"] or known["--kwh-price"] or given.power_watts is not None
    missing = [option for option, there in known.items() if not there]
    if not asked or not missing:
        return ""
    key = "electricity" if known["--price"] else "costs"
    named = missing[0].replace("--price", "--price, --years")
    for option in missing[1:]:
        named = words.text("sizing.left_out.both", one=named, other=option)
    return words.text(f"sizing.left_out.{key}", missing=named)


def headline(sizing: Sizing, lang: str) -> str:
    """Return the last line of the command: the best arm's sentence, or why there is none, and the reasons for doubt."""
    words = wording(lang)
    first = sentences(sizing, words)
    if sizing.arms["servers"].null_count() == sizing.arms.height:
        return " ".join(first)
    doubt = doubts(sizing, words)
    rest = [left_out(sizing, words), words.text("sizing.doubt", names=doubt) if doubt else ""]
    return " ".join(part for part in (first[0], *rest) if part)


def doubts(sizing: Sizing, words: Wording) -> str:
    """Return why to trust the figures less, each reason once, invalid ones first; empty where there is none."""
    found = sorted(sizing.doubts, key=lambda item: (item.severity != "invalid", item.code != "cells_unfinished"))
    names = list(dict.fromkeys(_reason(item, words) for item in found))
    rest = len(names) - MOST_REASONS
    if rest > 0:
        names = [*names[:MOST_REASONS], words.text("verdict.more_reasons", n=rest)]
    return ", ".join(names)


def _reason(item: Finding, words: Wording) -> str:
    share, language = item.values.get("share"), item.values.get("language")
    place = {
        "share": percent(share) if isinstance(share, float) and not is_unknown(share) else None,
        "languages": None if language is None else words.label("language", str(language)),
    }
    values = {**item.values, **place}
    own = words.optional(f"sizing.caveat.{item.code}", **values)  # said with its counts
    text = own or words.optional(f"caveat.{item.code}", **values) or words.text("caveat_unknown", code=item.code)
    return f"{words.text('severity.invalid')}: {text}" if item.severity == "invalid" else text


def console(sizing: Sizing, lang: str) -> str:
    """Return the tables and a sentence an arm; the best arm's own is :func:`headline`."""
    words = wording(lang)
    found = tables(sizing, words)
    order = _in_order(sizing)
    moved = sizing.tornado.filter(pl.col("arm") == order["arm"][0])
    blocks = [drawn(item) for item in (*found["assumptions"], *found["servers"])]
    if moved.height:
        blocks.append(drawn(_tornado(moved.head(MOST_MOVED), words)))
    blocks.append("\n".join(sentences(sizing, words)[1:]))
    blocks.append(moving(sizing, words))
    return "\n\n".join(block for block in blocks if block)


def write_all(sizing: Sizing, folder: Path, lang: str) -> Path:
    """Write ``sizing.csv``, ``tornado.csv`` and :data:`PAGE` into a folder, over older ones; return the page's path.

    Raises:
        RunFolderError: if a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / PAGE
        path.write_text(render(sizing, lang), encoding="utf-8", newline="\n")
        write_frame(sizing.arms, folder / "sizing.csv", ())
        write_frame(sizing.tornado, folder / "tornado.csv", ())
    except OSError as error:
        place = error.filename or folder
        raise RunFolderError(
            f"cannot write {place}: {error.strerror}; close it where it is open, or choose another folder with --out"
        ) from error
    return path


def render(sizing: Sizing, lang: str) -> str:
    """Return the page as text."""
    words = wording(lang)
    doubt = doubts(sizing, words)
    invalid = any(item.severity == "invalid" for item in sizing.doubts)
    level = "invalid" if invalid else "limited" if doubt else "clear"
    found = tables(sizing, words)
    names = list(dict.fromkeys(name for columns in (_SERVERS, _COSTS, _TORNADO, _PERCENTILES) for name in columns))
    rows = tuple(
        (f"{COLUMNS[name].header[lang]} ({name})", COLUMNS[name].definition[lang], words.unit(COLUMNS[name].unit))
        for name in names
    )
    headers = tuple(words.text(f"table.{key}") for key in ("column", "definition", "unit"))
    glossary = Table(words.text("table.glossary"), headers, (False,) * 3, rows)
    notes = {"servers": left_out(sizing, words), "tornado": moving(sizing, words)}
    parts = [
        Section(
            key,
            words.text(f"sizing.section.{key}"),
            words.text(f"sizing.lead.{key}"),
            tables=shown,
            notes=tuple(filter(None, (notes[key],))) if key in notes else (),
            detail=key == "percentiles",
        )
        for key, shown in found.items()
        if shown
    ]
    parts.append(
        Section(
            "glossary", words.text("section.glossary"), words.text("lead.glossary"), tables=(glossary,), detail=True
        )
    )
    content = {
        "title": words.text("sizing.title"),
        "subtitle": words.text(
            "sizing.subtitle", run=Path(sizing.run).name, agents=number(sizing.assumptions.agents), mix=_mix(sizing)
        ),
        "headlines": [
            Headline(text, level, doubt or words.text("sizing.no_doubt")) for text in sentences(sizing, words)
        ],
        "nothing": None,
        "sections": parts,
    }
    return page(words, content)
