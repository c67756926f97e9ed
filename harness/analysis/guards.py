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
IGNORE = "ignore_eos"
LEAST = frozenset({"min_tokens", "min_new_tokens"})  # options of a request or a server, as flags without dashes


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
    good = counted(steps).filter(OK)
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
    known = good.filter(pl.col("drafter") & drafted.is_not_null()).with_columns(wrong=wrong)
    for part in known.sort("cell", "sent_ns").partition_by(ARM, maintain_order=True):
        growth = part["num_draft_tokens"].diff()
        rises = (growth > 0).sum() >= RISING - 1 and not (growth < 0).any()
        if rises:
            yield finding("counts_cumulative", "invalid", *_place(part), part.height)
        elif part["wrong"].any():
            example = _step(part.filter("wrong"))
            yield finding("counts_impossible", "invalid", *_place(part), part["wrong"].mean(), part.height, example)
    back = done.filter(pl.any_horizontal(pl.col(name) < 0 for name in SERVER_COUNTS).fill_null(False))
    for part in back.partition_by(ARM, maintain_order=True):
        yield finding("counters_went_back", "invalid", *_place(part), _loads(part), part.height)


def _of_traffic(done: pl.DataFrame) -> Iterator[Finding]:
    """Whether the server worked for others: their requests share its batches, and its counters count theirs."""
    busy = done.filter(pl.col("foreign_requests") > 0)
    for part in busy.partition_by(ARM, maintain_order=True):
        most = part["foreign_requests"].max()
        yield finding("foreign_traffic", "warning", *_place(part), _loads(part), part.height, most)


def _of_cache(steps: pl.DataFrame, done: pl.DataFrame) -> Iterator[Finding]:
    """Whether the first request of a cell found its prompt in the server's cache: then another cell had left it there."""
    sent = steps.filter(pl.col("sent_ns").is_not_null())
    first = sent.filter(pl.col("sent_ns") == pl.col("sent_ns").min().over("cell")).unique("cell", keep="first")
    share = pl.col("cached_tokens") / pl.col("prompt_tokens")
    known = first.join(done.select("cell"), on="cell", how="semi").with_columns(share=share)
    for part in known.filter(pl.col("share") > WARM_SHARE).sort(LOAD).partition_by(ARM, maintain_order=True):
        yield finding("cache_contaminated", "warning", *_place(part), _loads(part), part.height, part["share"].max())


def _of_prompts(good: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> Iterator[Finding]:
    """Whether the model was shown the prompts that were sent: a later step's is longer, and both arms' are equally long."""
    tokens = pl.col("prompt_tokens")
    before = tokens.shift(1).over("cell", "instance", "task_id", order_by="step_index")
    follows = pl.col("step_index").diff().over("cell", "instance", "task_id", order_by="step_index") == 1
    known = good.with_columns(before=before, follows=follows).filter(pl.col("follows") & pl.col("before").is_not_null())
    known = known.filter(tokens.is_not_null()).with_columns(cut=tokens <= pl.col("before"))
    for part in known.sort(LOAD).partition_by(ARM, maintain_order=True):
        share = float(part["cut"].sum()) / part.height
        if share:
            example = _step(part.filter("cut"))
            yield finding("prompts_truncated", _severity(share), *_place(part), share, part.height, example)
    live = [plan.name for plan in plans if plan.history == "live"]  # there later prompts hold the arm's own answers
    same = good.filter(~pl.col("workload").is_in(live) | (pl.col("step_index") == 0))
    for arm, both in _against_baseline(same, plans, "prompt_tokens"):
        pair = both.drop_nulls(["prompt_tokens", "baseline_prompt_tokens"])
        apart = pair.filter(tokens != pl.col("baseline_prompt_tokens"))
        if apart.height:
            share, lengths = apart.height / pair.height, apart.row(0, named=True)
            values = (share, pair.height, _step(apart), lengths["prompt_tokens"], lengths["baseline_prompt_tokens"])
            yield finding("prompts_differ", _severity(share), lengths["workload"], arm, *values)


def _of_ends(good: pl.DataFrame, plans: Sequence[WorkloadPlan], manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether answers end where the model ends them, and the model knew whose turn it was."""
    engine = (manifest.get("engine") or {}).get("arms") or {}
    entries = {item["name"]: item for item in manifest.get("workloads") or ()}
    for part in good.sort(LOAD).partition_by(ARM, maintain_order=True):
        workload, arm = _place(part)
        entry = entries.get(workload, {})
        asked = [item for item in entry.get("arms") or () if item["name"] == arm] + [
            entry.get("engine"),
            engine.get(arm),
        ]
        past, both = (part[name].drop_nulls() for name in ("runs_past_end", "plays_both_sides"))
        past_share, both_share = (float(column.mean() or 0.0) for column in (past, both))  # type: ignore[arg-type]
        cut = (part["finish_reason"] == "length").fill_null(False)
        if any(map(_goes_on, asked)):
            yield finding("end_ignored", "warning", workload, arm, "asked", float(cut.mean() or 0.0), part.height)  # type: ignore[arg-type]
        elif past_share > ODD_TEXT_SHARE:
            yield finding("end_ignored", _severity(past_share), workload, arm, "text", past_share, past.len())
        elif part.height >= ALL_CUT and cut.all():
            yield finding("never_ended", "note", workload, arm, part.height)
        if both_share > ODD_TEXT_SHARE:
            yield finding("chat_template_missing", _severity(both_share), workload, arm, both_share, both.len())


def _of_calls(good: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> Iterator[Finding]:
    """Whether the same tool calls can be read in both arms: an agent whose call cannot be read goes another way."""
    greedy = [plan for plan in plans if plan.temperature == 0 and plan.history == "recorded"]
    for arm, both in _against_baseline(good, greedy, "calls_parse"):
        calls = both.filter(pl.col("calls_parse").is_not_null() | pl.col("baseline_calls_parse").is_not_null())
        here, there = (pl.col(name).fill_null(False) for name in ("calls_parse", "baseline_calls_parse"))
        apart = calls.filter(here != there)
        if apart.height:
            only_arm = apart.filter(here).height
            values = (calls.height, apart.height - only_arm, only_arm, _step(apart))
            yield finding("tool_calls_one_sided", "warning", apart["workload"][0], arm, *values)


def _against_baseline(
    good: pl.DataFrame, plans: Sequence[WorkloadPlan], column: str
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield each drafting arm of each workload with its steps that the baseline did too, its value beside the baseline's."""
    for plan in plans:
        if plan.baseline is None:
            continue
        own = good.filter(pl.col("workload") == plan.name)
        baseline = own.filter(pl.col("arm") == plan.baseline).select(
            *SAME_STEP, pl.col(column).alias(f"baseline_{column}")
        )
        for arm in plan.drafting:
            pair = own.filter(pl.col("arm") == arm).join(
                baseline, on=list(SAME_STEP), how="inner", maintain_order="left"
            )
            yield arm, pair.sort("concurrency", "repeat", "task_id", "step_index", maintain_order=True)


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
