"""Hidden states of the target on disk, as the capture stage leaves them and training reads them.

A store is a folder: ``shard-00000.safetensors`` and on, each with ``features`` [rows, layers, hidden] bf16 and
``token_ids`` [rows] int32 of several examples one behind the other, and ``index.json``, which says where each example
lies. The manifest holds the hashes of all, and which target and which layers they are of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from drafters.training.stage import StageError, read_manifest

__all__ = ["INDEX", "STAGE", "FeatureStore", "Place", "plan_shards", "row_bytes", "shard_name"]

STAGE, INDEX = "capture", "index.json"
FEATURES, TOKENS = "features", "token_ids"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an example lies: rows ``start`` to ``end`` (excluded) of a shard."""

    shard: int
    start: int
    end: int


def shard_name(shard: int) -> str:
    """The file of a shard."""
    return f"shard-{shard:05}.safetensors"


def row_bytes(layers: int, hidden: int) -> int:
    """Bytes of one token: its states in bf16 and its id."""
    return layers * hidden * 2 + 4


def plan_shards(lengths: Iterable[tuple[str, int]], rows: int) -> dict[str, Place]:
    """Place examples (id, tokens) in their order into shards of at most ``rows`` tokens, or of one longer example."""
    places: dict[str, Place] = {}
    shard = end = 0
    for name, length in lengths:
        if end and end + length > rows:
            shard, end = shard + 1, 0
        places[name] = Place(shard, end, end + length)
        end += length
    return places


class FeatureStore:
    """A finished store, read through memory maps. ``layers`` are those it holds, ascending."""

    def __init__(self, folder: Path) -> None:
        """Open a store, after every shard was found to be what the manifest says.

        Raises StageError for a store that is missing, unfinished, changed or cut short, naming the file.
        """
        manifest = read_manifest(folder, STAGE)
        self.folder, self.manifest = folder, manifest
        self.layers = tuple(int(layer) for layer in manifest.counts["layers"])
        self.hidden_size = int(manifest.counts["hidden_size"])
        self.fingerprint = str(manifest.counts["fingerprint"])
        index = json.loads((folder / INDEX).read_text("utf-8"))
        self._places = {name: Place(*place) for name, place in index.items()}
        self._columns = {layer: column for column, layer in enumerate(self.layers)}
        self._shards: dict[int, Any] = {}

    def check(self, fingerprint: str, layers: Sequence[int]) -> None:
        """Raise StageError unless the store is of the target with this fingerprint and has these layers."""
        if fingerprint != self.fingerprint:
            raise StageError(
                f"{self.folder} was captured from another target (weights {self.fingerprint[:12]}…, this one has "
                f"{fingerprint[:12]}…): another model, precision or way to hold the weights; capture again with this one"
            )
        missing = [layer for layer in layers if layer not in self._columns]
        if missing:
            raise StageError(
                f"{self.folder} lacks the hidden states of layers {_listed(missing)}; it has {_listed(self.layers)}. "
                f"Capture again with --layers {','.join(map(str, sorted({*self.layers, *missing})))}"
            )

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __len__(self) -> int:
        return len(self._places)

    def read(self, name: str, token_ids: Sequence[int], layers: Sequence[int]) -> Tensor:
        """The hidden states [tokens, layers, hidden] in bf16 of an example, in the order of ``layers``: a copy.

        Raises StageError when the store has no such example, or other tokens for it, or states that are not finite.
        """
        place = self._places.get(name)
        if place is None:
            raise StageError(f"{self.folder} has no example {name!r}; capture the examples that training is given")
        shard = self._shard(place.shard)
        try:
            stored = shard.get_slice(TOKENS)[place.start : place.end]
            states: Tensor = shard.get_slice(FEATURES)[place.start : place.end]
        except SafetensorError as error:
            raise self._damaged(place.shard, str(error)) from error
        if stored.tolist() != list(token_ids):
            raise StageError(
                f"{self.folder} holds {len(stored)} other tokens for example {name!r} ({len(token_ids)} given); "
                "the examples were regenerated since: capture them again"
            )
        columns = [self._columns[layer] for layer in layers]
        if columns != list(range(len(self.layers))):
            states = states[:, columns]
        if not bool(torch.isfinite(states).all()):
            raise self._damaged(place.shard, f"example {name!r} has hidden states that are not finite")
        return states

    def _shard(self, number: int) -> Any:
        if number not in self._shards:
            opener: Any = safe_open
            try:
                self._shards[number] = opener(self.folder / shard_name(number), framework="pt")
            except (OSError, SafetensorError) as error:
                raise self._damaged(number, str(error)) from error
        return self._shards[number]

    def _damaged(self, number: int, problem: str) -> StageError:
        return StageError(f"{self.folder / shard_name(number)} is damaged ({problem}); capture again in a new folder")


def _listed(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers))
