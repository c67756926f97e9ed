"""Bootstrap over tasks: how far a ratio of sums could have come out differently with other tasks of the same kind.

Tasks are drawn as wholes: all instances and repeats of a task, at all concurrencies, go together, since they are not independent
looks at the world. A task that stands in two workloads is one task: callers sum over both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, lru_cache
from hashlib import sha256
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

DRAWS = 2000
LOW, HIGH = 0.025, 0.975
CHUNK = 250  # draws at a time: memory stays at CHUNK × tasks numbers, however many tasks a run has
KEPT_TASKS = 250  # draws of so many are kept, 4 MB at the most for each number of tasks
MIN_TASKS = 5
"""Fewer distinct tasks get no interval.

No draw reaches beyond the extreme tasks, and from the smallest to the largest of n independent values covers their median with
probability 1 - 2^(1-n) only: 50 % with two tasks, 94 % with five. An interval that is called one of 95 % needs at least that.
"""


def seed_of(*key: object) -> int:
    """Return a seed that depends on nothing but the key, so that a report of the same records never changes."""
    return int.from_bytes(sha256("\x1f".join(map(str, key)).encode()).digest()[:8], "big")


def draw_counts(n_tasks: int, seed: int, draws: int = DRAWS) -> Iterator[NDArray[np.float64]]:
    """Yield how often each task is in each draw of ``n_tasks`` with replacement, some draws at a time. # [≤ CHUNK, tasks]"""
    return iter(_kept(n_tasks, seed, draws)) if n_tasks <= KEPT_TASKS else _drawn(n_tasks, seed, draws)


@lru_cache(maxsize=16)  # most figures of a run rest on the same few numbers of tasks, and so on the same draws
def _kept(n_tasks: int, seed: int, draws: int) -> tuple[NDArray[np.float64], ...]:
    found = tuple(_drawn(n_tasks, seed, draws))
    for counts in found:
        counts.flags.writeable = False
    return found


def _drawn(n_tasks: int, seed: int, draws: int) -> Iterator[NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    for begin in range(0, draws, CHUNK):
        size = min(CHUNK, draws - begin)
        drawn = rng.integers(n_tasks, size=(size, n_tasks))
        flat = drawn + np.arange(size)[:, None] * n_tasks
        yield np.bincount(flat.ravel(), minlength=size * n_tasks).reshape(size, n_tasks).astype(np.float64)


def ratio_draws(above: NDArray[np.float64], below: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Return the ratio of sums of each draw and column, NaN where a draw holds nothing to divide by. # [draws, columns]

    Args:
        above: per task, summed over its instances and repeats. # [tasks, columns]
        below: the same for the denominator. # [tasks, columns]
        seed: of :func:`seed_of`.
    """
    parts = []
    for counts in draw_counts(len(above), seed):
        sums = counts @ below
        parts.append(np.divide(counts @ above, sums, out=np.full_like(sums, np.nan), where=sums > 0))
    return np.concatenate(parts)


@cache
def tails(n_tasks: int) -> tuple[float, float]:
    """Return the shares of draws below and above a 95 % interval that rests on so many tasks.

    Draws of n tasks spread less than the truth by sqrt(1 - 1/n), and a normal tail is too short where the spread itself is estimated
    from n values. Widened tails (Hesterberg 2015, "expanded percentile interval") make up for both: 2.5 % with many tasks, 1.6 % with
    20, 0.1 % with five.
    """
    if n_tasks < 2:
        return LOW, HIGH
    low = NormalDist().cdf(-math.sqrt(n_tasks / (n_tasks - 1)) * student(n_tasks - 1))
    return low, 1 - low


def student(freedom: int) -> float:
    """Return the 97.5 % point of Student's t; the first terms of its expansion around the normal, below 1 % off from 4 on."""
    z, v = NormalDist().inv_cdf(HIGH), float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / v ** (power + 1) for power, term in enumerate(terms))


def interval(draws: NDArray[np.float64], n_tasks: int | None = None) -> tuple[float, float] | None:
    """Return the interval (95 %) of one column of draws, ``None`` if no draw has a value.

    Draws may be infinite (beyond the measured range). The limits are draws themselves, never a mean of two, since no mean with an
    infinite one exists.

    Args:
        draws: one figure in every draw.
        n_tasks: how many tasks each draw takes, see :func:`tails`; plain percentiles where it is not said.
    """
    known = draws[~np.isnan(draws)]
    if not len(known):
        return None
    low, high = np.quantile(known, (LOW, HIGH) if n_tasks is None else tails(n_tasks), method="inverted_cdf")
    return float(low), float(high)


def intervals(draws: NDArray[np.float64], n_tasks: int) -> list[tuple[float, float] | None]:
    """Return :func:`interval` of every column of draws, many at once. # [draws, columns]"""
    n_draws = len(draws)
    known = ~np.isnan(draws).any(axis=0)
    ends = [max(0, math.ceil(n_draws * share - 1)) for share in tails(n_tasks)]  # places of the inverted distribution
    columns = np.ascontiguousarray(draws[:, known].T)
    columns.partition(ends, axis=1)
    limits: list[tuple[float, float] | None] = [None] * draws.shape[1]
    for column, (low, high) in zip(np.flatnonzero(known), columns[:, ends], strict=True):
        limits[column] = float(low), float(high)
    for column in np.flatnonzero(~known):
        limits[column] = interval(draws[:, column], n_tasks)
    return limits
