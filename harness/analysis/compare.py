"""Two runs, or two arms of one run, on the work that both did: the same steps and tasks, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from harness.analysis import cautions, soundness, wholeness
from harness.analysis import compared_figures as figures
from harness.analysis.doubts import doubts_of
from harness.analysis.frames import COMPARED_LANGUAGE_LOSS
from harness.analysis.language_loss import language_loss
from harness.analysis.loading import Records, read_records
from harness.analysis.plan import SYNTHETIC_METHOD, WorkloadPlan, baseline_arms
from harness.analysis.steps import OK, counted
from harness.errors import UsageError
from harness.store import RunFolder

STEP = ("workload", "concurrency", "repeat", "turn", "task_id", "step_index")
TASK = STEP[:-1]
_OF_STEPS = (
    "steady", "ok", "kind", "language", "genre", "drafter", "prompt_tokens", "num_drafts", "num_accepted_tokens", "decode_passes",
    "num_accepted_tokens_per_pos", "output_sha256",
)  # fmt: skip
ArmPair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: the run's folder and what its manifest says."""

    path: str
    manifest: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All figures of a comparison; frames are those of ``harness.analysis.frames`` (COMPARED_…, DIFFERENCES).

    ``within``: both sides are arms of one run, which alternated, so that the machine's drift cancels; else times carry it.
    ``drafting`` are the pairs of which both sides really draft: those get a verdict. ``left_out`` are the arms of either run that found
    no partner where nobody said which to pair. ``adrift`` are arms whose drafts too may follow what the machine did: their lengths
    follow measured costs, or they carry state from one request to another while several are in progress.
    """

    before: Side
    after: Side
    arms: tuple[ArmPair, ...]
    drafting: tuple[ArmPair, ...]
    left_out: tuple[tuple[str, ...], tuple[str, ...]]
    adrift: tuple[str, ...]
    differences: pl.DataFrame
    times: pl.DataFrame
    acceptance: pl.DataFrame
    survival: pl.DataFrame
    outputs: pl.DataFrame
    steps: pl.DataFrame
    language_loss: pl.DataFrame

    @property
    def within(self) -> bool:
        """Whether both sides are arms of one run."""
        return self.before == self.after

    @property
    def sound(self) -> bool:
        """Whether nothing was found that makes the figures be about something else than the drafter."""
        return not (self.differences["severity"] == "invalid").any()

    @property
    def unproven(self) -> tuple[str, ...]:
        """What should be the same on both sides and could not be told to be: of prompts, target."""
        return soundness.unproven(self.differences)


def compare_runs(before: RunFolder, after: RunFolder | None, arms: Sequence[ArmPair] | None = None) -> Comparison:
    """Compare two runs, or, where ``after`` is ``None``, arms of one.

    Pairs are the same workload, concurrency, repeat, start of the task, task and step; ``arms`` pairs arms, by default those of equal
    names, and those with a drafter where each run has just one. Counted steps that succeeded on both sides count: inside the steady
    window, or, where a load has no such pair, all of them.

    Raises:
        UsageError: if an arm is not there, the runs have nothing in common, or no drafter of one has a partner in the other; the
            message says what each holds.
        RunFolderError: if a folder is damaged.
    """
    first = read_records(before)
    sides = (first, first if after is None else read_records(after))
    after_folder = before if after is None else after
    pairs = _arms(sides, (before, after_folder), arms, within=after is None)
    gone = {
        plan.name: soundness.changed_tasks(before.manifest, after_folder.manifest, plan.name) for plan in _shared(sides)
    }
    left, right = (
        _rows(records, pairs, side, gone) for side, records in (("arm_before", sides[0]), ("arm_after", sides[1]))
    )
    key = ["arm_before", "arm_after", *STEP]
    if left.steps.join(right.steps, on=key, how="semi").is_empty():
        raise UsageError(
            f"the runs have no step in common, nothing can be compared\n{_holdings((before, after_folder), sides)}"
        )
    everything = _joined(left.steps, right.steps, STEP)
    good = figures.in_window(everything.filter(pl.col("ok") & pl.col("ok_after")))
    tasks = figures.in_window(_joined(left.tasks, right.tasks, TASK).filter(pl.col("ok") & pl.col("ok_after")))
    workloads = [plan.name for plan in _shared(sides) if plan.name in set(everything["workload"])]
    folders = wholeness.differences(*sides, [plan.name for plan in _shared(sides)])
    rows = soundness.differences(before.manifest, after_folder.manifest, workloads, pairs)
    prompts = soundness.of_prompts(
        everything.filter(pl.col("ok") & pl.col("ok_after")), before.manifest, after_folder.manifest
    )
    exact = {plan.name for plan in _shared(sides) if _exact(plan.name, sides)}
    live = {plan.name for records in sides for plan in records.plans if plan.history == "live"}
    same = everything.filter(pl.col("ok") & pl.col("ok_after") & pl.col("workload").is_in(list(exact)))
    same = same.filter(~pl.col("workload").is_in(list(live)) | (pl.col("step_index") == 0))
    own = doubts_of(before, sides[0])
    found = own, own if after is None else doubts_of(after, sides[1])
    drafting = _drafting(sides, pairs)
    left_out = ((), ()) if arms is not None else _left_out(sides, pairs)
    busy = int(everything["concurrency"].max() or 0) > 1  # type: ignore[arg-type]
    adrift = soundness.adrift((before.manifest, after_folder.manifest), pairs, busy=busy)
    return Comparison(
        before=Side(str(before.path), before.manifest),
        after=Side(str(after_folder.path), after_folder.manifest),
        arms=pairs,
        drafting=drafting,
        left_out=left_out,
        adrift=adrift,
        differences=soundness.frame([*folders, *prompts, *rows]),
        times=figures.times(tasks),
        acceptance=cautions.add_sides(figures.acceptance(good), *found),
        survival=cautions.add_sides(figures.survival(good), *found),
        outputs=figures.outputs(same, [records.texts for records in sides], [records.tokens for records in sides]),
        steps=figures.steps(left.steps, right.steps),
        language_loss=_language_loss(sides, drafting),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    steps: pl.DataFrame
    tasks: pl.DataFrame


def _rows(records: Records, pairs: Sequence[ArmPair], side: str, gone: Mapping[str, Sequence[str]]) -> _Rows:
    """Return one side's counted steps and tasks, once for each pair of arms that they belong to, with the n-th start of a task as
    ``turn`` and their own baseline's time."""
    arms = pl.DataFrame(pairs, schema={"arm_before": pl.String, "arm_after": pl.String}, orient="row").unique(
        maintain_order=True
    )
    arms = arms.with_columns(arm=pl.col(side))
    turn = pl.col("instance").rank("dense").over("cell", "task_id").cast(pl.Int64)
    changed = [(workload, task) for workload, tasks in gone.items() for task in tasks]
    left_out = pl.DataFrame(changed, schema={"workload": pl.String, "task_id": pl.String}, orient="row")
    keep = partial(pl.DataFrame.join, other=left_out, on=["workload", "task_id"], how="anti")
    steps = keep(counted(records.steps).with_columns(turn=turn, ok=OK))
    tasks = keep(counted(records.tasks).with_columns(turn=turn))
    baselines = baseline_arms(records.plans)
    own = (
        tasks.filter("ok")
        .join(baselines, on=["workload", "arm"], how="semi")
        .select(*TASK, baseline_s="task_time_s", baseline_steady="steady")
    )
    drafting = tasks.join(baselines, on=["workload", "arm"], how="anti").join(own, on=list(TASK), how="left")
    bare = tasks.join(baselines, on=["workload", "arm"], how="semi").with_columns(
        baseline_s=pl.lit(None, pl.Float64), baseline_steady=pl.lit(None, pl.Boolean)
    )
    tasks = pl.concat([drafting, bare], how="diagonal").sort(*TASK, "arm")
    names = ["arm_before", "arm_after"]
    return _Rows(
        steps.join(arms, on="arm").select(*names, *STEP, *_OF_STEPS).sort(*names, *STEP),
        tasks.join(arms, on="arm")
        .select(*names, *TASK, "steady", "ok", "task_time_s", "baseline_s", "baseline_steady")
        .sort(*names, *TASK),
    )


def _language_loss(sides: Sequence[Records], drafting: Sequence[ArmPair]) -> pl.DataFrame:
    """Return what a language loses in the arms of either side that draft, each from all that its own run did."""
    found = []
    for when, records, place in zip(("before", "after"), sides, (0, 1), strict=True):
        own = language_loss(records.steps, records.tasks, records.plans)
        arms = {pair[place] for pair in drafting}
        found.append(own.filter(pl.col("arm").is_in(list(arms))).with_columns(when=pl.lit(when)))
    return pl.concat(found).select(COMPARED_LANGUAGE_LOSS)


def _joined(left: pl.DataFrame, right: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    return left.join(right, on=["arm_before", "arm_after", *key], how="inner", suffix="_after", maintain_order="left")


def _shared(sides: Sequence[Records]) -> list[WorkloadPlan]:
    there = {plan.name for plan in sides[1].plans}
    return [plan for plan in sides[0].plans if plan.name in there]


def _exact(workload: str, sides: Sequence[Records]) -> bool:
    return all(plan.temperature == 0 for records in sides for plan in records.plans if plan.name == workload)


def _drafts(method: str | None) -> bool:
    return method not in (None, "none", SYNTHETIC_METHOD)


def _arms(
    sides: Sequence[Records], folders: Sequence[RunFolder], wanted: Sequence[ArmPair] | None, *, within: bool
) -> tuple[ArmPair, ...]:
    """Return the pairs of arms to compare.

    Raises:
        UsageError: if an arm is not there, none is shared, or one run is given without arms.
    """
    names = [list(dict.fromkeys(arm for plan in records.plans for arm in plan.methods)) for records in sides]
    if wanted is None:
        if within:
            raise UsageError(
                f"one run alone: say which of its arms to compare, as in --arms before=after; {folders[0].path} has "
                f"{', '.join(names[0])}"
            )
        equal = tuple([(arm, arm) for arm in names[0] if arm in names[1]] + _lone_drafters(sides))
        if not equal:
            raise UsageError(
                "the runs have no arm of one name; pair them with --arms before=after\n" + _holdings(folders, sides)
            )
        if any(plan.drafting for records in sides for plan in records.plans) and not _drafting(sides, equal):
            raise UsageError(
                "no drafter of one run has a partner in the other; say which belong together with --arms before=after\n"
                + _holdings(folders, sides)
            )
        return equal
    for pair in wanted:
        for arm, there, folder in zip(pair, names, folders, strict=True):
            if arm not in there:
                raise UsageError(
                    f"--arms {pair[0]}={pair[1]}: {folder.path} has no arm {arm!r}; it has {', '.join(there)}"
                )
        if within and pair[0] == pair[1]:
            raise UsageError(
                f"--arms {pair[0]}={pair[1]}: an arm compared with itself says nothing; name two arms of the run"
            )
    return tuple(dict.fromkeys(wanted))


def _drafting(sides: Sequence[Records], pairs: Sequence[ArmPair]) -> tuple[ArmPair, ...]:
    methods = [{arm: method for plan in records.plans for arm, method in plan.methods.items()} for records in sides]
    return tuple(pair for pair in pairs if all(_drafts(methods[side].get(arm)) for side, arm in enumerate(pair)))


def _left_out(sides: Sequence[Records], pairs: Sequence[ArmPair]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    before, after = (
        tuple(dict.fromkeys(arm for plan in records.plans for arm in plan.methods if arm not in paired))
        for records, paired in zip(sides, ({pair[side] for pair in pairs} for side in (0, 1)), strict=True)
    )
    return before, after


def _lone_drafters(sides: Sequence[Records]) -> list[ArmPair]:
    """Return the pair of the two runs' only arms with a drafter, where each has just one and their names differ."""
    before, after = ({arm for plan in records.plans for arm in plan.drafting} for records in sides)
    return [(before.pop(), after.pop())] if len(before) == len(after) == 1 and before != after else []


def _holdings(folders: Sequence[RunFolder], sides: Sequence[Records]) -> str:
    """Say what each run holds, so that a reader sees why nothing fits."""
    lines = []
    for folder, records in zip(folders, sides, strict=True):
        done = records.cells.filter(pl.col("status") == "done")
        lines.append(f"{folder.path}: {done.height} finished cells")
        for plan in records.plans:
            loads = sorted(done.filter(pl.col("workload") == plan.name)["concurrency"].unique().to_list())
            measured = ", ".join(map(str, loads)) or "none finished"
            lines.append(
                f"  {plan.name}: arms {', '.join(plan.methods)}; concurrency {measured}; {len(plan.task_ids)} tasks"
            )
    return "\n".join(lines)
