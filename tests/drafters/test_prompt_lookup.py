"""Drafts by copying."""

from __future__ import annotations

import pytest

from drafters.base import Commit, DraftRequest
from drafters.prompt_lookup import PromptLookup


def look_up(tokens: list[int], num_tokens: int = 3, min_ngram: int = 1, max_ngram: int = 3) -> tuple[int, ...]:
    """The draft after ``tokens`` for a fresh sequence."""
    drafter = PromptLookup(num_tokens, min_ngram, max_ngram)
    drafter.open(0, 100)
    return drafter.propose([DraftRequest(0, tokens, num_tokens)])[0].token_ids


@pytest.mark.parametrize(
    ("tokens", "draft"),
    [
        ([1, 2, 3, 4, 5, 1, 2], (3, 4, 5)),
        ([1, 2, 7, 1, 2, 8, 9, 1, 2], (8, 9, 1)),  # the latest occurrence
        ([5, 1, 2, 7, 8, 9, 1, 2, 3, 5, 1, 2], (7, 8, 9)),  # the longest match before the latest
        ([1, 2, 3], ()),
        ([4], ()),
        ([6, 6], (6, 6, 6)),
        ([1, 2, 1, 2], (1, 2, 1)),  # a copy that reaches the end goes on with itself
    ],
)
def test_what_followed_the_longest_latest_match_is_copied(tokens: list[int], draft: tuple[int, ...]) -> None:
    """Longest first, then latest; nothing where the suffix is new."""
    assert look_up(tokens) == draft


def test_a_match_shorter_than_the_minimum_does_not_count() -> None:
    """Only '2' is known from before, and two tokens are required."""
    assert look_up([1, 2, 9, 3, 2], min_ngram=2) == ()


def test_the_table_grows_with_the_sequence_and_is_its_own() -> None:
    """What another sequence said is not copied, what this one said since is."""
    drafter = PromptLookup(2, 1, 2)
    drafter.open(0, 100)
    drafter.open(1, 100)
    assert [d.token_ids for d in drafter.propose([DraftRequest(0, [1, 2], 2), DraftRequest(1, [7, 1], 2)])] == [(), ()]
    assert drafter.propose([DraftRequest(0, [1, 2, 3, 1], 2)])[0].token_ids == (2, 3)


def test_runs_reach_from_one_commit_into_the_next() -> None:
    """Committed as 1 2 3 and 4 5 1 2: after '1 2' came 3 4, and after '3 4', which no commit has whole, came 5 1."""
    drafter = PromptLookup(2, 2, 2)
    drafter.open(0, 100)
    drafter.commit([Commit(0, 0, (1, 2, 3))])
    drafter.commit([Commit(0, 3, (4, 5, 1, 2))])
    assert drafter.propose([DraftRequest(0, [1, 2, 3, 4, 5, 1, 2], 2)])[0].token_ids == (3, 4)
    assert drafter.propose([DraftRequest(0, [1, 2, 3, 4, 5, 1, 2, 3, 4], 2)])[0].token_ids == (5, 1)
