"""Claims about what a drafter learns from: 6 (epochs, amount), 7 (who wrote it), 8 (masking), 9 (mix), 10 (kinds of office)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from drafters.claims.bootstrap import Estimate, Sample, mean
from drafters.claims.claim import Claim, Figure, Found, Judged, Plan, figure
from drafters.claims.counts import in_workloads
from drafters.claims.recipes import (
    CODE,
    ENGLISH,
    LAST,
    MIX,
    OFFICE,
    PER_ANSWER_TOKEN,
    Arm,
    Body,
    Recipes,
    checkpoint,
    length,
    seeded,
    shipped,
)
from drafters.claims.stages import Place, Stage
from drafters.claims.verdicts import Part, above, below

__all__ = ["CLAIMS"]

METHOD, BEFORE = "mtp", "before"
LENGTH = "tokens/round"
SHARES = (0.125, 0.25, 0.5, 1.0)
"""Of the data, in four sizes, each twice the one before."""
PASSES, ALL = 1, 2.0
"""Over each size of data; all of it, in the amount that other claims learn from."""
LITTLE = -0.1
"""So many tokens a round may masking cost."""
KINDS = ("finance", "manufacturing", "hospital")
KIND_DOCUMENTS, KIND_TASKS, KIND_SHARE = 260, 16, 0.4
MASKS = ("none", "surrogate", "label")
Rule = Callable[[Mapping[str, Estimate], str], Iterable[Part]]
"""Acceptance lengths by label, and how the target's weights were held → parts."""


def _before() -> Arm:
    return Arm(BEFORE, METHOD, shipped("public", METHOD), {"num_tokens": length(METHOD)})


def _arms(label: str, trainings: Sequence[Stage]) -> list[Arm]:
    return [
        Arm(seeded(label, seed), METHOD, checkpoint(stage), {"num_tokens": length(METHOD)})
        for seed, stage in enumerate(trainings, start=1)
    ]


def _trained(
    recipes: Recipes, name: str, bodies: Sequence[Body], tokens: float = 1.0, mix: str | None = None
) -> list[Stage]:
    """A drafter for each seed, all from the public one."""
    start = shipped("public", METHOD)
    return [
        recipes.train(name, METHOD, bodies, seed, tokens=tokens, mix=mix, start=start, options=LAST)
        for seed in recipes.setting.seeds
    ]


def _measured(recipes: Recipes, name: str, arms: Sequence[Arm], workloads: Sequence[str | Place]) -> Plan:
    forms = recipes.setting.scale.forms
    return {form: recipes.measure(name, arms, workloads, form=form) for form in forms}


def _plan_amount(recipes: Recipes) -> Plan:
    scale = recipes.setting.scale
    once = PER_ANSWER_TOKEN * ALL * scale.answers / scale.tokens  # one pass over all the data, in the scale's tokens
    arms = [_before()]
    for share in SHARES:
        tokens = PASSES * once * share
        arms += _arms(f"data-{share:g}", _trained(recipes, f"data-{share:g}", [recipes.korean(ALL * share)], tokens))
        if share != SHARES[0]:  # as many tokens, over the smallest data again and again
            few = _trained(recipes, f"epochs-{share:g}", [recipes.korean(ALL * SHARES[0])], tokens)
            arms += _arms(f"epochs-{share:g}", few)
    return _measured(recipes, "amount", arms, (OFFICE,))


def _judge_amount(found: Found) -> Judged:
    parts: list[Part] = []
    figures: list[Figure] = []
    for form in found.plan:
        sample = found.sample(form, form)
        lengths = {label: sample.acceptance(label) for label in sample.labels() if label != "baseline"}
        for label, each in lengths.items():
            curve, _, share = label.partition("-")
            figures.append(figure(f"length_{curve}", LENGTH, each, form=form, **({"share": share} if share else {})))
        first = lengths[f"data-{SHARES[0]:g}"]
        data, epochs = (lengths[f"{curve}-{SHARES[-1]:g}"] - first for curve in ("data", "epochs"))
        doublings = float(len(SHARES) - 1)
        figures.append(figure("per_doubling", LENGTH, data / doublings, curve="data", form=form))
        figures.append(figure("per_doubling", LENGTH, epochs / doublings, curve="epochs", form=form))
        parts += [above("data_helps", data, 0.0, form=form), below("epochs_less", epochs - data * 0.5, 0.0, form=form)]
    return Judged(tuple(parts), tuple(figures))


def _plan_author(recipes: Recipes) -> Plan:
    corpus, own = recipes.korean_corpus(), recipes.korean()
    tokens = recipes.setting.scale.answers
    words = ("claims", "recorded", "--corpus", Place(corpus), "--target", recipes.target, "--limit-tokens", str(tokens))
    recorded = Stage("recorded-answers", words)
    people = Body(recorded, recipes.states("recorded", recorded, tokens))
    arms = [
        _before(),
        *_arms("target", _trained(recipes, "by-target", [own])),
        *_arms("people", _trained(recipes, "by-people", [people])),
    ]
    return _measured(recipes, "author", arms, (OFFICE,))


def _judge_author(found: Found) -> Judged:
    def parts(own: Mapping[str, Estimate], form: str) -> Iterator[Part]:
        yield above("target_better", own["target"] - own["people"], 0.0, form=form)

    return _compared(found, ("target", "people"), OFFICE, parts)


def _plan_masking(recipes: Recipes) -> Plan:
    documents, tasks = _kind(recipes, "personal")
    arms = [_before()]
    for mask in MASKS:
        corpus = recipes.corpus(f"personal-{mask}-corpus", documents, {"personal": "ko/office"}, mask)
        arms += _arms(
            mask, _trained(recipes, f"mask-{mask}", [recipes.body(f"personal-{mask}", corpus, KIND_SHARE)], 0.5)
        )
    return _measured(recipes, "masking", arms, (Place(tasks, "personal.yaml"),))


def _judge_masking(found: Found) -> Judged:
    def parts(own: Mapping[str, Estimate], form: str) -> Iterator[Part]:
        for mask in MASKS[1:]:
            yield above("costs_little", own[mask] - own["none"], LITTLE, mask=mask, form=form)

    return _compared(found, MASKS, "personal", parts)


def _plan_mix(recipes: Recipes) -> Plan:
    korean, replayed = recipes.korean(), recipes.replayed()
    arms = [
        _before(),
        *_arms("mixed", _trained(recipes, "mixed", [korean, replayed], 1.0, MIX)),
        *_arms("alone", _trained(recipes, "korean-alone", [korean], 0.5)),  # as many Korean tokens as in the mix
    ]
    return _measured(recipes, "mix", arms, (OFFICE, ENGLISH, CODE))


def _judge_mix(found: Found) -> Judged:
    parts: list[Part] = []
    figures: list[Figure] = []
    for form in found.plan:
        sample = found.sample(form, form)
        for workload in (OFFICE, ENGLISH, CODE):
            own, named = sample.of(in_workloads(workload)), {"workload": workload, "form": form}
            lengths = {label: own.acceptance(label) for label in (BEFORE, "mixed", "alone")}
            figures += [figure("length", LENGTH, each, drafter=label, **named) for label, each in lengths.items()]
            if workload != OFFICE:
                parts.append(below("forgotten", lengths["alone"] - lengths[BEFORE], 0.0, **named))
                parts.append(below("mix_keeps", lengths["alone"] - lengths["mixed"], 0.0, **named))
    return Judged(tuple(parts), tuple(figures))


def _kind(recipes: Recipes, kind: str) -> tuple[Stage, Stage]:
    """Documents of one kind of office to learn from, and tasks of it in forms that none of them has."""
    documents = recipes.documents(f"{kind}-documents", ("--kind", f"{kind}={KIND_DOCUMENTS}"))
    return documents, recipes.documents(f"{kind}-tasks", ("--tasks", f"{kind}={KIND_TASKS}"), seed=4)


def _plan_kinds(recipes: Recipes) -> Plan:
    arms, workloads = [_before()], []
    for kind in KINDS:
        documents, tasks = _kind(recipes, kind)
        corpus = recipes.corpus(f"{kind}-corpus", documents, {kind: "ko/office"})
        arms += _arms(kind, _trained(recipes, kind, [recipes.body(kind, corpus, KIND_SHARE)], 0.5))
        workloads.append(Place(tasks, f"{kind}.yaml"))
    return _measured(recipes, "kinds", arms, workloads)


def _judge_kinds(found: Found) -> Judged:
    parts: list[Part] = []
    figures: list[Figure] = []
    for form in found.plan:
        sample = found.sample(form, form)
        own_gains: list[Estimate] = []
        foreign_gains: list[Estimate] = []
        for office in KINDS:
            at = sample.of(in_workloads(office))
            before = at.acceptance(BEFORE)
            figures.append(figure("length_at", LENGTH, before, kind=BEFORE, office=office, form=form))
            for kind in KINDS:
                each = at.acceptance(kind)
                figures.append(figure("length_at", LENGTH, each, kind=kind, office=office, form=form))
                (own_gains if kind == office else foreign_gains).append(each - before)
        own, foreign = mean(own_gains), mean(foreign_gains)
        figures.append(figure("kept_share", "share", foreign / own, form=form))
        parts.append(above("own_gain", own, 0.0, form=form))
        parts.append(below("poor_transfer", foreign - own * 0.5, 0.0, form=form))
    return Judged(tuple(parts), tuple(figures))


def _compared(found: Found, labels: Sequence[str], workload: str, rule: Rule) -> Judged:
    """Acceptance of several trainings on one workload, and what a rule makes of it."""
    parts: list[Part] = []
    figures: list[Figure] = []
    for form in found.plan:
        own: Sample = found.sample(form, form).of(in_workloads(workload))
        lengths = {label: own.acceptance(label) for label in (BEFORE, *labels)}
        figures += [figure("length", LENGTH, each, drafter=label, form=form) for label, each in lengths.items()]
        parts += list(rule(lengths, form))
    return Judged(tuple(parts), tuple(figures))


CLAIMS = (
    Claim(6, "amount", True, _plan_amount, _judge_amount),
    Claim(7, "author", True, _plan_author, _judge_author),
    Claim(8, "masking", True, _plan_masking, _judge_masking),
    Claim(9, "mix", True, _plan_mix, _judge_mix),
    Claim(10, "kinds", True, _plan_kinds, _judge_kinds),
)
