"""What the claims' runs showed: ``claims/<number>.json`` for each, ``counts/<number>.csv`` with its raw counts.

A claim's JSON carries its sentences in both languages, so whatever shows it computes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from drafters import reference
from drafters.claims.claim import Claim, Found
from drafters.claims.counts import write_rows
from drafters.claims.recipes import Recipes
from drafters.claims.scale import Setting
from drafters.claims.stages import Stage, in_order, resolved
from drafters.claims.store import Store
from drafters.claims.verdicts import verdict_of
from drafters.claims.words import LANGUAGES, words
from drafters.training.stage import MANIFEST, StageError, digest, write_whole

__all__ = ["COUNTS", "RESULTS", "judge", "read_results"]

RESULTS, COUNTS = "claims", "counts"
WORK = ("tasks", "repeats", "steps", "max_tokens", "tokens", "answers")
"""Of a scale: how much a reader must know to weigh a verdict."""


def judge(claim: Claim, setting: Setting, store: Store, scale: str) -> dict[str, Any]:
    """Judge a claim whose stages are done; writes its JSON and counts, and returns what the JSON holds.

    Raises StageError for a stage that is not done or was changed since.
    """
    plan = claim.plan(Recipes(setting))
    found = Found(plan, store, setting)
    judged = claim.judge(found)
    verdict = verdict_of(judged.parts)
    stages = list(in_order(list(plan.values())))
    value: dict[str, Any] = {
        "number": claim.number,
        "name": claim.name,
        "scale": scale,
        "work": {key: getattr(setting.scale, key) for key in WORK}
        | {"read": setting.scale.read or setting.scale.tasks},
        "seeds": setting.scale.seeds if claim.trained else None,
        "verdict": verdict,
        "seconds": store.seconds(stages),
        "invalid": found.invalid,
        "command": f"drafters claims run {claim.number} --scale {scale}",
        "parts": [asdict(part) for part in judged.parts],
        "figures": [asdict(one) for one in judged.figures],
        "said": {lang: _said(claim, lang, verdict, judged.parts, judged.figures) for lang in LANGUAGES},
        "stages": [_stage(stage, store) for stage in stages],
        "files": _files(stages, store),
    }
    for folder in (RESULTS, COUNTS):
        (store.folder / folder).mkdir(exist_ok=True)
    write_rows(store.folder / COUNTS / f"{claim.number:02}.csv", found.rows)
    write_whole(
        store.folder / RESULTS / f"{claim.number:02}.json", json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    )
    return value


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The claims that were judged in a folder, by number. Raises StageError where there is none, and for a damaged one."""
    found = []
    for path in sorted((folder / RESULTS).glob("*.json")):
        try:
            found.append(json.loads(path.read_text("utf-8")))
        except (OSError, ValueError) as error:
            raise StageError(f"{path} cannot be read ({error}); run the claim again: its stages are kept") from error
    if not found:
        raise StageError(f"{folder} holds no claim that was judged; give the --out of 'drafters claims run'")
    return sorted(found, key=lambda value: int(value["number"]))


def _said(claim: Claim, lang: str, verdict: str, parts: Sequence[Any], figures: Sequence[Any]) -> dict[str, Any]:
    spoken = words(lang)
    own = spoken.claim(claim.number)
    return {
        "title": own["title"],
        "claim": own["claim"],
        "verdict": spoken.verdict(verdict),
        "parts": [spoken.part(claim.number, part) for part in parts],
        "advice": own["advice"][verdict],
        "how": own["how"],
        "figures": [[spoken.label(claim.number, one), spoken.interval(one, one.unit)] for one in figures],
    }


def _stage(stage: Stage, store: Store) -> dict[str, Any]:
    place = store.place(stage)
    command = store.command(stage)
    # where things lie on this machine is nobody else's affair
    for path, shown in ((store.folder, "OUT"), (reference.folder(), "drafters/reference"), (Path.cwd(), ".")):
        command = command.replace(str(path), shown)
    return {
        "folder": place.name,
        "command": command,
        "manifest_sha256": digest(place / MANIFEST),
        "seconds": store.seconds([stage]),
    }


def _files(stages: Sequence[Stage], store: Store) -> dict[str, str]:
    """SHA-256 of every model and file that the stages read and did not make: shipped ones by name, others by the file's name.

    Tasks that a stage generated stand among them too, since they decide as much.
    """
    found: dict[str, str] = {}
    for stage in stages:
        for word in stage.words:
            if not isinstance(word, str) and not isinstance(word.source, Stage):
                name = word.source if isinstance(word.source, str) else word.source.name
                found[str(name)] = digest(resolved(word.source))
        if stage.kind == "evaluate":  # the tasks behind a workload's file
            inputs = store.manifest(stage).inputs
            found |= {name.partition(": ")[2]: sha256 for name, sha256 in inputs.items() if name.startswith("tasks ")}
    return dict(sorted(found.items()))
