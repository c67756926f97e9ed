"""How an arm drafts and what is accepted, per pass of one request: enough to say what a shorter limit would have yielded.

A run at limit k tells of every limit below it. A draft of which a tokens were accepted would have been several shorter ones, each
beginning where the last ended: what was accepted deep in a draft is accepted again at the front of the next. Measured at one to four of
eight or fewer drafted tokens, tokens a pass come out within 4 % for look-up and 1.5 % for MTP, EAGLE-3, DFlash, DFlash 2, Medusa and
draft models. The first tokens of the long drafts alone (as Leviathan et al. 2023 count independent ones) were 2 to 16 % too low: shorter
drafts begin in the middle of easy text more often. For independent tokens both are the same. Nothing is said of more than was drafted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from harness.analysis.steps import steady_ok

Vector = NDArray[np.float64]
FIGURES = ("decode_passes", "num_drafts", "num_draft_tokens", "num_accepted_tokens_per_pos")
NEEDED = ("workload", "arm", "concurrency", "phase", "done", "steady", "error_kind", *FIGURES)
"""Columns of steps that are looked at."""


@dataclass(frozen=True, slots=True)
class DraftProfile:
    """Per pass: ``lengths[d]`` is the probability that d tokens are drafted, ``survival[i]`` that more than i of them are accepted.

    Drafts that are trees have as many tokens as nodes, but only a path of them can be accepted: nobody knows what fewer nodes would have
    yielded, so ``chain`` is false.

    # lengths: [longest + 1], survival: [longest]
    """

    lengths: Vector
    survival: Vector
    chain: bool = True

    @property
    def longest(self) -> int:
        """Tokens of the longest draft that was seen."""
        return len(self.survival)

    @property
    def limits(self) -> list[int]:
        """Limits on drafted tokens of which the profile says anything, rising, from 0 on."""
        return list(range(self.longest + 1)) if self.chain else [0, self.longest]

    def at(self, limit: int) -> tuple[Vector, float]:
        """Return the lengths under a limit on drafted tokens, and the tokens that a pass then yields, the target's own included."""
        if limit == 0:
            return np.ones(1), 1.0
        drafted = float(self.lengths[1:].sum())
        if limit >= self.longest or drafted == 0:
            return self.lengths[: limit + 1].copy(), 1.0 + float(self.survival.sum())
        reached = np.concatenate([[drafted], self.survival])
        ended = reached - np.concatenate([self.survival, [0.0]])
        drafts = np.ceil(np.arange(1, self.longest + 2) / (limit + 1))
        passes = float(self.lengths[0] + ended @ drafts)
        tokens = 1.0 + float(self.survival.sum()) + ended[-1] * self._beyond(limit, reached)
        cut = self.lengths[: limit + 1].copy()
        cut[-1] += self.lengths[limit + 1 :].sum()
        cut[0] /= passes
        cut[1:] *= (1 - cut[0]) / drafted
        return cut, float(tokens) / passes

    def _beyond(self, limit: int, reached: Vector) -> float:
        """Return what the last of the shorter drafts of a wholly accepted one yields beyond it.

        The long draft's last token is the target's own: nobody knows whether the drafter would have had it. What follows is as likely as
        after so many accepted tokens of any other draft.
        """
        left = (self.longest + 1) % (limit + 1)
        return float(self.survival[left - 1 : limit].sum() / reached[left - 1]) if left and reached[left - 1] else 0.0


def profile(steps: pl.DataFrame, rounds: pl.DataFrame, *, chain: bool = True) -> DraftProfile | None:
    """Return the profile of some calls of one arm, ``None`` where nothing is known of its positions or passes.

    Counted calls inside the steady window that succeeded count. How often something is drafted, and how often each position is accepted,
    comes from the calls' sums; how long drafts are from their rounds, or, where those are not known, from their mean.

    Args:
        steps: of one arm, with ``steady``.
        rounds: ``rounds.ROUNDS`` of the same arm, or none.
        chain: whether drafts are chains, not trees.
    """
    good = steady_ok(steps, FIGURES, pl.col("decode_passes") > 0)
    told = good.filter((pl.col("num_drafts") == 0) | pl.col("num_accepted_tokens_per_pos").is_not_null())
    passes, drafts, drafted = (int(told[name].sum()) for name in ("decode_passes", "num_drafts", "num_draft_tokens"))
    if drafts <= 0 or passes < drafts:
        return None
    accepted = _per_position(told["num_accepted_tokens_per_pos"])
    lengths = _lengths(rounds, drafts, drafted, len(accepted))
    survival = np.zeros(len(lengths) - 1)
    survival[: len(accepted)] = accepted[: len(survival)] / passes
    share = drafts / passes
    return DraftProfile(np.concatenate([[1 - share], share * lengths[1:]]), survival, chain)


def _per_position(values: pl.Series) -> Vector:
    longest = int(values.list.len().max() or 0)  # type: ignore[arg-type]
    sums = [values.list.get(place, null_on_oob=True).sum() for place in range(longest)]
    return np.array(sums, dtype=np.float64)


def _lengths(rounds: pl.DataFrame, drafts: int, drafted: int, least: int) -> Vector:
    """Return how drafts of one token or more are spread over lengths, from 0 (never) on. # [longest + 1]"""
    seen = rounds.filter(pl.col("num_draft_tokens") > 0)["num_draft_tokens"].to_numpy()
    if len(seen):
        counts = np.bincount(seen, minlength=least + 1).astype(np.float64)
        share: Vector = counts / counts.sum()
        return share
    mean = max(drafted / drafts, float(least), 1.0)
    low = int(np.floor(mean))
    spread = np.zeros(low + 2 if mean > low else low + 1)
    spread[low] = 1 - (mean - low)
    if mean > low:
        spread[low + 1] = mean - low
    return spread
