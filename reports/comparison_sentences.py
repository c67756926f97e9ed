"""What a comparison says in sentences: which language gained, which lost, and where no difference was shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import polars as pl

from harness.analysis.compare import ArmPair, Comparison
from harness.analysis.plan import BASELINE_METHOD, SYNTHETIC_METHOD
from harness.analysis.wholeness import SETTINGS
from reports.wording import Wording, is_unknown, percent, wording

Direction = Literal["gained", "lost", "same", "too_few"]
DIRECTIONS: tuple[Direction, ...] = ("gained", "lost", "same", "too_few")
MOST_NAMES = 4  # of differing settings in one sentence; the table has all of them


def direction(low: float | None, high: float | None, nothing: float = 0.0) -> Direction:
    """Return what the interval of a change bears out, judged on the figures as they are printed."""
    if low is None or high is None or is_unknown(low) or is_unknown(high):
        return "too_few"
    low, high = round(low, 2), round(high, 2)
    return "gained" if low > nothing else "lost" if high < nothing else "same"


def level(comparison: Comparison) -> str:
    """Return how far the comparison can be trusted: clear, limited or invalid, as the page colours it."""
    if not comparison.sound:
        return "invalid"
    return "limited" if (comparison.differences["severity"] == "warning").any() else "clear"


def preamble(comparison: Comparison, words: Wording) -> list[str]:
    """Say which of the two comparisons it is, and whether the pairing is sound."""
    found = [words.text(f"comparison.{_way(comparison)}", rest=_rest_of_drift(comparison, words))]
    if any(comparison.left_out):
        before, after = (", ".join(names) or "–" for names in comparison.left_out)
        found.append(words.text("comparison.left_out", before=before, after=after))
    severity = {"invalid": "invalid", "limited": "warning"}.get(level(comparison), "")
    serious = comparison.differences.filter(pl.col("severity") == severity)
    names = [setting(name, words) for name in serious["setting"].unique(maintain_order=True)]
    shown = ", ".join(names[:MOST_NAMES]) + (" …" if len(names) > MOST_NAMES else "")
    if comparison.sound and comparison.unproven:
        first = words.text("comparison.unproven", n=len(names), names=shown, unknown=_unknown(comparison, words))
    else:
        limited = "sound_gaps" if set(serious["setting"]) & set(SETTINGS) else "sound_but"
        key = {"invalid": "unsound", "limited": limited, "clear": "sound"}[level(comparison)]
        first = words.text(f"comparison.{key}", n=len(names), names=shown)
    return [first, *found]


def certainty(comparison: Comparison, words: Wording) -> str:
    """Say in half a sentence how far the comparison can be trusted."""
    if comparison.sound and comparison.unproven:
        return words.text("comparison.certainty.unproven", unknown=_unknown(comparison, words))
    return words.text(f"comparison.certainty.{level(comparison)}")


def setting(name: str, words: Wording) -> str:
    """Return what differs in words, its own name where it is a key of a manifest."""
    return words.optional(f"comparison.setting.{name}") or name


def _unknown(comparison: Comparison, words: Wording) -> str:
    return words.text(f"comparison.unknown.{'_'.join(comparison.unproven)}")


def _rest_of_drift(comparison: Comparison, words: Wording) -> str:
    """Say in what else than task times the machine's drift may be."""
    key = "some" if comparison.adrift else "none"
    return words.text(f"comparison.drift_rest.{key}", names=", ".join(comparison.adrift))


def _way(comparison: Comparison) -> str:
    if not comparison.within:
        return "across"
    odd = any(workload["repeats"] % 2 for workload in comparison.before.manifest["workloads"])
    return "within_odd" if odd else "within"


def of_pair(comparison: Comparison, pair: ArmPair, words: Wording) -> list[str]:
    """Return the sentences on one pair of arms."""
    own = (pl.col("arm_before") == pair[0]) & (pl.col("arm_after") == pair[1])
    return [
        *_acceptance(comparison, pair, own, words),
        *_times(comparison, pair, own, words),
        *_window(comparison, own, words),
        *_outputs(comparison, own, words),
        *_rest(comparison, own, words),
    ]


def headline(comparison: Comparison, lang: str) -> str:
    """Return the first sentence on the first pair that drafts: what the console ends with."""
    words = wording(lang)
    pair = (comparison.drafting or comparison.arms)[0]
    sentences = of_pair(comparison, pair, words)
    lead = preamble(comparison, words)[:1] if not comparison.sound else []
    n = 3 if pair in comparison.drafting else 2
    return words.text("comparison.verdict", sentence=" ".join([*lead, *sentences[:n]]))


def subject(pair: ArmPair, words: Wording) -> str:
    """Return the name of a pair in a sentence."""
    key = "comparison.same_name" if pair[0] == pair[1] else "comparison.pair"
    return words.text(key, before=pair[0], after=pair[1])


def by(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """Return the rows of compared acceptance that tell just these apart, and pool over all else."""
    apart = ("workload", "concurrency", "kind", "language", "language_group", "genre")
    tests = [pl.col(name).is_not_null() if name in names else pl.col(name).is_null() for name in apart]
    return frame.filter(pl.all_horizontal(tests))


def _acceptance(comparison: Comparison, pair: ArmPair, own: pl.Expr, words: Wording) -> Iterator[str]:
    frame = comparison.acceptance.filter(own)
    whole = by(frame).to_dicts()
    if pair not in comparison.drafting:
        methods = _methods(comparison, pair)
        if SYNTHETIC_METHOD in methods and BASELINE_METHOD not in methods:
            yield words.text("comparison.synthetic", subject=subject(pair, words))
        elif not _is_baseline(comparison, pair):
            yield words.text("comparison.no_drafting", subject=subject(pair, words))
        return
    if not whole or whole[0]["acceptance_length_change"] is None:
        yield words.text("comparison.overall_unknown", subject=subject(pair, words))
        return
    found = direction(whole[0]["acceptance_length_change_low"], whole[0]["acceptance_length_change_high"])
    yield words.text(
        "comparison.overall", subject=subject(pair, words), **_figures(whole[0], words),
        direction=words.text(f"comparison.direction.{found}"),
    )  # fmt: skip
    languages: dict[Direction, list[str]] = {name: [] for name in DIRECTIONS}
    for row in by(frame, "language").iter_rows(named=True):
        if row["acceptance_length_change"] is None:
            continue
        name = words.label("language", str(row["language"]))
        which = direction(row["acceptance_length_change_low"], row["acceptance_length_change_high"])
        languages[which].append(words.text("comparison.place", name=name, **_figures(row, words)))
    for which, names in languages.items():
        if names:
            yield words.text(f"comparison.{which}", names="; ".join(names))
        elif which in ("gained", "lost"):
            yield words.text(f"comparison.none_{which}")


def _figures(row: Mapping[str, Any], words: Wording) -> dict[str, Any]:
    change = f"{row['acceptance_length_change']:+.2f}"
    low, high = (row[f"acceptance_length_change_{end}"] for end in ("low", "high"))
    limits = _interval(low, high, words, signed=True)
    return {
        "before": f"{row['acceptance_length_before']:.2f}",
        "after": f"{row['acceptance_length_after']:.2f}",
        "change": f"{change}, {limits}",
        "n": row["n_tasks"],
    }


def _interval(low: float | None, high: float | None, words: Wording, *, signed: bool = False) -> str:
    if low is None or high is None:
        return words.text("comparison.interval_none")
    if signed:
        return words.text("comparison.interval_signed", low=f"{low:+.2f}", high=f"{high:+.2f}")
    return words.text("comparison.interval", low=f"{low:.2f}", high=f"{high:.2f}")


def _times(comparison: Comparison, pair: ArmPair, own: pl.Expr, words: Wording) -> Iterator[str]:
    baseline = _is_baseline(comparison, pair)
    for row in pooled_times(comparison.times.filter(own)):
        limits = _interval(row["task_time_ratio_low"], row["task_time_ratio_high"], words)
        place = {"concurrency": row["concurrency"], "ratio": f"{row['task_time_ratio']:.2f}", "interval": limits}
        if baseline:
            yield words.text("comparison.baseline_time", **place)
            continue
        which = direction(row["task_time_ratio_low"], row["task_time_ratio_high"], 1.0)
        note = words.text({"gained": "comparison.faster", "lost": "comparison.slower"}.get(which, "comparison.unshown"))
        if not comparison.within:
            note += words.text("comparison.drift")
        yield words.text("comparison.time", **place, n=row["n_tasks"], note=note)
        if not comparison.within and row["speed_up_ratio"] is not None:
            limits = _interval(row["speed_up_ratio_low"], row["speed_up_ratio_high"], words)
            yield words.text(
                "comparison.speed",
                concurrency=row["concurrency"],
                before=f"{row['speed_up_before']:.2f}",
                after=f"{row['speed_up_after']:.2f}",
                ratio=f"{row['speed_up_ratio']:.2f}",
                interval=limits,
            )


def _window(comparison: Comparison, own: pl.Expr, words: Wording) -> Iterator[str]:
    """Say at which loads ramp and tail are in the figures."""
    whole = own & (pl.col("window") == "whole") & pl.col("concurrency").is_not_null()
    loads = {load for frame in (comparison.times, comparison.acceptance) for load in frame.filter(whole)["concurrency"]}
    if loads:
        yield words.text("comparison.whole", loads=", ".join(map(str, sorted(loads))))


def pooled_times(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the times pooled over workloads, or those of the only one there is."""
    pooled = frame.filter(pl.col("workload").is_null())
    single = frame["workload"].drop_nulls().n_unique() == 1
    return (frame if single else pooled).sort("concurrency").to_dicts()


def _outputs(comparison: Comparison, own: pl.Expr, words: Wording) -> Iterator[str]:
    frame = comparison.outputs.filter(own)
    n, same = int(frame["n_steps"].sum()), int(frame["n_identical"].sum())
    if not n:
        yield words.text("comparison.not_compared")
        return
    share = percent(same / n).removesuffix(".0")
    if same == n:
        yield words.text("comparison.identical", share=share, n=n)
        return
    first = frame.filter(pl.col("n_identical") < pl.col("n_steps")).sort(
        "first_difference_character_min", nulls_last=True
    )
    row = first.row(0, named=True)
    character = row["first_difference_character_min"]
    key = "different_somewhere" if character is None else "different"
    yield words.text(f"comparison.{key}", share=share, n=n, character=character, example=row["example_step"])


def _rest(comparison: Comparison, own: pl.Expr, words: Wording) -> Iterator[str]:
    sums = comparison.steps.filter(own).select(pl.col("^n_steps_.*$").sum()).row(0, named=True)
    for key, stem in (("only", "n_steps_only"), ("failed", "n_steps_failed")):
        before, after = sums[f"{stem}_before"], sums[f"{stem}_after"]
        if before or after:
            yield words.text(f"comparison.{key}", before=before, after=after)


def _is_baseline(comparison: Comparison, pair: ArmPair) -> bool:
    return all(method == BASELINE_METHOD for method in _methods(comparison, pair))


def _methods(comparison: Comparison, pair: ArmPair) -> list[str | None]:
    sides = (comparison.before, comparison.after)
    return [_method(side.manifest, arm) for side, arm in zip(sides, pair, strict=True)]


def _method(manifest: Mapping[str, Any], arm: str) -> str | None:
    arms: Sequence[Mapping[str, Any]] = [item for workload in manifest["workloads"] for item in workload["arms"]]
    return next((str(item["method"]) for item in arms if item["name"] == arm), None)
