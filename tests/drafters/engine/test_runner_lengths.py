"""Who decides how much is drafted, what policies are told, and what they forget."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from drafters.base import Draft, Drafter, DraftRequest
from drafters.engine.costs import CostModel
from drafters.engine.goodput import Goodput
from drafters.engine.lengths import FullLength, Outcome, Rest
from drafters.engine.records import RoundRecord
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request, RunningSequence
from drafters.synthetic import Synthetic
from tests.drafters.engine.rounds import PROMPTS, oracle, run
from tests.drafters.models import greedy, lean
from tests.drafters.rows import Oracle


class Noting(FullLength):
    """Chooses one length for all, and writes down what it is told."""

    def __init__(self, length: int, asked: int | None = None) -> None:
        self.length = length
        self.asked = asked
        self.rests: list[Rest] = []
        self.outcomes: list[Outcome] = []
        self.draft_ns: list[int] = []
        self.released: list[int] = []

    def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int], rest: Rest) -> list[int]:
        """The same for all, within their bounds."""
        self.rests.append(rest)
        return [min(self.length, bound) for bound in bounds]

    def ask(self, lengths: Sequence[int], bounds: Sequence[int]) -> list[int]:
        """More than is verified, if so told."""
        return [min(self.asked or length, bound) for length, bound in zip(lengths, bounds, strict=True)]

    def observe(self, record: RoundRecord, outcomes: Sequence[Outcome], draft_ns: int) -> None:
        """Write it down."""
        self.outcomes += outcomes
        self.draft_ns.append(draft_ns)

    def release(self, sequence_id: int) -> None:
        """Write it down."""
        self.released.append(sequence_id)


def test_each_request_has_its_own_length() -> None:
    """Side by side: none, two and the drafter's five, each cut to what is left to say."""
    runner = Runner(lean("llama"), 200, {"it": Synthetic(5, (0.0,))})
    texts = [runner.add(Request(tuple(PROMPTS[0]), 8, drafter="it", num_draft_tokens=k)) for k in (0, 2, None)]
    run(runner)
    assert [each.num_draft_tokens for each in texts[0].rounds] == [0, 0, 0, 0, 0, 0, 0]
    assert [each.num_draft_tokens for each in texts[1].rounds] == [2, 2, 2, 2, 2, 1, 0]
    assert [each.num_draft_tokens for each in texts[2].rounds] == [5, 5, 4, 3, 2, 1, 0]


def test_each_drafter_has_its_own_policy_and_sees_the_others_rows() -> None:
    """One of a hundred, one of two, a fixed one of three and one without a drafter, in one round: each group is told what
    the others bring, those before it with the rows they have chosen."""
    drafters: dict[str, Drafter] = {name: Synthetic(5, (0.0,)) for name in ("first", "second", "fixed")}
    first, second = Noting(1), Noting(2)
    runner = Runner(lean("llama"), 400, drafters, lengths={"first": first, "second": second})
    asked = [("first", None), ("second", None), ("second", 1), ("fixed", 3), (None, None)]
    running = [runner.add(Request(tuple(PROMPTS[0]), 8, drafter=name, num_draft_tokens=k)) for name, k in asked]
    while not all(sequence.rounds for sequence in running):
        runner.step()
    assert [sequence.rounds[0].num_draft_tokens for sequence in running] == [1, 2, 1, 3, 0]
    context = 5 * len(PROMPTS[0])
    # Beside the first: two rows of the second group, four of the fixed one and one; beside the second: two, four and one.
    assert first.rests[-1] == Rest(4, 7, 0, context)
    assert second.rests[-1] == Rest(3, 7, 0, context)
    run(runner)
    assert (first.released, sorted(second.released)) == ([0], [1, 2])
    assert {outcome.sequence.sequence_id for outcome in first.outcomes} == {0}
    assert {outcome.sequence.sequence_id for outcome in second.outcomes} == {1, 2}
    assert all(ns > 0 for ns in first.draft_ns[1:3])


def test_what_is_asked_beyond_the_length_is_shown_and_not_verified() -> None:
    """Of four right tokens one is verified; the other three come back, and they are what the text goes on with."""
    right = [*PROMPTS[0], *greedy("llama", PROMPTS[0], 20)]

    class Knowing(Oracle):
        def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
            return [Draft(tuple(self._following(request)[: request.num_tokens])) for request in requests]

    noting = Noting(1, asked=4)
    runner = Runner(lean("llama"), 200, {"it": Knowing([right], 4, tree=False)}, lengths={"it": noting})
    sequence = runner.add(Request(tuple(PROMPTS[0]), 20, drafter="it"))
    run(runner)
    assert sequence.token_ids == right
    assert {each.num_draft_tokens for each in sequence.rounds} == {0, 1}
    assert [len(outcome.spare or ()) for outcome in noting.outcomes[:4]] == [3, 3, 3, 3]
    assert noting.outcomes[0].spare == tuple(right[len(PROMPTS[0]) + 2 :][:3])
    assert {(outcome.asked, outcome.drafted, outcome.path) for outcome in noting.outcomes[:4]} == {(4, 1, (0,))}


def test_drafts_that_the_text_cannot_judge_are_not_shown() -> None:
    """Trees and made-up acceptance: nothing comes back, and only what was verified counts as asked for."""
    for drafter in (oracle(6, tree=True), Synthetic(6, (1.0,))):
        noting = Noting(2, asked=6)
        runner = Runner(lean("llama"), 200, {"it": drafter}, lengths={"it": noting})
        runner.add(Request(tuple(PROMPTS[0]), 8, drafter="it"))
        run(runner)
        assert {(outcome.asked, outcome.spare) for outcome in noting.outcomes[:2]} == {(2, None)}


@pytest.mark.parametrize(("length", "asked", "said"), [(9, None, "chose"), (2, 1, "asks for")])
def test_a_policy_out_of_bounds_is_told_so(length: int, asked: int | None, said: str) -> None:
    """Nine where five are allowed, or one asked for where two are to be verified."""

    class Careless(Noting):
        def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int], rest: Rest) -> list[int]:
            return [self.length for _ in bounds]

    runner = Runner(lean("llama"), 100, {"it": Synthetic(5, (1.0,))}, lengths={"it": Careless(length, asked)})
    runner.add(Request((1,), 20, drafter="it"))
    with pytest.raises(ValueError, match=f"policy of 'it' {said}"):
        run(runner)


def controlled(costs: CostModel) -> Runner:
    """An engine whose one drafter, right about half of the time, is under a controller with these costs."""
    return Runner(lean("llama"), 300, {"it": oracle()}, lengths={"it": Goodput(costs, "it")})


def table() -> CostModel:
    """Drafts and further rows are all but free."""
    return CostModel({(1, 1): 1e6, (1, 5): 1.01e6}, {"it": {(1, 0): 1.0, (1, 4): 4.0}})


def test_the_last_round_is_learnt_and_then_the_sequence_forgotten() -> None:
    """Of sequences that have ended a policy knows nothing more, and hears of each only while it does know it."""

    class Ordered(Noting):
        def observe(self, record: RoundRecord, outcomes: Sequence[Outcome], draft_ns: int) -> None:
            assert not {outcome.sequence.sequence_id for outcome in outcomes} & set(self.released)
            super().observe(record, outcomes, draft_ns)

    noting = Ordered(2)
    runner = Runner(lean("llama"), 300, {"it": oracle()}, lengths={"it": noting})
    running = [runner.add(Request(tuple(text), 9, drafter="it")) for text in PROMPTS]
    run(runner)
    assert sorted(noting.released) == [0, 1, 2]
    assert len(noting.outcomes) == sum(len(sequence.rounds) for sequence in running)

    runner = controlled(table())
    policy = runner.lengths["it"]
    assert isinstance(policy, Goodput)
    running = [runner.add(Request(tuple(text), most, drafter="it")) for text in PROMPTS for most in range(5, 15)]
    run(runner)
    # Some end with a draft: their last round has one to learn from.
    assert any(sequence.rounds[-1].num_draft_tokens for sequence in running)
    assert not policy._acceptance._known  # looked at from inside: nothing outside shows what is left behind


def test_after_a_reset_drafting_begins_as_at_the_start() -> None:
    """What rounds have taught is gone, also of a sequence that still runs, and its text is the target's."""
    costs = table()
    runner = controlled(costs)
    policy, fresh = runner.lengths["it"], Goodput(table(), "it")
    assert isinstance(policy, Goodput)
    start = costs.to_json()
    sequence = runner.add(Request(tuple(PROMPTS[0]), 20, drafter="it"))
    for _ in range(4):
        runner.step()
    assert policy._acceptance.expected(9, 4) != fresh._acceptance.expected(9, 4)
    assert costs.to_json() != start
    runner.reset_drafting()
    assert policy._acceptance.expected(9, 4) == fresh._acceptance.expected(9, 4)
    assert policy._acceptance.expected(0, 4) == fresh._acceptance.expected(0, 4)
    assert costs.to_json() == start
    run(runner)
    assert sequence.output == greedy("llama", PROMPTS[0], 20)


def test_every_policy_is_reset() -> None:
    """Two policies and a drafter without one: each policy is told, once."""

    class Counting(FullLength):
        resets = 0

        def reset(self) -> None:
            self.resets += 1

    drafters: dict[str, Drafter] = {name: oracle() for name in ("first", "second", "fixed")}
    first, second = Counting(), Counting()
    runner = Runner(lean("llama"), 300, drafters, lengths={"first": first, "second": second})
    runner.reset_drafting()
    assert (first.resets, second.resets) == (1, 1)
