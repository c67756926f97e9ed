"""What a round costs: a table measured at start-up, corrected by the rounds that follow. Imports no torch.

Times are nanoseconds as floats. A forward is described by the sequences that decode in it (``batch``) and by all of its
rows; a round of a drafter by its sequences and how many tokens each is to get.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drafters.engine.records import RoundRecord

__all__ = ["CostModel", "Grid"]

Grid = Mapping[tuple[int, int], float]

# A start-up figure is off by one common factor most of the time (clock, neighbours, memory), by its own shape less often.
COMMON_RATE = 0.10
OWN_RATE = 0.03
# One round that took twice as long as predicted was disturbed; it says no more than one that took half as much again.
LARGEST_STEP = math.log(1.5)
# Corrections smaller than this share are gathered before the tables are made anew.
NEGLIGIBLE = 0.01


class CostModel:
    """Time of a target's forward and of its drafters.

    ``forward[batch, rows]``: ns of a forward of ``batch`` sequences with ``rows`` rows each, the last committed token
    included, where each sequence has ``context_tokens`` tokens before them. Between the entries it is interpolated,
    beyond them the last slope holds. Neither more rows nor more sequences cost less: where the table says so, the smaller
    one was disturbed and is taken for as cheap as the larger. ``context_ns`` is the time of one more token of context
    with one row a sequence, ``row_context_ns`` what each further row adds to it. ``drafts[name][batch, tokens]``: ns of
    a drafter's work in a round that drafts ``tokens`` for each of ``batch`` sequences, 0 included (it still takes note
    of what is committed).
    """

    def __init__(
        self,
        forward: Grid,
        drafts: Mapping[str, Grid] | None = None,
        context_ns: float = 0.0,
        row_context_ns: float = 0.0,
        context_tokens: int = 0,
    ) -> None:
        self._forward = _Surface(forward, "forward")
        self._drafts = {name: _Surface(grid, f"drafts of {name!r}") for name, grid in (drafts or {}).items()}
        self._context_ns = context_ns
        self._row_context_ns = row_context_ns
        self._context_tokens = context_tokens
        self._steps: dict[tuple[str, int, int], float] = {}  # as measured
        self._last_t_ns = -1
        self.reset()

    def reset(self) -> None:
        """Go back to the table as it was measured: rounds so far have corrected nothing."""
        self._common = 0.0  # logarithm of observed over measured
        self._own: dict[int, float] = {}  # by log2 of the rows, on top of the common one
        self._factor = 1.0  # as of the lines
        self._moved = 0.0
        self._draft_factors = dict.fromkeys(self._drafts, 1.0)
        self._host: dict[int, float] = {}  # by batch
        self._lines: dict[int, _Line] = {}  # corrected, until the next observation

    @property
    def drafters(self) -> tuple[str, ...]:
        """Names of the drafters whose cost is known."""
        return tuple(self._drafts)

    def forward_ns(self, batch: int, rows: float, context_tokens: float | None = None) -> float:
        """A forward of ``rows`` rows in all (an expectation may be a fraction) for ``batch`` sequences.

        ``context_tokens`` sums over the sequences; ``None`` is as at the measurement.
        """
        return self.forward_of(batch, context_tokens)(rows)

    def forward_of(self, batch: int, context_tokens: float | None = None) -> Callable[[float], float]:
        """`forward_ns` over its rows alone, for a caller who wants many values."""
        line = self._lines.get(batch)
        if line is None:
            line = self._lines[batch] = self._corrected(batch)
        if context_tokens is None:
            return line.at
        further = (context_tokens - batch * self._context_tokens) * self._factor
        fixed, sloping, at = further * self._context_ns, further * self._row_context_ns, line.at

        def over_rows(rows: float) -> float:
            return at(rows) + fixed + sloping * (rows / batch - 1)

        return over_rows

    def draft_ns(self, drafter: str, batch: int, tokens: float) -> float:
        """A round of ``drafter`` that drafts ``tokens`` for each of ``batch`` sequences."""
        if batch < 1:
            return 0.0
        return self._drafts[drafter].at(batch, tokens) * self._draft_factors[drafter]

    def drafts_ns(self, drafter: str, lengths: Sequence[int]) -> float:
        """A round of ``drafter`` for sequences that get ``lengths`` tokens: position by position, each for those who
        reach it."""
        total = self.draft_ns(drafter, len(lengths), 0)
        for position in range(1, max(lengths, default=0) + 1):
            reaching = sum(length >= position for length in lengths)
            total += self.draft_step_ns(drafter, reaching, position)
        return total

    def draft_step_ns(self, drafter: str, batch: int, position: int) -> float:
        """What the ``position``-th token (from 1) of ``batch`` sequences adds; never negative."""
        key = drafter, batch, position
        step = self._steps.get(key)
        if step is None:
            surface = self._drafts[drafter]
            less, more = (surface.at(batch, position - 1), surface.at(batch, position)) if batch > 0 else (0.0, 0.0)
            step = self._steps[key] = max(0.0, more - less)
        return step * self._draft_factors[drafter]

    def host_ns(self, batch: int) -> float:
        """What a round takes beside drafters and forward, as seen lately at the nearest batch; 0 before the first
        round."""
        if not self._host:
            return 0.0
        nearest = min(self._host, key=lambda seen: abs(seen - batch))
        return self._host[nearest]

    def observe(self, record: RoundRecord) -> None:
        """Correct the table by a finished round. The same round told again, by another policy, changes nothing."""
        if record.t_ns <= self._last_t_ns:
            return
        self._last_t_ns = record.t_ns
        # A round that feeds prompts is hardly like the table's; where nobody decodes there is nothing to choose either.
        if record.prefill_tokens or not record.batch_size or record.forward_ns <= 0:
            return
        batch, rows = record.batch_size, record.batch_size + record.num_draft_tokens
        error = _step(record.forward_ns, self.forward_ns(batch, rows, record.context_tokens))
        self._common += COMMON_RATE * error
        self._moved += error * (COMMON_RATE + OWN_RATE)
        for knot, weight in _knots(rows):
            self._own[knot] = self._own.get(knot, 0.0) + OWN_RATE * weight * error
        host = record.host_ns + record.verify_ns - record.forward_ns
        self._host[batch] = self._host.get(batch, host) * (1 - COMMON_RATE) + host * COMMON_RATE
        if abs(self._moved) > NEGLIGIBLE:
            self._moved, self._factor = 0.0, math.exp(self._common)
            self._lines.clear()

    def observe_draft(self, drafter: str, lengths: Sequence[int], draft_ns: int) -> None:
        """Correct a drafter's table by a round in which it drafted ``lengths`` tokens; rounds without a draft say
        nothing."""
        if draft_ns <= 0 or not any(lengths) or drafter not in self._drafts:
            return
        error = _step(draft_ns, self.drafts_ns(drafter, lengths))
        self._draft_factors[drafter] *= math.exp(COMMON_RATE * error)

    def as_table(self) -> list[dict[str, int | float]]:
        """The forward's table: batch, rows a sequence, measured and corrected milliseconds."""
        return [
            {
                "batch": batch,
                "rows_per_sequence": rows,
                "measured_ms": round(ns / 1e6, 4),
                "corrected_ms": round(self.forward_ns(batch, batch * rows) / 1e6, 4),
            }
            for batch, rows, ns in self._forward.entries()
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything known, as plain values for JSON."""
        return {
            "forward": self.as_table(),
            "context_tokens_per_sequence": self._context_tokens,
            "ns_per_context_token": self._context_ns,
            "ns_per_context_token_and_further_row": self._row_context_ns,
            "drafts": {
                name: [
                    {
                        "batch": batch,
                        "tokens": tokens,
                        "measured_ms": round(ns / 1e6, 4),
                        "corrected_ms": round(self.draft_ns(name, batch, tokens) / 1e6, 4),
                    }
                    for batch, tokens, ns in surface.entries()
                ]
                for name, surface in self._drafts.items()
            },
            "observed_over_measured": round(math.exp(self._common), 4),
            "host_ms": {str(batch): round(ns / 1e6, 4) for batch, ns in sorted(self._host.items())},
        }

    def _corrected(self, batch: int) -> _Line:
        line = self._forward.line(batch)
        rows = [batch * each for each in line.xs]
        return _Line(rows, [ns * math.exp(self._common + self._own_at(n)) for n, ns in zip(rows, line.ys, strict=True)])

    def _own_at(self, rows: float) -> float:
        return sum(self._own.get(knot, 0.0) * weight for knot, weight in _knots(rows))


class _Line:
    """Linear between the points, the first value before them, the last slope beyond, which is never below 0."""

    __slots__ = ("xs", "ys")

    def __init__(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        self.xs = list(xs)
        self.ys = list(ys)

    def at(self, x: float) -> float:
        xs, ys = self.xs, self.ys
        if len(xs) == 1 or x <= xs[0]:
            return ys[0]
        if x >= xs[-1]:
            return ys[-1] + max(0.0, ys[-1] - ys[-2]) * (x - xs[-1]) / (xs[-1] - xs[-2])
        right = bisect_right(xs, x)
        left = right - 1
        return ys[left] + (ys[right] - ys[left]) * (x - xs[left]) / (xs[right] - xs[left])


class _Surface:
    """A `_Line` for each measured batch; the batches between are mixed of their neighbours.

    Beyond the last batch the last line goes on by the total of its rows.
    """

    def __init__(self, grid: Grid, what: str) -> None:
        if not grid or any(batch < 1 or amount < 0 or ns < 0 for (batch, amount), ns in grid.items()):
            raise ValueError(
                f"costs of {what} given: {dict(grid)}; allowed: times ≥ 0 by batches of 1 or more, not empty"
            )
        self._grid = dict(sorted(grid.items()))
        self._batches = sorted({batch for batch, _ in grid})
        # Whatever disturbs a measurement makes it longer, so the lower of two in the wrong order is the better one.
        rising = {
            (batch, amount): min(ns for (b, a), ns in grid.items() if b >= batch and a >= amount)
            for batch, amount in self._grid
        }
        self._measured: dict[int, _Line] = {}
        for batch in self._batches:
            points = [(float(amount), ns) for (b, amount), ns in rising.items() if b == batch]
            self._measured[batch] = _Line([amount for amount, _ in points], [ns for _, ns in points])
        self._mixed: dict[int, _Line] = dict(self._measured)

    def entries(self) -> list[tuple[int, int, float]]:
        """(batch, amount, ns) as measured."""
        return [(batch, amount, ns) for (batch, amount), ns in self._grid.items()]

    def at(self, batch: int, amount: float) -> float:
        return self.line(batch).at(amount)

    def line(self, batch: int) -> _Line:
        """Amount a sequence → ns."""
        line = self._mixed.get(batch)
        if line is None:
            line = self._mixed[batch] = self._mix(batch)
        return line

    def _mix(self, batch: int) -> _Line:
        first, last = self._batches[0], self._batches[-1]
        if batch < first:
            return self._measured[first]
        if batch > last:
            line, ratio = self._measured[last], batch / last
            xs = sorted({*line.xs, *(x * ratio for x in line.xs)})
            return _Line(xs, [line.at(x * ratio) for x in xs])
        right = bisect_right(self._batches, batch)
        low, high = self._batches[right - 1], self._batches[right]
        share = (batch - low) / (high - low)
        below, above = self._measured[low], self._measured[high]
        xs = sorted({*below.xs, *above.xs})
        return _Line(xs, [below.at(x) * (1 - share) + above.at(x) * share for x in xs])


def _knots(rows: float) -> tuple[tuple[int, float], tuple[int, float]]:
    """The two whole logarithms around ``rows``, and the share of each."""
    place = math.log2(max(rows, 1.0))
    below = int(place)
    return (below, 1 - (place - below)), (below + 1, place - below)


def _step(observed: float, predicted: float) -> float:
    error = math.log(observed / max(predicted, 1.0))
    return max(-LARGEST_STEP, min(LARGEST_STEP, error))
