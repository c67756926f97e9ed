"""Near-duplicates by MinHash (Broder 1997) over runs of characters, found in bands (Leskovec et al., ch. 3), and held-out
pieces within longer texts by a fixed share of the runs' hashes (containment, Broder 1997), wherever a piece begins.

Runs of characters, not of words: Korean words carry their particles, and a changed particle is no other document.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["THRESHOLD", "Duplicates", "HeldOut", "Signature", "Sketch", "signature", "similarity", "sketch"]

RUN = 5
PERMUTATIONS = 128
BANDS, ROWS = 32, 4
"""Pairs of similarity s meet in a band with probability 1 − (1 − s⁴)³²: 0.99 at 0.6 and 0.38 at 0.35, so that hardly any
pair above the threshold is missed."""
THRESHOLD = 0.7
"""Similarity from which two texts count as one: a mail of 144 characters with three words changed has 0.79, two requests
on one form about different matters have 0.23 (both in the tests)."""
SPACE = re.compile(r"\s+")
_MULTIPLIERS = np.random.Generator(np.random.PCG64(17)).integers(1, 2**63, (2, PERMUTATIONS), dtype=np.uint64) * 2 + 1

Signature = npt.NDArray[np.uint32]
Sketch = npt.NDArray[np.uint32]
"""A quarter of a text's distinct runs, chosen and named by their hashes: about one byte for each character."""
SHARE_BITS = 2
MIN_RUNS = 16
"""Sketches with fewer runs, of texts under some 70 characters, say nothing."""
COMMON = 64
"""Runs that stand in more held-out pieces than this are letterheads and phrases of the house, and are not counted."""
WITHIN = 0.8
"""Share of a piece's runs from which it stands in another; two texts of one length with 0.8 of their runs have a
similarity of 0.67, and forms filled in differently stay below."""
PART = 0.25
"""Share of a repeated piece from which the piece of the other text that holds it goes: a page may straddle two or three."""


def signature(text: str) -> Signature:
    """Return 128 minima over the text's runs of five characters, spaces taken together, case put aside."""
    hashes = _runs(text)
    lowest = np.full(PERMUTATIONS, np.iinfo(np.uint32).max, dtype=np.uint32)
    for start in range(0, len(hashes), 4096):  # so that a long text needs no more memory than a short one
        block = hashes[start : start + 4096, None]
        mixed = ((block * _MULTIPLIERS[0] + _MULTIPLIERS[1]) >> np.uint64(32)).astype(np.uint32)
        lowest = np.minimum(lowest, mixed.min(axis=0))
    return lowest


def sketch(text: str) -> Sketch:
    """Return the hashes of a quarter of the text's distinct runs, the same runs in every text."""
    hashes = _runs(text)
    chosen = hashes[(hashes & np.uint64((1 << SHARE_BITS) - 1)) == 0]
    return np.unique((chosen >> np.uint64(32)).astype(np.uint32))


def _runs(text: str) -> npt.NDArray[np.uint64]:
    plain = SPACE.sub(" ", text.casefold()).strip()
    codes = np.frombuffer(plain.encode("utf-32-le", "replace"), dtype=np.uint32).astype(np.uint64)
    count = max(1, len(codes) - RUN + 1)
    codes = np.pad(codes, (0, max(0, RUN - len(codes))))
    hashes = np.zeros(count, dtype=np.uint64)
    for offset in range(RUN):
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + codes[offset : offset + count]
    hashes ^= hashes >> np.uint64(29)
    hashes *= np.uint64(0xBF58476D1CE4E5B9)
    hashes ^= hashes >> np.uint64(32)
    return np.unique(hashes)


def similarity(one: Signature, other: Signature) -> float:
    """Estimate the share of runs that two texts have in common (Jaccard); its standard error is at most 0.045."""
    return float(np.mean(one == other))


class Duplicates:
    """Texts seen so far; asks whether a new one is nearly one of them."""

    def __init__(self) -> None:
        self._signatures: list[Signature] = []
        self._bands: list[dict[bytes, list[int]]] = [{} for _ in range(BANDS)]

    def find(self, made: Signature) -> int | None:
        """Return the number of the first text that this one nearly repeats, or None."""
        candidates = sorted(
            {index for band, key in zip(self._bands, _keys(made), strict=True) for index in band.get(key, ())}
        )
        return next((index for index in candidates if similarity(self._signatures[index], made) >= THRESHOLD), None)

    def add(self, made: Signature) -> int:
        """Remember a text; returns its number."""
        self._signatures.append(made)
        index = len(self._signatures) - 1
        for band, key in zip(self._bands, _keys(made), strict=True):
            band.setdefault(key, []).append(index)
        return index


class HeldOut:
    """The held-out pieces, and which pieces of another text repeat them or hold most of one.

    ``pieces``: a sketch of each held-out piece; a page counts as repeated from WITHIN of its runs.
    """

    def __init__(self, pieces: Sequence[Sketch]) -> None:
        owners = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
        runs = np.concatenate(pieces) if pieces else np.empty(0, np.uint32)
        order = np.argsort(runs, kind="stable")
        runs, owners = runs[order], owners[order]
        rare = np.searchsorted(runs, runs, "right") - np.searchsorted(runs, runs, "left") <= COMMON
        self._runs, self._owners = runs[rare], owners[rare]
        self._sizes = np.bincount(self._owners, minlength=len(pieces))

    def repeated(self, pieces: Sequence[Sketch]) -> frozenset[int]:
        """Return the numbers of the pieces of a text that stand in one held-out piece, or hold a good part of a held-out
        piece that stands in the text.
        """
        runs, counts = np.unique(np.concatenate(pieces), return_counts=True)
        inside = (self._sizes >= MIN_RUNS) & (self._shared(runs) >= WITHIN * self._sizes)
        single = runs[
            counts == 1
        ]  # what stands in several pieces of the text does not tell which of them holds the page
        found = set[int]()
        for number, piece in enumerate(pieces):
            shared = self._shared(piece)
            own = self._shared(np.intersect1d(piece, single, assume_unique=True))
            holds = inside & ((own >= PART * self._sizes) | (shared >= WITHIN * self._sizes))
            if holds.any() or (len(piece) >= MIN_RUNS and shared.max(initial=0) >= WITHIN * len(piece)):
                found.add(number)
        return frozenset(found)

    def _shared(self, runs: Sketch) -> npt.NDArray[np.intp]:
        """How many of the runs stand in each held-out piece."""
        low, high = np.searchsorted(self._runs, runs, "left"), np.searchsorted(self._runs, runs, "right")
        counts = high - low
        places = np.repeat(low - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return np.bincount(self._owners[places], minlength=len(self._sizes))


def _keys(made: Signature) -> Sequence[bytes]:
    return [made[start : start + ROWS].tobytes() for start in range(0, BANDS * ROWS, ROWS)]
