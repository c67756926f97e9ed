"""Counts and rounds out of llama.cpp's stream: recorded answers, and running sums small enough to check in the head."""

import json
from pathlib import Path

import pytest

from harness.engines.base import StreamFacts
from harness.engines.llamacpp_reader import LlamaCppReader, RoundTracker
from harness.records import SpecCounters

FIXTURES = Path(__file__).parents[1] / "fixtures"


def read(name: str, *, drafts: bool, longest_draft: int | None = None) -> StreamFacts:
    """Feed a recorded stream to a reader; chunk number n arrives at n nanoseconds."""
    reader = LlamaCppReader(drafts=drafts, longest_draft=longest_draft)
    lines = (FIXTURES / name).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(line for line in lines if line.startswith("data: {")):
        reader.chunk(number, json.loads(line.removeprefix("data: ")))
    return reader.facts()


def test_two_rounds_of_an_ngram_answer() -> None:
    """4 tokens without a draft, a round of 8 of 8, a round of 2 of 8: 17 = 1 + 10 accepted + 6 passes."""
    facts = read("llamacpp_b11549_ngrammod_chat_stream_timings_per_token.sse", drafts=True)
    assert (facts.prompt_tokens, facts.cached_tokens, facts.output_tokens) == (56, 55, 17)
    assert facts.decode_passes == 6
    assert facts.spec == SpecCounters(2, 16, 10, (2, 2, 1, 1, 1, 1, 1, 1))
    assert facts.spec_source == "round"
    assert facts.rounds is not None
    assert [(item.t_ns, item.num_draft_tokens, item.num_accepted_tokens) for item in facts.rounds] == [
        (6, 8, 8),
        (15, 8, 2),
    ]


def test_the_last_round_may_stand_only_in_the_last_chunk() -> None:
    """Three rounds of 4 of 4 and one of 0 of 4 that yields the end of the sequence, which no chunk of its own carries."""
    facts = read("llamacpp_b11549_selfdraft_chat_stream_timings_per_token.sse", drafts=True, longest_draft=4)
    assert facts.spec == SpecCounters(4, 16, 12, (3, 3, 3, 3))
    assert facts.decode_passes == 4


def test_an_answer_without_a_drafter() -> None:
    """A baseline answer of 17 tokens took 16 passes after the prompt, and its acceptance is unknown rather than 0."""
    facts = read("llamacpp_b11549_nospec_chat_stream.sse", drafts=False)
    assert (facts.output_tokens, facts.decode_passes, facts.spec, facts.spec_source) == (17, 16, None, None)


def test_a_stop_text_inside_an_accepted_run_drops_the_rest_of_it() -> None:
    """2 plain tokens, a round of 8 of 8 and one cut after 3 of its 9 tokens: 14 tokens, 16 accepted, yet 3 passes, not -3."""
    facts = read("llamacpp_b11549_ngrammapk_chat_stream_timings_per_token_stop.sse", drafts=True, longest_draft=8)
    assert (facts.output_tokens, facts.decode_passes) == (14, 3)
    assert facts.spec == SpecCounters(2, 16, 16, (2, 2, 2, 2, 2, 2, 2, 2))


def test_syllables_of_three_tokens_hide_rounds() -> None:
    """One chunk a Hangul syllable: totals and passes are exact (64 = 1 + 54 + 9), single rounds are not told."""
    facts = read("llamacpp_b11549_ngrammapk_chat_stream_timings_per_token_ko.sse", drafts=True, longest_draft=8)
    assert facts.spec == SpecCounters(None, 62, 54, None)
    assert (facts.spec_source, facts.rounds, facts.decode_passes) == ("request", None, 9)


def test_nothing_drafted_is_zero_not_unknown() -> None:
    """An arm with a drafter whose answer carries no draft_n drafted nothing."""
    reader = LlamaCppReader(drafts=True, longest_draft=8)
    reader.chunk(0, {"choices": [{"delta": {}, "finish_reason": "stop"}]})
    reader.chunk(
        1, {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}, "timings": {"predicted_n": 3}}
    )
    facts = reader.facts()
    assert facts.spec == SpecCounters(0, 0, 0, ())
    assert facts.decode_passes == 2
    assert facts.cached_tokens is None


def test_a_stream_that_broke_off_tells_nothing() -> None:
    """Without the usage of the last chunk every fact is unknown."""
    reader = LlamaCppReader(drafts=True, longest_draft=8)
    reader.chunk(0, {"choices": [{"delta": {"content": "a"}}], "timings": {"predicted_n": 1}})
    assert reader.facts() == StreamFacts()


def rounds(longest_draft: int | None, *sums: tuple[int, int, int]) -> list[tuple[int, int]] | None:
    """Return the (drafted, accepted) rounds that a tracker finds in (predicted, drafted, accepted) sums."""
    tracker = RoundTracker(longest_draft)
    for predicted, drafted, accepted in sums:
        tracker.advance(0, predicted, drafted, accepted)
    return (
        None
        if tracker.rounds is None
        else [(item.num_draft_tokens, item.num_accepted_tokens) for item in tracker.rounds]
    )


@pytest.mark.parametrize(
    ("longest_draft", "sums", "found"),
    [
        # one token a chunk: each growth is one round
        (None, [(1, 0, 0), (2, 4, 1), (3, 4, 1), (4, 8, 1)], [(4, 1), (4, 0)]),
        # two tokens in one chunk could be two rounds of (4, 0) …
        (8, [(1, 0, 0), (3, 8, 0)], None),
        # … but not where 8 of 8 were accepted: a first round could accept none, the second at most 7
        (8, [(1, 0, 0), (3, 8, 8)], [(8, 8)]),
        # three tokens leave room for (1, 1) and (7, 7)
        (8, [(1, 0, 0), (4, 8, 8)], None),
        # a single drafted token is a single round however many tokens came
        (8, [(3, 0, 0), (9, 1, 0)], [(1, 0)]),
        # more than the longest draft is more than one round
        (4, [(1, 0, 0), (2, 8, 3)], None),
        # the run of a known round reaches to token 10, so only token 11 can begin the next one
        (8, [(1, 0, 0), (2, 8, 8), (5, 8, 8), (8, 8, 8), (11, 16, 8)], [(8, 8), (8, 0)]),
    ],
)  # fmt: skip
def test_only_provable_rounds_are_told(
    longest_draft: int | None, sums: list[tuple[int, int, int]], found: list[tuple[int, int]] | None
) -> None:
    """A growth of the sums is a round only where no two rounds could have made it."""
    assert rounds(longest_draft, *sums) == found


def test_dropped_tokens_are_unknown_where_the_last_round_cannot_be_placed() -> None:
    """A round of 4 of 4 that began at token 2 or 3 leaves 3 or 4 tokens out of an answer that ends at token 3."""
    tracker = RoundTracker(4)
    tracker.advance(0, 1, 0, 0)
    tracker.advance(0, 3, 4, 4)
    assert tracker.tokens_dropped() is None
