"""From examples to batches: drawn by language group, bucketed by length, with the target's hidden states.

What is drawn depends on the seed alone, not on how many processes share the work.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from drafters.training.examples import Example
from drafters.training.features import FeatureStore
from drafters.training.frozen import FrozenTarget
from drafters.training.method import Batch
from drafters.training.stage import StageError

__all__ = [
    "GROUPS",
    "Features",
    "Sampler",
    "Stored",
    "StoredFeatures",
    "batch_of",
    "cropped",
    "group_of",
    "parse_mix",
    "rows_of",
]

GROUPS = ("ko", "en", "code")
"""Language groups of a mix: ``ko`` is ko and ko+code, ``en`` is en and en+code, ``code`` is code."""


def group_of(language: str) -> str:
    """The language group of an example's language."""
    return language.partition("+")[0]


def parse_mix(text: str) -> dict[str, float]:
    """Read ``ko=0.6,en=0.28,code=0.12``. Raises StageError for anything else."""
    mix: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        try:
            share = float(value)
        except ValueError:
            share = -1.0
        if name not in GROUPS or name in mix or not 0.0 <= share < float("inf"):
            raise StageError(f"--mix has {part.strip()!r}; allowed: {', '.join(GROUPS)}, each once, as ko=0.6,en=0.4")
        mix[name] = share
    if not sum(mix.values()) > 0:
        raise StageError(f"--mix {text!r} has no share above 0; give one, as ko=0.6,en=0.4")
    return mix


def cropped(examples: Iterable[Example], longest: int) -> tuple[list[Example], int, int]:
    """Examples cut to their first ``longest`` tokens, with how many were cut and how many had no answer left.

    The beginning is kept, so that hidden states captured from the whole stay what they were.
    """
    kept: list[Example] = []
    cut = dropped = 0
    for example in examples:
        if len(example.token_ids) <= longest:
            kept.append(example)
            continue
        answers = tuple((start, min(end, longest)) for start, end in example.answers if start < longest)
        cut += 1
        if answers:
            kept.append(replace(example, token_ids=example.token_ids[:longest], answers=answers))
        else:
            dropped += 1
    return kept, cut, dropped


class Sampler:
    """Draws examples without end: always from the group that has the least for its share, and within a group in an order
    that is shuffled anew for each round.

    Counted is what is learnt from: the answers' tokens, or where a method takes so many places of a sequence at most, no
    more than these; long answers would otherwise fall out of the mix.
    """

    def __init__(
        self, examples: Sequence[Example], mix: Mapping[str, float] | None, seed: int, places_per_row: int | None = None
    ) -> None:
        """``mix`` are shares by group; ``None`` takes them as they come.

        Raises StageError for a group that is asked for and has no example.
        """
        self._examples, self._seed, self._most = examples, seed, places_per_row
        self._members: dict[str, list[int]] = defaultdict(list)
        found: dict[str, float] = defaultdict(float)
        for index, example in enumerate(examples):
            group = group_of(example.language)
            self._members[group].append(index)
            found[group] += self._counted(example)
        self._mix = {group: share for group, share in (found if mix is None else mix).items() if share > 0}
        missing = [group for group in self._mix if group not in self._members]
        if missing or not self._mix:
            raise StageError(
                f"no training example of {', '.join(missing) or 'any language'}; there are some of "
                f"{', '.join(sorted(self._members)) or 'none'}. Change --mix or give more --examples"
            )
        self._drawn: dict[str, int] = dict.fromkeys(self._mix, 0)
        self._learnt: dict[str, int] = dict.fromkeys(self._mix, 0)
        self._place: dict[str, list[int]] = {group: [0, 0] for group in self._mix}  # round, place in it
        self._orders: dict[str, tuple[int, list[int]]] = {}

    def draw(self) -> Example:
        """The next example."""
        group = min(self._mix, key=lambda name: (self._learnt[name] / self._mix[name], name))
        example = self._examples[self._next(group)]
        self._drawn[group] += example.answer_tokens
        self._learnt[group] += self._counted(example)
        return example

    def draw_tokens(self, tokens: int) -> list[Example]:
        """Examples of at least so many tokens in all, context included; at least one."""
        drawn: list[Example] = []
        left = tokens
        while left > 0:
            drawn.append(self.draw())
            left -= len(drawn[-1].token_ids)
        return drawn

    @property
    def drawn(self) -> Mapping[str, int]:
        """Answer tokens drawn so far, by group."""
        return dict(self._drawn)

    @property
    def learnt(self) -> Mapping[str, int]:
        """Of these so many as are learnt from: what the mix shares out."""
        return dict(self._learnt)

    @property
    def rounds(self) -> Mapping[str, int]:
        """How often each group was gone through to its end."""
        return {group: place[0] for group, place in self._place.items()}

    def state(self) -> dict[str, Any]:
        """Where it stands, for `restore`."""
        place = {group: list(place) for group, place in self._place.items()}
        return {"drawn": dict(self._drawn), "learnt": dict(self._learnt), "place": place}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go to where a sampler of the same examples, mix and seed stood."""
        self._drawn, self._learnt = dict(state["drawn"]), dict(state["learnt"])
        self._place = {group: list(place) for group, place in state["place"].items()}

    def _counted(self, example: Example) -> int:
        if self._most is None:
            return example.answer_tokens
        places = sum(end - start - 1 for start, end in example.answers)  # each begins at one token and drafts the next
        return max(1, min(places, self._most))

    def _next(self, group: str) -> int:
        place, members = self._place[group], self._members[group]
        if place[1] == len(members):
            place[0], place[1] = place[0] + 1, 0
        known = self._orders.get(group)
        if known is None or known[0] != place[0]:
            order = list(members)
            random.Random(f"{self._seed}/{group}/{place[0]}").shuffle(order)
            known = self._orders[group] = (place[0], order)
        place[1] += 1
        return known[1][place[1] - 1]


def rows_of(examples: Sequence[Example], row_tokens: int) -> list[list[Example]]:
    """Put examples of like length together, so that each part, padded to its longest, has at most ``row_tokens``.

    The longest come first; one that is longer stands alone.
    """
    parts: list[list[Example]] = []
    for example in sorted(examples, key=lambda one: (-len(one.token_ids), one.id)):
        if parts and (len(parts[-1]) + 1) * len(parts[-1][0].token_ids) <= row_tokens:
            parts[-1].append(example)
        else:
            parts.append([example])
    return parts


class Features(Protocol):
    """Where hidden states come from."""

    def __call__(
        self, examples: Sequence[Example], token_ids: Tensor, lengths: Sequence[int], layers: Sequence[int]
    ) -> Tensor:
        """[rows, longest] → [rows, longest, layers, hidden]; what stands beyond a row's length means nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Stored:
    """Where an example's states lie: under which name, and of which tokens; a cut example is the beginning of them."""

    store: FeatureStore
    name: str
    token_ids: tuple[int, ...]


class StoredFeatures:
    """Hidden states from capture folders instead of from the target; satisfies `Features`."""

    def __init__(self, places: Mapping[str, Stored], target: FrozenTarget) -> None:
        """``places`` by the id of the example."""
        self._places, self._target = places, target

    def __call__(
        self, examples: Sequence[Example], token_ids: Tensor, lengths: Sequence[int], layers: Sequence[int]
    ) -> Tensor:
        """Read, pad with zeros, and bring to the target's type and device. Raises StageError for a damaged store."""
        shape = (*token_ids.shape, len(layers), self._target.hidden_size)
        made = torch.zeros(shape, dtype=self._target.dtype)
        for row, (example, length) in enumerate(zip(examples, lengths, strict=True)):
            place = self._places[example.id]
            made[row, :length] = place.store.read(place.name, place.token_ids, layers)[:length].to(made.dtype)
        return made.to(self._target.device)


class _Online:
    """The target itself as source; satisfies `Features`."""

    def __init__(self, target: FrozenTarget) -> None:
        self._target = target

    def __call__(
        self, examples: Sequence[Example], token_ids: Tensor, lengths: Sequence[int], layers: Sequence[int]
    ) -> Tensor:
        return self._target.hidden_states(token_ids, lengths, layers)


def batch_of(
    examples: Sequence[Example], target: FrozenTarget, layers: Sequence[int], features: Features | None = None
) -> Batch:
    """The batch of a part; hidden states from ``features``, or from the target where there are none."""
    lengths = [len(example.token_ids) for example in examples]
    shape = (len(examples), max(lengths))
    token_ids, answers = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
    for row, example in enumerate(examples):
        token_ids[row, : lengths[row]] = torch.tensor(example.token_ids)
        for start, end in example.answers:
            answers[row, start:end] = True
    token_ids = token_ids.to(target.device)
    wanted = [*layers, target.num_layers]
    source = features or _Online(target)
    states = source(examples, token_ids, lengths, wanted)
    return Batch(
        token_ids=token_ids,
        lengths=torch.tensor(lengths, device=target.device),
        answers=answers.to(target.device),
        features=states[:, :, :-1],
        hidden=states[:, :, -1],
    )
