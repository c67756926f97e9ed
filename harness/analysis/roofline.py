"""What a round costs at least on hardware that is not at hand: reading weights and context, or the products, whichever takes longer.

T(n tokens, context) = max((weights + context · K/V bytes) / bandwidth, 2 · parameters · n / FLOP/s): Williams, Waterman and Patterson's
roofline (2009) for a dense model. Real engines need longer; so the speeds are upper limits, and the speed-ups those of a perfect engine.
For a mixture of experts, whose bytes grow with the tokens, it says too much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.analysis.costmodel import PURE, CostModel, Mixed
from harness.hardware import Hardware

Vector = NDArray[np.float64]
WEIGHTLESS = frozenset(
    {
        "prompt_lookup",
        "ngram",
        "ngram-simple",
        "ngram-map-k",
        "ngram-map-k4v",
        "ngram-mod",
        "ngram-cache",
        "ngram_gpu",
        "suffix",
    }
)
"""Methods that look drafts up: their time is the host's and does not follow the accelerator."""
MOST_TOKENS = 4096
GIGA, TERA = 1e9, 1e12


@dataclass(frozen=True, slots=True)
class Target:
    """The model that is to be served: bytes of its weights, parameters that a token goes through, K/V bytes of a token of context."""

    weight_bytes: float
    parameters: float
    kv_bytes_per_token: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """Costs of rounds on one kind of hardware, in the form of :class:`harness.analysis.costmodel.CostModel`.

    A drafter with weights keeps its share of a plain forward as it was measured, one that looks drafts up its time; the rest of a
    round is left out.
    """

    hardware: Hardware
    target: Target
    measured: CostModel
    methods: Mapping[str, str]

    @property
    def most_tokens(self) -> int:
        """Tokens of the largest round that is looked at."""
        return MOST_TOKENS

    def forward_ms(self, tokens: Vector, context: float) -> Vector:
        """Return the least time of a forward by its tokens; ``context`` is that of all requests. # [tokens]"""
        read = (self.target.weight_bytes + context * self.target.kv_bytes_per_token) / (
            self.hardware.bandwidth_gb_s * GIGA
        )
        products = 2 * self.target.parameters * tokens / (self.hardware.dense_tflops * TERA)
        return np.maximum(read, products) * 1e3

    def plain_parts_ms(self, batch: int, context: float, mixed: Mixed = PURE) -> tuple[float, float]:
        """Return (forward, rest) of a round without drafting of ``batch`` requests with ``context`` tokens each."""
        return self._mixed_ms(float(batch), batch * context, mixed), 0.0

    def parts_ms(
        self, arm: str, batch: int, context: float, lengths: Vector, mixed: Mixed = PURE
    ) -> tuple[float, float, float]:
        """Return (draft, verify, host) of a round; arguments as those of the measured model."""
        drafted = batch * float(np.arange(len(lengths)) @ lengths)
        verify = self._mixed_ms(batch + drafted, batch * context, mixed)
        draft, _, _ = self.measured.parts_ms(arm, batch, context, lengths)
        if self.methods.get(arm) not in WEIGHTLESS:
            there, here = self.plain_parts_ms(1, context)[0], self.measured.plain_parts_ms(1, context)[0]
            draft *= there / here
        return draft, verify, 0.0

    def _mixed_ms(self, tokens: float, context: float, mixed: Mixed) -> float:
        alone, beside = self.forward_ms(np.array([tokens, tokens + mixed.prompt_tokens]), context).tolist()
        return float((1 - mixed.share) * alone + mixed.share * beside)

    def fits(self, batch: int, context: float) -> bool:
        """Tell whether weights and the context of ``batch`` requests fit into the memory."""
        needed = self.target.weight_bytes + batch * context * self.target.kv_bytes_per_token
        return needed <= self.hardware.memory_gb * GIGA


def needed(hardware: Hardware, target: Target) -> int:
    """Return how many of these at least hold the weights; above 1, one alone has no speed."""
    return math.ceil(target.weight_bytes / (hardware.memory_gb * GIGA))


def single_tokens_per_s(hardware: Hardware, target: Target) -> float:
    """Return the upper limit of one request without drafting: every token reads all weights once."""
    return hardware.bandwidth_gb_s * GIGA / target.weight_bytes


def saturation_tokens(hardware: Hardware, target: Target) -> float:
    """Return the tokens of a round from which products take longer than reading the weights: from there drafting is paid in full."""
    return hardware.dense_tflops * TERA / (2 * target.parameters) / single_tokens_per_s(hardware, target)
