"""From the records of a run to its figures, top to bottom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import polars as pl
import polars.selectors as cs

from harness.analysis import cautions
from harness.analysis.acceptance import acceptance, survival
from harness.analysis.agents import carrying
from harness.analysis.breakeven import break_even, curves
from harness.analysis.capacity import agents
from harness.analysis.cells import add_figures
from harness.analysis.doubts import doubts
from harness.analysis.drafter_table import drafter_table
from harness.analysis.frames import ACCEPTANCE, CELLS, DRAFTERS, STEPS, SUMMARY, TASKS, RunAnalysis
from harness.analysis.headline import headline_limits
from harness.analysis.language_loss import language_loss
from harness.analysis.latency import LOAD, summary, times
from harness.analysis.loading import Records, read_records
from harness.analysis.lossless import add_identical, compare, lossless
from harness.analysis.outputs import add_text_traits
from harness.analysis.percentiles import percentiles, unsure
from harness.analysis.plan import WorkloadPlan
from harness.analysis.predicted import predict
from harness.analysis.repeats import repeats_needed
from harness.analysis.slo import slo
from harness.analysis.speedup import pairs, speed_up
from harness.analysis.thresholds import SCHEMA, evaluate
from harness.analysis.verdicts import verdicts
from harness.store import RunFolder


def analyse(
    folder: RunFolder,
    objectives: Mapping[str, str] | None = None,
    records: Records | None = None,
) -> RunAnalysis:
    """Return all figures of a run; a run without a finished cell has empty frames and a finding that says so.

    Args:
        folder: of the run.
        objectives: service level objectives that stand over those of every workload, such as ``{"task_time_p90": "40s"}``.
        records: of the folder, where they were read before.

    Raises:
        RunFolderError: if the manifest or a line of the records is damaged.
        UsageError: if an objective or threshold in the manifest cannot be read.
    """
    records = read_records(folder) if records is None else records
    plans, steps, tasks = records.plans, records.steps, records.tasks
    if objectives:
        plans = tuple(replace(plan, slo=dict(objectives)) for plan in plans)
    cells = add_figures(records.cells, steps, tasks)

    with ThreadPoolExecutor(1) as beside:  # both cores of a small machine: most of this runs outside the interpreter
        losses = beside.submit(language_loss, steps, tasks, plans)
        samples = beside.submit(percentiles, steps, tasks)
        paired = pairs(tasks, plans)
        speed_ups = speed_up(paired)
        curve_list = curves(paired, _comparable(plans, cells))
        break_evens = break_even(curve_list)
        models = beside.submit(predict, folder, records, break_evens)
        repeats = beside.submit(repeats_needed, paired)
        beside.submit(lambda: records.whole)  # looked at by the doubts
        carries = beside.submit(carrying, steps, tasks, plans)

        compared = compare(steps, plans, records.tokens)
        steps = add_text_traits(steps, tuple(records.texts.values()), records.signs, records.prompts)
        steps = add_identical(steps, compared)
        accepted = acceptance(steps)
        survived = survival(steps)
        same = lossless(compared)
        goals, attained = slo(steps, tasks, plans)
        drafters = drafter_table(steps, tasks, paired, speed_ups)
        of_loads = times(steps, tasks, cells)
        limits = headline_limits(tasks, compared)
        sampled = samples.result()
        found = doubts(folder, records, steps, cells, unsure(sampled, plans))
        said = verdicts(curve_list, break_evens, same, steps)
        carried = carries.result()
    modelled = models.result()
    pooled = accepted.filter(
        pl.col("kind").is_null() & pl.col("language").is_null() & pl.col("concurrency").is_not_null()
    )
    headline = speed_ups.filter(pl.col("window") == "steady").select(*LOAD, "speed_up", "speed_up_low", "speed_up_high")
    figures = summary(
        of_loads,
        pooled.select(*LOAD, "acceptance_length", "acceptance_length_macro", "acceptance_rate", "tokens_per_pass"),
        headline,
        same.select(*LOAD, "identical_share"),
        attained,
        limits,
    )
    analysis = RunAnalysis(
        manifest=folder.manifest,
        steps=_plain(steps, STEPS),
        tasks=_plain(tasks, TASKS),
        cells=_plain(cells, CELLS),
        summary=_plain(cautions.add(figures, found), SUMMARY),
        acceptance=_plain(cautions.add(accepted, found), ACCEPTANCE),
        survival=cautions.add(survived, found),
        drafters=_plain(cautions.add(drafters, found), DRAFTERS),
        speed_up=speed_ups,
        break_even=break_evens,
        lossless=same,
        slo=goals,
        thresholds=pl.DataFrame(schema=SCHEMA),
        findings=tuple(found),
        verdicts=said,
        percentiles=sampled,
        agents=agents(carried),
        repeats=repeats.result(),
        costs=modelled.costs,
        predicted=modelled.predicted,
        predicted_break_even=modelled.break_even,
        language_loss=losses.result(),
        hand_overs=modelled.hand_overs,
    )
    judged, open_questions = evaluate(analysis, plans)
    return replace(analysis, thresholds=judged, findings=(*analysis.findings, *open_questions))


def _comparable(plans: Sequence[WorkloadPlan], cells: pl.DataFrame) -> list[WorkloadPlan]:
    """Return the workloads whose baseline finished a cell: on the others nothing can be said of any arm."""
    done = set(cells.filter(pl.col("status") == "done").select("workload", "arm").iter_rows())
    return [plan for plan in plans if (plan.name, plan.baseline) in done]


def _plain(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    # counts of polars are unsigned: a reader who subtracts two of them must not meet a wrap-around
    return frame.select(columns).with_columns(cs.unsigned_integer().cast(pl.Int64))
