"""Tokens, passes and rounds out of one answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.engines.base import StreamFacts
from harness.engines.remote_reader import RemoteReader, place
from harness.records import Round, SpecCounters
from tests.engines.wire_server import wire


def read(chunks: list[dict[str, Any]], *, drafts: bool = True) -> StreamFacts:
    """Return what a reader makes of chunks that arrive at 10, 20, 30, …"""
    reader = RemoteReader(drafts=drafts)
    for number, chunk in enumerate(chunks, start=1):
        reader.chunk(10 * number, chunk)
    return reader.facts()


def chunk(tokens: int) -> dict[str, Any]:
    """A chunk that says how many tokens have come with it."""
    return {
        "choices": [{"index": 0, "delta": {"content": "x"}}],
        "usage": {"prompt_tokens": 5, "completion_tokens": tokens},
    }


def last(tokens: int, accepted: list[int] | None = None, *, drafted: int = 2) -> dict[str, Any]:
    """The chunk with the whole usage, and with rounds of so many accepted tokens."""
    told: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}}
    if accepted is not None:
        sums = {
            "num_spec_steps": len(accepted),
            "num_draft_tokens": drafted * len(accepted),
            "num_accepted_draft_tokens": sum(accepted),
        }
        steps = {"per_step_accepted": accepted, "per_step_drafted": [drafted] * len(accepted)}
        told["metrics"] = {"speculative_decoding": {**sums, **steps}}
    return told


def test_a_recorded_answer_of_vllm() -> None:
    """40 tokens in 32 passes after the prompt's: four of them drafted four tokens and accepted 4, 2, 0 and 1."""
    lines = [
        line.removeprefix(b"data: ") for line in wire("vllm-0.32.0-chat").splitlines() if line.startswith(b"data: {")
    ]
    facts = read([json.loads(line) for line in lines])
    assert (facts.prompt_tokens, facts.output_tokens, facts.decode_passes) == (53, 40, 32)
    assert facts.spec == SpecCounters(4, 16, 7, (3, 2, 1, 1))
    assert facts.spec_source == "round"
    assert [(item.num_draft_tokens, item.num_accepted_tokens) for item in facts.rounds or ()] == [
        (4, 4),
        (4, 2),
        (4, 0),
        (4, 1),
    ]


def test_rounds_stand_at_the_chunks_that_brought_their_tokens() -> None:
    """First token at 10, a round of 2 + 1 at 20, one pass without a draft at 30, a round of 1 + 1 at 40."""
    facts = read([chunk(1), chunk(4), chunk(5), chunk(7), last(7, [2, 1])])
    assert facts.rounds == (Round(20, 2, 2), Round(40, 2, 1))
    assert (facts.decode_passes, facts.spec_source) == (3, "round")


def test_what_the_end_of_the_answer_cut_off_is_no_riddle() -> None:
    """The last round accepted two tokens, of which the limit left one: 1 + 3 + 2 tokens in two passes, not in one."""
    facts = read([chunk(1), chunk(4), chunk(6), last(6, [2, 2])])
    assert (facts.decode_passes, facts.spec_source) == (2, "round")
    assert facts.spec == SpecCounters(2, 4, 4, None)


def test_chunks_that_a_loaded_server_joined_place_no_round() -> None:
    """Five tokens at once are no round of two drafted: the counts stand, the passes and times of rounds are unknown."""
    facts = read([chunk(1), chunk(6), last(6, [2, 1])])
    assert (facts.rounds, facts.spec_source, facts.decode_passes) == (None, "request", None)
    assert facts.spec == SpecCounters(2, 4, 3)


def test_passes_follow_from_the_sums_where_the_last_round_accepted_nothing() -> None:
    """1 + passes + 2 accepted = 6 tokens: three passes."""
    assert read([last(6, [2, 0])]).decode_passes == 3
    assert read([last(6, [0, 2])]).decode_passes is None


@pytest.mark.parametrize(
    ("steps", "so_far", "passes"),
    [
        ([(2, 0)], [1, 2, 3], 2),
        ([(2, 2), (2, 2)], [1, 4, 5], 2),
        ([], [1, 2, 3], 2),
        ([(2, 1)], [1], None),
        ([(2, 1)], [2, 4], None),
        ([(2, 2)], [1, 3, 5], None),
        ([(2, 2)], [1, 3, 6], None),
    ],
    ids=["rejected", "cut to one token", "never drafted", "no chunk", "first chunk of two", "too short", "left over"],
)
def test_rounds_are_placed_only_where_they_fit(
    steps: list[tuple[int, int]], so_far: list[int], passes: int | None
) -> None:
    """A chunk of a + 1 tokens is a round that accepted a; anything else says that chunks were joined or held back."""
    found = place(steps, list(enumerate(so_far)))
    assert (None if found is None else found[0]) == passes


def test_an_arm_without_a_drafter_makes_a_token_a_pass() -> None:
    """Seven tokens are the prompt's own and six passes; where the server may draft and does not tell, nobody knows."""
    assert read([last(7)], drafts=False) == StreamFacts(5, None, 7, 6)
    assert read([last(7)], drafts=True) == StreamFacts(5, None, 7, None)


def test_without_a_usage_nothing_is_known() -> None:
    """Chunks are no tokens."""
    assert read([{"choices": [{"index": 0, "delta": {"content": "ab"}}]}]) == StreamFacts()
