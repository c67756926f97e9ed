"""From the records of a run to its cost model and everything that is predicted with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from harness.analysis.costfit import Fit, fit_passes, fit_rounds
from harness.analysis.costmodel import CostModel
from harness.analysis.draftprofile import NEEDED as NEEDED_BY_PROFILE
from harness.analysis.draftprofile import profile
from harness.analysis.frames import COSTS_SCHEMA, PREDICTED_BREAK_EVEN_SCHEMA, PREDICTED_SCHEMA, HandOver
from harness.analysis.handover import hand_over
from harness.analysis.loading import Records
from harness.analysis.passes import NEEDED, batches, decode_passes
from harness.analysis.plan import WorkloadPlan, baseline_arms
from harness.analysis.prediction import (
    MODELLED,
    Crossing,
    Point,
    Subject,
    as_concurrency,
    batch_sizes,
    best,
    crossing,
    limits,
    points,
)
from harness.analysis.reading import reading
from harness.analysis.rounds import engine_rounds, read_rounds
from harness.store import RunFolder

Loads = list[tuple[int, float]]
ENOUGH = 2_000  # calls, to say how many decode at once and what they meet


@dataclass(frozen=True, slots=True)
class Predictions:
    """Frames COSTS, PREDICTED and PREDICTED_BREAK_EVEN, and what they come from.

    ``model`` is ``None`` where nothing could be fitted: no baseline cell, or an engine that tells neither rounds nor passes.
    """

    costs: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COSTS_SCHEMA))
    predicted: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PREDICTED_SCHEMA))
    break_even: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PREDICTED_BREAK_EVEN_SCHEMA))
    model: CostModel | None = None
    subjects: tuple[Subject, ...] = ()
    hand_overs: tuple[HandOver, ...] = ()


def predict(folder: RunFolder, records: Records, measured: pl.DataFrame, leave_out: Sequence[str] = ()) -> Predictions:
    """Fit the costs of a run and predict from them.

    Args:
        folder: the run.
        records: of ``loading.read_records``.
        measured: ``frames.BREAK_EVEN`` of the run, to stand beside what is predicted.
        leave_out: arms whose times must not enter the fit, to test it on them; their acceptance is used all the same.

    Raises:
        RunFolderError: if a line of the rounds is damaged.
    """
    rounds = read_rounds(folder, records.cells, lines=records.round_lines)
    timed = engine_rounds(rounds)
    bare = baseline_arms(records.plans)
    steps = records.steps.select(*NEEDED)
    if timed.height and bare.height:  # then single calls say what decoded and was read at once, nothing of costs
        steps = steps.filter(pl.col("cell").is_in(_enough(records.cells).implode()))
    passes = decode_passes(steps)
    fit = _fit(records, timed, passes, leave_out)
    subjects = tuple(_subjects(records, rounds, passes, _trees(folder.manifest), _chunk(records, timed)))
    if fit is None:
        own = [item for item in subjects if _is_widest(item, subjects)]
        return Predictions(subjects=subjects, hand_overs=tuple(hand_over(item, None) for item in own))
    known = [item for item in subjects if item.arm in fit.model.drafts]
    found = [(item, list(points(fit.model, item, batch_sizes(fit.model), limits(item.profile)))) for item in known]
    baselines = batches(passes).join(baseline_arms(records.plans), on=["workload", "arm"], how="semi")
    loads = {item.workload: _loads(baselines, item.workload) for item in known}
    crossings = [
        _crossing_row(item, end, loads[item.workload], measured)
        for item in known
        for limit in limits(item.profile)[1:]
        for end in [crossing(fit.model, item, limit)]
        if end is not None
    ]
    return Predictions(
        fit.costs,
        frame_of(found, None),
        pl.DataFrame(crossings, schema=PREDICTED_BREAK_EVEN_SCHEMA, orient="row"),
        fit.model,
        subjects,
        tuple(hand_over(item, fit.model if item in known else None) for item in subjects if _is_widest(item, subjects)),
    )


def frame_of(found: Sequence[tuple[Subject, Sequence[Point]]], hardware: str | None) -> pl.DataFrame:
    """Return ``frames.PREDICTED`` of some predictions; ``hardware`` names the machine, ``None`` for the one that was measured."""
    rows: list[tuple[Any, ...]] = []
    for subject, own in found:
        fastest = best(own, subject.profile)
        for item in own:
            times = (item.plain_ms, item.draft_ms, item.verify_ms, item.host_ms)
            chosen = fastest.get(item.batch) is item
            place = (subject.workload, subject.arm, hardware, item.batch, item.num_tokens)
            rows.append((*place, item.tokens_per_pass, *times, item.speed_up, chosen, MODELLED))
    return pl.DataFrame(rows, schema=PREDICTED_SCHEMA, orient="row")


def _fit(records: Records, timed: pl.DataFrame, passes: pl.DataFrame, leave_out: Sequence[str]) -> Fit | None:
    methods = {arm: method for plan in records.plans for arm, method in plan.methods.items()}
    places = records.cells.select("cell", "workload", "arm").filter(~pl.col("arm").is_in(list(leave_out)))
    held = (
        records.steps.filter("done")
        .group_by("cell")
        .agg(each=(pl.col("prompt_tokens") + pl.col("output_tokens") / 2).mean())
    )
    timed = (
        timed.join(places, on="cell")
        .join(held, on="cell", how="left")
        .with_columns(context=pl.col("context_tokens").fill_null(pl.col("each") * pl.col("batch_size")).fill_null(0.0))
    )
    with_baseline = timed.join(baseline_arms(records.plans), on=["workload", "arm"], how="semi").height > 0
    found = fit_rounds(timed, methods) if with_baseline else None
    if found is not None:
        return _with_drafters(found, records.plans, leave_out)
    real = {arm: method for plan in records.plans for arm, method in plan.methods.items() if arm in plan.drafting}
    bare = [plan.baseline for plan in records.plans if plan.baseline is not None]
    usable = passes.filter(pl.col("arm").is_in([*bare, *real]) & ~pl.col("arm").is_in(list(leave_out)))
    usable = usable.filter(pl.col("passes").is_not_null())
    found = (
        fit_passes(usable, {arm: method for arm, method in real.items() if arm not in leave_out})
        if usable.height
        else None
    )
    return found and _with_drafters(found, records.plans, leave_out)


def _with_drafters(found: Fit, plans: Sequence[WorkloadPlan], left_out: Sequence[str]) -> Fit:
    """Give arms that were left out the draft costs of another arm of the same method: it differs in its length alone."""
    methods = {arm: method for plan in plans for arm, method in plan.methods.items()}
    drafts = dict(found.model.drafts)
    for arm in left_out:
        twin = next((other for other in found.model.drafts if methods.get(other) == methods.get(arm)), None)
        if twin is not None:
            drafts[arm] = found.model.drafts[twin]
    return Fit(replace(found.model, drafts=drafts), found.costs)


def _trees(manifest: Mapping[str, Any]) -> set[str]:
    """Return the arms whose drafts are trees."""
    arms = [arm for item in manifest["workloads"] for arm in item["arms"]]
    return {arm["name"] for arm in arms if any((arm.get("options") or {}).get(key) for key in ("tree", "tree_nodes"))}


def _subjects(
    records: Records, rounds: pl.DataFrame, passes: pl.DataFrame, trees: set[str], chunk: float | None
) -> list[Subject]:
    bare = passes.join(baseline_arms(records.plans), on=["workload", "arm"], how="semi")
    cells = records.cells.select("cell", "workload", "arm", "concurrency")
    parts = records.steps.select(NEEDED_BY_PROFILE).partition_by("workload", "arm", as_dict=True)
    placed = rounds.join(cells, on="cell", how="left")
    nothing = records.steps.select(NEEDED_BY_PROFILE).clear()
    found = []
    arms = list(dict.fromkeys(arm for plan in records.plans for arm in plan.drafting))
    for arm in arms:
        having = [plan for plan in records.plans if arm in plan.drafting]
        for plan in [*having, None] if len(having) > 1 else having:
            of_arm = [part for (name, of), part in parts.items() if of == arm and (plan is None or plan.name == name)]
            steps = pl.concat(of_arm or [nothing])
            own = pl.col("arm") == arm
            context = pl.lit(True)
            if plan is not None:
                own &= pl.col("workload") == plan.name
                context = pl.col("workload") == plan.name
            if any(arm in item.goodput for item in having):  # with less load its controller drafts more freely
                least = steps.filter("done")["concurrency"].min()
                own &= pl.col("concurrency") == least
                steps = steps.filter(pl.col("concurrency") == least)
            seen = profile(steps, placed.filter(own), chain=arm not in trees)
            each = _context(passes.filter(context))
            if seen is not None and each is not None:
                drafted = passes.filter((pl.col("arm") == arm) & context)
                beside = reading(bare.filter(context), drafted, chunk, seen.at(seen.longest)[1])
                found.append(Subject(None if plan is None else plan.name, arm, seen, each, beside))
    return found


def _enough(cells: pl.DataFrame) -> pl.Series:
    """Return the cells that were finished, of each workload, arm and load the first ones that hold ``ENOUGH`` calls together."""
    own = cells.filter(pl.col("status") == "done")
    before = pl.col("counted_steps").fill_null(0).cum_sum().shift(1, fill_value=0)
    return own.filter(before.over("workload", "arm", "concurrency") < ENOUGH)["cell"]


def _chunk(records: Records, timed: pl.DataFrame) -> float | None:
    """Return the prompt tokens of a forward that feeds some, where load lets few prompts meet; ``None`` where no round tells."""
    loads = records.cells.select("cell", "concurrency")
    some = timed.filter(pl.col("prefill_tokens") > 0).join(loads, on="cell")
    of_load = some.group_by("concurrency").agg(pl.col("prefill_tokens").mean()).sort("concurrency")
    return of_load["prefill_tokens"][0] if of_load.height else None


def _context(passes: pl.DataFrame) -> float | None:
    total = passes.select((pl.col("context") / pl.col("batch") * pl.col("decode_ms")).sum(), pl.col("decode_ms").sum())
    above, below = total.row(0)
    return above / below if below else None


def _loads(baselines: pl.DataFrame, workload: str | None) -> Loads:
    """Return concurrency and batch of the baselines: at a break-even arm and baseline decode alike."""
    own = baselines if workload is None else baselines.filter(pl.col("workload") == workload)
    mean = (pl.col("batch") * pl.col("passes")).sum() / pl.col("passes").sum()
    return [(row[0], row[1]) for row in own.group_by("concurrency").agg(mean).sort("concurrency").iter_rows()]


def _crossing_row(subject: Subject, end: Crossing, loads: Loads, measured: pl.DataFrame) -> tuple[Any, ...]:
    tasks = None if end.batch is None else as_concurrency(end.batch, loads)
    row: Mapping[str, Any] = {}
    if end.num_tokens == subject.profile.longest:
        same = measured.filter(
            (pl.col("arm") == subject.arm) & pl.col("workload").eq_missing(pl.lit(subject.workload, pl.String))
        )
        row = next(same.iter_rows(named=True), {})
    known = tuple(row.get(name) for name in ("break_even", "break_even_low", "break_even_high"))
    return (subject.workload, subject.arm, end.num_tokens, end.side, end.batch, tasks, *known, end.highest, MODELLED)


def _is_widest(item: Subject, subjects: Sequence[Subject]) -> bool:
    """Tell whether it is the arm's row over all its workloads, or its only one, and one that other tools can take: they draft chains."""
    return item.profile.chain and (item.workload is None or sum(other.arm == item.arm for other in subjects) == 1)
