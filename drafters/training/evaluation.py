"""Held-out losses and acceptance of a drafter in training, by language group, text type and temperature.

Teacher-forced: every place of a recorded answer counts once, with the text's own tokens before it. In the engine a round
begins where the last one ended, and the target's numbers are the engine's; what is said here is a forecast. It is judged
by the answers of the lowest temperature: what was drawn by chance nobody can foretell.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from drafters.training.batches import Features, batch_of, group_of, rows_of
from drafters.training.distributed import World
from drafters.training.examples import Example
from drafters.training.frozen import FrozenTarget
from drafters.training.method import Losses, Method

__all__ = [
    "HELD_OUT_NOTE",
    "Cell",
    "Evaluation",
    "HeldOut",
    "held_out_report",
    "held_out_sample",
    "judged",
    "losses_of",
    "numbers_of",
    "pooled",
    "weights_by_group",
]

HELD_OUT_NOTE = "teacher-forced, not measured in the engine"


def numbers_of(losses: Losses) -> dict[str, list[float]]:
    """The sums of a batch as plain numbers, ready to be added up over batches and processes."""
    return {
        "loss": [float(losses.total.detach()), float(losses.weight)],
        "drafted": losses.drafted.tolist(),
        "accepted": losses.accepted.tolist(),
        **{f"part/{name}": [float(value)] for name, value in losses.parts.items()},
    }


def weights_by_group(losses: Losses, examples: Sequence[Example]) -> dict[str, list[float]]:
    """What each language group was learnt from, as ``weight/ko``; ``examples`` are the batch's rows."""
    made: dict[str, list[float]] = {}
    for example, weight in zip(examples, losses.weights.tolist(), strict=True):
        name = f"weight/{group_of(example.language)}"
        made[name] = [made.get(name, [0.0])[0] + weight]
    return made


def losses_of(
    method: Method,
    target: FrozenTarget,
    examples: Sequence[Example],
    features: Features | None,
    precision: str,
    seed: str,
    states_precision: str = "fp32",
) -> Losses:
    """One part's forward pass; all its chance comes from ``seed``, so it is the same in whichever process it runs.

    ``precision`` is of the drafter's products alone, ``states_precision`` of the target's pass; its head, where it
    teaches, is never rounded.
    """
    generator = torch.Generator().manual_seed(random.Random(seed).getrandbits(63))
    device = target.device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=states_precision == "bf16"):
        batch = batch_of(examples, target, method.feature_layers, features)
    with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
        return method.losses(batch, generator)


class Cell(NamedTuple):
    """What held-out examples are told apart by; ``temperature`` is ``None`` where it is not known."""

    language: str  # the group
    text_type: str
    temperature: float | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Sums over some held-out examples."""

    total: float
    weight: float
    drafted: tuple[float, ...]
    accepted: tuple[float, ...]

    @property
    def loss(self) -> float | None:
        """Loss per unit of weight; ``None`` where nothing counted."""
        return self.total / self.weight if self.weight else None

    @property
    def by_position(self) -> tuple[float | None, ...]:
        """Share of the places with a chain of so many tokens at which all of them were right."""
        return tuple(a / d if d else None for a, d in zip(self.accepted, self.drafted, strict=True))

    @property
    def acceptance_length(self) -> float | None:
        """Tokens a round that these shares predict, the target's own included."""
        if not self.drafted or not self.drafted[0]:
            return None
        return 1.0 + sum(share or 0.0 for share in self.by_position)

    def report(self) -> dict[str, Any]:
        """As it is written down."""
        return {
            "loss": self.loss,
            "acceptance_length": self.acceptance_length,
            "accepted_by_position": list(self.by_position),
            "places": int(self.drafted[0]) if self.drafted else 0,
        }


def held_out_sample(examples: Sequence[Example], tokens: int, seed: int) -> list[Example]:
    """Examples of about so many tokens in all, in turn from every language and text type."""
    cells: dict[tuple[str, str], list[Example]] = defaultdict(list)
    for example in examples:
        cells[example.language, example.text_type].append(example)
    queues = []
    for cell in sorted(cells):
        random.Random(f"{seed}/{cell}").shuffle(cells[cell])
        queues.append(cells[cell][::-1])
    chosen: list[Example] = []
    taken = 0
    while taken < tokens and any(queues):
        for queue in queues:
            if queue and taken < tokens:
                chosen.append(queue.pop())
                taken += len(chosen[-1].token_ids)
    return chosen


class HeldOut:
    """The held-out examples, evaluated together over all processes."""

    def __init__(self, examples: Sequence[Example], row_tokens: int, seed: int) -> None:
        cells: dict[Cell, list[Example]] = defaultdict(list)
        for example in examples:
            cells[Cell(group_of(example.language), example.text_type, example.temperature)].append(example)
        self._seed = seed
        self._parts = [(cell, part) for cell in sorted(cells, key=str) for part in rows_of(cells[cell], row_tokens)]
        self.tokens = sum(len(example.token_ids) for example in examples)

    @torch.no_grad()
    def evaluate(
        self,
        method: Method,
        target: FrozenTarget,
        features: Features | None,
        world: World,
        tell: Callable[[int, int], None] = lambda done, parts: None,
    ) -> dict[Cell, Evaluation]:
        """Evaluations by cell, in the target's own type whatever training computes in; ``tell`` hears how many of this
        process's parts are done."""
        precision = "bf16" if target.dtype == torch.bfloat16 else "fp32"  # head and embeddings are the target's
        sums: dict[str, list[float]] = {}
        names = {str(cell): cell for cell, _ in self._parts}
        mine = world.share(self._parts)
        for number, (place, (cell, part)) in enumerate(mine):
            numbers = numbers_of(losses_of(method, target, part, features, precision, f"{self._seed}/held/{place}"))
            found = [*numbers["loss"], *numbers["drafted"], *numbers["accepted"]]
            known = sums.get(str(cell), [0.0] * len(found))
            sums[str(cell)] = [a + b for a, b in zip(known, found, strict=True)]
            tell(number + 1, len(mine))
        made = {}
        for name, row in sorted(world.sum(sums).items()):
            middle = 2 + (len(row) - 2) // 2
            made[names[name]] = Evaluation(row[0], row[1], tuple(row[2:middle]), tuple(row[middle:]))
        return made


def pooled(evaluations: Mapping[Cell, Evaluation]) -> Evaluation:
    """The sum of the evaluations."""
    kept = list(evaluations.values())
    return Evaluation(
        sum(one.total for one in kept),
        sum(one.weight for one in kept),
        tuple(map(sum, zip(*(one.drafted for one in kept), strict=True))),
        tuple(map(sum, zip(*(one.accepted for one in kept), strict=True))),
    )


def judged(evaluations: Mapping[Cell, Evaluation]) -> tuple[Evaluation, float | None]:
    """The evaluations of the lowest temperature that has a place to score, pooled, and that temperature; those of all
    where no temperature is known."""
    for temperature in sorted({cell.temperature for cell in evaluations if cell.temperature is not None}):
        own = pooled({cell: one for cell, one in evaluations.items() if cell.temperature == temperature})
        if own.weight:
            return own, temperature
    return pooled(evaluations), None


def held_out_report(evaluations: Mapping[Cell, Evaluation]) -> dict[str, Any]:
    """All together, what is judged by, and by language group, text type, both, and temperature; each a ratio of sums."""

    def by(name_of: Callable[[Cell], str]) -> dict[str, Any]:
        names = sorted({name_of(cell) for cell in evaluations})
        return {
            name: pooled({cell: one for cell, one in evaluations.items() if name_of(cell) == name}).report()
            for name in names
        }

    decisive, temperature = judged(evaluations)
    return {
        "note": HELD_OUT_NOTE,
        "all": pooled(evaluations).report(),
        "judged": {"temperature": temperature, **decisive.report()},
        "by_temperature": by(lambda cell: "unknown" if cell.temperature is None else f"{cell.temperature:g}"),
        "by_language": by(lambda cell: cell.language),
        "by_text_type": by(lambda cell: cell.text_type),
        "by_language_and_text_type": by(lambda cell: f"{cell.language}/{cell.text_type}"),
    }
