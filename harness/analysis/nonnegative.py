"""Least squares with coefficients that cannot be negative: no part of a round takes less than no time.

The active-set method of Lawson and Hanson (Solving Least Squares Problems, 1974, chapter 23), which ends after finitely many steps.
Problems here have up to a dozen unknowns, so nothing larger is needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
TOLERANCE = 1e-10  # of a gradient, against the largest of the problem; below it is rounding


def nonnegative(design: NDArray[np.float64], target: Vector) -> Vector:
    """Return the x ≥ 0 that makes ‖design · x − target‖ least. # [columns]

    Columns are scaled to one length first, so that seconds beside thousands of tokens lose no digits.

    Args:
        design: one row an observation. # [observations, columns]
        target: what was observed. # [observations]

    Raises:
        ValueError: if the shapes do not fit or a value is not finite.
    """
    if design.ndim != 2 or target.shape != design.shape[:1] or not np.isfinite(design).all():
        raise ValueError(f"design {design.shape} and target {target.shape} do not fit, or are not finite")
    lengths = np.linalg.norm(design, axis=0)
    scale = np.where(lengths > 0, lengths, 1.0)
    scaled = design / scale
    gram, pull = scaled.T @ scaled, scaled.T @ target
    limit = TOLERANCE * max(1.0, float(np.abs(pull).max(initial=0.0)))
    found = np.zeros(design.shape[1])
    free = np.zeros(design.shape[1], dtype=bool)
    for _ in range(10 * design.shape[1] + 10):
        slope = pull - gram @ found
        slope[free | (lengths == 0)] = -np.inf
        best = int(np.argmax(slope)) if len(slope) else -1
        if best < 0 or slope[best] <= limit:
            break
        free[best] = True
        found = _feasible(gram, pull, found, free)
    return found / scale


def _feasible(gram: NDArray[np.float64], pull: Vector, found: Vector, free: NDArray[np.bool_]) -> Vector:
    """Solve for the free unknowns; those that would turn negative are fixed at 0, one by one. Changes ``free``."""
    while free.any():
        wanted = np.zeros_like(found)
        wanted[free] = np.linalg.lstsq(gram[np.ix_(free, free)], pull[free], rcond=None)[0]
        negative = free & (wanted <= 0)
        if not negative.any():
            return wanted
        room = found[negative] / np.maximum(found[negative] - wanted[negative], 1e-300)
        found = found + float(room.min()) * (wanted - found)
        hit = np.flatnonzero(negative)[room <= room.min()]
        found[hit] = 0.0
        free[hit] = False
    return np.zeros_like(found)
