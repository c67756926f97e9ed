"""Acceptance by order."""

from __future__ import annotations

import pytest

from drafters.engine.runner import Runner
from drafters.engine.sequence import Request, RequestError
from drafters.synthetic import Synthetic
from tests.drafters.models import greedy, lean, prompt


def test_certain_acceptance_is_what_happens() -> None:
    """Two tokens always, the third never: rounds of three tokens, until the length cuts."""
    runner = Runner(lean("llama"), 100, {"it": Synthetic(3, (1.0, 1.0, 0.0))})
    sequence = runner.add(Request(tuple(prompt(1, 9)), 20, drafter="it"))
    while runner.busy:
        runner.step()
    assert [each.num_accepted_tokens for each in sequence.rounds[:6]] == [2] * 6
    assert sequence.num_output_tokens == 20
    assert sequence.output != greedy("llama", prompt(1, 9), 20)


def test_the_share_accepted_is_the_one_given() -> None:
    """At nine tenths a chain of one is accepted in about nine of ten rounds (200 rounds: within four deviations,
    0.085)."""
    runner = Runner(lean("llama"), 500, {"it": Synthetic(1, (0.9,), seed=3)})
    for number in range(2):
        runner.add(Request(tuple(prompt(number, 9)), 190, drafter="it"))
    while runner.busy:
        runner.step()
    counters = runner.counters
    assert counters.num_draft_tokens > 180
    assert abs(counters.num_accepted_tokens / counters.num_draft_tokens - 0.9) < 0.085


def test_stop_strings_are_refused_where_acceptance_is_made_up() -> None:
    """Its drafts repeat a token, which could complete a stop string; without a drafter the same request is taken."""
    runner = Runner(lean("llama"), 100, {"it": Synthetic(3, (1.0,))}, decode=lambda token_ids: "a" * len(token_ids))
    with pytest.raises(RequestError, match="given with drafter 'it', whose repeated tokens could make one up"):
        runner.add(Request((1,), 5, stop=("aa",), drafter="it"))
    assert not runner.busy
    runner.add(Request((1,), 5, stop=("aa",)))
