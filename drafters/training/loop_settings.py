"""What decides the course of a training, whatever the method. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["Intervals", "LoopSettings", "rate_factor"]


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """What decides the course of a training."""

    tokens: int
    """Of all sequences, context included, padding not."""
    row_tokens: int = 2048
    rows: int = 1
    """A step takes ``rows`` · ``row_tokens`` tokens, in parts of at most ``row_tokens`` each, padding included."""
    rate: float = 2e-3
    optimizer: Literal["adamw", "muon"] = "adamw"
    muon_rate: float = 0.02
    weight_decay: float = 0.0
    warm_up: float = 0.05
    """Share of the tokens over which the rate rises."""
    schedule: Literal["cosine", "linear"] = "cosine"
    clip: float = 1.0
    precision: Literal["bf16", "fp32"] = "fp32"
    """Of the drafter's products in training; evaluations are in the target's own type."""
    states_precision: Literal["bf16", "fp32"] = "fp32"
    """Of the target's own pass over training examples. bf16 takes about a third less time and gives states that are off
    by some parts in a thousand, of which one in about seventy has another likeliest token than the engine sees."""
    evaluations: int = 12
    """How often the held-out examples are evaluated, evenly over the tokens, beside the one before the first step."""
    patience: int = 4
    """Evaluations in a row without a better one, after which training ends; 0 goes on to the last token."""
    stop_on: Literal["acceptance", "loss", "nothing"] = "acceptance"
    """What the weights of the best evaluation are chosen by; ``nothing`` trains to the last token and keeps the last ones."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between log lines and between checkpoints; 0 is every step."""

    log: float = 10.0
    checkpoint: float = 120.0


def rate_factor(done: float, warm_up: float, schedule: str) -> float:
    """Share of the full rate after the share ``done`` of the tokens: up in a line, then down to zero."""
    if done < warm_up:
        return done / warm_up
    left = max(0.0, (1.0 - done) / (1.0 - warm_up)) if warm_up < 1.0 else 0.0
    return left if schedule == "linear" else 0.5 * (1.0 - math.cos(math.pi * left))
