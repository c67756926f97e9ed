"""Keys and values of all sequences in one preallocated block of token slots.

A sequence owns a run of neighbouring slots (see `drafters.engine.slots`), so attention reads its keys as a view:
nothing is gathered, nothing is padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

__all__ = ["KvCache"]


class KvCache:
    """``num_slots`` token slots for ``num_layers`` layers, and optionally a hidden state of several layers a slot.

    ``keys``, ``values``: [layers, kv_heads, slots, head_dim]: one head's keys lie together, so a row that reads them all runs at
    the memory's pace (half the time of token by token, on a CPU). ``features``: [slots, feature_layers, hidden] or None;
    kept only where a drafter needs the features of tokens whose K/V is reused from another sequence.
    """

    def __init__(
        self,
        num_layers: int,
        num_slots: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        feature_shape: tuple[int, int] | None = None,
    ) -> None:
        if num_slots < 1:
            raise ValueError(f"{num_slots} token slots given; allowed: 1 or more")
        shape = (num_layers, kv_heads, num_slots, head_dim)
        self.num_slots = num_slots
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.features = (
            None if feature_shape is None else torch.zeros((num_slots, *feature_shape), dtype=dtype, device=device)
        )

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store one layer's K/V [n, kv_heads, head_dim] at ``slots`` [n]."""
        self.keys[layer].index_copy_(1, slots, keys.transpose(0, 1))
        self.values[layer].index_copy_(1, slots, values.transpose(0, 1))

    def copy(self, source: int, destination: int, num_tokens: int) -> None:
        """Copy ``num_tokens`` neighbouring slots; the two runs must not overlap."""
        if num_tokens <= 0 or source == destination:
            return
        if abs(source - destination) < num_tokens:
            raise ValueError(
                f"slots {source} and {destination} are less than {num_tokens} apart; copies must not overlap"
            )
        here, there = slice(source, source + num_tokens), slice(destination, destination + num_tokens)
        self.keys[:, :, there] = self.keys[:, :, here]
        self.values[:, :, there] = self.values[:, :, here]
        if self.features is not None:
            self.features[there] = self.features[here]

    def compact(self, first: int, path: Sequence[int]) -> None:
        """Move the slots ``first + path[i]`` to ``first + i``: the accepted path of a tree takes the place of the tree.

        ``path`` is strictly increasing, as accepted nodes are.
        """
        if all(node == index for index, node in enumerate(path)):
            return
        if any(later <= earlier for earlier, later in pairwise(path)):
            raise ValueError(f"path {tuple(path)} is not increasing; give the accepted nodes in the draft's order")
        # Indexing by a tensor copies before it is written back, so the moves cannot overwrite one another.
        source = torch.tensor([first + node for node in path], device=self.keys.device)
        self.keys[:, :, first : first + len(path)] = self.keys[:, :, source]
        self.values[:, :, first : first + len(path)] = self.values[:, :, source]
        if self.features is not None:
            self.features[first : first + len(path)] = self.features[source]
