"""A run carried over to hardware that is not at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from harness.analysis.frames import HARDWARE_BREAK_EVEN_SCHEMA, HARDWARE_SCHEMA, PREDICTED_SCHEMA
from harness.analysis.predicted import Predictions, frame_of
from harness.analysis.prediction import MODELLED, batch_sizes, crossing, limits, points
from harness.analysis.roofline import Roofline, Target, needed, saturation_tokens, single_tokens_per_s
from harness.hardware import Hardware


def rooflines(
    rows: Sequence[Hardware], target: Target, found: Predictions, methods: Mapping[str, str]
) -> list[Roofline]:
    """Return the costs of a target on some hardware, for the drafters of a run; none where the run gave no cost model."""
    return [] if found.model is None else [Roofline(row, target, found.model, methods) for row in rows]


def predicted_elsewhere(lines: Sequence[Roofline], found: Predictions) -> pl.DataFrame:
    """Return ``frames.PREDICTED`` of a run's arms on other hardware; what does not fit into its memory is left out."""
    frames = [pl.DataFrame(schema=PREDICTED_SCHEMA)]
    for line in lines:
        known = [item for item in found.subjects if item.arm in line.measured.drafts]
        made = [(item, list(points(line, item, batch_sizes(line), limits(item.profile)))) for item in known]
        frames.append(frame_of(made, line.hardware.name))
    return pl.concat(frames)


def break_even_elsewhere(lines: Sequence[Roofline], found: Predictions) -> pl.DataFrame:
    """Return ``frames.HARDWARE_BREAK_EVEN``: how many requests in a round use up what each draft length gains on other hardware."""
    rows = [
        (item.workload, item.arm, line.hardware.name, limit, end.side, end.batch, end.highest, MODELLED)
        for line in lines
        for item in found.subjects
        if item.arm in line.measured.drafts
        for limit in limits(item.profile)[1:]
        for end in [crossing(line, item, limit)]
        if end is not None
    ]
    return pl.DataFrame(rows, schema=HARDWARE_BREAK_EVEN_SCHEMA, orient="row")


def limits_of(rows: Sequence[Hardware], target: Target) -> pl.DataFrame:
    """Return ``frames.HARDWARE``: what follows from the size of a target alone, without any drafter.

    Hardware whose memory does not hold the weights has no speed.
    """
    found: list[tuple[object, ...]] = []
    for row in rows:
        holds = needed(row, target) == 1
        speeds = (single_tokens_per_s(row, target), saturation_tokens(row, target)) if holds else (None, None)
        figures = (row.bandwidth_gb_s, row.dense_tflops, row.memory_gb, *speeds)
        found.append((row.name, *figures, MODELLED, row.source))
    return pl.DataFrame(found, schema=HARDWARE_SCHEMA, orient="row")
