"""What is summed over the rounds; nothing here needs torch."""

from __future__ import annotations

from drafters.engine.records import Counters


def test_rounds_are_counted_by_how_many_tokens_were_accepted() -> None:
    """Three rounds with four drafted tokens: all accepted, one and one; a round without a draft is in no histogram."""
    counters = Counters()
    for drafted, accepted in ((4, 4), (4, 1), (0, 0), (4, 1)):
        counters.count_round(drafted, accepted, accepted + 1)
    assert counters.acceptance_histogram == [0, 2, 0, 0, 1]
    assert counters.accepted_per_position == [3, 1, 1, 1]
    assert (counters.num_rounds, counters.num_drafts) == (4, 3)


def test_acceptance_length_counts_rounds_with_a_draft_alone() -> None:
    """Three tokens accepted in two drafts make 2.5 tokens a round; a round without a draft changes nothing."""
    counters = Counters()
    counters.count_round(0, 0, 1)
    assert counters.acceptance_length is None
    counters.count_round(2, 2, 3)
    counters.count_round(2, 1, 2)
    assert counters.acceptance_length == 2.5
    assert counters.acceptance_histogram == [0, 1, 1]


def test_what_a_stop_rule_cuts_was_accepted_all_the_same() -> None:
    """Of three accepted tokens and one more, two were kept: two are cut, and the histogram says three."""
    counters = Counters()
    counters.count_round(3, 3, 2)
    assert counters.acceptance_histogram == [0, 0, 0, 1]
    assert (counters.num_cut_tokens, counters.generation_tokens) == (2, 2)
