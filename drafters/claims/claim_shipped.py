"""Claims that the shipped drafters alone answer: 1 (languages), 2 (the cure), 3 (text types), 12 (copying), 13 (load)."""

from __future__ import annotations

from collections.abc import Iterator

from drafters.claims.bootstrap import Estimate, Sample
from drafters.claims.claim import Claim, Figure, Found, Judged, Plan, figure, identical
from drafters.claims.counts import Where, in_workloads
from drafters.claims.recipes import CODE, ENGLISH, ESSAY, OFFICE, Arm, Recipes, length, shipped
from drafters.claims.scale import Form
from drafters.claims.stages import Place
from drafters.claims.verdicts import Part, above, below, exactly, within
from drafters.training.evaluate_input import BASELINE
from drafters.training.evaluate_stage import RUN
from drafters.training.run_figures import number, read_table

__all__ = ["CLAIMS"]

BOTH: tuple[Form, ...] = ("plain", "rtn4")
QUARTER_LESS = 0.75
SAME = (0.97, 1.03)
SHORT, COPIED = 2, ("summarize", "reply", "revise", "code_edit")
"""Tokens of a short mtp draft; kinds of steps that copy what they were given."""
PUBLIC, ADAPTED = "public", "adapted"
LENGTH, TIMES = "tokens/round", "x"


def arm(family: str, method: str, **options: int) -> Arm:
    """A shipped drafter as an arm."""
    return Arm(f"{family}-{method}", method, shipped(family, method), {"num_tokens": length(method), **options})


LOOKUP = Arm("lookup", "prompt_lookup", None, {"num_tokens": 8})
TABLE = Arm("ngram", "ngram", Place("ref:ngram"), {"num_tokens": 4})
DRAFT_MODEL = Arm("draft-model", "draft_model", Place("ref:draft-model"), {"num_tokens": 4})


def _plan_languages(recipes: Recipes) -> Plan:
    arms = [arm(PUBLIC, method) for method in recipes.setting.scale.shipped]
    return {form: recipes.measure("languages", arms, (OFFICE, ENGLISH, CODE), form=form) for form in BOTH}


def _judge_languages(found: Found) -> Judged:
    parts: list[Part] = []
    figures: list[Figure] = []
    for form in BOTH:
        sample = found.sample(form, form)
        korean = sample.of(in_workloads(OFFICE, languages=("ko", "ko+code")))
        english, code = sample.of(in_workloads(ENGLISH, languages=("en",))), sample.of(in_workloads(CODE))
        for method in found.setting.scale.shipped:
            label = f"{PUBLIC}-{method}"
            lengths = {name: part.acceptance(label) for name, part in (("ko", korean), ("en", english), ("code", code))}
            named = {"method": method, "form": form}
            figures += [figure("length", LENGTH, each, language=name, **named) for name, each in lengths.items()]
            for other in ("en", "code"):
                parts.append(below("korean_less", lengths["ko"] - lengths[other], 0.0, language=other, **named))
    return Judged(tuple(parts), tuple(figures))


def _plan_cure(recipes: Recipes) -> Plan:
    arms = [arm(family, method) for method in recipes.setting.scale.methods for family in (PUBLIC, ADAPTED)]
    workloads = (OFFICE, ENGLISH, CODE)
    return {form: recipes.measure("cure", arms, workloads, form=form, timed=True) for form in BOTH}


def _judge_cure(found: Found) -> Judged:
    parts: list[Part] = []
    figures: list[Figure] = []
    first = found.setting.scale.methods[0]
    for form in BOTH:
        sample = found.sample(form, form)
        for method in found.setting.scale.methods:
            for workload in (OFFICE, ENGLISH, CODE):
                own, named = sample.of(in_workloads(workload)), {"method": method, "form": form, "workload": workload}
                ratio = own.seconds(f"{ADAPTED}-{method}") / own.seconds(f"{PUBLIC}-{method}")
                figures.append(figure("time_ratio", TIMES, ratio, **named))
                gain = own.acceptance(f"{ADAPTED}-{method}") - own.acceptance(f"{PUBLIC}-{method}")
                figures.append(figure("length_change", LENGTH, gain, **named))
                if method == first:
                    part = below("quarter", ratio, QUARTER_LESS, **named)
                    parts.append(part if workload == OFFICE else within("unchanged", ratio, SAME[0], SAME[1], **named))
        same, steps = identical(sample)
        parts.append(exactly("identical", same, steps, form=form))
    return Judged(tuple(parts), tuple(figures))


def _plan_text_types(recipes: Recipes) -> Plan:
    arms = [arm(ADAPTED, "mtp", num_tokens=SHORT), arm(ADAPTED, "dflash")]
    forms = recipes.setting.scale.forms
    return {form: recipes.measure("types", arms, (OFFICE, ESSAY), form=form, timed=True) for form in forms}


def _judge_text_types(found: Found) -> Judged:
    parts: list[Part] = []
    figures: list[Figure] = []
    for form in found.plan:
        sample = found.sample(form, form)
        formed = sample.of(in_workloads(OFFICE))
        essays = sample.of(lambda row: row.workload == ESSAY and row.genre in ("", "essay"))
        for method in ("mtp", "dflash"):
            label, named = f"{ADAPTED}-{method}", {"method": method, "form": form}
            gains = {name: _speed_up(part, label) for name, part in ((OFFICE, formed), (ESSAY, essays))}
            figures += [figure("speed_up", TIMES, gain, workload=name, **named) for name, gain in gains.items()]
            parts.append(above("formed_more", gains[OFFICE] / gains[ESSAY], 1.0, **named))
        short = essays.seconds(f"{ADAPTED}-mtp") / essays.seconds(f"{ADAPTED}-dflash")
        parts.append(below("short_better", short, 1.0, form=form))
        figures.append(figure("short_time", TIMES, short, form=form))
    return Judged(tuple(parts), tuple(figures))


def _plan_copying(recipes: Recipes) -> Plan:
    arms = [LOOKUP, TABLE, arm(ADAPTED, "mtp")]
    forms = recipes.setting.scale.forms
    return {form: recipes.measure("copying", arms, (OFFICE, ENGLISH, CODE), form=form, timed=True) for form in forms}


def _judge_copying(found: Found) -> Judged:
    parts: list[Part] = []
    figures: list[Figure] = []
    for form in found.plan:
        sample = found.sample(form, form)
        copied = sample.of(lambda row: row.kind in COPIED)
        rest = sample.of(lambda row: row.kind not in COPIED)
        trained = copied.acceptance(f"{ADAPTED}-mtp")
        figures.append(figure("length", LENGTH, trained, method="mtp", form=form))
        for label in (LOOKUP.name, TABLE.name):
            named = {"method": label, "form": form}
            own = copied.acceptance(label)
            figures += [
                figure("length", LENGTH, own, **named),
                figure("speed_up", TIMES, _speed_up(copied, label), text="copied", **named),
                figure("speed_up", TIMES, _speed_up(rest, label), text="rest", **named),
            ]
            parts.append(below("accepts_less", own - trained, 0.0, **named))
            parts.append(above("worth_it", _speed_up(copied, label), 1.0, **named))
    return Judged(tuple(parts), tuple(figures))


def _plan_load(recipes: Recipes) -> Plan:
    arms = [*(arm(ADAPTED, method) for method in ("mtp", "eagle3", "dflash2")), DRAFT_MODEL, LOOKUP]
    scale = recipes.setting.scale
    return {
        form: recipes.measure("load", arms, (OFFICE,), form=form, timed=True, loads=scale.loads) for form in scale.forms
    }


def _judge_load(found: Found) -> Judged:
    parts: list[Part] = []
    figures: list[Figure] = []
    loads = found.setting.scale.loads
    for form in found.plan:
        sample = found.sample(form, form)
        at_load = {load: sample.of(_at(load)) for load in loads}
        labels = [label for label in sample.labels() if label != BASELINE]
        last: dict[str, Estimate] = {}
        for label in labels:
            gains = {load: _speed_up(part, label) for load, part in at_load.items()}
            named = {"method": label, "form": form}
            figures += [figure("speed_up", TIMES, gain, load=str(load), **named) for load, gain in gains.items()]
            parts.append(below("shrinks", gains[loads[-1]] / gains[loads[0]], 1.0, **named))
            last[label] = gains[loads[-1]]
        parts.append(_some_below(last, form))
        figures += list(_predicted(found, form, last, loads[-1]))
    return Judged(tuple(parts), tuple(figures))


def _at(load: int) -> Where:
    return lambda row: row.concurrency == load


def _some_below(last: dict[str, Estimate], form: str) -> Part:
    """At least one arm is below 1 at the highest load; no where all of them are above it."""
    ends = [each.interval for each in last.values()]
    under = sum(end is not None and end[1] < 1 for end in ends)
    none = all(end is not None and end[0] > 1 for end in ends)
    passed = True if under else False if none else None
    return Part("some_below", "above", (0.0,), float(under), None, None, None, None, passed, (("form", form),))


def _predicted(found: Found, form: str, last: dict[str, Estimate], load: int) -> Iterator[Figure]:
    """Whether the cost model puts an arm on the side of 1 where it was measured at the highest load: 1 yes, 0 no."""
    rows = read_table(found.folder(form) / RUN / "predicted_break_even.csv")
    for label, estimate in last.items():
        drafted = max((row.drafted or 0) // max(1, row.rounds or 1) for row in found.rows if row.label == label)
        own = [row for row in rows if row["arm"] == label and row["workload"] == OFFICE]
        near = min(own, key=lambda row: abs(int(row["num_tokens"]) - drafted), default=None)
        if near is None or estimate.value is None or near["side"] == "unknown":
            yield figure("predicted", "", None, method=label, form=form)
            continue
        modelled = number(near["break_even_modelled"])
        slower = near["side"] == "below" or (modelled is not None and modelled <= load)
        yield figure("predicted", "", float(slower == (estimate.value < 1)), method=label, form=form)


def _speed_up(sample: Sample, label: str) -> Estimate:
    """Time of the baseline's steps / that of the same steps with a drafter."""
    return sample.seconds(BASELINE) / sample.seconds(label)


CLAIMS = (
    Claim(1, "languages", False, _plan_languages, _judge_languages),
    Claim(2, "cure", False, _plan_cure, _judge_cure),
    Claim(3, "text-types", False, _plan_text_types, _judge_text_types),
    Claim(12, "copying", False, _plan_copying, _judge_copying),
    Claim(13, "load", False, _plan_load, _judge_load),
)
