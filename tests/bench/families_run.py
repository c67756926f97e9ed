"""A run of two families whose figures can be done in the head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.families_input import ShippedDrafter
from harness.store import RunFolder
from tests.builders import BASELINE, counters, run_folder, step, workload_entry
from tests.builders import cell_key as key_of

DRAFTERS = (
    ShippedDrafter("public-mtp", "public", "mtp", 3),
    ShippedDrafter("adapted-mtp", "adapted", "mtp", 3),
    ShippedDrafter("draft-model", None, "draft_model", 4),
)
ACCEPTED: Mapping[str, Mapping[str, Sequence[int]]] = {  # of ten rounds a step, by position
    "public-mtp": {"ko": (2, 0, 0), "code": (8, 6, 6)},
    "adapted-mtp": {"ko": (9, 6, 5), "code": (8, 6, 6)},
    "draft-model": {"ko": (5, 5, 0), "code": (5, 0, 0)},
}
MILLISECONDS = {1: {"public-mtp": 1000.0, "adapted-mtp": 500.0, "draft-model": 2000.0}, 4: {}}
GENRES = {**{f"t{n}": "report" for n in range(1, 7)}, **{f"t{n}": "essay" for n in range(7, 13)}}


def run(path: Path, *, other_text: str | None = None, drafters: Sequence[ShippedDrafter] = DRAFTERS) -> RunFolder:
    """Write a run at 1 and 4 in progress: tasks t1–t6 are Korean reports with a step of code, t7–t12 Korean essays.

    A step of the baseline takes a second. ``other_text`` is what adapted-mtp writes at 4 in progress.
    """
    records, texts = [], {"text"}
    for load in (1, 4):
        for arm in (BASELINE, *(one.name for one in drafters)):
            key, due = key_of(arm, load), 0.0
            length = MILLISECONDS[load].get(arm, 1000.0)
            text = other_text if other_text and (arm, load) == ("adapted-mtp", 4) else "text"
            texts.add(text)
            for begin in range(0, len(GENRES), load):
                for name in list(GENRES)[begin : begin + load]:
                    languages = ("ko", "ko", "code") if GENRES[name] == "report" else ("ko", "ko", "ko")
                    for index, language in enumerate(languages):
                        spec = None
                        if arm != BASELINE:
                            accepted = ACCEPTED[arm][language]
                            spec = counters(10, 40, sum(accepted), accepted)
                        at = due + index * length
                        fields: dict[str, Any] = {"language": language, "spec": spec, "decode_passes": 20}
                        records.append(
                            step(key, name, index, due=at, end=at + length, text=text, output_tokens=41, **fields)
                        )
                due += 3 * length
    entry = workload_entry(
        methods={BASELINE: "none", **{one.name: one.method for one in drafters}},
        concurrency=(1, 4),
        task_ids=list(GENRES),
        genres=GENRES,
        n_tasks=12,
        n_steps=36,
    )
    return run_folder(path, records, workloads=[entry], texts=sorted(texts))
