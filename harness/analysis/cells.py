"""Figures of whole cells: throughput, requests in flight, lateness, cache use, and the server's counters against ours."""

from __future__ import annotations

import polars as pl

from harness.analysis.steps import FAILED, OK

COUNTED = pl.col("phase") == "counted"
START, END = pl.col("window_start_ns"), pl.col("window_end_ns")


def add_figures(cells: pl.DataFrame, steps: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """Return the cells with the columns of ``frames.CELLS``, and the sums (``window_*``) that pool them over repeats.

    Output tokens per second count what lies wholly inside the steady window and the proportional share of what straddles an edge:
    tokens are spread evenly from first token to end. All phases count: the server worked for all of them. What the cancelled tail
    would have produced is unknown, so the window of this rate ends where the first cancelled step begins; a rate is null where a step
    that succeeded does not tell its tokens. Tasks per hour are concurrency × tasks that succeeded ÷ the time that all took, failed ones
    included (Little's law; a failure takes server time and finishes nothing), over the counted tasks inside the steady window: a count
    of ends per time would depend on where the window happens to be cut. Whole-cell rates divide by the time from the first due step to
    the last end.
    """
    cells = cells.join(_of_steps(steps), on="cell", how="left", maintain_order="left")
    cells = cells.join(_of_tasks(tasks), on="cell", how="left", maintain_order="left")
    cells = cells.join(_in_window(steps, tasks), on="cell", how="left", maintain_order="left")
    done = pl.col("status") == "done"
    rates = {
        "output_tokens_per_s": pl.col("window_tokens") / pl.col("window_tokens_s"),
        "output_tokens_per_s_whole": pl.col("output_tokens") / pl.col("duration_s"),
        "tasks_per_hour": pl.col("window_tasks") / pl.col("window_tasks_s") * 3600,
        "tasks_per_hour_whole": pl.col("tasks_done") / pl.col("duration_s") * 3600,
    }
    return cells.with_columns(
        **{name: pl.when(done & rate.is_finite()).then(rate) for name, rate in rates.items()},
        server_num_drafts=pl.col("after_num_drafts") - pl.col("before_num_drafts"),
        server_num_draft_tokens=pl.col("after_num_draft_tokens") - pl.col("before_num_draft_tokens"),
        server_num_accepted_tokens=pl.col("after_num_accepted_tokens") - pl.col("before_num_accepted_tokens"),
    ).with_columns(
        counters_match=_counters_match(),
        power_watts=(pl.col("energy_j") / ((pl.col("end_ns") - pl.col("start_ns")) / 1e9)),
    )


def _of_steps(steps: pl.DataFrame) -> pl.DataFrame:
    known = pl.col("cached_tokens").is_not_null() & pl.col("prompt_tokens").is_not_null() & COUNTED
    spec = pl.col("num_draft_tokens").is_not_null()

    def total(name: str) -> pl.Expr:  # null, not 0, where nothing is known
        return pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).first()

    def sum_if(complete: pl.Expr, name: str) -> pl.Expr:  # null where a row that should tell its count does not
        return pl.when(pl.col(name).is_not_null().any() & complete.all()).then(pl.col(name).sum()).first()

    return steps.group_by("cell", maintain_order=True).agg(
        duration_s=(pl.col("end_ns").max() - pl.col("due_ns").min()) / 1e9,
        n_steps=COUNTED.sum(),
        n_steps_failed=(COUNTED & FAILED).sum(),
        output_tokens=sum_if(~OK | pl.col("output_tokens").is_not_null(), "output_tokens"),
        # no least number of values: this asks whether the client was in the way, it is no figure of the server
        late_p99_ms=pl.col("late_ms").quantile(0.99, "linear"),
        cached_share=(
            pl.col("cached_tokens").filter(known).sum() / pl.col("prompt_tokens").filter(known).sum()
        ).fill_nan(None),
        # sums behind cached_share, and what was computed beside the prompts
        known_prompt_tokens=pl.col("prompt_tokens").filter(known).sum(),
        known_output_tokens=pl.col("output_tokens").filter(known).sum(),
        num_drafts=sum_if(~spec | pl.col("num_drafts").is_not_null(), "num_drafts"),
        num_draft_tokens=total("num_draft_tokens"),
        num_accepted_tokens=total("num_accepted_tokens"),
        all_counted_by_us=(OK & spec | (pl.col("error_kind") == "not_sent").fill_null(False)).all(),
    )


def _of_tasks(tasks: pl.DataFrame) -> pl.DataFrame:
    return tasks.group_by("cell", maintain_order=True).agg(
        n_tasks=COUNTED.sum(),
        n_tasks_failed=(COUNTED & ~pl.col("ok")).sum(),
        tasks_done=pl.col("ok").filter(pl.col("phase") != "warm_up").sum(),
    )


def _share(start: pl.Expr, end: pl.Expr, until: pl.Expr) -> pl.Expr:
    """Share of the span start–end that lies between the window's start and ``until``; an empty span lies in it or not."""
    overlap = pl.min_horizontal(end, until) - pl.max_horizontal(start, START)
    inside = ((start >= START) & (end <= until)).cast(pl.Float64)
    return pl.when(end > start).then(overlap.clip(lower_bound=0) / (end - start)).otherwise(inside)


def _in_window(steps: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    cut = (pl.col("phase") == "cool_down") & (pl.col("error_kind") == "cancelled") & pl.col("output_tokens").is_null()
    first_cut = pl.col("sent_ns").fill_null(pl.col("due_ns")).filter(cut.fill_null(False)).min().over("cell")
    begun = pl.col("first_token_ns").fill_null(pl.col("sent_ns"))
    busy = (pl.min_horizontal("end_ns", END) - pl.max_horizontal(pl.col("sent_ns"), START)).clip(lower_bound=0)
    overlaps = (pl.col("end_ns") > START) & (begun < pl.col("until"))
    untold = (OK & overlaps & pl.col("output_tokens").is_null()).any()
    tokens = (pl.col("output_tokens") * _share(begun, pl.col("end_ns"), pl.col("until"))).sum()
    of_steps = (
        steps.filter(pl.col("done") & END.is_not_null())
        .with_columns(until=pl.min_horizontal(END, first_cut))
        .group_by("cell", maintain_order=True)
        .agg(
            steady_s=((END - START) / 1e9).first(),
            window_tokens=pl.when(~untold).then(tokens).first(),
            window_tokens_s=((pl.col("until") - START) / 1e9).clip(lower_bound=0).first(),
            requests_in_flight=pl.when(pl.col("sent_ns").is_not_null()).then(busy).sum() / (END - START).first(),
        )
    )
    counts = pl.col("steady") & COUNTED
    of_tasks = (
        tasks.filter("done")
        .group_by("cell", maintain_order=True)
        .agg(
            window_tasks=(counts & pl.col("ok")).sum(),
            # the slots are full inside the window, so each task, failed or not, took its time ÷ concurrency of the window to itself
            window_tasks_s=pl.col("slot_s").filter(counts).sum() / pl.col("concurrency").first(),
        )
    )
    return of_steps.join(of_tasks, on="cell", how="left", maintain_order="left")


def _counters_match() -> pl.Expr:
    """True: our sums over all steps equal what the server counted. False: they differ, and no request can explain it.

    Rounds are compared where both sides tell them. A request that was cancelled or failed may have drafted without telling us, so
    then a server that counted more proves nothing (null); one that counted less than the finished requests told us is wrong all the
    same.
    """
    names = ("num_draft_tokens", "num_accepted_tokens")
    rounds_equal = (pl.col("num_drafts") == pl.col("server_num_drafts")).fill_null(True)
    equal = pl.all_horizontal(pl.col(name) == pl.col(f"server_{name}") for name in names) & rounds_equal
    too_few = pl.any_horizontal(pl.col(name) > pl.col(f"server_{name}") for name in ("num_drafts", *names))
    return pl.when(equal).then(True).when(too_few | pl.col("all_counted_by_us") & equal.is_not_null()).then(False)
