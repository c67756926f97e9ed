"""What is predicted with the cost model of a run: tables, sentences, and what other tools take from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from harness.analysis.frames import RunAnalysis
from harness.analysis.handover import aiconfigurator, vllm
from reports import contradictions
from reports.sections import Section
from reports.tables import Table, table
from reports.wording import Wording, crossing, is_unknown, number, percent

COSTS = (
    "part",
    "arm",
    "batch_size",
    "round_tokens",
    "context_tokens",
    "n_rounds",
    "measured_ms",
    "modelled_ms",
    "residual_share",
    "cost_source",
)
FASTEST = (
    "arm",
    "batch_size",
    "num_tokens",
    "tokens_per_pass",
    "plain_ms",
    "draft_ms",
    "verify_ms",
    "host_ms",
    "decode_speed_up",
)
CROSSINGS = (
    "workload",
    "arm",
    "num_tokens",
    "batch_break_even",
    "break_even_modelled",
    "side",
    "highest_batch",
    "break_even",
)
Row = Mapping[str, Any]


def section(analysis: RunAnalysis, words: Wording) -> Section:
    """Return the part of the page about predictions; without a model it says why there is none."""
    found = tuple(
        item
        for item in (fastest(analysis.predicted, words), crossings(analysis, words), costs(analysis, words))
        if item.rows
    )
    return Section(
        "predicted",
        words.text("section.predicted"),
        words.text("lead.predicted"),
        (),
        found,
        tuple(sentences(analysis, words)),
        (),
        tuple(hand_overs(analysis, words)),
        detail=True,
    )


def sentences(analysis: RunAnalysis, words: Wording) -> Iterator[str]:
    """Yield what the predictions say of each arm over all its workloads, and how well the model fits."""
    if analysis.predicted_break_even.is_empty():
        reason = "no_drafter" if analysis.costs.height else "no_baseline"
        yield words.text("predicted.none", reason=words.text(f"predicted.{reason}"))
        return
    for longest in _longest(analysis):
        arm = longest["arm"]
        against = contradictions.of_arm(analysis, longest, words)
        yield " ".join((_of_arm(longest, words), *against))
        alone = widest(analysis.predicted).filter((pl.col("arm") == arm) & (pl.col("batch_size") == 1) & pl.col("best"))
        for row in alone.iter_rows(named=True):
            if row["num_tokens"] == 0:
                yield words.text("predicted.alone_none")
            else:
                speed_up = number(row["decode_speed_up"], "x")
                yield words.text("predicted.alone", num_tokens=row["num_tokens"], speed_up=speed_up)
        single = contradictions.measured_speeds(analysis, longest).filter(pl.col("concurrency") == 1)
        for row in single.iter_rows(named=True):
            measured = contradictions.speed(row)
            yield words.text("predicted.alone_measured", measured=measured, num_tokens=longest["num_tokens"])
    yield _error(analysis.costs, words)
    unusable = contradictions.invalid(analysis, words)
    if unusable is not None:
        yield unusable


def doubts(analysis: RunAnalysis, words: Wording) -> str | None:
    """Return in one sentence why the predictions are not to be relied on, ``None`` where the run gives no reason."""
    if analysis.predicted_break_even.is_empty():
        return None
    off = contradictions.residual(analysis.costs)
    found = (
        words.text("predicted.doubt_invalid") if contradictions.invalid(analysis, words) else None,
        words.text("predicted.doubt_residual", residual=percent(off))
        if off is not None and off > contradictions.FAR_OFF
        else None,
        words.text("predicted.doubt_against")
        if any(True for row in _longest(analysis) for _ in contradictions.of_arm(analysis, row, words))
        else None,
    )
    reasons = [item for item in found if item is not None]
    return words.text("predicted.doubt", reasons="; ".join(reasons)) if reasons else None


def _longest(analysis: RunAnalysis) -> Iterator[Row]:
    """Yield the modelled break-even of each arm at its longest draft, over all its workloads."""
    whole = widest(analysis.predicted_break_even)
    longest = pl.col("num_tokens") == pl.col("num_tokens").max().over("arm")
    yield from whole.filter(longest).unique("arm", keep="first", maintain_order=True).iter_rows(named=True)


def _of_arm(row: Row, words: Wording) -> str:
    tasks, measured = "", ""
    if not is_unknown(row["break_even_modelled"]):
        tasks = words.text("predicted.tasks", tasks=number(row["break_even_modelled"], "tasks"))
    if not is_unknown(row["break_even"]):
        known = crossing(row["break_even"], row["break_even_low"], row["break_even_high"], None)
        measured = words.text("predicted.measured", measured=known)
    key = {"crossed": "pays", "below": "never", "above": "always"}[row["side"]]
    batch = row["batch_break_even"] if row["side"] == "crossed" else row["highest_batch"]
    return words.text(
        f"predicted.{key}",
        arm=row["arm"],
        num_tokens=row["num_tokens"],
        batch=number(batch, "tasks"),
        tasks=tasks,
        measured=measured,
    )


def _error(frame: pl.DataFrame, words: Wording) -> str:
    """Say how far the model is off the forward of the target, which decides."""
    own = frame.filter(pl.col("part").is_in(["verify", "pass"]))
    off = contradictions.residual(frame)
    said = words.text(
        "predicted.error",
        residual=None if off is None else percent(off),
        n=int(own["n_rounds"].sum()),
        source=words.text(f"predicted.{own['cost_source'][0]}"),
    )
    return f"{said} {words.text('predicted.far_off')}" if off is not None and off > contradictions.FAR_OFF else said


def widest(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of each arm over all its workloads, or those of its only one."""
    single = pl.col("workload").drop_nulls().n_unique().over("arm") == 1
    return frame.filter(pl.col("workload").is_null() | single)


def fastest(frame: pl.DataFrame, words: Wording) -> Table:
    """Return the fastest draft length of each batch size."""
    return table(widest(frame).filter("best"), FASTEST, words, words.text("table.predicted"))


def by_length(frame: pl.DataFrame, words: Wording) -> Table:
    """Return the modelled speed-up with a row a batch size and a column a draft length."""
    own = widest(frame)
    limits = sorted(own["num_tokens"].unique().to_list())
    rows = []
    for (hardware, arm, batch), group in own.group_by("hardware", "arm", "batch_size", maintain_order=True):
        at = {row["num_tokens"]: row["decode_speed_up"] for row in group.iter_rows(named=True)}
        place = str(hardware or words.text("predicted.here"))
        rows.append((place, str(arm), str(batch), *(number(at.get(limit), "x") for limit in limits)))
    headers = (*(words.header(name) for name in ("hardware", "arm", "batch_size")), *map(str, limits))
    return Table(words.text("table.predicted_all"), headers, (False, False, *[True] * (len(limits) + 1)), tuple(rows))


def crossings(analysis: RunAnalysis, words: Wording) -> Table:
    """Return where drafting stops paying, for each draft length, beside the measured break-even."""
    return table(analysis.predicted_break_even, CROSSINGS, words, words.text("table.predicted_break_even"))


def costs(analysis: RunAnalysis, words: Wording) -> Table:
    """Return measured and modelled times of rounds side by side."""
    shown = {name: labelled(name, name, words) for name in ("part", "cost_source")}
    shown |= {name: _rounded(name) for name in ("batch_size", "round_tokens")}
    shown["residual_share"] = _signed
    return table(analysis.costs, COSTS, words, words.text("table.costs"), shown=shown)


def labelled(name: str, what: str, words: Wording) -> Callable[[Row], str]:
    """Return how a column is shown whose values have words in ``reports/texts`` under ``what``."""

    def shown(row: Row) -> str:
        return words.label(what, str(row[name]))

    return shown


def _signed(row: Row) -> str:
    said = f"{row['residual_share'] * 100:+.1f}"
    return "0.0" if said in ("-0.0", "+0.0") else said


def _rounded(name: str) -> Callable[[Row], str]:
    def shown(row: Row) -> str:
        return number(round(row[name], 1))

    return shown


def hand_overs(analysis: RunAnalysis, words: Wording) -> Iterator[tuple[str, str]]:
    """Yield what other tools take, each with its heading."""
    for item in analysis.hand_overs:
        config = vllm(item)
        if config is not None:
            last = number(config["num_speculative_tokens_per_batch_size"][-1][1])
            yield words.text("predicted.vllm", arm=item.arm, batch=last), json.dumps(config)
        settings = aiconfigurator(item)
        flags = f"--nextn {settings['nextn']} --nextn-accepted {settings['nextn_accepted']}"
        yield words.text("predicted.aiconfigurator", arm=item.arm), flags
