"""How many tokens each round yields: per kind of step, per language and per load. Sums first, then ratios."""

from __future__ import annotations

from itertools import product

import polars as pl

from harness.analysis.frames import ACCEPTANCE, SURVIVAL
from harness.analysis.intervals import add_ratio
from harness.analysis.latency import LOAD, quantile
from harness.analysis.numbering import numbered
from harness.analysis.steps import steady_ok

ARM = ("workload", "arm")
_OF_STEPS, _OF_POSITIONS = ACCEPTANCE[:-1], SURVIVAL[:-1]  # cautions are added once the findings are known
_MEDIANS = {"ttft_p50_s": "ttft_s", "tpot_p50_ms": "tpot_ms", "step_latency_p50_s": "step_latency_s"}
_TIMES = tuple(_MEDIANS.values())
TOLD_APART = ("kind", "language", "genre")  # by survival
NEEDED = (
    *LOAD, "load", "what", "task", "task_id", "kind", "language", "drafter", "num_drafts", "num_draft_tokens",
    "num_accepted_tokens", "decode_passes", "acceptance_length", "output_tokens", "ttft_s", "tpot_ms", "step_latency_s", "repetitive",
    "finish_reason", "identical",
)  # fmt: skip
NEEDED_BY_SURVIVAL = (
    *ARM,
    *TOLD_APART,
    "num_drafts",
    "num_accepted_tokens_per_pos",
)


def acceptance(steps: pl.DataFrame) -> pl.DataFrame:
    """Return ``frames.ACCEPTANCE`` without cautions, from counted steps inside the steady window that succeeded.

    Acceptance length = 1 + Σ accepted / Σ rounds over the steps whose rounds are known: 1 + ``num_accepted_in_rounds`` /
    ``num_drafts``, while ``num_accepted_tokens`` is of all steps; its interval draws tasks. ``macro`` is the mean over steps.
    Acceptance rate = Σ accepted / Σ drafted. Tokens per pass = 1 + Σ accepted / Σ target passes, passes without a draft
    included. All null for an arm without a drafter, and where nothing was drafted.
    """
    steps = steady_ok(steps, NEEDED)
    schema = {"concurrency": pl.Int64, "kind": pl.String, "language": pl.String}
    # whole numbers, summed once for each task in each place: what is pooled below rests on few rows
    whole = (*LOAD, "kind", "language")
    steps = steps.with_columns(number=numbered(steps, ("load", "what")))
    told = (
        with_rounds(steps)
        .group_by("number", "task", maintain_order=True)
        .agg(pl.col(*whole, "task_id").first(), pl.col("num_accepted_tokens", "num_drafts").sum())
    )
    places = steps.group_by("number", maintain_order=True).agg(pl.col(whole).first())
    row = pl.int_range(pl.len(), dtype=pl.UInt32)
    place = steps.select("number").join(
        places.select("number", row=row), on="number", how="left", maintain_order="left"
    )["row"]
    # sums of each place, added up for what is pooled, always in one order; a median can only be found among all
    sums = steps.drop(whole).with_columns(place=place, **_masked()).group_by("place", maintain_order=True).agg(_sums())
    times = steps.select(_TIMES)
    frames = []
    for by_load, by_kind, by_language in product((True, False), repeat=3):
        keep = [name for name, on in zip(schema, (by_load, by_kind, by_language), strict=True) if on]
        by = [*ARM, *keep]
        group = numbered(places, by)  # one number in the place of names, found once a place and not once a step
        medians = times.with_columns(group=group.gather(place)).group_by("group").agg(_medians())
        figures = sums.with_columns(group=group.gather(sums["place"])).group_by("group").agg(pl.exclude("place").sum())
        figures = figures.join(medians, on="group").select("group", *_figures())
        names = places.select(by, group=group).unique("group")
        frame = add_ratio(
            names.join(figures, on="group"), told, by, "length", "num_accepted_tokens", "num_drafts", plus=1.0
        ).rename({"length_low": "acceptance_length_low", "length_high": "acceptance_length_high"})
        pooled = [pl.lit(None, schema[name]).alias(name) for name in schema if name not in keep]
        frames.append(frame.with_columns(pooled).select(_OF_STEPS))
    return pl.concat(frames).sort(*LOAD, "kind", "language", nulls_last=False)


def _masked() -> dict[str, pl.Expr]:
    """Return the counts of a step as far as they count, null elsewhere: looked at once, and not in every table of sums."""
    drafter = pl.col("drafter")
    rounds, drafted, accepted, passes = (
        pl.col(name) for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens", "decode_passes")
    )
    with_rounds = drafter & rounds.is_not_null() & accepted.is_not_null()
    with_passes = drafter & passes.is_not_null() & accepted.is_not_null()
    counts = {
        "rounds": (with_rounds, rounds),
        "accepted_in_rounds": (with_rounds, accepted),
        "drafted": (drafter, drafted),
        "accepted": (drafter, accepted),
        "accepted_of_drafted": (drafter & drafted.is_not_null(), accepted),
        "passes": (with_passes, passes),
        "accepted_in_passes": (with_passes, accepted),
    }
    return {f"own_{name}": pl.when(mask).then(count) for name, (mask, count) in counts.items()}


def _means() -> dict[str, pl.Expr]:
    """Return what is averaged over the steps in which it is known."""
    return {
        "acceptance_length_macro": pl.col("acceptance_length"),
        "repetitive_share": pl.col("repetitive"),
        "cut_share": pl.col("finish_reason") == "length",
        "identical_share": pl.col("identical"),
    }


def _sums() -> list[pl.Expr]:
    """Return the aggregations of steps that can be added up: ``all_…`` is a sum, ``n_…`` how many values it has."""
    counts = {name: pl.col(name) for name in (*_masked(), "output_tokens")}
    return [
        pl.len().cast(pl.Int64).alias("n_steps"),
        *(value.sum().alias(f"all_{name}") for name, value in (counts | _means()).items()),
        *(value.count().cast(pl.Int64).alias(f"n_{name}") for name, value in (counts | _means()).items()),
    ]


def _medians() -> list[pl.Expr]:
    return [quantile(pl.col(column), 50).alias(name) for name, column in _MEDIANS.items()]


def _figures() -> list[pl.Expr]:
    """Return the figures of a row of acceptance, of sums and medians."""

    def known(name: str) -> pl.Expr:
        return pl.when(pl.col(f"n_{name}") > 0).then(f"all_{name}")

    def ratio(above: str, below: str) -> pl.Expr:
        return pl.when(pl.col(f"all_{below}") > 0).then(pl.col(f"all_{above}") / pl.col(f"all_{below}"))

    return [
        pl.col("n_steps"),
        pl.col("n_own_rounds").alias("n_steps_with_rounds"),
        known("own_rounds").alias("num_drafts"),
        known("own_accepted_in_rounds").alias("num_accepted_in_rounds"),
        known("own_drafted").alias("num_draft_tokens"),
        known("own_accepted").alias("num_accepted_tokens"),
        (1 + ratio("own_accepted_in_rounds", "own_rounds")).alias("acceptance_length"),
        ratio("own_accepted_of_drafted", "own_drafted").alias("acceptance_rate"),
        (1 + ratio("own_accepted_in_passes", "own_passes")).alias("tokens_per_pass"),
        known("output_tokens").alias("output_tokens"),
        *((pl.col(f"all_{name}") / pl.col(f"n_{name}")).fill_nan(None).alias(name) for name in _means()),
        *(pl.col(name) for name in _MEDIANS),
    ]


def acceptance_length() -> pl.Expr:
    """Return the aggregation of acceptance length alone."""
    rounds, accepted = pl.col("num_drafts"), pl.col("num_accepted_tokens")
    told = pl.col("drafter") & rounds.is_not_null() & accepted.is_not_null()
    return (1 + _ratio(accepted.filter(told), rounds.filter(told))).alias("acceptance_length")


def with_rounds(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps on which acceptance length rests: of arms with a drafter, whose rounds and accepted tokens are known."""
    known = pl.col("num_drafts").is_not_null() & pl.col("num_accepted_tokens").is_not_null()
    return steps.filter(pl.col("drafter") & known)


def _ratio(above: pl.Expr, below: pl.Expr) -> pl.Expr:
    return pl.when(below.sum() > 0).then(above.sum() / below.sum())


def survival(steps: pl.DataFrame) -> pl.DataFrame:
    """Return ``frames.SURVIVAL`` without cautions: the share of the rounds with known positions in which draft position i was accepted.

    Acceptance length of those rounds = 1 + Σ survival.
    """
    known = pl.col("num_accepted_tokens_per_pos").is_not_null() & (pl.col("num_drafts") > 0)
    steps = steady_ok(steps, NEEDED_BY_SURVIVAL, pl.col("drafter") & known)
    longest = int(steps["num_accepted_tokens_per_pos"].list.len().max() or 0)  # type: ignore[arg-type]
    per_position = [
        pl.col("num_accepted_tokens_per_pos").list.get(index, null_on_oob=True).sum().alias(str(index + 1))
        for index in range(longest)
    ]
    frames = []
    apart = ("workload", *TOLD_APART)
    summed = [pl.col(name).sum() for name in ("num_drafts", *(str(index + 1) for index in range(longest)))]
    steps = steps.group_by("arm", *apart).agg(pl.col("num_drafts").sum(), *per_position)
    for keep in product((True, False), repeat=len(apart)):
        names = [name for name, on in zip(apart, keep, strict=True) if on]
        pooled = [pl.lit(None, pl.String).alias(name) for name in apart if name not in names]
        # a step of unknown genre stands in the rows that pool genres, and makes none that looks like them
        told = steps.filter(pl.col("genre").is_not_null()) if "genre" in names else steps
        sums = told.group_by("arm", *names).agg(summed).with_columns(pooled)
        positions = sums.unpivot(
            [str(index + 1) for index in range(longest)],
            index=[*ARM, *TOLD_APART, "num_drafts"],
            variable_name="position",
            value_name="accepted",
        )
        frames.append(
            positions.with_columns(
                pl.col("position").cast(pl.Int64), survival=pl.col("accepted").cast(pl.Float64) / pl.col("num_drafts")
            ).select(_OF_POSITIONS)
        )
    return pl.concat(frames).sort(*ARM, *TOLD_APART, "position", nulls_last=False)
