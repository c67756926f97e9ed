"""What the engine writes down of its rounds, and the counters summed from them. Imports no torch.

Times are integer nanoseconds of `time.monotonic_ns`. Names and meanings of the speculative counters are vLLM's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Counters", "RoundRecord", "SequenceRound"]


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One pass of the engine over all running sequences.

    ``round_index`` is the same in the `SequenceRound` of each of them; the number of a round that failed is left out.
    ``batch_size`` counts the sequences that decoded; ``prefill_tokens`` the prompt tokens fed in the same forward.
    ``context_tokens`` are the tokens whose K/V the decoding sequences had when the round began, summed.
    ``draft_ns`` covers all of the drafters' work, ``verify_ns`` the target's forward and the choice of tokens,
    ``host_ns`` the rest, which includes telling the world of the round before. ``forward_ns`` is the target's forward
    alone, a part of ``verify_ns``.
    """

    round_index: int
    t_ns: int
    batch_size: int
    prefill_tokens: int
    context_tokens: int
    num_draft_tokens: int
    num_accepted_tokens: int
    draft_ns: int
    verify_ns: int
    forward_ns: int
    host_ns: int


@dataclass(frozen=True, slots=True)
class SequenceRound:
    """One sequence's share of the round ``round_index``, at the time ``t_ns`` at which it was verified.

    ``num_tokens`` were kept after the stop rules: accepted + 1 unless cut.
    """

    round_index: int
    t_ns: int
    batch_size: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_tokens: int


@dataclass(slots=True)
class Counters:
    """Sums since the engine started.

    ``num_drafts`` counts sequence rounds in which at least one token was drafted; ``num_rounds`` all of them.
    ``accepted_per_position[i]`` counts those in which at least i + 1 tokens were accepted, ``acceptance_histogram[j]``
    those of ``num_drafts`` in which exactly j were. ``num_cut_tokens`` were decided by verification and dropped by a stop
    rule, so that ``generation_tokens`` = ``num_first_tokens`` + ``num_accepted_tokens`` + ``num_rounds`` -
    ``num_cut_tokens``.
    """

    num_rounds: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    acceptance_histogram: list[int] = field(default_factory=list)
    num_first_tokens: int = 0
    num_cut_tokens: int = 0
    generation_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0

    @property
    def acceptance_length(self) -> float | None:
        """Tokens that a round with a draft decides: 1 + accepted / drafts, as in vLLM; ``None`` before the first draft."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else None

    def count_round(self, drafted: int, accepted: int, kept: int) -> None:
        """Add one sequence's round."""
        self.num_rounds += 1
        if drafted > 0:
            self.num_drafts += 1
            self.acceptance_histogram.extend([0] * (accepted + 1 - len(self.acceptance_histogram)))
            self.acceptance_histogram[accepted] += 1
        self.num_draft_tokens += drafted
        self.num_accepted_tokens += accepted
        self.accepted_per_position.extend([0] * (accepted - len(self.accepted_per_position)))
        for position in range(accepted):
            self.accepted_per_position[position] += 1
        self.num_cut_tokens += accepted + 1 - kept
        self.generation_tokens += kept
