"""Generated training text: Korean office documents, essays, and agent dialogues with tools, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from drafters.training.reference.office.codetasks import Function, code_dialogue, functions
from drafters.training.reference.office.dialogues import (
    Turns,
    essay,
    office_text,
    quotation,
    scenario_dialogue,
    tool_request,
)
from drafters.training.reference.office.recall import recall
from drafters.training.reference.sources import Document

PARTS: Mapping[str, int] = {
    "office-ko": 12_000,
    "essay-ko": 5_000,
    "agent-ko": 16_000,
    "agent-en": 9_000,
    "agent-code": 12_000,
    "recall": 12_000,
}
"""Generated parts and how many documents each has at scale 1."""
HELD_OUT_DOCUMENTS = 120


def generate(
    part: str,
    scale: float,
    seed: int,
    *,
    held_out: bool,
    code: Sequence[str],
    passages: Mapping[str, Sequence[str]],
) -> Iterator[Document]:
    """Yield the documents of one part; held-out ones come from templates and tool names that the others never use.

    ``code`` are Python files, ``passages`` running texts by language; both of the training side only. Essays, code
    tasks and recall have no held-out templates: their held-out documents hold other words and changes.

    Raises:
        ValueError: if code tasks are asked for and no file holds a function.
    """
    rng = random.Random(f"{part}/{seed}/{held_out}")
    count = HELD_OUT_DOCUMENTS if held_out else round(PARTS[part] * scale)
    pool: list[Function] = []
    if part == "agent-code":
        pool = [function for source in [*code, *passages.get("ko-code", ())] for function in functions(source)]
        if not pool:
            raise ValueError("code tasks are made from Python functions, and no file has one; add a code source")
    side = "held-out" if held_out else "train"
    made = 0
    while made < count:
        document = _one(part, held_out, rng, pool, passages)
        if document is None:
            continue
        name = f"generated/{part}/{side}/{made}"
        made += 1
        yield Document(name, text=document) if isinstance(document, str) else Document(name, turns=document)


def _one(
    part: str, held_out: bool, rng: random.Random, pool: Sequence[Function], passages: Mapping[str, Sequence[str]]
) -> str | Turns | None:
    if part == "office-ko":
        return office_text(rng, held_out)
    if part == "essay-ko":
        return essay(rng)
    if part == "agent-code":
        return code_dialogue(pool, rng)
    if part == "recall":
        return recall(rng)
    language = part.removeprefix("agent-")
    draw = rng.random()
    if draw < 0.55 or (draw >= 0.8 and (held_out or not passages.get(language))):
        return scenario_dialogue(language, held_out, rng)
    return tool_request(language, held_out, rng) if draw < 0.8 else quotation(language, passages[language], rng)
