"""How far drafts get, estimated from finished rounds. Imports no torch.

A round tells of position i only when everything before it was accepted, so what is counted are the steps: of those that
got to position i, how many passed it. Their product is the survival, whatever lengths were chosen meanwhile, as long as
these depend on the past alone. Steps are counted apart by what came of the sequence's draft before: after a draft that
was right to its end the next one mostly is too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from drafters.engine.lengths import Outcome
from drafters.engine.sequence import Status

__all__ = ["Acceptance", "Passing", "falling"]

# What came of a sequence's last draft: there was none yet, it failed at once (or none was found), it failed later, it was
# right as far as the text has come.
FIRST, FAILED, PARTLY, RIGHT = range(4)
# A request's own rounds are forgotten fast, because its text changes; the drafter's over all requests slowly.
OWN_MEMORY, OWN_WEIGHT = 0.90, 4.0
POOL_MEMORY, POOL_WEIGHT = 0.98, 2.0
# Of a draft that was not verified, one right token may be luck; two in a row are a run.
RUN = 2


class Passing:
    """Share of those at a position that pass it, position by position, the older the observation the less it counts.

    Each new observation of a position multiplies the weight of its earlier ones by ``memory``.
    """

    __slots__ = ("_memory", "passed", "seen")

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self.seen: list[float] = []
        self.passed: list[float] = []

    def count(self, position: int, passed: bool) -> None:
        """Add one observation."""
        if position >= len(self.seen):
            more = position + 1 - len(self.seen)
            self.seen.extend([0.0] * more)
            self.passed.extend([0.0] * more)
        self.seen[position] = self.seen[position] * self._memory + 1.0
        self.passed[position] = self.passed[position] * self._memory + passed

    def count_run(self, length: int, limit: int) -> None:
        """A run that got to ``length`` of at most ``limit``: it passed that many, and failed the next if there is one."""
        for position in range(min(length + 1, limit)):
            self.count(position, position < length)

    def shares(self, prior: Sequence[float], weight: float) -> list[float]:
        """Shares at the first ``len(prior)`` positions, drawn towards ``prior`` as if it had been seen ``weight``
        times."""
        known = len(self.seen)
        if not known:
            return list(prior)
        seen, passed = self.seen, self.passed
        return [
            (passed[i] + weight * before) / (seen[i] + weight) if i < known else before
            for i, before in enumerate(prior)
        ]

    def chained(self, first: float, weight: float, positions: int) -> list[float]:
        """Shares where a position's prior is the one before it: what passes early passes late, until seen otherwise."""
        made: list[float] = []
        known, before = len(self.seen), first
        for i in range(positions):
            if i < known:
                before = (self.passed[i] + weight * before) / (self.seen[i] + weight)
            made.append(before)
        return made


class _Spare:
    """The rest of a draft that was not verified, to be compared with the text as it comes."""

    __slots__ = ("position", "state", "token_ids")

    def __init__(self, token_ids: Sequence[int], position: int, state: int) -> None:
        self.token_ids = token_ids
        self.position = position
        self.state = state


class _Known:
    """What is known of one sequence."""

    __slots__ = ("accepted", "spares", "state")

    def __init__(self) -> None:
        self.accepted = tuple(Passing(OWN_MEMORY) for _ in range(4))
        self.state = FIRST
        self.spares: list[_Spare] = []


class Acceptance:
    """Survival and yield of one drafter's drafts, for each of its sequences.

    ``prior`` is the acceptance of a token assumed before any was seen. With ``tree`` a draft's nodes need not follow one
    another, and each is counted for itself.
    """

    def __init__(self, prior: float, tree: bool = False) -> None:
        self._tree = tree
        self._prior = (prior, prior, prior, (1.0 + prior) / 2)
        self._accepted = tuple(Passing(POOL_MEMORY) for _ in range(4))
        self._found = tuple(Passing(POOL_MEMORY) for _ in range(4))
        self._known: dict[int, _Known] = {}
        self._pools: dict[int, tuple[list[float], list[float]]] = {}  # by state, until something is learnt

    def expected(self, sequence_id: int, positions: int) -> tuple[list[float], list[float]]:
        """Two lists over the first ``positions``: survival, which is the chance that a token there is accepted given
        that the draft reaches so far, and the chance that the drafter finds so many tokens when asked for them."""
        known = self._known.get(sequence_id)
        state = FIRST if known is None else known.state
        pools = self._pools.get(state)
        if pools is None or len(pools[0]) < positions:
            shares = self._accepted[state].chained(self._prior[state], POOL_WEIGHT, positions)
            found = list(accumulate(self._found[state].chained(1.0, POOL_WEIGHT, positions), mul))
            pools = self._pools[state] = shares, found
        shares, found = pools[0][:positions], pools[1][:positions]
        if known is not None:
            shares = known.accepted[state].shares(shares, OWN_WEIGHT)
        return falling(shares) if self._tree else list(accumulate(shares, mul)), found

    def learn(self, outcome: Outcome) -> None:
        """Count a finished round of a sequence that asked for a draft, or still waits to see how an earlier one fares."""
        known = self._known.get(outcome.sequence.sequence_id)
        if known is None:
            if not outcome.asked:
                return
            known = self._known[outcome.sequence.sequence_id] = _Known()
        if known.spares:
            ended = outcome.sequence.status is Status.FINISHED  # perhaps cut: which tokens are new is not certain
            new = () if ended else outcome.sequence.token_ids[-len(outcome.path) - 1 :]
            known.spares = [spare for spare in known.spares if self._compare(known, spare, new)]
        if outcome.asked:
            self._pools.clear()
            self._count(known, outcome)

    def release(self, sequence_id: int) -> None:
        """Forget a sequence; what it taught about the drafter stays."""
        self._known.pop(sequence_id, None)

    def _count(self, known: _Known, outcome: Outcome) -> None:
        accepted, drafted, spare = len(outcome.path), outcome.drafted, outcome.spare or ()
        state = known.state
        self._found[state].count_run(drafted + len(spare), outcome.asked)
        if not drafted and not spare:
            known.state = FIRST if state == FIRST else FAILED
            return
        for counts in (self._accepted[state], known.accepted[state]):
            if self._tree:
                for node in range(drafted):
                    counts.count(node, node in outcome.path)
            else:
                counts.count_run(accepted, drafted)
        right = accepted
        if accepted == drafted and spare and outcome.sequence.status is not Status.FINISHED:
            waiting = _Spare(spare, drafted, state)
            if self._compare(known, waiting, outcome.sequence.token_ids[-1:]):
                known.spares.append(waiting)
                right += 1
            elif spare[0] == outcome.sequence.token_ids[-1]:  # the last of it
                right += 1
        if right < drafted + min(1, len(spare)):
            known.state = PARTLY if right else FAILED
        elif not spare or right >= RUN or len(known.spares) >= RUN:
            known.state = RIGHT
        else:
            known.state = PARTLY

    def _compare(self, known: _Known, spare: _Spare, new: Sequence[int]) -> bool:
        """Hold a spare against the tokens that came; False when nothing is left to wait for."""
        for token in new:
            passed = token == spare.token_ids[0]
            self._accepted[spare.state].count(spare.position, passed)
            known.accepted[spare.state].count(spare.position, passed)
            spare.token_ids = spare.token_ids[1:]
            spare.position += 1
            if not passed or not spare.token_ids:
                return False
        return bool(new)


def falling(values: Sequence[float]) -> list[float]:
    """The nearest values that never rise: neighbours in the wrong order are replaced by their mean."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        total, size = value, 1
        while blocks and blocks[-1][0] * size < total * blocks[-1][1]:
            total, size = total + blocks[-1][0], size + blocks[-1][1]
            blocks.pop()
        blocks.append((total, size))
    return [total / size for total, size in blocks for _ in range(size)]
