"""What a verify forward costs over a whole grid, beside what the controller's cost model says after its short start-up."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

import torch

from drafters.engine.costs import CostModel
from drafters.engine.target import DecoderModel, Span

__all__ = ["SIDE", "verify_grid"]

SIDE = (1, 2, 4, 8, 16)
"""Sequences, and tokens a sequence (the last committed one and its draft)."""


def verify_grid(target: DecoderModel, costs: CostModel | None, passes: int) -> list[dict[str, Any]]:
    """Time a forward for each pair of `SIDE`, ``passes`` times over the grid in random order; medians in milliseconds.

    Each sequence has as many tokens before its rows as the cost model supposes (64 without one). ``model_ms`` is what the
    model predicts for the cell, ``None`` without a model.
    """
    context = 64 if costs is None else int(costs.to_json()["context_tokens_per_sequence"])
    cells = [(batch, rows) for batch in SIDE for rows in SIDE]
    cache = target.new_cache(SIDE[-1] * (context + SIDE[-1]))
    chance = random.Random(0)
    times: dict[tuple[int, int], list[float]] = {cell: [] for cell in cells}
    with torch.inference_mode():
        for number in range(passes + 1):
            chance.shuffle(cells)
            for batch, rows in cells:
                tokens = [chance.randrange(target.vocab_size) for _ in range(rows)]
                spans = [Span(index * (context + rows), context, tokens, rows) for index in range(batch)]
                began = time.perf_counter()
                target.forward(spans, cache)
                if number:  # the first pass warms up
                    times[batch, rows].append(1e3 * (time.perf_counter() - began))
    return [
        {
            "batch": batch,
            "rows_per_sequence": rows,
            "measured_ms": statistics.median(measured),
            "model_ms": None if costs is None else costs.forward_ns(batch, batch * rows) / 1e6,
        }
        for (batch, rows), measured in sorted(times.items())
    ]
