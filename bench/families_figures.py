"""From a run of the drafter families to its figures: by family, method, language and type of text, with intervals.

Steps are told apart by the language of their output and the type of their task's text; speed-ups are those of whole tasks, which stand
with the language that most of their steps have. All intervals draw tasks (``harness.analysis``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from bench.families_input import ShippedDrafter
from harness.analysis import cautions
from harness.analysis.acceptance import survival, with_rounds
from harness.analysis.bootstrap import interval
from harness.analysis.drafter_table import drafter_table
from harness.analysis.frames import Finding
from harness.analysis.intervals import bears, draws_of, grouped
from harness.analysis.language_loss import GROUPS
from harness.analysis.loading import Records, read_records
from harness.analysis.run import analyse
from harness.analysis.speedup import pairs, speed_up
from harness.analysis.steps import OK, counted
from harness.store import RunFolder

__all__ = [
    "CHANGE",
    "CLASSES",
    "FAMILY_KEYS",
    "LOSSLESS",
    "Figures",
    "figures",
    "length_change",
    "outputs",
    "text_class",
]

ESSAYS = frozenset({"essay", "messenger"})
"""Genres of free prose; all others have forms, as office and development work does."""
CLASSES = tuple(f"{group}/{text}" for group in ("ko", "en", "code") for text in ("office", "essay"))
FAMILY_KEYS = ("family", "method", "arm", "language_group", "text_type")
_RATIOS = tuple(f"{name}{end}" for name in ("acceptance_length", "tokens_per_pass") for end in ("", "_low", "_high"))
CHANGE = (
    "method", "arm_before", "arm_after", "language_group", "text_type", "n_tasks", "acceptance_length_before",
    "acceptance_length_after", "acceptance_length_change", "acceptance_length_change_low", "acceptance_length_change_high",
)  # fmt: skip
LOSSLESS = (  # n_distinct of n_planned steps were compared, repeats aside; *_alone: against the baseline at the lowest load
    "arm", "concurrency", "n_planned", "n_distinct", "n_steps", "n_identical", "identical_share", "n_alone", "n_identical_alone",
    "example_step",
)  # fmt: skip
_SAME = ("workload", "task_id", "step_index")


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run of the families says.

    ``table``: ``FAMILY_KEYS`` (language and type null: all), counts, acceptance length and tokens per pass with intervals,
    ``survival_1`` … , for each load N ``speed_up_N`` with interval and ``n_tasks_N``, and cautions. ``change``: ``CHANGE``, of one family
    against another for each method. ``lossless``: ``LOSSLESS``.
    """

    manifest: Mapping[str, Any]
    loads: tuple[int, ...]
    positions: int
    table: pl.DataFrame
    change: pl.DataFrame
    lossless: pl.DataFrame
    findings: tuple[Finding, ...]

    @property
    def unchanged(self) -> bool:
        """Whether outputs were compared in every planned step of every arm and load, and all equal the baseline's."""
        frame = self.lossless
        same = (frame["n_identical"] == frame["n_steps"]).all() and (frame["n_distinct"] == frame["n_planned"]).all()
        return frame.height > 0 and bool(same)


def figures(folder: RunFolder, drafters: Sequence[ShippedDrafter]) -> Figures:
    """Return the figures of a run.

    Args:
        folder: of the run.
        drafters: those that its arms are named after; an arm of another name has no family.

    Raises:
        RunFolderError: if the manifest or a line of the records is damaged.
    """
    analysis = analyse(folder)
    records = read_records(folder)
    arms = _arms(folder.manifest, drafters)
    steps, tasks = classified(records)
    paired = pairs(tasks, records.plans)
    whole = cautions.add(drafter_table(steps, tasks, paired, speed_up(paired)), analysis.findings)
    kept = survival(steps)
    planned = planned_steps(folder.manifest, records.steps)
    loads = tuple(sorted({load for plan in records.plans for load in plan.concurrency}))
    return Figures(
        manifest=folder.manifest,
        loads=loads,
        positions=int(kept["position"].max() or 0),  # type: ignore[arg-type]
        table=_table(arms, whole, kept, _paired_tasks(paired, tasks), loads),
        change=length_change(steps, arms),
        lossless=outputs(records.steps, analysis.lossless, planned, records.plans[0].baseline or ""),
        findings=analysis.findings,
    )


def text_class(language: str | None, genre: str | None) -> str | None:
    """Return ``language group/type of text``, ``None`` where either is unknown."""
    if language not in GROUPS or genre is None:
        return None
    return f"{GROUPS[language]}/{'essay' if genre in ESSAYS else 'office'}"


def classified(records: Records) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return steps and tasks whose ``genre`` is their :func:`text_class`; a task's language is that of most of its steps."""
    return tuple(  # type: ignore[return-value]
        frame.with_columns(
            genre=pl.Series(
                [text_class(*row) for row in frame.select("language", "genre").iter_rows()], dtype=pl.String
            )
        )
        for frame in (records.steps, records.tasks)
    )


def planned_steps(manifest: Mapping[str, Any], steps: pl.DataFrame) -> int:
    """Return how many different steps a cell of every workload has together: of all tasks, or, where the run was limited to some tasks or
    steps, those that any arm sent, failed ones included."""
    entries = manifest["workloads"]
    if all(item.get(key) is None for item in entries for key in ("tasks_per_cell", "steps_per_task")):
        return sum(int(item["n_steps"]) for item in entries)
    return counted(steps).select(_SAME).unique().height


def length_change(steps: pl.DataFrame, arms: pl.DataFrame) -> pl.DataFrame:
    """Return ``CHANGE``: acceptance length of each method's later family less that of its first, over the same tasks.

    Args:
        steps: of :func:`classified`.
        arms: ``arm``, ``family`` and ``method``, the first family first.
    """
    good = with_rounds(counted(steps).filter(pl.col("steady") & OK)).select(
        "arm", "task_id", "num_accepted_tokens", "num_drafts", "genre"
    )
    everywhere = pl.concat([good, good.with_columns(genre=pl.lit(None, pl.String))])
    sums = everywhere.group_by("arm", "genre", "task_id", maintain_order=True).agg(
        accepted=pl.col("num_accepted_tokens").sum(), rounds=pl.col("num_drafts").sum()
    )
    told = sums.join(arms.filter(pl.col("family").is_not_null()), on="arm", maintain_order="left")
    families = arms["family"].drop_nulls().unique(maintain_order=True).to_list()
    rows: list[tuple[Any, ...]] = []
    for later in families[1:]:
        before, after = (told.filter(pl.col("family") == family) for family in (families[0], later))
        keys = ["method", "genre", "task_id"]
        both = before.join(after, on=keys, suffix="_after", nulls_equal=True, maintain_order="left")
        values = ("accepted", "rounds", "accepted_after", "rounds_after")
        for group in grouped(both, ["method", "arm", "arm_after", "genre"], values):
            method, *names, place = group.key
            accepted, rounds, accepted_after, rounds_after = group.sums.sum(axis=0)
            if not rounds or not rounds_after:
                continue
            lengths = 1 + accepted / rounds, 1 + accepted_after / rounds_after
            ends: tuple[float | None, float | None] = (None, None)
            if bears(group, 1, 3):
                ends = interval(draws_of(group, 2, 3) - draws_of(group, 0, 1), len(group.sums)) or ends
            language, text = place.split("/") if place else (None, None)
            rows.append((method, *names, language, text, len(group.sums), *lengths, lengths[1] - lengths[0], *ends))
    schema: dict[str, type[pl.DataType]] = {
        **dict.fromkeys(CHANGE[:5], pl.String),
        "n_tasks": pl.Int64,
        **dict.fromkeys(CHANGE[6:], pl.Float64),
    }
    order = {name: place for place, name in enumerate(arms["arm"])}
    rows.sort(key=lambda row: (order[row[2]], place_of(row[3], row[4])))
    return pl.DataFrame(rows, schema=schema, orient="row")


def outputs(steps: pl.DataFrame, lossless: pl.DataFrame, planned: int, baseline: str) -> pl.DataFrame:
    """Return ``LOSSLESS`` over all workloads.

    ``n_steps`` and ``n_identical`` are those of the run's own lossless check: against the baseline's text of the same step at the same
    load, as the harness compares them. ``n_alone`` counts the steps that have a text of the baseline at the lowest load too.

    Args:
        steps: step rows of the run.
        lossless: ``frames.LOSSLESS``.
        planned: how many different steps there are.
        baseline: name of the baseline arm.
    """
    good = counted(steps).filter(OK).select(*_SAME, "arm", "concurrency", "output_sha256")
    lowest = good["concurrency"].min()
    alone = good.filter((pl.col("arm") == baseline) & (pl.col("concurrency") == lowest))
    alone = alone.unique(list(_SAME), keep="first", maintain_order=True).select(*_SAME, alone_sha256="output_sha256")
    drafting = good.filter(pl.col("arm") != baseline)
    there = good.filter(pl.col("arm") == baseline).select(*_SAME, "concurrency").unique()
    distinct = (
        drafting.join(there, on=[*_SAME, "concurrency"], how="semi")
        .group_by("arm", "concurrency")
        .agg(n_distinct=pl.struct(_SAME).n_unique().cast(pl.Int64))
    )
    against = (
        drafting.join(alone, on=list(_SAME))
        .group_by("arm", "concurrency")
        .agg(
            n_alone=pl.len().cast(pl.Int64),
            n_identical_alone=(pl.col("output_sha256") == pl.col("alone_sha256")).sum().cast(pl.Int64),
        )
    )
    summed = lossless.group_by("arm", "concurrency", maintain_order=True).agg(
        pl.col("n_steps").sum(),
        pl.col("n_identical").sum(),
        pl.format("{}/{}", "workload", "example_step").drop_nulls().first().alias("example_step"),
    )
    keys = ["arm", "concurrency"]
    return (
        summed.join(distinct, on=keys, how="left", maintain_order="left")
        .join(against, on=keys, how="left", maintain_order="left")
        .with_columns(n_planned=pl.lit(planned), identical_share=pl.col("n_identical") / pl.col("n_steps"))
        .select(LOSSLESS)
    )


def place_of(language: str | None, text: str | None) -> int:
    """Return where a row of a language and a type of text stands: all first, then as in ``CLASSES``."""
    return -1 if language is None else CLASSES.index(f"{language}/{text}")


def _arms(manifest: Mapping[str, Any], drafters: Sequence[ShippedDrafter]) -> pl.DataFrame:
    families = {one.name: one.family for one in drafters}
    methods = {arm["name"]: arm["method"] for item in manifest["workloads"] for arm in item["arms"]}
    rows = [(name, families.get(name), method) for name, method in methods.items() if method != "none"]
    return pl.DataFrame(rows, schema=dict.fromkeys(("arm", "family", "method"), pl.String), orient="row")


def _paired_tasks(paired: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """Return ``arm``, ``concurrency``, ``genre`` (null: all) and how many distinct tasks have a speed-up there."""
    classes = tasks.select("workload", "task_id", "genre").unique()
    told = paired.filter("steady").join(classes, on=["workload", "task_id"], how="left")
    everywhere = pl.concat([told, told.with_columns(genre=pl.lit(None, pl.String))], how="vertical_relaxed")
    return everywhere.group_by("arm", "concurrency", "genre").agg(
        pl.col("task_id").n_unique().cast(pl.Int64).alias("n")
    )


def _table(
    arms: pl.DataFrame, whole: pl.DataFrame, kept: pl.DataFrame, n_paired: pl.DataFrame, loads: Sequence[int]
) -> pl.DataFrame:
    pooled = whole.filter(pl.col("workload").is_null() & pl.col("language").is_null())
    own = pooled.filter(pl.col("concurrency").is_null()).select(
        "arm", "genre", "n_tasks", "n_steps", "num_drafts", *_RATIOS, "cautions"
    )
    survived = kept.filter(pl.all_horizontal(pl.col("workload", "kind", "language").is_null()))
    for position in range(1, int(kept["position"].max() or 0) + 1):  # type: ignore[arg-type]
        one = survived.filter(pl.col("position") == position)
        own = _joined(own, one.select("arm", "genre", pl.col("survival").alias(f"survival_{position}")))
    for load in loads:
        at = pooled.filter(pl.col("concurrency") == load)
        ends = [pl.col(f"speed_up{end}").alias(f"speed_up_{load}{end}") for end in ("", "_low", "_high")]
        own = _joined(own, at.select("arm", "genre", *ends))
        count = n_paired.filter(pl.col("concurrency") == load).select(
            "arm", "genre", pl.col("n").alias(f"n_tasks_{load}")
        )
        own = _joined(own, count)
    order = {name: place for place, name in enumerate(arms["arm"])}
    parts = pl.col("genre").str.split("/")
    told = own.join(arms, on="arm", maintain_order="left").with_columns(
        language_group=parts.list.get(0, null_on_oob=True), text_type=parts.list.get(1, null_on_oob=True)
    )
    places = [
        (order[arm], place_of(language, text))
        for arm, language, text in told.select("arm", "language_group", "text_type").iter_rows()
    ]
    told = told.with_columns(place=pl.Series(places, dtype=pl.List(pl.Int64)).list.to_struct(fields=["arm", "text"]))
    rest = [name for name in told.columns if name not in (*FAMILY_KEYS, "genre", "cautions", "place")]
    return told.sort(pl.col("place").struct.field("arm"), pl.col("place").struct.field("text")).select(
        *FAMILY_KEYS, *rest, "cautions"
    )


def _joined(frame: pl.DataFrame, more: pl.DataFrame) -> pl.DataFrame:
    return frame.join(more, on=["arm", "genre"], how="left", nulls_equal=True, maintain_order="left")
