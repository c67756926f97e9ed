"""The first three sentences of a report, each with how certain it is: does drafting help, how many agents, what the language loses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from harness.analysis.frames import RunAnalysis, Verdict
from harness.analysis.latency import needed
from harness.analysis.slo import parse_percentile
from reports.cut_run import cut_run
from reports.sections import Headline
from reports.verdict import Certainty, Context, certainty, concerning, leading, reasons, spoken
from reports.wording import Wording, is_unknown, number, percent

Row = Mapping[str, Any]
KNOWN_CAPACITY = ("found", "at_least")


def headlines(analysis: RunAnalysis, words: Wording) -> list[Headline]:
    """Return the sentences on the arm that holds out longest, none where no arm can be judged.

    What voids its figures voids all of them, and what gives reason for doubt leaves none of them clear. Each of a run that lacks planned
    cells says so, and is not clear either.
    """
    lead = leading(analysis)
    if not lead:
        return []
    verdict, context = lead[0], Context.of(analysis)
    cut = cut_run(analysis, words)
    level = _lowered(certainty(verdict, context), cut)
    why = () if level == "invalid" else tuple(reasons(verdict, words, context))
    # of several loads some may be decided where another is not, so its certainty is said in words of its own
    found = [_headline(_with(cut, spoken(verdict, words, context)), level, words, why, meaning=f"certainty.{level}")]
    about = concerning(verdict, context)
    doubted = bool(cut) or any(finding.severity == "warning" for finding in about)
    # agents per server rest on percentiles: too few tasks for one leave them in doubt even where both ends of the interval exist
    few = doubted or any(finding.code == "percentile_unsure" for finding in about)
    sentences = ((_agents(analysis, verdict, words), few), (_language(analysis, verdict, words), doubted))
    for (text, own), doubt in sentences:
        known: Certainty = "limited" if own == "clear" and doubt else own
        found.append(
            _headline(_with(cut, text), "invalid" if level == "invalid" and known != "unknown" else known, words)
        )
    return found


def _lowered(level: Certainty, cut: str) -> Certainty:
    return "limited" if cut and level == "clear" else level


def _with(cut: str, text: str) -> str:
    return f"{cut} {text}" if cut else text


def _headline(
    text: str, level: Certainty, words: Wording, why: tuple[str, ...] = (), meaning: str | None = None
) -> Headline:
    short, means = words.text(f"certainty.short.{level}"), words.text(meaning or f"certainty.means.{level}")
    because = words.text("verdict.reasons", names=", ".join(why)) if why else ""
    return Headline(text, level, f"{short}{because}. {means[:1].upper()}{means[1:]}")


def _agents(analysis: RunAnalysis, verdict: Verdict, words: Wording) -> tuple[str, Certainty]:
    """Say how many agents one server carries with the arm and without a drafter."""
    frame = analysis.agents
    if frame.is_empty():
        return words.text("headline.agents_not_asked"), "unknown"
    own = next(_carried(frame, verdict.workload, verdict.arm), None)
    bare = next((row for arm in _baselines(analysis) for row in _carried(frame, verdict.workload, arm)), None)
    if own is None or bare is None:
        key = "agents_no_level" if own is None else "agents_no_baseline"
        reason = words.text(f"headline.{key}", arm=verdict.arm)
        return words.text("headline.agents_unknown", reason=reason), "unknown"
    few = [_few(analysis, row, words) for row in (own, bare) if row["capacity"] == "unknown"]
    if few:
        return words.text("headline.agents_unknown", reason="; ".join(few)), "unknown"
    place = "" if own["workload"] is not None else words.text("headline.equal_shares")
    figures = {"own": carried(own, words), "bare": carried(bare, words), "slo": own["slo"], "arm": verdict.arm}
    return words.text("headline.agents", place=place, **figures), _certainty_of(own, bare)


def _few(analysis: RunAnalysis, row: Row, words: Wording) -> str:
    """Say how many tasks an arm has, and how many the most demanding percentile of its service level needs."""
    plans = [item for item in analysis.manifest.get("workloads") or () if row["workload"] in (None, item["name"])]
    names = list(dict.fromkeys(name for plan in plans for name in plan.get("slo") or ()))
    asked = max(names, key=lambda name: parse_percentile(name)[1], default=None)
    least = None if asked is None else needed(parse_percentile(asked)[1])
    return words.text("headline.agents_few", arm=row["arm"], n=row["n_tasks"], needed=least, objective=asked)


def _carried(frame: pl.DataFrame, workload: str | None, arm: str) -> Iterator[Row]:
    """Yield the row of an arm on a workload, pooled where that was computed, else the only one there is."""
    rows = list(frame.filter(pl.col("arm") == arm).iter_rows(named=True))
    yield from (row for row in rows if row["workload"] == workload)
    if len(rows) == 1:
        yield rows[0]


def _baselines(analysis: RunAnalysis) -> list[str]:
    arms = [arm for item in analysis.manifest.get("workloads") or () for arm in item.get("arms") or ()]
    return list(dict.fromkeys(arm["name"] for arm in arms if arm.get("method") == "none"))


def carried(row: Row, words: Wording) -> str:
    """Return the agents per server of one row as people read it: "12 [9–14]", "16 or more [14–…]", "none"."""
    capacity, value = row["capacity"], row["agents"]
    if capacity == "none":
        return words.text("offer.none", lowest=row["lowest_concurrency"] if value is None else 1)
    if is_unknown(value):
        return words.figure("agents", None)
    shown = words.text("offer.at_least", n=number(value)) if capacity == "at_least" else number(value)
    if row["interval"] in (None, "none"):
        return f"{shown} [{words.figure('agents', None)}]"
    ends = ["…" if is_unknown(row[name]) else number(row[name]) for name in ("agents_low", "agents_high")]
    return f"{shown} [{'–'.join(ends)}]"


def _certainty_of(own: Row, bare: Row) -> Certainty:
    """Tell how sure it is that the arm carries another number of agents than the baseline."""
    if own["interval"] in (None, "none") or bare["interval"] in (None, "none"):
        return "unsure"
    apart = any(
        not is_unknown(low["agents_low"])
        and not is_unknown(high["agents_high"])
        and low["agents_low"] > high["agents_high"]
        for low, high in ((own, bare), (bare, own))
    )
    if not apart:
        return "unsure"
    return "clear" if own["interval"] == bare["interval"] == "both" else "limited"


def _language(analysis: RunAnalysis, verdict: Verdict, words: Wording) -> tuple[str, Certainty]:
    """Say what Korean loses against English or code with the arm; without such a pair, whether its outputs are unchanged."""
    frame = analysis.language_loss.filter((pl.col("arm") == verdict.arm) & pl.col("concurrency").is_null())
    rows = [row for row in frame.iter_rows(named=True) if not is_unknown(row["acceptance_length_loss"])]
    rows.sort(key=lambda row: (row["workload"] is not None, row["reference_group"] != "en"))
    if not rows:
        return _lossless(verdict, words)
    row = rows[0]
    low, high = row["acceptance_length_loss_low"], row["acceptance_length_loss_high"]
    names = {name: words.label("language", row[name]) for name in ("language_group", "reference_group")}
    figures = {name: number(row[name], "tokens/round") for name in ("acceptance_length", "acceptance_length_reference")}
    share = row["time_loss_share"]
    time = "" if is_unknown(share) or share <= 0 else words.text("headline.language_time", share=percent(share))
    if is_unknown(low) or is_unknown(high):
        counts = {"n": row["n_tasks"], "m": row["n_tasks_reference"]}
        return words.text("headline.language_few", arm=verdict.arm, **counts, **names, **figures), "unknown"
    ends = words.text("headline.ends", low=f"{low:.2f}", high=f"{high:.2f}")
    key = "less" if low > 0 else "more" if high < 0 else "unsure"
    text = words.text(f"headline.language_{key}", ends=ends, time=time, arm=verdict.arm, **names, **figures)
    if key == "unsure":
        return text, "unsure"
    return text, "clear" if row["n_kinds"] else "limited"


def _lossless(verdict: Verdict, words: Wording) -> tuple[str, Certainty]:
    if verdict.identical_share is None:
        return words.text("headline.not_compared", arm=verdict.arm), "unknown"
    share = percent(verdict.identical_share).removesuffix(".0")
    text = words.text("headline.identical", arm=verdict.arm, share=share)
    return text, "clear" if verdict.identical_share == 1 else "limited"
