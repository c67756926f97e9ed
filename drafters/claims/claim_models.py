"""Claims about models: 11 (a bigger draft model), 14 (a drafter of another target)."""

from __future__ import annotations

from drafters.claims.claim import Claim, Figure, Found, Judged, Plan, figure
from drafters.claims.recipes import MIX, OFFICE, Arm, Recipes, checkpoint, length, seeded, shipped
from drafters.claims.stages import Stage
from drafters.claims.verdicts import Part, above, below
from drafters.training.evaluate_input import BASELINE

__all__ = ["CLAIMS"]

LENGTH, TIMES = "tokens/round", "x"
SIZES = {"small": 1, "big": 4}
"""Layers of the target that a draft model begins with."""
DRAFTED = {"num_tokens": 4}
GENTLE = {"muon-rate": 0.005, "rate": 1.0e-3}
"""Its weights are trained ones; the shipped draft model begins with none."""
OTHER = {"hidden_size": 288, "layers": 4, "intermediate_size": 768, "heads": 9, "kv_heads": 3, "head_dim": 32}
OTHER_TOKENS = 6.0
METHOD = "mtp"


def _plan_bigger(recipes: Recipes) -> Plan:
    arms = []
    for size, layers in SIZES.items():
        words = ("claims", "prune", "--model", recipes.target, "--layers", str(layers))
        start = checkpoint(Stage(f"pruned-{layers}", words))
        for seed in recipes.setting.seeds:
            stage = recipes.train(
                f"draft-{size}", "draft_model", [recipes.korean(), recipes.replayed()], seed, mix=MIX, start=start,
                options=GENTLE,
            )  # fmt: skip
            arms.append(Arm(seeded(size, seed), "draft_model", checkpoint(stage), DRAFTED))
    forms = recipes.setting.scale.forms
    return {form: recipes.measure("bigger", arms, (OFFICE,), form=form, timed=True) for form in forms}


def _judge_bigger(found: Found) -> Judged:
    parts: list[Part] = []
    figures: list[Figure] = []
    for form in found.plan:
        sample = found.sample(form, form)
        lengths = {size: sample.acceptance(size) for size in SIZES}
        times = {size: sample.seconds(size) for size in SIZES}
        for size in SIZES:
            figures.append(figure("length", LENGTH, lengths[size], drafter=size, form=form))
            figures.append(figure("speed_up", TIMES, sample.seconds(BASELINE) / times[size], method=size, form=form))
        parts.append(above("accepts_more", lengths["big"] - lengths["small"], 0.0, form=form))
        parts.append(above("slower", times["big"] / times["small"], 1.0, form=form))
    return Judged(tuple(parts), tuple(figures))


def _plan_other(recipes: Recipes) -> Plan:
    bodies = [recipes.korean(), recipes.replayed()]
    model = recipes.train("other-target", "draft_model", bodies, 1, tokens=OTHER_TOKENS, mix=MIX, sets=OTHER)
    other = checkpoint(model)
    own = recipes.body("other", recipes.korean_corpus(), target=other, layers="2", keep_repetition=True)
    old = Arm("old", METHOD, shipped("adapted", METHOD), {"num_tokens": length(METHOD)})
    arms = [old]
    for seed in recipes.setting.seeds:
        stage = recipes.train("for-other", METHOD, [own], seed, start=shipped("adapted", METHOD), target=other)
        arms.append(Arm(seeded("new", seed), METHOD, checkpoint(stage), {"num_tokens": length(METHOD)}))
    made: dict[str, Stage] = {"model": model}
    for form in recipes.setting.scale.forms:
        made[f"other-{form}"] = recipes.measure("other", arms, (OFFICE,), form=form, target=other)
        made[f"own-{form}"] = recipes.measure("own", [old], (OFFICE,), form=form)
    return made


def _judge_other(found: Found) -> Judged:
    parts: list[Part] = []
    figures: list[Figure] = []
    for form in found.setting.scale.forms:
        other, own = found.sample(f"other-{form}", f"other-{form}"), found.sample(f"own-{form}", f"own-{form}")
        home, abroad, restored = own.acceptance("old"), other.acceptance("old"), other.acceptance("new")
        for key, each in (("home", home), ("abroad", abroad), ("restored", restored)):
            figures.append(figure(f"length_{key}", LENGTH, each, form=form))
        parts.append(below("useless", (abroad - 1.0) - (home - 1.0) * 0.25, 0.0, form=form))
        parts.append(above("restores", restored - abroad, 0.0, form=form))
        parts.append(above("restores_half", (restored - 1.0) - (home - 1.0) * 0.5, 0.0, form=form))
    return Judged(tuple(parts), tuple(figures))


CLAIMS = (
    Claim(11, "bigger", True, _plan_bigger, _judge_bigger),
    Claim(14, "other-target", True, _plan_other, _judge_other),
)
