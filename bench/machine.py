"""What this machine can do at most: bytes read and multiplications made a second, on torch's threads.

Bounds for the figures beside them, not figures of any engine. Both are the best of several tries, since a bound that
something exceeded would be none.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

__all__ = ["Machine", "measure_machine"]

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Machine:
    """``read_bytes_per_s`` from memory, far beyond the caches; ``flops_per_s`` of a large float32 matrix product.

    ``vector_bytes_per_s`` is what torch's own product of a matrix and a vector of a model's width reads, which may be far
    less.
    """

    read_bytes_per_s: float
    vector_bytes_per_s: float
    flops_per_s: float

    def forward_floor_s(self, weight_bytes: int, rows: int) -> float:
        """Least seconds of a forward over ``rows`` of float32 weights: they are read once, and multiplied with each row."""
        return max(weight_bytes / self.read_bytes_per_s, 2 * weight_bytes / 4 * rows / self.flops_per_s)


def measure_machine(width: int, side: int = 16_384) -> Machine:
    """Read ``side``² float32 values (1 GiB by default), and multiply two square matrices of an eighth of ``side``.

    They are read by a sum and by products with vectors of ``side`` and of ``width``; the fastest is what memory gives.
    """
    matrix = torch.ones(side, side)
    rows = side * side // width
    narrow = matrix.flatten()[: rows * width].view(rows, width)
    small = torch.ones(side // 8, side // 8)
    size, product = 4 * side * side, 2 * (side // 8) ** 3
    by_vector = 4 * rows * width / _best_s(functools.partial(torch.mv, narrow, torch.ones(width)))
    by_wide = size / _best_s(functools.partial(torch.mv, matrix, torch.ones(side)))
    read = max(by_vector, by_wide, size / _best_s(matrix.sum))
    return Machine(read, by_vector, product / _best_s(functools.partial(torch.mm, small, small)))


def _best_s(action: Callable[[], object]) -> float:
    action()
    times = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return min(times)
