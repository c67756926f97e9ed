"""Guards of acceptance: what makes a count of accepted tokens be about something else than the drafter on this work.

They matter most where the server is not one of our own: it may ignore the end of text, cut prompts, sum over its whole life, serve
others, or know prompts from before. Each is a finding, and stands as a caution beside every acceptance figure that it bears on
(``harness/analysis/cautions.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from harness.analysis.frames import Finding, Severity
from harness.analysis.latency import LOAD
from harness.analysis.lossless import SAME_STEP
from harness.analysis.plan import WorkloadPlan
from harness.analysis.steps import OK, counted
from harness.analysis.validity import ODD_TEXT_SHARE, SERVER_COUNTS, SPOILT_SHARE, finding

ALL_CUT = 20  # outputs, every one of them cut at the limit: a model that ends at all ends one in so many
RISING = 10  # counts one above the other, and none below the one before: by chance once in millions
WARM_SHARE = 0.3  # of a first prompt: the template's head and the label's beginning are a tenth, another cell's prompt nearly all
EXTRA_ROUNDS = 2  # the last round may be cut, and an engine that schedules ahead may run one more
ARM = ("workload", "arm")
_STEP = pl.format("{}:{}", "task_id", "step_index")
IGNORE = "ignore_eos"
LEAST = frozenset({"min_tokens", "min_new_tokens"})  # options of a request or a server, as flags without dashes
NEEDED = (
    *SAME_STEP, "same", "task", "cell", "arm", "phase", "done", "error_kind", "drafter", "sent_ns", "prompt_tokens", "output_tokens",
    "num_drafts", "num_draft_tokens", "num_accepted_tokens", "num_accepted_tokens_per_pos", "finish_reason", "runs_past_end",
    "plays_both_sides", "calls_parse",
)  # fmt: skip
"""Columns of steps that are looked at: filters and joins copy every column that there is."""


def findings(
    steps: pl.DataFrame, cells: pl.DataFrame, plans: Sequence[WorkloadPlan], manifest: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yield what was found.

    Args:
        steps: all step rows with the traits of their texts.
        cells: cells with their figures.
        plans: workloads of the run.
        manifest: of the run; what the engine was asked and how it was started.
    """
    done = cells.filter(pl.col("status") == "done")
    good = counted(steps.select(NEEDED)).filter(OK)
    yield from _of_counts(good, done)
    yield from _of_traffic(done)
    yield from _of_cache(steps, done)
    yield from _of_prompts(good, plans)
    yield from _of_ends(good, plans, manifest)
    yield from _of_calls(good, plans)


def _of_counts(good: pl.DataFrame, done: pl.DataFrame) -> Iterator[Finding]:
    """Whether the counts of single steps can be theirs.

    Every round yields a token, and accepted tokens are tokens of the answer but for those of the last round that the end cut off.
    Counts that only ever rise from request to request are sums over the server's life.
    """
    drafts, drafted, accepted = pl.col("num_drafts"), pl.col("num_draft_tokens"), pl.col("num_accepted_tokens")
    slack = EXTRA_ROUNDS * (pl.col("num_accepted_tokens_per_pos").list.len().cast(pl.Int64) + 1)
    wrong = pl.any_horizontal(
        accepted > drafted,
        drafts > pl.col("output_tokens") + EXTRA_ROUNDS,
        accepted + drafts > pl.col("output_tokens") + slack,
    ).fill_null(False)
    known = good.filter(pl.col("drafter") & drafted.is_not_null())
    known = known.select("cell", "sent_ns", *ARM, "task_id", "step_index", "num_draft_tokens", wrong=wrong)
    of_cells = known.group_by("cell").agg(
        pl.col(ARM).first(), n=pl.len(), n_wrong=pl.col("wrong").sum(), least=drafted.min(), most=drafted.max()
    )
    for (workload, arm), cells in of_cells.sort("cell").group_by(ARM, maintain_order=True):
        n, n_wrong = int(cells["n"].sum()), int(cells["n_wrong"].sum())
        may_rise = not (cells["least"] < cells["most"].shift(1)).any()  # from cell to cell, which is sooner told
        if not (may_rise or n_wrong):
            continue
        part = known.filter(pl.col("cell").is_in(cells["cell"].to_list())).sort("cell", "sent_ns")
        if may_rise and _rises(part["num_draft_tokens"].diff()):
            yield finding("counts_cumulative", "invalid", str(workload), str(arm), n)
        elif n_wrong:
            example = part.filter("wrong").select(_STEP).item(0, 0)
            yield finding("counts_impossible", "invalid", str(workload), str(arm), n_wrong / n, n, example)
    back = done.filter(pl.any_horizontal(pl.col(name) < 0 for name in SERVER_COUNTS).fill_null(False))
    for part in back.partition_by(ARM, maintain_order=True):
        yield finding("counters_went_back", "invalid", *_place(part), _loads(part), part.height)


def _rises(growth: pl.Series) -> bool:
    return int((growth > 0).sum()) >= RISING - 1 and not (growth < 0).any()


def _of_traffic(done: pl.DataFrame) -> Iterator[Finding]:
    """Whether the server worked for others: their requests share its batches, and its counters count theirs."""
    busy = done.filter(pl.col("foreign_requests") > 0)
    for part in busy.partition_by(ARM, maintain_order=True):
        most = part["foreign_requests"].max()
        yield finding("foreign_traffic", "warning", *_place(part), _loads(part), part.height, most)


def _of_cache(steps: pl.DataFrame, done: pl.DataFrame) -> Iterator[Finding]:
    """Whether the first request of a cell found its prompt in the server's cache: then another cell had left it there."""
    sent = steps.select(*LOAD, "cell", "sent_ns", "cached_tokens", "prompt_tokens")
    sent = sent.filter(pl.col("sent_ns").is_not_null())
    first = sent.filter(pl.col("sent_ns") == pl.col("sent_ns").min().over("cell")).unique("cell", keep="first")
    share = pl.col("cached_tokens") / pl.col("prompt_tokens")
    known = first.join(done.select("cell"), on="cell", how="semi").with_columns(share=share)
    for part in known.filter(pl.col("share") > WARM_SHARE).sort(LOAD).partition_by(ARM, maintain_order=True):
        yield finding("cache_contaminated", "warning", *_place(part), _loads(part), part.height, part["share"].max())


def _of_prompts(good: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> Iterator[Finding]:
    """Whether the model was shown the prompts that were sent: a later step's is longer, and both arms' are equally long."""
    for workload, arm, share, n, example in _cut_prompts(good).iter_rows():
        yield finding("prompts_truncated", _severity(share), workload, arm, share, n, example)
    live = [plan.name for plan in plans if plan.history == "live"]  # there later prompts hold the arm's own answers
    same = good.filter(~pl.col("workload").is_in(live) | (pl.col("step_index") == 0)) if live else good
    pairs = _against_baseline(same, "prompt_tokens").drop_nulls(["prompt_tokens", "baseline_prompt_tokens"])
    differ = pl.col("prompt_tokens") != pl.col("baseline_prompt_tokens")
    for (workload, arm), n, apart in _apart(same, pairs, differ, plans):
        share, lengths = apart.height / n, apart.row(0, named=True)
        values = (share, n, _step(apart), lengths["prompt_tokens"], lengths["baseline_prompt_tokens"])
        yield finding("prompts_differ", _severity(share), workload, arm, *values)


def _cut_prompts(good: pl.DataFrame) -> pl.DataFrame:
    """Return the arms with prompts that are no longer than the step's before: workload, arm, share, steps compared, an example."""
    tokens = pl.col("prompt_tokens")
    in_turn = good.select("cell", "instance", "task", "step_index", "prompt_tokens").with_row_index("row")
    in_turn = in_turn.sort("cell", "instance", "task", "step_index")
    together = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in ("cell", "instance", "task"))
    next_one = together & (pl.col("step_index").diff() == 1) & tokens.is_not_null() & tokens.shift(1).is_not_null()
    compared = in_turn.select("row", next_one=next_one, cut=tokens <= tokens.shift(1)).filter("next_one")
    if not compared["cut"].any():
        return pl.DataFrame(schema=dict.fromkeys((*ARM, "share", "n", "example"), pl.String))
    known = good.select(*LOAD, "task_id", "step_index")[compared["row"]].hstack(compared)
    shares = known.group_by(ARM).agg(share=pl.col("cut").mean(), n=pl.len())
    examples = known.filter("cut").sort(*LOAD, "row").unique(ARM, keep="first", maintain_order=True)
    return (
        examples.join(shares, on=list(ARM), maintain_order="left").select(*ARM, "share", "n", example=_STEP).sort(ARM)
    )


def _of_ends(good: pl.DataFrame, plans: Sequence[WorkloadPlan], manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether answers end where the model ends them, and the model knew whose turn it was."""
    engine = (manifest.get("engine") or {}).get("arms") or {}
    entries = {item["name"]: item for item in manifest.get("workloads") or ()}
    cut = (pl.col("finish_reason") == "length").fill_null(False)
    past, both = pl.col("runs_past_end"), pl.col("plays_both_sides")
    of_arms = good.group_by(ARM).agg(
        n=pl.len(), cut_share=cut.mean(), all_cut=cut.all(), past_share=past.mean().fill_null(0.0), n_past=past.count(),
        both_share=both.mean().fill_null(0.0), n_both=both.count(),
    )  # fmt: skip
    for row in of_arms.sort(ARM).iter_rows(named=True):
        workload, arm = row["workload"], row["arm"]
        entry = entries.get(workload, {})
        asked = [item for item in entry.get("arms") or () if item["name"] == arm] + [
            entry.get("engine"),
            engine.get(arm),
        ]
        past_share, both_share = row["past_share"], row["both_share"]
        if any(map(_goes_on, asked)):
            yield finding("end_ignored", "warning", workload, arm, "asked", row["cut_share"], row["n"])
        elif past_share > ODD_TEXT_SHARE:
            yield finding("end_ignored", _severity(past_share), workload, arm, "text", past_share, row["n_past"])
        elif row["n"] >= ALL_CUT and row["all_cut"]:
            yield finding("never_ended", "note", workload, arm, row["n"])
        if both_share > ODD_TEXT_SHARE:
            yield finding("chat_template_missing", _severity(both_share), workload, arm, both_share, row["n_both"])


def _of_calls(good: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> Iterator[Finding]:
    """Whether the same tool calls can be read in both arms: an agent whose call cannot be read goes another way."""
    greedy = [plan for plan in plans if plan.temperature == 0 and plan.history == "recorded"]
    here, there = pl.col("calls_parse"), pl.col("baseline_calls_parse")
    pairs = _against_baseline(good, "calls_parse").filter(here.is_not_null() | there.is_not_null())
    for (workload, arm), n, apart in _apart(good, pairs, here.fill_null(False) != there.fill_null(False), greedy):
        only_arm = apart.filter(here.fill_null(False)).height
        values = (n, apart.height - only_arm, only_arm, _step(apart))
        yield finding("tool_calls_one_sided", "warning", workload, arm, *values)


def _against_baseline(good: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return the steps of arms with a drafter that the baseline did too: their ``row``, ``cell``, value and the baseline's value."""
    narrow = good.select("cell", "same", "drafter", column).with_row_index("row")
    of_baseline = narrow.filter(~pl.col("drafter")).select("same", pl.col(column).alias(f"baseline_{column}"))
    return narrow.filter("drafter").join(of_baseline, on="same", how="inner").drop("same", "drafter")


def _apart(
    good: pl.DataFrame, pairs: pl.DataFrame, differ: pl.Expr, plans: Sequence[WorkloadPlan]
) -> Iterator[tuple[tuple[str, str], int, pl.DataFrame]]:
    """Yield each arm with a real drafter with pairs that differ: its place, how many pairs it has, and those that differ in order."""
    arms = good.group_by("cell").agg(pl.col(ARM).first())
    of_arms = pairs.group_by("cell").len().join(arms, on="cell").group_by(ARM).agg(pl.col("len").sum())
    counts = {(row[0], row[1]): row[2] for row in of_arms.iter_rows()}
    found = pairs.filter(differ)
    found = good.select(*SAME_STEP, "arm")[found["row"]].hstack(found.drop("row", "cell"))
    found = found.sort("concurrency", "repeat", "task_id", "step_index", "instance")
    parts = found.partition_by(ARM, maintain_order=True, as_dict=True)
    for place in [(plan.name, arm) for plan in plans for arm in plan.drafting]:
        if place in parts:
            yield place, counts[place], parts[place]


def _goes_on(value: Any) -> bool:
    """Tell whether settings, however nested, ask for text beyond the end: ``ignore_eos: true``, ``--ignore-eos``, ``min_tokens: 64``."""
    if isinstance(value, Mapping):
        return any(_asks(_flag(key), item) or _goes_on(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return any((isinstance(item, str) and _flag(item) == IGNORE) or _goes_on(item) for item in value)
    return False


def _asks(name: str, value: Any) -> bool:
    if name == IGNORE:
        return str(value).lower() in ("true", "1")
    return name in LEAST and str(value).isdecimal() and int(value) > 1  # an answer has a token anyway


def _flag(key: Any) -> str:
    return str(key).lstrip("-").replace("-", "_")


def _severity(share: float) -> Severity:
    return "invalid" if share > SPOILT_SHARE else "warning"


def _place(rows: pl.DataFrame) -> tuple[str, str]:
    return rows["workload"][0], rows["arm"][0]


def _step(rows: pl.DataFrame) -> str:
    return f"{rows['task_id'][0]}:{rows['step_index'][0]}"


def _loads(rows: pl.DataFrame) -> list[int]:
    return sorted(rows["concurrency"].unique().to_list())
