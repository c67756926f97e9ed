"""Reasons to trust a figure less, found in the records. Each is a code with values; the texts stand in ``reports/texts``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import polars as pl

from harness.analysis.frames import Finding, Severity
from harness.analysis.latency import LOAD
from harness.analysis.plan import WorkloadPlan
from harness.analysis.steps import FAILED, counted
from harness.redaction import mask_keys

FEW_TASKS = 10  # below this many distinct tasks a percentile interval of a bootstrap is too narrow to be trusted
LATE_MS = 50.0  # requests that leave later than this were held up by the client, not by a timer
SHORT_WINDOW = 0.3  # of the cell: below, the "steady" figures describe little of what ran
GAP_MIN = (
    10.0  # between cells that are compared: a pause (a resumed run) in which the machine may have become another one
)
DRIFT = 1.3  # machines drift by up to ±30 % between runs minutes apart; beyond that repeats are not repeats
CUT_SHARE = 0.2  # of steps ended by max_tokens: above, task times are those of the limit, not of the model
ODD_TEXT_SHARE = 0.1  # of steps with loops, copies or another language: one in ten moves a mean visibly
SPOILT_SHARE = 0.5  # of steps of a load that failed, or of a language that hold odd text: figures of the rest are not those of the workload
MAIN_LANGUAGE = 0.2  # of an arm's texts: a language with less cannot spoil the figures of the whole arm
CACHE_GAP = 0.1  # difference of the share of prompt tokens from cache that makes times to first token incomparable
CACHE_WORK = 0.05  # prompt tokens computed more, as a share of all tokens of a cell that are computed: as much as a small speed-up
SERVER_COUNTS = ("server_num_drafts", "server_num_draft_tokens", "server_num_accepted_tokens")
_COUNTED = ("workload", "arm", "phase", "done", "error_kind")
NEEDED_BY_COUNTS = (*_COUNTED, "num_drafts", "num_draft_tokens", "decode_passes")
NEEDED_BY_TEXTS = (*_COUNTED, "language", "finish_reason", "repetitive", "random", "echo", "language_fits")

CODES: Mapping[str, tuple[str, ...]] = {
    "no_finished_cell": ("n_cells",),
    "cells_unfinished": ("n_planned", "n_done", "n_failed", "n_unfinished", "missing"),
    "cells_foreign": ("n_cells",),
    "steps_missing": ("n_cells", "n_done", "missing"),
    "steps_doubled": ("n_steps", "n_cells", "missing"),
    "outputs_missing": ("n_missing", "n_outputs"),
    "rounds_missing": ("n_missing", "n_steps"),
    "engine_died": ("n_deaths", "n_cells", "n_again", "where"),
    "costs_measured_again": ("n_deaths",),
    "baseline_missing": (),
    "baseline_unfinished": ("baseline",),
    "baseline_drafted": ("num_draft_tokens",),
    "synthetic_arm": (),
    "temperature_above_zero": ("temperature",),
    "live_history": (),
    "steps_failed": ("concurrency", "n_failed", "n_steps", "share", "error_kind", "example"),
    "warm_up_failed": ("n_failed", "n_steps", "n_cells", "error_kind", "example"),
    "requests_late": ("concurrency", "late_p99_ms"),
    "steady_window_missing": ("n_cells", "concurrency"),
    "steady_window_short": ("n_cells", "concurrency", "share"),
    "few_tasks": ("n_tasks",),
    "repeats_drift": ("concurrency", "ratio"),
    "cells_far_apart": ("concurrency", "gap_min"),
    "server_not_drained": ("concurrency", "n_cells"),
    "drift_not_cancelled": ("repeats",),
    "arms_in_turn": (),
    "flags_differ": ("n_flags", "flags"),
    "flags_unknown": (),
    "counters_mismatch": (
        "concurrency",
        "num_draft_tokens",
        "server_num_draft_tokens",
        "num_accepted_tokens",
        "server_num_accepted_tokens",
        "num_drafts",
        "server_num_drafts",
    ),
    "acceptance_unknown": ("n_steps",),
    "rounds_unknown": ("n_steps", "tokens_per_pass_known"),
    "nothing_drafted": ("n_steps",),
    "cached_share_differs": ("concurrency", "cached_share", "baseline_cached_share", "work"),
    "cached_share_varies": ("concurrency", "lowest", "highest", "work"),
    "cut_by_max_tokens": ("share", "n_steps"),
    "repetitive_output": ("language", "share", "n_steps"),
    "random_output": ("language", "share", "n_steps"),
    "prompt_echo": ("language", "share", "n_steps"),
    "echo_not_checked": ("reason",),
    "output_language_mismatch": ("language", "share", "n_steps"),
    "end_ignored": ("sign", "share", "n_steps"),
    "never_ended": ("n_steps",),
    "chat_template_missing": ("share", "n_steps"),
    "prompts_truncated": ("share", "n_steps", "example"),
    "prompts_differ": ("share", "n_steps", "example", "prompt_tokens", "baseline_prompt_tokens"),
    "cache_contaminated": ("concurrency", "n_cells", "cached_share"),
    "counts_impossible": ("share", "n_steps", "example"),
    "counts_cumulative": ("n_steps",),
    "counters_went_back": ("concurrency", "n_cells"),
    "foreign_traffic": ("concurrency", "n_cells", "n_requests"),
    "tool_calls_one_sided": ("n_steps", "n_only_baseline", "n_only_arm", "example"),
    "threshold_not_evaluated": ("threshold", "reason"),
    "percentile_unsure": ("objective", "concurrency", "n_needed", "n_tasks"),
    "versions_mixed": ("package", "before", "after"),
}
"""Every code with the names of its values; shares are fractions of 1."""


def findings(
    steps: pl.DataFrame,
    tasks: pl.DataFrame,
    cells: pl.DataFrame,
    plans: Sequence[WorkloadPlan],
    unread: Mapping[str, str],
    deaths: pl.DataFrame,
    of_folder: Iterable[Finding] = (),
) -> list[Finding]:
    """Return everything found, invalid first, then warnings, then notes.

    ``unread`` is that of ``outputs.prompts``, ``deaths`` that of ``rows.deaths``, ``of_folder`` those of ``wholeness.findings``.
    """
    found = [*of_folder, *_of_cells(cells, plans), *_of_deaths(cells, plans, deaths), *_of_plans(cells, plans)]
    if not counted(steps.select("done", "phase")).is_empty():
        found += [*_of_load(steps, tasks, cells, plans), *_of_counts(steps, cells, plans), *_of_texts(steps, unread)]
    rank = {"invalid": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda finding: rank[finding.severity])


def finding(code: str, severity: Severity, workload: str | None, arm: str | None, *values: Any) -> Finding:
    """Return a finding whose values have the names that ``CODES`` gives them."""
    return Finding(code, severity, workload, arm, dict(zip(CODES[code], values, strict=True)))


def of_versions(manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the packages whose version another part of the run, continued later, was measured with."""
    before = manifest.get("versions") or {}
    told: set[str] = set()
    for again in manifest.get("continued") or ():
        for name, version in (again.get("versions") or {}).items():
            if name in before and before[name] != version and name not in told:
                told.add(name)
                yield finding("versions_mixed", "warning", None, None, name, before[name], version)


def _of_cells(cells: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> Iterator[Finding]:
    if not (cells["status"] == "done").any():
        planned = sum(len(plan.methods) * len(plan.concurrency) * plan.repeats for plan in plans)
        yield finding("no_finished_cell", "invalid", None, None, planned)
    for plan in plans:
        own = cells.filter(pl.col("workload") == plan.name)
        done, failed = (int((own["status"] == status).sum()) for status in ("done", "failed"))
        planned = len(plan.methods) * len(plan.concurrency) * plan.repeats
        if done < planned:
            missing = ", ".join(_missing(own, plan))
            counts = (planned, done, failed, planned - done - failed)
            yield finding("cells_unfinished", "warning", plan.name, None, *counts, missing)
    yield from _of_neighbours(cells.filter(pl.col("status") == "done"))
    foreign = int((cells["status"] == "foreign").sum())
    if foreign:
        yield finding("cells_foreign", "warning", None, None, foreign)


def _of_deaths(cells: pl.DataFrame, plans: Sequence[WorkloadPlan], deaths: pl.DataFrame) -> Iterator[Finding]:
    """Whether a server died: its cell was run again on a fresh one, which nobody sees in the attempt that counts."""
    done = cells.filter(pl.col("status") == "done")
    for (workload, arm), part in deaths.group_by("workload", "arm", maintain_order=True):
        hit = part.select("workload", "arm", "concurrency", "repeat").unique()
        again = hit.join(done, on=hit.columns, how="semi")
        yield finding("engine_died", "warning", workload, arm, len(part), len(hit), len(again), _loads(part))
    orders = deaths["order"]
    if orders.is_empty():
        return
    for plan in plans:
        for arm in plan.goodput:
            own = done.filter((pl.col("workload") == plan.name) & (pl.col("arm") == arm))["order"].drop_nulls()
            # a cell that was run again has the place of its first attempt, and the new costs
            between = [order for order in orders if (own < order).any() and (own >= order).any()]
            if between:
                yield finding("costs_measured_again", "warning", plan.name, arm, len(between))


def _of_neighbours(done: pl.DataFrame) -> Iterator[Finding]:
    """Whether cells that are compared ran next to each other, and none into the work that another had left behind."""
    begin = pl.col("started_at").str.to_datetime(time_zone="UTC", strict=False)
    end = begin + pl.duration(nanoseconds=pl.col("end_ns") - pl.col("start_ns"))
    gap = (begin - end.shift(1).over("workload", "concurrency", order_by="order")).dt.total_seconds() / 60
    apart = done.sort("order").with_columns(gap=gap).filter(pl.col("gap") > GAP_MIN)
    worst = apart.group_by("workload", "concurrency").agg(pl.col("gap").max()).sort("workload", "concurrency")
    for workload, load, minutes in worst.iter_rows():
        yield finding("cells_far_apart", "warning", workload, None, load, minutes)
    busy = done.filter(~pl.col("drained")).group_by("workload", "arm", maintain_order=True)
    for (workload, arm), part in busy:
        yield finding("server_not_drained", "warning", workload, arm, _loads(part), len(part))


def _missing(cells: pl.DataFrame, plan: WorkloadPlan) -> Iterator[str]:
    """Yield every arm and load that lacks at least one of its repeats, as "arm at load"."""
    done = Counter(cells.filter(pl.col("status") == "done").select("arm", "concurrency").iter_rows())
    for arm, load in product(plan.methods, plan.concurrency):
        if done[arm, load] < plan.repeats:
            yield f"{arm} at {load}"


def _of_plans(cells: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> Iterator[Finding]:
    done = cells.filter(pl.col("status") == "done")
    for plan in plans:
        if plan.baseline is None:
            yield finding("baseline_missing", "warning", plan.name, None)
        elif done.filter((pl.col("workload") == plan.name) & (pl.col("arm") == plan.baseline)).is_empty():
            yield finding("baseline_unfinished", "warning", plan.name, plan.baseline, plan.baseline)
        if plan.order == "per_arm" and len(plan.methods) > 1:
            yield finding("arms_in_turn", "warning", plan.name, None)
        elif plan.repeats % 2 and len(plan.methods) > 1:
            yield finding("drift_not_cancelled", "warning", plan.name, None, plan.repeats)
        for arm in plan.synthetic:
            yield finding("synthetic_arm", "note", plan.name, arm)
        if plan.temperature > 0:
            yield finding("temperature_above_zero", "note", plan.name, None, plan.temperature)
        elif plan.history == "live":
            yield finding("live_history", "note", plan.name, None)


def _of_load(
    steps: pl.DataFrame, tasks: pl.DataFrame, cells: pl.DataFrame, plans: Sequence[WorkloadPlan]
) -> Iterator[Finding]:
    """Whether the load was what it was meant to be."""
    # the steps after a failed one are not sent: they failed, but are no cause
    cause = FAILED & (pl.col("error_kind") != "not_sent")
    failed = (
        counted(steps.select(*LOAD, "phase", "done", "error_kind", "error_message"))
        .group_by(LOAD)
        .agg(
            n=FAILED.sum(),
            of=pl.len(),
            share=FAILED.mean(),
            kind=pl.col("error_kind").filter(cause).mode(maintain_order=True).first(),
            example=pl.col("error_message").filter(cause).first(),
        )
        .filter(pl.col("n") > 0)
        .sort("share", *LOAD, descending=[True, False, False, False])
    )
    # the worst load speaks: pooled over loads, one at which everything failed would drown in the others
    for workload, arm, *values in _first_of_arm(failed).sort("workload", "arm").iter_rows():
        severity: Severity = "invalid" if values[3] > SPOILT_SHARE else "warning"
        *counts, example = values
        yield finding("steps_failed", severity, workload, arm, *counts, mask_keys(example) if example else None)
    yield from _of_warm_up(steps)
    done = cells.filter(pl.col("status") == "done")
    # with a limit of requests per second a request waits because the workload says so, not because the client is slow
    held_back = [plan.name for plan in plans if plan.max_requests_per_s is not None]
    late_cells = done.filter((pl.col("late_p99_ms") > LATE_MS) & ~pl.col("workload").is_in(held_back))
    worst = late_cells.sort("late_p99_ms", descending=True)
    for workload, arm, load, late in _first_of_arm(worst).select(*LOAD, "late_p99_ms").iter_rows():
        yield finding("requests_late", "warning", workload, arm, load, late)
    empty = done.filter(pl.col("steady_s").is_null()).group_by("workload", "arm", maintain_order=True)
    for (workload, arm), part in empty:
        yield finding("steady_window_missing", "warning", workload, arm, len(part), _loads(part))
    share = pl.col("steady_s") / pl.col("duration_s")
    short = done.filter(share < SHORT_WINDOW).with_columns(share=share).group_by("workload", "arm", maintain_order=True)
    for (workload, arm), part in short:
        yield finding("steady_window_short", "warning", workload, arm, len(part), _loads(part), part["share"].min())
    own = counted(tasks).filter(pl.col("steady") & pl.col("ok"))
    per_load = own.group_by(*LOAD).agg(n=pl.col("task_id").n_unique())
    fewest = per_load.group_by("workload").agg(pl.col("n").min()).filter(pl.col("n") < FEW_TASKS).sort("workload")
    for workload, n in fewest.iter_rows():
        yield finding("few_tasks", "warning", workload, None, n)
    repeats = pl.col("repeat").n_unique()
    in_all = own.filter(repeats.over(*LOAD, "task_id", "instance") == repeats.over(*LOAD))  # the same tasks in each
    sums = in_all.group_by(*LOAD, "repeat").agg(pl.col("task_time_s").sum())
    ratios = sums.group_by(LOAD).agg(ratio=pl.col("task_time_s").max() / pl.col("task_time_s").min())
    drifted = ratios.filter(pl.col("ratio") > DRIFT).sort("ratio", *LOAD, descending=[True, False, False, False])
    for workload, arm, load, ratio in _first_of_arm(drifted).iter_rows():
        yield finding("repeats_drift", "warning", workload, arm, load, ratio)


def _of_warm_up(steps: pl.DataFrame) -> Iterator[Finding]:
    """Whether warm-up requests failed: what they were to take out of the figures (first use, empty caches) may then be in them."""
    cause = FAILED & (pl.col("error_kind") != "not_sent")
    own = steps.filter(pl.col("done") & (pl.col("phase") == "warm_up"))
    failed = own.group_by("workload", "arm", maintain_order=True).agg(
        n=FAILED.sum(),
        of=pl.len(),
        cells=pl.col("cell").filter(FAILED).n_unique(),
        kind=pl.col("error_kind").filter(cause).mode(maintain_order=True).first(),
        example=pl.col("error_message").filter(cause).first(),
    )
    for workload, arm, *counts, example in failed.filter(pl.col("n") > 0).iter_rows():
        yield finding("warm_up_failed", "warning", workload, arm, *counts, mask_keys(example) if example else None)


def _of_counts(steps: pl.DataFrame, cells: pl.DataFrame, plans: Sequence[WorkloadPlan]) -> Iterator[Finding]:
    """Whether the counts behind acceptance and prompt caches hold."""
    back = pl.any_horizontal(pl.col(name) < 0 for name in SERVER_COUNTS).fill_null(False)  # that is told by itself
    mismatch = cells.filter((pl.col("status") == "done") & ~pl.col("counters_match") & ~back).sort(LOAD)
    names = CODES["counters_mismatch"]
    for row in _first_of_arm(mismatch).iter_rows(named=True):
        yield finding("counters_mismatch", "invalid", row["workload"], row["arm"], *(row[name] for name in names))
    own = counted(steps.select(NEEDED_BY_COUNTS)).filter(~FAILED)
    sums = own.group_by("workload", "arm").agg(
        pl.len(),
        pl.col("num_drafts", "num_draft_tokens").count().name.prefix("known_"),
        pl.col("decode_passes").count().alias("known_passes"),
        pl.col("num_draft_tokens").sum().alias("drafted"),
    )
    by_arm = {(row["workload"], row["arm"]): row for row in sums.iter_rows(named=True)}
    for plan in plans:
        for arm in plan.methods:
            if (plan.name, arm) not in by_arm:
                continue
            row = by_arm[plan.name, arm]
            if arm == plan.baseline:
                if row["drafted"]:
                    yield finding("baseline_drafted", "invalid", plan.name, None, row["drafted"])  # it spoils every arm
            elif not row["known_num_draft_tokens"]:
                yield finding("acceptance_unknown", "note", plan.name, arm, row["len"])
            elif not row["drafted"]:
                yield finding("nothing_drafted", "warning", plan.name, arm, row["len"])
            elif row["known_num_drafts"] < row["len"]:
                unknown = row["len"] - row["known_num_drafts"]
                yield finding("rounds_unknown", "note", plan.name, arm, unknown, row["known_passes"] > 0)
        yield from _cache_gap(cells, plan)


def _cache_gap(cells: pl.DataFrame, plan: WorkloadPlan) -> Iterator[Finding]:
    """Whether arms, and the repeats of one, had as much of their prompts to compute as those they are compared with.

    The work of a cell is the tokens it computes: those of prompts that no cache had, and those of outputs.
    """
    own = cells.filter((pl.col("workload") == plan.name) & (pl.col("status") == "done"))
    own = own.filter(pl.col("cached_share").is_not_null())
    share, prompt = pl.col("cached_share"), pl.col("known_prompt_tokens")
    shares = own.group_by("arm", "concurrency").agg(
        share.mean(),
        lowest=share.min(),
        highest=share.max(),
        prompt=prompt.mean(),
        computed=((1 - share) * prompt + pl.col("known_output_tokens")).mean(),
    )
    of_work = pl.col("gap") * pl.col("prompt") / pl.col("computed")
    matters = (pl.col("gap") > CACHE_GAP) | (pl.col("work") > CACHE_WORK)
    varied = shares.with_columns(gap=pl.col("highest") - pl.col("lowest")).with_columns(work=of_work)
    widest = varied.filter(matters).sort("gap", "arm", "concurrency", descending=[True, False, False])
    names = ("arm", *CODES["cached_share_varies"])
    for arm, *values in widest.unique("arm", keep="first", maintain_order=True).select(names).iter_rows():
        yield finding("cached_share_varies", "warning", plan.name, arm, *values)
    if plan.baseline is None:
        return
    baseline = shares.filter(pl.col("arm") == plan.baseline).select("concurrency", baseline_cached_share=share)
    both = shares.filter(pl.col("arm") != plan.baseline).join(baseline, on="concurrency")
    both = both.with_columns(gap=(share - pl.col("baseline_cached_share")).abs()).with_columns(work=of_work)
    widest = both.filter(matters).sort("gap", "arm", "concurrency", descending=[True, False, False])
    names = ("arm", *CODES["cached_share_differs"])
    for arm, *values in widest.unique("arm", keep="first", maintain_order=True).select(names).iter_rows():
        yield finding("cached_share_differs", "warning", plan.name, arm, *values)


def _of_texts(steps: pl.DataFrame, unread: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the model wrote what the workload asks for; shares are of the steps of one language whose text is known.

    Each sign gets its own finding. All of them are invalid once over half of the texts of that language show any of the signs, however
    they are spread, and the language has at least a fifth of the arm's texts: then the arm's figures are not figures of the workload.
    A language with fewer steps spoils its own row of the acceptance table, which carries a mark, but not the verdict.
    """
    own = counted(steps.select(NEEDED_BY_TEXTS)).filter(~FAILED)
    cut = own.group_by("workload", "arm").agg((pl.col("finish_reason") == "length").mean().alias("share"), pl.len())
    for workload, arm, share, n in cut.filter(pl.col("share") > CUT_SHARE).sort("workload", "arm").iter_rows():
        yield finding("cut_by_max_tokens", "note", workload, arm, share, n)
    signs = {
        "repetitive_output": pl.col("repetitive"),
        "random_output": pl.col("random"),
        "prompt_echo": pl.col("echo"),
        "output_language_mismatch": ~pl.col("language_fits"),
    }
    known = pl.any_horizontal(sign.is_not_null() for sign in signs.values())
    odd = pl.any_horizontal(sign.fill_null(False) for sign in signs.values())
    shares = (
        own.filter(known)
        .group_by("workload", "arm", "language")
        .agg(
            odd.mean().alias("odd_share"),
            pl.len().alias("n_texts"),
            *(sign.mean().alias(code) for code, sign in signs.items()),
            *(sign.count().alias(f"n_{code}") for code, sign in signs.items()),
        )
        .with_columns(of_arm=pl.col("n_texts") / pl.col("n_texts").sum().over("workload", "arm"))
        .sort("workload", "arm", "language")
    )
    for code in signs:
        for row in shares.filter(pl.col(code) > ODD_TEXT_SHARE).iter_rows(named=True):
            spoilt = row["odd_share"] > SPOILT_SHARE and row["of_arm"] >= MAIN_LANGUAGE
            severity: Severity = "invalid" if spoilt else "warning"
            place = (row["workload"], row["arm"], row["language"])
            yield finding(code, severity, *place, row[code], row[f"n_{code}"])
    written = set(own.filter(known)["workload"].unique())
    for workload, reason in unread.items():
        if workload in written:
            yield finding("echo_not_checked", "note", workload, None, reason)


def _first_of_arm(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.unique(["workload", "arm"], keep="first", maintain_order=True)


def _loads(cells: pl.DataFrame) -> list[int]:
    return sorted(cells["concurrency"].unique().to_list())
