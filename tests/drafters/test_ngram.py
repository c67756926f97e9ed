"""Drafts by counting."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafters.base import Commit, DraftRequest
from drafters.ngram import Ngram, read_corpus
from drafters.specs import SpecError


def follow(drafter: Ngram, tokens: list[int], num_tokens: int = 2) -> tuple[int, ...]:
    """The draft after ``tokens`` for a fresh sequence."""
    drafter.open(0, 100)
    return drafter.propose([DraftRequest(0, tokens, num_tokens)])[0].token_ids


def test_the_corpus_predicts_what_it_saw_most() -> None:
    """After 1 came 2 twice and 3 once; after 2 came 9."""
    assert follow(Ngram(2, order=2, corpus=[[1, 2, 9], [1, 3], [1, 2]]), [5, 1]) == (2, 9)


def test_longer_runs_come_first() -> None:
    """After 1 alone 2 is the most frequent, after 7, 1 it is 4."""
    assert follow(Ngram(1, order=3, corpus=[[7, 1, 4], [0, 1, 2], [6, 1, 2]]), [7, 1], 1) == (4,)


def test_the_sequences_own_counts_add_to_the_corpus() -> None:
    """The corpus saw 1 → 2 once; here 1 → 3 was said twice."""
    drafter = Ngram(1, order=2, corpus=[[1, 2]])
    assert follow(drafter, [1, 3, 1, 3, 1], 1) == (3,)
    drafter.release(0)
    assert follow(drafter, [1], 1) == (2,)


def test_both_together_can_beat_the_best_of_each() -> None:
    """Corpus: 2 three times, 4 twice. Here: 3 and then 4 two times each. Together 4 has four, 2 three."""
    corpus = [[1, 2]] * 3 + [[1, 4]] * 2
    assert follow(Ngram(1, order=2, corpus=corpus), [1, 4, 1, 4, 1, 3, 1, 3, 1], 1) == (4,)


def test_what_was_counted_with_its_commit_is_not_counted_again() -> None:
    """The corpus saw 1 → 2 twice, here 1 → 3 was said once: counted twice over, 3 would draw level and go first."""
    drafter = Ngram(1, order=2, corpus=[[1, 2], [1, 2]])
    drafter.open(0, 100)
    drafter.commit([Commit(0, 0, (1, 3))])
    drafter.commit([Commit(0, 2, (1,))])
    assert drafter.propose([DraftRequest(0, [1, 3, 1], 1)])[0].token_ids == (2,)
    assert drafter.propose([DraftRequest(0, [1, 3, 1, 3, 1, 3, 1], 1)])[0].token_ids == (3,)


def test_an_unsure_follower_ends_the_draft() -> None:
    """After 2 there are two followers of one count each: half is below the minimum of six tenths."""
    corpus = [[1, 2, 3], [1, 2, 4]]
    assert follow(Ngram(2, order=2, min_share=0.6, corpus=corpus), [1]) == (2,)
    assert len(follow(Ngram(2, order=2, min_share=0.5, corpus=corpus), [1])) == 2


def test_unknown_runs_draft_nothing() -> None:
    """Nothing was ever seen after 8."""
    assert follow(Ngram(2, order=3), [7, 8]) == ()


def test_a_corpus_is_read_with_its_line_in_every_error(tmp_path: Path) -> None:
    """Ids separated by spaces; a word and an id outside the vocabulary are named."""
    path = tmp_path / "corpus.txt"
    path.write_text("1 2 3\n4\n")
    assert read_corpus(path, 5) == [[1, 2, 3], [4]]
    with pytest.raises(SpecError, match=r"corpus.txt:2: token id 4; allowed: 0 to 3"):
        read_corpus(path, 4)
    path.write_text("1 two\n")
    with pytest.raises(SpecError, match=r"corpus.txt:1: .*'two'"):
        read_corpus(path, 4)
    with pytest.raises(SpecError, match="cannot be read"):
        read_corpus(tmp_path / "none.txt", 4)
