"""Claims about DFlash 2's candidates: 5 (forced insertion), 15 (the right token among the first sixteen)."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from drafters.claims.bootstrap import Estimate, Sample
from drafters.claims.candidates import TABLE
from drafters.claims.claim import Claim, Figure, Found, Judged, Plan, figure
from drafters.claims.counts import Row, in_workloads
from drafters.claims.recipes import ENGLISH, LAST, MIX, OFFICE, Arm, Recipes, checkpoint, length, seeded, shipped
from drafters.claims.stages import Cost, Place, Stage
from drafters.claims.verdicts import Part, above, below
from drafters.training.stage import StageError

__all__ = ["CLAIMS", "taught_share"]

METHOD = "dflash2"
LENGTH = "tokens/round"
OPTIONS = {"num_tokens": length(METHOD)}
SELECTOR = "candidate_selector.successor_codebook"
OWN, FORCED, WITHOUT = "own-lists", "forced", "no-selector"
SETS = {OWN: {}, FORCED: {"forced_insertion": "true"}, WITHOUT: {"selector_weight": "0.0"}}
FAR_MORE = 0.1
"""So much more often among the first sixteen than first is called far more often."""
FAMILIES = ("public", "adapted")
WORK = {"ko": "office-ko", "en": "support-en"}
CONTINUE = 0.5


def _plan_forced(recipes: Recipes) -> Plan:
    words = ("claims", "blank", "--model", shipped("public", METHOD), "--tensor", SELECTOR)
    blank, bodies = checkpoint(Stage("blank-selector", words)), [recipes.korean(), recipes.replayed()]
    made: dict[str, Stage] = {}
    arms = [Arm("before", METHOD, blank, OPTIONS)]
    for label, sets in SETS.items():
        for seed in recipes.setting.seeds:
            name = seeded(label, seed)
            made[name] = recipes.train(
                f"selector-{label}", METHOD, bodies, seed, mix=MIX, start=blank, sets=sets, options=LAST
            )
            arms.append(Arm(name, METHOD, checkpoint(made[name]), OPTIONS))
    forms = recipes.setting.scale.forms
    return made | {form: recipes.measure("selector", arms, (OFFICE, ENGLISH), form=form) for form in forms}


def _judge_forced(found: Found) -> Judged:
    parts: list[Part] = []
    figures: list[Figure] = []
    shares = {
        label: [taught_share(found.folder(seeded(label, seed))) for seed in found.setting.seeds]
        for label in (OWN, FORCED)
    }
    more = [forced - own for own, forced in zip(shares[OWN], shares[FORCED], strict=True)]
    value, n = sum(more) / len(more), len(more)
    parts.append(Part("metric_improves", "above", (0.0,), value, min(more), max(more), None, n, _decided(more)))
    figures += [figure("taught_share", "share", sum(own) / n, drafter=label) for label, own in shares.items()]
    for form in found.setting.scale.forms:
        sample = found.sample(form, form)
        lengths = {label: sample.acceptance(label) for label in ("before", *SETS)}
        figures += [figure("length", LENGTH, each, drafter=label, form=form) for label, each in lengths.items()]
        # no gain: not shown to accept more than the one trained on its own lists by a twentieth of a token
        parts.append(below("forced_no_better", lengths[FORCED] - lengths[OWN], 0.05, form=form))
        parts.append(above("own_lists_better", lengths[OWN] - lengths[WITHOUT], 0.0, form=form))
    return Judged(tuple(parts), tuple(figures))


def _decided(more: list[float]) -> bool | None:
    return True if min(more) > 0 else False if max(more) <= 0 else None


def taught_share(training: Path) -> float:
    """Share of the positions that taught the selector in the second half of a training: what its list held, as it was counted.

    Raises StageError for a log without them.
    """
    lines = [json.loads(line) for line in (training / "log.jsonl").read_text("utf-8").splitlines()]
    steps = [line for line in lines if line["kind"] == "step"]
    late = steps[len(steps) // 2 :]
    taught = sum(line["parts"].get("taught", 0.0) for line in late)
    positions = sum(value for line in late for name, value in line["parts"].items() if name.startswith("positions/"))
    if not positions:
        raise StageError(f"{training / 'log.jsonl'} says nothing of a selector; train a dflash2 drafter")
    return float(taught / positions)


def _plan_candidates(recipes: Recipes) -> Plan:
    made: dict[str, Stage] = {}
    for language, name in WORK.items():
        tasks = Place(recipes.setting.workloads / "data" / f"{name}.jsonl", "", "", f"={language}/{name}")
        corpus = Stage(
            f"{name}-tasks", ("corpus", "--tasks", tasks, "--mask", "none", "--held-out", "0.5", "--seed", "1")
        )
        answers = recipes.body(f"{name}-tasks", corpus, CONTINUE, keep_repetition=True).answers
        for family in FAMILIES:
            words = ("claims", "candidates", "--examples", Place(answers), "--drafter", shipped(family, METHOD))
            cost = Cost(captured=2 * recipes.setting.scale.answers)
            own = (*words, "--target", recipes.target, "--threads", str(recipes.setting.scale.threads))
            made[f"{family}-{language}"] = Stage(f"{family}-{language}-candidates", own, cost)
    arms = [Arm(f"{family}-{METHOD}", METHOD, shipped(family, METHOD), OPTIONS) for family in FAMILIES]
    return made | {"plain": recipes.measure("candidates", arms, (OFFICE, ENGLISH))}


def _judge_candidates(found: Found) -> Judged:
    parts: list[Part] = []
    figures: list[Figure] = []
    engine = found.sample("plain")
    for family in FAMILIES:
        for language in WORK:
            table = found.folder(f"{family}-{language}") / TABLE
            found.store.manifest(found.plan[f"{family}-{language}"])
            sample = found.note(list(_listed(table, family, language)))
            named = {"drafter": family, "language": language}
            for position in sorted({row.step for row in sample.rows}):
                at = sample.of(lambda row, position=position: row.step == position)  # type: ignore[misc]
                first, listed = _first(at, family), _in_list(at, family)
                figures.append(figure("first", "share", first, position=str(position), **named))
                figures.append(figure("listed", "share", listed, position=str(position), **named))
            parts.append(above("far_more", _in_list(sample, family) - _first(sample, family), FAR_MORE, **named))
            for key, walk in zip(("unary_walk", "selector_walk", "oracle_walk"), _walks(table), strict=True):
                figures.append(figure(key, LENGTH, walk, **named))
            own = engine.of(in_workloads(OFFICE if language == "ko" else ENGLISH)).acceptance(f"{family}-{METHOD}")
            figures.append(figure("length", LENGTH, own, **named))
    return Judged(tuple(parts), tuple(figures))


def _first(sample: Sample, label: str) -> Estimate:
    return sample.ratio(label, lambda row: row.drafted, lambda row: row.rounds)


def _in_list(sample: Sample, label: str) -> Estimate:
    return sample.ratio(label, lambda row: row.accepted, lambda row: row.rounds)


def _listed(table: Path, family: str, language: str) -> Iterator[Row]:
    """Rows whose ``rounds`` are positions, ``drafted`` those with the right token first, ``accepted`` those with it in the list."""
    for line in _lines(table):
        yield Row(
            form="teacher-forced",
            label=family,
            seed=1,
            workload=language,
            concurrency=1,
            repeat=1,
            task=line["example"],
            instance=0,
            step=int(line["position"]),
            kind="",
            language=language,
            genre="",
            rounds=int(line["positions"]),
            drafted=int(line["first"]),
            accepted=int(line["listed"]),
            passes=None,
            output_tokens=None,
            seconds=0.0,
            repetitive=None,
            output="",
        )


def _walks(table: Path) -> Iterator[float]:
    """Tokens a round of always the best candidate, of the selector's walk, and of one that is always right."""
    lines = list(_lines(table))
    for name in ("unary", "selected", "oracle"):
        shares = []
        for position in sorted({int(line["position"]) for line in lines}):
            own = [line for line in lines if int(line["position"]) == position]
            drafted = sum(float(line["drafted"]) for line in own)
            shares.append(sum(float(line[name]) for line in own) / drafted if drafted else 0.0)
        yield 1.0 + sum(shares)


def _lines(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


CLAIMS = (
    Claim(5, "forced", True, _plan_forced, _judge_forced),
    Claim(15, "candidates", False, _plan_candidates, _judge_candidates),
)
