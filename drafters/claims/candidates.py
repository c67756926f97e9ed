"""``drafters claims candidates``: how often the right token is among a DFlash 2 drafter's candidates, by position.

A run of the engine does not tell the lists that a drafter chose from, so this is teacher-forced: over the target's own answers,
each position judged with the text's tokens before it. One line an example and position goes into ``candidates.csv``.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from drafters.training.stage import MANIFEST, StageError, begin, finish, read_manifest, write_whole

__all__ = ["NAME", "TABLE", "add_arguments", "run"]

NAME, TABLE = "candidates", "candidates.csv"
METHOD = "dflash2"
COLUMNS = ("example", "position", "positions", "first", "listed", "drafted", "unary", "selected", "oracle")
"""Per example and position: places judged, those with the right token first and in the list; chains begun, and those still right
behind the best candidate, the selector's walk, and a walk that is always right."""
ROW_TOKENS, SEED = 1024, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--examples", type=Path, required=True, help="folder of 'drafters regenerate'; all of it is judged"
    )
    parser.add_argument("--drafter", type=Path, required=True, metavar="FOLDER", help="checkpoint of a dflash2 drafter")
    parser.add_argument("--target", type=Path, required=True, metavar="FOLDER", help="the target's Hugging Face folder")
    parser.add_argument("--threads", type=int, metavar="N", help="default: all processors of this process")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the stage's folder")


def run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Judge every example. Raises StageError or SpecError for a drafter of another method or target."""
    read_manifest(options.examples, "regenerate")
    inputs = {"examples": options.examples / MANIFEST, "drafter": options.drafter, "target": options.target}
    if begin(options.out, NAME, inputs, {"row_tokens": ROW_TOKENS, "seed": SEED}) is not None:
        say(f"{options.out} is complete")
        return 0
    text, examples = _table(options, say)
    write_whole(options.out / TABLE, text)
    finish(options.out, [TABLE], {"examples": examples})
    return 0


def _table(options: argparse.Namespace, say: Callable[[str], None]) -> tuple[str, int]:
    import torch

    from drafters.checkpoint import Checkpoint
    from drafters.training.batches import cropped
    from drafters.training.evaluation import losses_of
    from drafters.training.examples import read_examples
    from drafters.training.frozen import FrozenTarget
    from drafters.training.methods import method_class

    torch.set_num_threads(options.threads or max(1, len(os.sched_getaffinity(0))))
    target = FrozenTarget.load(options.target)
    start = Checkpoint.load(options.drafter)
    method_type = method_class(METHOD)
    method = method_type(target, method_type.settings.model_validate({"seed": SEED}), start)
    found = list(read_examples(options.examples / "examples.jsonl", target.vocab_size))
    # at temperature 0 alone: what was drawn by chance nobody can foretell
    chosen = [example for example in found if not example.temperature] or found
    kept, _, _ = cropped(chosen, ROW_TOKENS)
    if not kept:
        raise StageError(f"{options.examples} has no answer within {ROW_TOKENS} tokens; give other examples")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for number, example in enumerate(kept, start=1):
        with torch.no_grad():
            losses = losses_of(method, target, [example], None, "fp32", f"{SEED}/{example.id}")
        by_position: dict[int, dict[str, float]] = defaultdict(dict)
        for name, value in losses.parts.items():
            what, slash, position = name.partition("/")
            if slash:
                by_position[int(position)][what] = float(value)
        for place, own in sorted(by_position.items()):
            drafted, selected = (float(counts[place - 1]) for counts in (losses.drafted, losses.accepted))
            writer.writerow(
                [example.id, place, int(own["positions"]), int(own["recall@1"]), int(own["recall@k"]), drafted, own["unary"],
                 selected, own["oracle"]]
            )  # fmt: skip
        if number % 50 == 0:
            say(f"{number} of {len(kept)} examples")
    return text.getvalue(), len(kept)
