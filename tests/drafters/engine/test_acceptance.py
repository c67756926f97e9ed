"""What is learnt from outcomes: counts a reader makes in the head. Nothing here needs torch."""

from __future__ import annotations

import pytest

from drafters.engine.acceptance import Acceptance, Passing, falling
from drafters.engine.lengths import Outcome
from drafters.engine.sequence import Request, RunningSequence


def sequence(*token_ids: int) -> RunningSequence:
    """One with a prompt of one token that has said these."""
    made = RunningSequence(7, Request((1,), 100), 101)
    made.extend(token_ids)
    return made


def test_only_positions_that_were_reached_count() -> None:
    """Two of three accepted, then none of three: the first position passed once in two, the second once in one, the third
    not in one."""
    passing = Passing(memory=1.0)
    passing.count_run(2, 3)
    passing.count_run(0, 3)
    assert (passing.passed, passing.seen) == ([1, 1, 0], [2, 1, 1])
    assert passing.shares([0, 0, 0, 0.25], weight=0) == [0.5, 1, 0, 0.25]


def test_a_run_to_the_end_failed_nowhere() -> None:
    """Three of three: nothing is known of a fourth."""
    passing = Passing(memory=1.0)
    passing.count_run(3, 3)
    assert (passing.passed, passing.seen) == ([1, 1, 1], [1, 1, 1])


def test_what_is_older_counts_less() -> None:
    """Half the weight with each observation: a failure after a success leaves half of one in one and a half."""
    passing = Passing(memory=0.5)
    passing.count(0, True)
    passing.count(0, False)
    assert passing.shares([0.9], weight=0) == [pytest.approx(1 / 3)]


def test_little_is_drawn_to_what_was_thought_before() -> None:
    """One success, against a prior of a half that weighs three: 2.5 of 4. Later positions follow the one before them."""
    passing = Passing(memory=1.0)
    passing.count(0, True)
    assert passing.shares([0.5], weight=3) == [0.625]
    assert passing.chained(0.5, 3, 3) == [0.625] * 3


def test_values_in_the_wrong_order_are_evened_out() -> None:
    """Two and eight make five each; what falls stays."""
    assert falling([9, 2, 8, 1]) == [9, 5, 5, 1]
    assert falling([4, 3, 2]) == [4, 3, 2]
    assert falling([1, 2, 3]) == [2, 2, 2]


def test_what_was_not_verified_is_compared_with_the_text() -> None:
    """Nothing is verified of 5 6 7; the text says 5, then 6, then 9: two more positions passed, the third did not."""
    shown, blind = Acceptance(0.5), Acceptance(0.5)
    one = sequence(4)
    for number, token in enumerate((5, 6, 9)):
        one.extend([token])
        shown.learn(Outcome(one, 3, 0, (), (5, 6, 7)) if number == 0 else Outcome(one, 0, 0, ()))
        blind.learn(Outcome(one, 0, 0, ()))
    # The same as a draft of three of which two were accepted.
    same = Acceptance(0.5)
    same.learn(Outcome(one, 3, 3, (0, 1), None))
    verified, compared = same._accepted[0], shown._accepted[0]  # looked at from inside: states differ by now
    assert (compared.passed, compared.seen) == (verified.passed, verified.seen) == ([1, 1, 0], [1, 1, 1])
    assert not blind._accepted[0].seen


def test_after_a_draft_that_was_right_more_is_expected() -> None:
    """By the prior alone: a half at first and after a failure, three quarters after success to the end."""
    acceptance, one = Acceptance(0.5), sequence(4, 5, 6)
    assert acceptance.expected(7, 2)[0] == [0.5, 0.25]
    acceptance.learn(Outcome(one, 2, 2, (0, 1), None))
    assert acceptance.expected(7, 2)[0] == [0.75, 0.5625]
    acceptance.learn(Outcome(one, 2, 2, (), None))
    assert acceptance.expected(7, 1)[0] == [0.5]


def test_the_yield_is_what_the_drafter_finds() -> None:
    """Asked often for two it always finds one: the first is all but certain, the second all but excluded."""
    acceptance, one = Acceptance(0.5), sequence(4)
    for _ in range(200):
        acceptance.learn(Outcome(one, 2, 1, (), None))
    found = acceptance.expected(7, 2)[1]
    assert found[0] == pytest.approx(1.0)
    assert found[1] < 0.05


def test_a_released_sequence_starts_anew_and_what_it_taught_stays() -> None:
    """The drafter's share for a newcomer has moved; the sequence itself has no history."""
    acceptance, one = Acceptance(0.5), sequence(4)
    for _ in range(50):
        acceptance.learn(Outcome(one, 1, 1, (), None))
        acceptance.release(7)
    newcomer, known = acceptance.expected(8, 1)[0], acceptance.expected(7, 1)[0]
    assert newcomer == known
    assert newcomer[0] < 0.1
