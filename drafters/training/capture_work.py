"""What is captured into which file, and in which batches."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drafters.training.features import Place, plan_shards, row_bytes
from drafters.training.stage import StageError

__all__ = ["Work"]


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be captured: ``shards`` hold the numbers of their examples."""

    examples: Sequence[tuple[str, array[int]]]
    places: Mapping[str, Place]
    shards: Sequence[Sequence[int]]
    layers: tuple[int, ...]
    hidden: int
    row_bytes: int

    @classmethod
    def plan(
        cls, examples: Sequence[tuple[str, array[int]]], layers: tuple[int, ...], hidden: int, shard_bytes: int
    ) -> Work:
        """Place examples in their order into shards of about ``shard_bytes``. Raises StageError for two of one id."""
        size = row_bytes(len(layers), hidden)
        lengths = ((name, len(token_ids)) for name, token_ids in examples)
        places = plan_shards(lengths, max(1, shard_bytes // size))
        if len(places) < len(examples):
            raise StageError("two of the examples have one id; regenerate them")
        shards: list[list[int]] = []
        for index, place in enumerate(places.values()):
            if place.shard == len(shards):
                shards.append([])
            shards[-1].append(index)
        return cls(examples, places, shards, layers, hidden, size)

    @property
    def tokens(self) -> int:
        """Rows of all shards."""
        return sum(len(token_ids) for _, token_ids in self.examples)

    def rows(self, shard: int) -> int:
        """Rows of one shard."""
        return sum(len(self.examples[index][1]) for index in self.shards[shard])

    def key(self, shard: int) -> str:
        """SHA-256 over the examples of a shard."""
        whole = hashlib.sha256()
        for index in self.shards[shard]:
            name, token_ids = self.examples[index]
            whole.update(f"{name}\0{len(token_ids)}\0".encode() + token_ids.tobytes())
        return whole.hexdigest()

    def batches(self, shard: int, batch_tokens: int) -> list[list[int]]:
        """Examples of like length together, so that little is padded."""
        batches: list[list[int]] = []
        for index in sorted(self.shards[shard], key=lambda index: -len(self.examples[index][1])):
            longest = len(self.examples[batches[-1][0]][1]) if batches else 0
            if batches and longest * (len(batches[-1]) + 1) <= batch_tokens:
                batches[-1].append(index)
            else:
                batches.append([index])
        return batches
