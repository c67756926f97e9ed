"""What each drafter does on which text: arm by workload, language and genre, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import polars as pl

from harness.analysis.acceptance import with_rounds
from harness.analysis.frames import DRAFTERS
from harness.analysis.intervals import add_ratio
from harness.analysis.numbering import numbered
from harness.analysis.steps import steady_ok

_FIGURES = DRAFTERS[:-1]  # cautions are added once the findings are known
KEYS = {"workload": pl.String, "language": pl.String, "genre": pl.String, "concurrency": pl.Int64}
NEEDED = (
    *KEYS, "arm", "load", "task_id", "task", "same", "drafter", "num_drafts", "num_accepted_tokens",
    "decode_passes", "step_latency_s",
)  # fmt: skip


def drafter_table(
    steps: pl.DataFrame,
    tasks: pl.DataFrame,
    paired: pl.DataFrame,
    speed_ups: pl.DataFrame,
) -> pl.DataFrame:
    """Return ``frames.DRAFTERS`` without cautions, of the arms with a drafter, from the steady window.

    Acceptance length and tokens per pass rest on steps, pooled over concurrencies or at one. Speed-ups stand at one concurrency: that
    of tasks (Σ baseline time / Σ arm time over paired tasks) where languages are pooled, since a task mixes them, and that of steps
    (Σ baseline latency / Σ arm latency over the same steps) everywhere. Rows that pool workloads have only concurrencies that all
    workloads with that arm measured; a task that stands in two workloads is one task there.

    Args:
        steps: step rows with ``steady``, ``drafter`` and ``genre``.
        tasks: task rows with ``genre``.
        paired: of :func:`harness.analysis.speedup.pairs`.
        speed_ups: ``frames.SPEED_UP``; a row that it has too takes its interval from there, so that no figure has two.
    """
    good = steady_ok(steps, NEEDED)
    # of one workload a task has one genre, which may be unknown
    place = numbered(good, ("load", "language", "task"))
    good = good.with_columns(place.alias("place"))
    own = good.filter("drafter")
    genres = tasks.select("workload", "task_id", "genre").unique()
    times = paired.filter("steady").join(genres, on=["workload", "task_id"], how="left")
    sources = {
        "acceptance_length": (_summed(with_rounds(own), "num_accepted_tokens", "num_drafts"), 1.0),
        "tokens_per_pass": (_summed(_with_passes(own), "num_accepted_tokens", "decode_passes"), 1.0),
        "speed_up": (_summed(times, "baseline_task_time_s", "task_time_s"), 0.0),
        "step_speed_up": (_summed(_step_pairs(good), "baseline_latency_s", "step_latency_s"), 0.0),
    }
    own = own.group_by("place", maintain_order=True).agg(
        pl.col("arm", *KEYS, "task_id").first(),
        n_steps=pl.len().cast(pl.Int64),
        num_drafts=pl.col("num_drafts").sum(),
        n_told=pl.col("num_drafts").count(),
    )
    frames = []
    for on in product((True, False), repeat=len(KEYS)):
        by = ["arm", *(name for name, kept in zip(KEYS, on, strict=True) if kept)]
        frame = _everywhere(own, by).group_by(by, maintain_order=True).agg(
            pl.col("task_id").n_unique().alias("n_tasks"),
            pl.col("n_steps").sum(),
            pl.when(pl.col("n_told").sum() > 0).then(pl.col("num_drafts").sum()).alias("num_drafts"),
        )  # fmt: skip
        for name, (rows, plus) in sources.items():
            told = name in ("acceptance_length", "tokens_per_pass")
            if told or ("concurrency" in by and not (name == "speed_up" and "language" in by)):
                frame = add_ratio(frame, _everywhere(rows, by), by, name, "above", "below", plus=plus)
            else:
                frame = frame.with_columns(
                    pl.lit(None, pl.Float64).alias(f"{name}{end}") for end in ("", "_low", "_high")
                )
        pooled = [pl.lit(None, kind).alias(name) for name, kind in KEYS.items() if name not in by]
        frames.append(frame.with_columns(pooled).select(_FIGURES))
    return _as_elsewhere(pl.concat(frames), speed_ups).sort(DRAFTERS[:5], nulls_last=False)


def _summed(rows: pl.DataFrame, above: str, below: str) -> pl.DataFrame:
    """Return the sums of two values of each task in each place: what is told apart or pooled later rests on few rows."""
    keys = [name for name in ("arm", *KEYS, "task_id") if name in rows.columns]
    sums = {"above": pl.col(above).sum(), "below": pl.col(below).sum()}
    if "place" in rows.columns:
        return rows.group_by("place", maintain_order=True).agg(pl.col(keys).first(), **sums)
    return rows.group_by(keys, maintain_order=True).agg(**sums)


def _as_elsewhere(frame: pl.DataFrame, speed_ups: pl.DataFrame) -> pl.DataFrame:
    keys, ends = ["workload", "arm", "concurrency"], ("speed_up_low", "speed_up_high")
    there = speed_ups.filter(pl.col("window") == "steady").select(
        *keys, *(pl.col(end).alias(f"own_{end}") for end in ends)
    )
    whole = pl.col("language").is_null() & pl.col("genre").is_null() & pl.col("workload").is_not_null()
    frame = frame.join(there, on=keys, how="left", maintain_order="left")
    return frame.with_columns(pl.when(whole).then(f"own_{end}").otherwise(end).alias(end) for end in ends).select(
        _FIGURES
    )


def _everywhere(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return the rows that a table with these keys may use.

    Of those that pool workloads only loads that all have: else the mix of tasks would change from load to load. A row of unknown
    genre stands where genres are pooled, and makes no row that looks like one.
    """
    if "genre" in by:
        rows = rows.filter(pl.col("genre").is_not_null())
    if "workload" in by or "concurrency" not in by:
        return rows
    here = pl.col("workload").n_unique()
    return rows.filter(here.over("arm", "concurrency") == here.over("arm"))


def _with_passes(steps: pl.DataFrame) -> pl.DataFrame:
    return steps.filter(pl.col("decode_passes").is_not_null() & pl.col("num_accepted_tokens").is_not_null())


def _step_pairs(good: pl.DataFrame) -> pl.DataFrame:
    times = good.select("place", "arm", *KEYS, "task_id", "same", "drafter", "step_latency_s")
    baseline = times.filter(~pl.col("drafter")).select("same", baseline_latency_s="step_latency_s")
    return times.filter("drafter").join(baseline, on="same", how="inner", maintain_order="left")
