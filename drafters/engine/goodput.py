"""Draft lengths that maximise tokens a second, chosen before each round. Imports no torch.

Goodput as in TurboSpec (arXiv 2406.14066), spread over sequences and positions by survival as in DSpark (arXiv
2607.05147, algorithm 1): a row of the verify forward goes to whichever next position is likeliest to be accepted, as long
as the expected tokens a second rise with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drafters.engine.acceptance import Acceptance
from drafters.engine.costs import CostModel
from drafters.engine.lengths import Outcome, Rest
from drafters.engine.records import RoundRecord
from drafters.engine.sequence import RunningSequence

__all__ = ["Goodput"]

# How much longer a probe may be than one token, as a factor on its cost: a longer one tells more and may gain more.
PROBE_STRETCH = 1.25
# Unspent allowance for probes, in probes of the present cost.
PROBES_SAVED = 2.0
# Drafting for comparison alone must be as cheap as this share of a round.
LOOK_SHARE = 0.005
# Positions less likely than this are not even looked at: a row that is free gains nothing worth the search.
LEAST_SHARE = 0.01
RATE = 0.1


class Goodput:
    """A `LengthPolicy` that maximises expected tokens over expected time, for the sequences of one drafter.

    ``costs`` is shared by all policies of an engine; it must know ``drafter_name``. With ``tree`` a draft's nodes need
    not follow one another. ``prior`` is the acceptance of a token assumed before any was seen. Where nothing is drafted,
    up to ``probe_share`` of the time goes into short drafts that show whether that is still right.

    Only committed tokens and finished rounds enter, so sampled verification stays exact.
    """

    def __init__(
        self,
        costs: CostModel,
        drafter_name: str,
        tree: bool = False,
        prior: float = 0.7,
        probe_share: float = 0.02,
    ) -> None:
        if drafter_name not in costs.drafters:
            known = ", ".join(costs.drafters) or "none"
            raise ValueError(f"no costs of drafter {drafter_name!r}; measured: {known}")
        if not 0.0 < prior < 1.0 or not 0.0 <= probe_share < 1.0:
            raise ValueError(f"prior {prior} and probe_share {probe_share} given; allowed: within 0 to 1")
        self.costs = costs
        self.drafter_name = drafter_name
        self._prior = prior
        self._tree = tree
        self._probe_share = probe_share
        self._begin()

    def _begin(self) -> None:
        self._acceptance = Acceptance(self._prior, self._tree)
        self._unasked: dict[int, int] = {}  # rounds since a sequence was last asked about
        self._allowance_ns = 0.0
        self._probing: int | None = None
        self._probe_cost_ns = 0.0
        self._comparable = True  # until a draft shows that it is not
        self._looking = False
        self._ns_per_token = 0.0
        self._rest_tokens = 1.0  # a sequence and round, beside the policy's own
        self._rest_draft_ns = 0.0

    def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int], rest: Rest) -> list[int]:
        """Return the lengths with the largest expected goodput, and at times a probe where that is no draft."""
        verify, fixed_ns = self._verify(len(sequences), rest)
        tokens = len(sequences) + rest.sequences * self._rest_tokens
        lengths = self._spread(sequences, bounds, verify, fixed_ns, tokens)
        looking = self.costs.draft_ns(self.drafter_name, len(bounds), max(bounds, default=0))
        self._looking = self._comparable and looking <= LOOK_SHARE * verify(0.0)
        if not self._looking:
            self._probe(sequences, bounds, lengths, verify)
        return lengths

    def ask(self, lengths: Sequence[int], bounds: Sequence[int]) -> list[int]:
        """All that is allowed where that costs next to nothing: what is not verified still shows how good it was."""
        return list(bounds if self._looking else lengths)

    def observe(self, record: RoundRecord, outcomes: Sequence[Outcome], draft_ns: int) -> None:
        """Learn from a finished round."""
        self.costs.observe(record)
        others = record.batch_size - len(outcomes)
        if others > 0:
            accepted = record.num_accepted_tokens - sum(len(outcome.path) for outcome in outcomes)
            self._rest_tokens += RATE * (1 + accepted / others - self._rest_tokens)
            self._rest_draft_ns += RATE * (record.draft_ns - draft_ns - self._rest_draft_ns)
        if not outcomes:
            return
        # Told of short drafts too, the correction would take all for cheap.
        if not record.prefill_tokens and all(
            outcome.drafted + len(outcome.spare or ()) == outcome.asked for outcome in outcomes
        ):
            self.costs.observe_draft(self.drafter_name, [outcome.asked for outcome in outcomes], draft_ns)
        for outcome in outcomes:
            self._comparable = self._comparable and outcome.spare is not None
            if outcome.sequence.sequence_id == self._probing:
                self._pay(outcome)
            self._acceptance.learn(outcome)

    def release(self, sequence_id: int) -> None:
        """Forget a sequence; what it taught about the drafter stays."""
        self._acceptance.release(sequence_id)
        self._unasked.pop(sequence_id, None)

    def reset(self) -> None:
        """Forget everything learnt; the costs, which all policies share, are what was measured at start-up."""
        self.costs.reset()
        self._begin()

    def _verify(self, own: int, rest: Rest) -> tuple[Callable[[float], float], float]:
        """Time of the forward over the rows added by drafts, and of everything that no length changes."""
        batch, rows = own + rest.sequences, own + rest.rows
        forward = self.costs.forward_of(batch, rest.context_tokens)
        # Prompt rows are fed now or later, whatever is drafted: they change what a further row costs, not the base.
        filled = rows + rest.prompt_rows
        less = forward(filled) - forward(rows) if rest.prompt_rows else 0.0

        def verify(added: float) -> float:
            return forward(filled + added) - less

        fixed = self.costs.host_ns(batch) + self.costs.draft_ns(self.drafter_name, own, 0)
        return verify, fixed + (self._rest_draft_ns if rest.sequences else 0.0)

    def _spread(
        self,
        sequences: Sequence[RunningSequence],
        bounds: Sequence[int],
        verify: Callable[[float], float],
        fixed_ns: float,
        tokens: float,
    ) -> list[int]:
        """Give out positions by survival, and return the lengths at which goodput was largest."""
        places: list[tuple[float, int, int]] = []
        yields: list[list[float]] = []
        for index, (sequence, bound) in enumerate(zip(sequences, bounds, strict=True)):
            survival, found = self._acceptance.expected(sequence.sequence_id, bound)
            yields.append(found)
            for position, share in enumerate(survival):
                if share < LEAST_SHARE:
                    break
                places.append((-share, position, index))
        places.sort()
        plain_ns = verify(0.0)
        ns = plain_ns + fixed_ns
        self._ns_per_token = ns / tokens
        best, taken = tokens / ns, 0
        reaching = [0] * max(bounds, default=0)
        steps_ns = [0.0] * len(reaching)
        rows = draft_ns = 0.0
        nobody = 1.0  # chance that no sequence gets a draft
        for number, (negative, position, index) in enumerate(places):
            share, chance = -negative, yields[index][position]
            # No later place survives better, and none makes the round shorter: nothing beyond can win.
            if tokens + share * (len(places) - number) <= best * ns:
                break
            tokens += chance * share
            rows += chance
            if position == 0:
                nobody *= 1.0 - chance
            reaching[position] += 1
            step_ns = self._step_ns(reaching[position], position)
            draft_ns += step_ns - steps_ns[position]
            steps_ns[position] = step_ns
            some = max(1.0 - nobody, 1e-9)
            # Whether anything comes back decides between a plain forward and one with all those rows.
            ns = some * verify(rows / some) + nobody * plain_ns + fixed_ns + draft_ns
            if tokens > best * ns:
                best, taken = tokens / ns, number + 1
                self._ns_per_token = ns / tokens
        lengths = [0] * len(bounds)
        for _, _, index in places[:taken]:
            lengths[index] += 1
        return lengths

    def _step_ns(self, batch: int, position: int) -> float:
        return self.costs.draft_step_ns(self.drafter_name, batch, position + 1)

    def _probe(
        self,
        sequences: Sequence[RunningSequence],
        bounds: Sequence[int],
        lengths: list[int],
        verify: Callable[[float], float],
    ) -> None:
        """Lengthen the length that has been 0 for longest, if the allowance covers what that may cost."""
        self._probing = None
        idle: list[int] = []
        for index, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
            self._unasked[sequence.sequence_id] = 0 if length else self._unasked.get(sequence.sequence_id, 0) + 1
            if length == 0 < bounds[index]:
                idle.append(index)
        if not idle:
            return
        rows = sum(lengths)
        index = max(idle, key=lambda each: self._unasked[sequences[each].sequence_id])
        plain_ns = verify(rows)
        cost = least = verify(rows + 1) - plain_ns + self._drafting_ns(1)
        earned = self._probe_share * plain_ns * len(idle) / len(lengths)
        self._allowance_ns = min(self._allowance_ns + earned, max(PROBES_SAVED * PROBE_STRETCH * cost, earned))
        if cost > self._allowance_ns:
            return
        length = 1
        while length < bounds[index]:
            longer = verify(rows + length + 1) - plain_ns + self._drafting_ns(length + 1)
            if longer > min(PROBE_STRETCH * least, self._allowance_ns):
                break
            length, cost = length + 1, longer
        lengths[index] = length
        self._unasked[sequences[index].sequence_id] = 0
        self._probing = sequences[index].sequence_id
        self._probe_cost_ns = cost

    def _drafting_ns(self, length: int) -> float:
        return sum(self._step_ns(1, position) for position in range(length))

    def _pay(self, outcome: Outcome) -> None:
        """Charge a probe: an empty draft only for the search, accepted tokens against what they spared."""
        spared = len(outcome.path) * self._ns_per_token
        paid = self._probe_cost_ns - spared if outcome.drafted else self._drafting_ns(outcome.asked)
        self._allowance_ns -= max(0.0, paid)
