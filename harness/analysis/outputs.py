"""What the produced texts look like: loops, copies of the prompt, another language than the step is labelled with, noise.

Acceptance measured on such texts says nothing about real work: a loop or a copy is nearly free to draft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import polars as pl

from harness.analysis.language import detect, fits
from harness.analysis.numbering import numbered
from harness.analysis.plan import WorkloadPlan
from harness.analysis.text_signs import calls_parse, is_random, plays_both_sides, runs_past_end
from harness.errors import WorkloadError
from harness.tasks import Language, tasks_sha256
from harness.workload import load

GRAM = 8
"""Characters in an n-gram: longer than nearly every word (Hangul or Latin), so that chance repeats are rare."""
TAIL = 400
"""Loops are looked for in the last so many characters: a model that falls into a loop does not come out of it."""
SHORTEST = 5 * GRAM
"""Shorter texts are not judged: a handful of n-grams says nothing."""
REPETITIVE_SHARE = 0.5
"""From this share of repeated n-grams on a text loops. Recorded answers stay below: the most regular, two calls of one tool with
nearly the same arguments, reach 0.43, program code 0.40, prose 0.1; a line written three times over reaches 0.6."""
ECHO_SHARE = 0.9
"""From this share of n-grams that stand in the step's own messages on, a text is a copy. Recorded answers stay below: a code edit
that returns a file with one line changed reaches 0.80, a summary 0.31."""

_STEP = ("workload", "task_id", "step_index")
StepKey = tuple[str, str, int]
Signs = tuple[bool | Language | None, ...]
"""What a text shows by itself: the values of ``_OF_TEXT`` in their order, and its language."""


def is_repetitive(text: str) -> bool:
    """Tell whether the end of a text loops: at least half of its character 8-grams have been there before."""
    tail = text[-TAIL:]
    if len(tail) < SHORTEST:
        return False
    total = len(tail) - GRAM + 1
    # where the first of them are more than all may differ, nobody needs to look at the rest
    most = int((1 - REPETITIVE_SHARE) * total)
    if len(_grams(tail[: most + GRAM])) > most:
        return False
    return 1 - len(_grams(tail)) / total >= REPETITIVE_SHARE


_OF_TEXT: Mapping[str, Callable[[str], bool | None]] = {
    "repetitive": is_repetitive,
    "random": is_random,
    "runs_past_end": runs_past_end,
    "plays_both_sides": plays_both_sides,
    "calls_parse": calls_parse,
}


def is_echo(text: str, prompt: str) -> bool:
    """Tell whether a text is a copy of what the step was given, white space aside."""
    if len(text) < SHORTEST:
        return False
    words, known = " ".join(text.split()), _of_prompt(prompt)
    most = max(0, len(words) - GRAM + 1)  # n-grams, if all are different
    # where the first fifth alone lacks more than all of them may, nobody needs to look at the rest
    if len(_grams(words[: GRAM + most // 5]) - known) > (1 - ECHO_SHARE) * most + 1:
        return False
    grams = _grams(words)
    return len(grams & known) >= ECHO_SHARE * len(grams)


@lru_cache(maxsize=1)  # a step's many outputs are judged one after another
def _of_prompt(prompt: str) -> set[str]:
    return _grams(" ".join(prompt.split()))


def _grams(text: str) -> set[str]:
    return {text[index : index + GRAM] for index in range(len(text) - GRAM + 1)}


def prompts(plans: Iterable[WorkloadPlan], folder: Path) -> tuple[dict[StepKey, str], dict[str, str]]:
    """Return the own messages of each step (workload, task, step index), read from the task files of the run, and what is missing.

    A run folder keeps no prompts; the files are looked for where they lay from the run's folder. A workload whose files are gone or
    differ by now has no prompts (no guess from other input); the second mapping says why:
    ``task_files_missing`` or ``task_files_changed``.
    """
    found: dict[StepKey, str] = {}
    unread: dict[str, str] = {}
    for plan in plans:
        try:
            path = Path(plan.path) if plan.path_from_run is None else folder / plan.path_from_run
            tasks = {task.id: task for task in load(path).tasks}
        except WorkloadError:
            unread[plan.name] = "task_files_missing"
            continue
        own = [tasks[name] for name in plan.task_ids if name in tasks]
        if not own or tasks_sha256(own) != plan.tasks_sha256:
            unread[plan.name] = "task_files_changed"
            continue
        for task in own:
            for index, step in enumerate(task.steps):
                found[plan.name, task.id, index] = "\n".join(message.content for message in step.messages)
    return found, unread


def signs_of(texts: Iterable[str]) -> list[Signs]:
    """Judge each text by itself."""
    return [(*(judge(text) for judge in _OF_TEXT.values()), detect(text)) for text in texts]


def add_text_traits(
    steps: pl.DataFrame, texts: Sequence[str], signs: Sequence[Signs], known_prompts: Mapping[StepKey, str]
) -> pl.DataFrame:
    """Add ``repetitive``, the signs of ``text_signs``, ``language_fits`` and ``echo`` to step rows.

    A trait is null where the text (or the prompt) is not known. Each distinct output is judged once, however many steps produced it.

    Args:
        steps: rows with ``output``, the place of their text.
        texts: the distinct outputs.
        signs: of :func:`signs_of`, one a text.
        known_prompts: of :func:`prompts`.
    """
    rows = steps.select("output", "language", *_STEP, "task")
    number = numbered(rows, ("output", "language", "workload", "task", "step_index")).alias("number")
    rows = rows.drop("task").with_columns(number)
    # as many rows as there are texts, each in its place, not as there are steps; a place's texts one after another
    distinct = rows.drop_nulls().unique("number").sort(*_STEP, "output", "language")
    judged: list[tuple[bool | None, ...]] = []
    for output, language, workload, task_id, step_index in distinct.drop("number").iter_rows():
        text, prompt = texts[output], known_prompts.get((workload, task_id, step_index))
        *own, found = signs[output]
        echo = None if prompt is None else is_echo(text, prompt)
        judged.append((*own, fits(language, found, text), echo))
    schema = dict.fromkeys((*_OF_TEXT, "language_fits", "echo"), pl.Boolean)
    traits = pl.DataFrame(judged, schema=schema, orient="row").with_columns(distinct["number"])
    found_traits = rows.select("number").join(traits, on="number", how="left", maintain_order="left")
    return steps.hstack(found_traits.drop("number"))
