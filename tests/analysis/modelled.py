"""A make-believe engine whose costs are known in closed form, for tests of the cost model.

A forward takes 10 ms up to 8 tokens and 1 ms more for each further one, and 1 ms for each 1,000 tokens of context. The drafter takes
half a millisecond a position; the rest of a round 0.2 ms.
"""

from __future__ import annotations

import polars as pl

from harness.analysis.rounds import ENGINE_ROUNDS

BASE, DRAFTER = "baseline", "eagle"
METHODS = {BASE: "none", DRAFTER: "eagle3"}
US = 1_000  # nanoseconds


def verify_us(tokens: int, context: int) -> int:
    """Return the time of a forward in microseconds."""
    return 10_000 + 1_000 * max(0, tokens - 8) + context


def engine_rounds(batches: tuple[int, ...] = (1, 2, 4, 8, 16), length: int = 3, times: int = 10) -> pl.DataFrame:
    """Return rounds with and without drafts at these batch sizes, every request with a context of 500 or 1,000 tokens."""
    rows: list[dict[str, object]] = []
    for arm, drafted in ((BASE, 0), (DRAFTER, length)):
        for batch in batches:
            for each in (500, 1000):
                tokens, context = batch * (1 + drafted), batch * each
                for _ in range(times):
                    rows.append(
                        {
                            "cell": 0 if arm == BASE else 1,
                            "round_index": len(rows),
                            "batch_size": batch,
                            "num_draft_tokens": batch * drafted,
                            "longest": drafted,
                            "draft_ns": 500 * drafted * US,
                            "verify_ns": verify_us(tokens, context) * US,
                            "host_ns": 200 * US,
                            "prefill_tokens": 0,
                            "context_tokens": context,
                            "arm": arm,
                            "context": float(context),
                        }
                    )
    schema = dict(ENGINE_ROUNDS) | {"arm": pl.String(), "context": pl.Float64()}
    return pl.DataFrame(rows, schema=schema)
