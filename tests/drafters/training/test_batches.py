"""Drawing, bucketing and padding of training examples."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from drafters.training.batches import Sampler, batch_of, cropped, group_of, parse_mix, rows_of
from drafters.training.chain_counts import ahead, chain_counts
from drafters.training.examples import Example
from drafters.training.stage import StageError
from tests.drafters.training.tiny import tiny_target


def example(name: str, length: int = 10, language: str = "ko", answer: tuple[int, int] | None = None) -> Example:
    """Tokens 1, 2, 3 …; the last five are the answer unless told."""
    return Example(name, language, "office", "train", tuple(range(1, length + 1)), (answer or (length - 5, length),))


def test_answer_tokens_come_in_the_shares_of_the_mix() -> None:
    """Three quarters Korean, one quarter English, with Korean code counted as Korean; plain code is never drawn."""
    examples = [
        example("a"),
        example("b", language="ko+code"),
        example("c", language="en"),
        example("d", language="code"),
    ]
    sampler = Sampler(examples, {"ko": 0.75, "en": 0.25}, 1)
    drawn = Counter(group_of(sampler.draw().language) for _ in range(40))
    assert drawn == {"ko": 30, "en": 10}
    assert sampler.drawn == {"ko": 150, "en": 50}


def test_without_a_mix_all_examples_come_once_before_any_comes_again() -> None:
    """Six examples of two groups: six draws give each once."""
    examples = [example(name, language=language) for name, language in zip("abcdef", ["ko", "en"] * 3, strict=True)]
    sampler = Sampler(examples, None, 4)
    assert sorted(sampler.draw().id for _ in range(6)) == list("abcdef")


def test_the_mix_is_of_what_is_learnt_from() -> None:
    """Where two places of a sequence are learnt from at most, answers of nine and of three tokens are worth the same, and
    come as often; where all are, the long ones come a third as often. As they come means once each either way."""
    examples = [example("a", answer=(1, 10)), example("b", language="en", answer=(7, 10))]
    for most, wanted in ((2, {"ko": 20, "en": 20}), (None, {"ko": 10, "en": 30})):
        sampler = Sampler(examples, {"ko": 0.5, "en": 0.5}, 1, most)
        assert Counter(sampler.draw().language for _ in range(40)) == wanted
        assert len(set(sampler.learnt.values())) == 1
        as_they_come = Sampler(examples, None, 1, most)
        assert {as_they_come.draw().id for _ in range(2)} == {"a", "b"}
    assert sampler.drawn == {"ko": 90, "en": 90}


def test_an_answer_of_one_token_does_not_hold_up_the_mix() -> None:
    """Nothing can be learnt from it, yet it counts as drawn: English comes as often."""
    sampler = Sampler([example("a", answer=(9, 10)), example("b", language="en", answer=(7, 10))], None, 1, 2)
    assert Counter(sampler.draw().language for _ in range(30)) == {"ko": 15, "en": 15}


def test_the_order_depends_on_the_seed_and_goes_on_from_a_state() -> None:
    """One seed, one order; a sampler set to another's state draws what that draws next."""
    examples = [example(str(number)) for number in range(7)]
    orders = [
        [sampler.draw().id for _ in range(20)] for sampler in (Sampler(examples, None, seed) for seed in (1, 1, 2))
    ]
    assert orders[0] == orders[1] != orders[2]
    first, second = Sampler(examples, None, 1), Sampler(examples, None, 1)
    drawn = [first.draw().id for _ in range(10)]
    second.restore(first.state())
    assert drawn == orders[0][:10]
    assert [second.draw().id for _ in range(10)] == orders[0][10:]


def test_a_group_without_examples_is_refused() -> None:
    """English is asked for and all is Korean."""
    with pytest.raises(StageError, match=r"no training example of en; there are some of ko\."):
        Sampler([example("a")], {"en": 1.0, "ko": 1.0}, 1)


@pytest.mark.parametrize("text", ["ko", "ko=x", "fr=1", "ko=1,ko=1", "ko=-1", "ko=nan", "ko=0", ""])
def test_a_mix_that_is_none_is_refused(text: str) -> None:
    """No number, no known group, a group twice, a share below zero, no share at all."""
    with pytest.raises(StageError, match="--mix"):
        parse_mix(text)


def test_like_lengths_share_a_part_within_its_tokens() -> None:
    """Of 20 tokens a part: 10 + 9 fill one padded to ten; three of 6 another; 21 stand alone."""
    examples = [example(name, length) for name, length in zip("abcdef", (6, 10, 21, 9, 6, 6), strict=True)]
    assert [[one.id for one in part] for part in rows_of(examples, 20)] == [["c"], ["b", "d"], ["a", "e", "f"]]


def test_a_long_example_keeps_its_beginning_and_the_answers_in_it() -> None:
    """Cut at 8: an answer from 5 ends there, one from 8 on is gone and with it its example."""
    kept, cut, dropped = cropped([example("a"), example("b", 20), example("c", 8)], 8)
    assert [(one.id, len(one.token_ids), one.answers) for one in kept] == [("a", 8, ((5, 8),)), ("c", 8, ((3, 8),))]
    assert (cut, dropped) == (2, 1)


def test_a_batch_is_padded_on_the_right_and_holds_the_targets_states() -> None:
    """Two rows of five and three tokens; a row's states are those it has alone."""
    target = tiny_target()
    rows = [example("a", 5, answer=(3, 5)), example("b", 3, answer=(1, 3))]
    batch = batch_of(rows, target, (1,))
    assert batch.token_ids.tolist() == [[1, 2, 3, 4, 5], [1, 2, 3, 0, 0]]
    assert batch.answers.tolist() == [[False, False, False, True, True], [False, True, True, False, False]]
    alone = target.hidden_states(torch.tensor([[1, 2, 3]]), [3], [1, 2])[0]
    assert torch.allclose(batch.features[1, :3, 0], alone[:, 0], atol=1e-5)  # float32 sums in another order
    assert torch.allclose(batch.hidden[1, :3], alone[:, 1], atol=1e-5)


def test_a_chain_counts_as_far_as_it_is_tried_and_right() -> None:
    """One place right twice then wrong, one wrong at once, one that ends after two tokens, both right."""
    right = torch.tensor([[True, True, False], [False, True, True], [True, True, True]])
    tried = torch.tensor([[True, True, True], [True, True, True], [True, True, False]])
    drafted, accepted = chain_counts(right, tried)
    assert (drafted.tolist(), accepted.tolist()) == ([3, 3, 2], [2, 2, 0])
    assert ahead(torch.tensor([[True, False, True]]), 2).tolist() == [[True, False, False]]
