"""Claim 4: what four bits leave of a drafter's training, by LoRA and in full, from a base on the 4-bit grid and off it."""

from __future__ import annotations

import json
from typing import Any

from drafters.claims.bootstrap import Estimate
from drafters.claims.claim import Claim, Figure, Found, Judged, Plan, figure
from drafters.claims.recipes import LAST, MIX, OFFICE, Arm, Recipes, checkpoint, length, seeded, shipped
from drafters.claims.stages import Place, Stage
from drafters.claims.verdicts import Part, above, below
from drafters.training.stage import StageError

__all__ = ["CLAIMS"]

METHOD, SCHEME, RANK = "mtp", "rtn4", 8
LENGTH = "tokens/round"
OPTIONS = {"num_tokens": length(METHOD)}
WAYS = {"lora": {"lora_rank": RANK}, "full": {}}
BASES = ("grid", "plain")
EXACT = {**LAST, "export-dtype": "float32"}
"""In bfloat16 rounding would move weights off the grid."""
SCALED = "scaled"


def _plan(recipes: Recipes) -> Plan:
    bodies = [recipes.korean(), recipes.replayed()]
    plain = shipped("public", METHOD)
    grid = recipes.quantize("public-4bit", plain, None, SCHEME)
    bases = {"grid": checkpoint(grid), "plain": plain}
    made: dict[str, Stage] = {}
    arms = [Arm("grid", METHOD, bases["grid"], OPTIONS), Arm("plain", METHOD, plain, OPTIONS)]
    for base, start in bases.items():
        for seed in recipes.setting.seeds:
            trained: dict[str, Place] = {}
            for way, sets in WAYS.items():
                name = f"{base}-{way}"
                options = {**EXACT, **({"rate": "0.01"} if way == "lora" else {})}
                stage = recipes.train(name, METHOD, bodies, seed, mix=MIX, start=start, sets=sets, options=options)
                trained[way] = checkpoint(stage)
            words = ("claims", "rescale", "--base", start, "--model", trained["full"], "--norm-of", trained["lora"])
            trained[SCALED] = checkpoint(Stage(seeded(f"{base}-{SCALED}", seed), words))
            for way, model in trained.items():
                name = seeded(f"{base}-{way}-4bit", seed)
                made[name] = recipes.quantize(name, model, start, SCHEME)
                arms.append(Arm(seeded(f"{base}-{way}", seed), METHOD, model, OPTIONS))
                arms.append(Arm(name, METHOD, checkpoint(made[name]), OPTIONS))
    return made | {
        form: recipes.measure("precision", arms, (OFFICE,), form=form) for form in recipes.setting.scale.forms
    }


def _judge(found: Found) -> Judged:
    parts: list[Part] = []
    figures: list[Figure] = []
    for base in BASES:
        for way in (*WAYS, SCALED):
            figures += _change(found, base, way)
    for form in found.setting.scale.forms:
        sample = found.sample(form, form)
        for base in BASES:
            before = sample.acceptance(base)
            figures.append(figure("length", LENGTH, before, drafter=base, form=form))
            gains: dict[str, tuple[Estimate, Estimate]] = {}
            for way in (*WAYS, SCALED):
                whole, deployed = (sample.acceptance(f"{base}-{way}{end}") for end in ("", "-4bit"))
                gains[way] = (whole - before, deployed - before)
                named = {"base": base, "way": way, "form": form}
                figures.append(figure("gain_whole", LENGTH, gains[way][0], **named))
                figures.append(figure("gain_4bit", LENGTH, gains[way][1], **named))
            if base == "grid":
                whole, deployed = gains["lora"]
                parts.append(above("lora_gains", whole, 0.0, form=form))
                parts.append(below("lora_loses", deployed - whole * 0.5, 0.0, form=form))
                whole, deployed = gains["full"]
                parts.append(above("full_keeps", deployed - whole * 0.5, 0.0, form=form))
    return Judged(tuple(parts), tuple(figures))


def _change(found: Found, base: str, way: str) -> list[Figure]:
    """Codes flipped, gain and signal to noise of the change, means over the seeds."""
    rows = [_row(found, seeded(f"{base}-{way}-4bit", seed)) for seed in found.setting.seeds]
    made = []
    for key, unit in (("flipped_share", "share"), ("gain", ""), ("signal_to_noise", ""), ("rms", "")):
        known = [row[key] for row in rows if row[key] is not None]
        made.append(figure(key, unit, sum(known) / len(known) if known else None, base=base, way=way))
    return made


def _row(found: Found, name: str) -> dict[str, Any]:
    """Of a quantization's report the row of its scheme, the base as it is, scales found anew."""
    path = found.folder(name) / "report.json"
    report = json.loads(path.read_text("utf-8"))
    asked = {"scheme": SCHEME, "base": "as_it_is", "scales": "refitted"}
    for row in report["change"]["whole"]:
        if all(row[key] == value for key, value in asked.items()):
            return dict(row)
    raise StageError(f"{path} has no row {asked}; quantize again with --base in a new folder")


CLAIMS = (Claim(4, "precision", True, _plan, _judge),)
