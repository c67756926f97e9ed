"""Which tokens EAGLE-3 can draft, when a checkpoint's are chosen anew, and what becomes of its head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from drafters.checkpoint import Checkpoint
from drafters.eagle3 import untrained
from drafters.specs import SpecError
from drafters.training.methods.draft_vocabulary import choose_vocabulary, drafted_ids
from drafters.training.methods.eagle3 import Eagle3Method, Eagle3Settings
from tests.drafters.training.tiny import VOCAB, tiny_target


def counts_of(**times: int) -> Tensor:
    """How often tokens were written: ``t5=3`` is token 5 three times."""
    counts = torch.zeros(VOCAB)
    for name, number in times.items():
        counts[int(name[1:])] = number
    return counts


def knowing(*ids: int) -> Checkpoint:
    """A trained head for these tokens: its row for token i is i everywhere."""
    settings = Eagle3Settings(draft_vocabulary=ids)
    made = Eagle3Method(tiny_target(), settings).checkpoint()
    rows = torch.tensor(ids, dtype=torch.float32).unsqueeze(1).expand(-1, 32)
    return Checkpoint(made.config, {**made.tensors, "lm_head.weight": rows})


def going_on(start: Checkpoint, counts: Tensor, **settings: Any) -> tuple[Checkpoint, str]:
    """What training begins with where such answers are given, and what is said."""
    made, said = Eagle3Settings(**settings).counted(counts, start)
    return Eagle3Method(tiny_target(), made, start).checkpoint(), said


def test_the_most_frequent_tokens_make_the_vocabulary() -> None:
    """Ids 1 and 3 occur most; of the two that occur once the lower one is taken."""
    counts = torch.tensor([1, 5, 0, 7, 1])
    assert choose_vocabulary(counts, 2) == (1, 3)
    assert choose_vocabulary(counts, 3) == (0, 1, 3)
    with pytest.raises(SpecError, match="'draft_vocab_size' is 6; allowed: 1 to 5"):
        choose_vocabulary(counts, 6)


def test_fresh_weights_take_it_by_size_and_say_what_is_outside() -> None:
    """Of ten tokens written, two are none of the two most frequent; without a size every token can be drafted."""
    counts = counts_of(t3=5, t9=3, t7=2)
    made, said = Eagle3Settings(draft_vocab_size=2).counted(counts, None)
    assert made.draft_vocabulary == (3, 9)
    assert said == "20.00% of the answers' tokens are outside the draft vocabulary of 2"
    made, said = Eagle3Settings().counted(counts, None)
    assert (made.draft_vocabulary, "every token can be drafted" in said) == (None, True)


def test_a_vocabulary_that_lacks_the_answers_tokens_is_chosen_anew() -> None:
    """Half of what is written is token 40, which the checkpoint never drafts: it takes the place of the one not written.
    The rows of the tokens that stay are the checkpoint's, the new one is the target's, and all else is as it was."""
    start = knowing(3, 5, 9)
    made, said = going_on(start, counts_of(t3=3, t9=2, t40=5))
    assert drafted_ids(made).tolist() == [3, 9, 40]
    head = made.tensors["lm_head.weight"]
    assert head[:2, 0].tolist() == [3.0, 9.0]
    assert torch.equal(head[2], tiny_target().head_weight[40])
    assert made.tensors["t2d"].nonzero().flatten().tolist() == [3, 9, 40]
    assert torch.equal(made.tensors["fc.weight"], start.tensors["fc.weight"])
    assert said.startswith(
        "50.00% of the answers' tokens are outside the checkpoint's draft vocabulary of 3: it is chosen"
    )
    assert "1 of 3 tokens with it" in said
    assert said.endswith("0.00% are outside")


@pytest.mark.parametrize(
    ("settings", "kept"),
    [({}, True), ({"vocabulary_gain": 0.0}, False), ({"draft_vocab_size": 2}, True), ({"vocabulary_gain": 1.0}, True)],
)
def test_a_vocabulary_that_serves_stays(settings: dict[str, Any], kept: bool) -> None:
    """One in a hundred tokens is another: below the bound of two in a hundred the head is not touched, with a bound of
    none it is; what is outside is said either way."""
    start = knowing(3, 5)
    made, said = going_on(start, counts_of(t3=99, t40=1), **settings)
    assert (drafted_ids(made).tolist() == [3, 5]) is kept
    assert said.startswith("1.00% of the answers' tokens are outside the checkpoint's draft vocabulary of 2")
    assert torch.equal(made.tensors["lm_head.weight"], start.tensors["lm_head.weight"]) is kept


def test_another_size_or_other_ids_are_what_was_asked_for() -> None:
    """Three tokens instead of two, or those that are named; the configuration says so."""
    counts = counts_of(t3=9, t5=2, t40=1)
    made, _ = going_on(knowing(3, 5), counts, draft_vocab_size=3)
    assert (drafted_ids(made).tolist(), made.config["draft_vocab_size"]) == ([3, 5, 40], 3)
    made, _ = going_on(knowing(3, 5), counts, draft_vocabulary=(5, 6))
    assert made.tensors["lm_head.weight"][0, 0] == 5.0
    assert torch.equal(made.tensors["lm_head.weight"][1], tiny_target().head_weight[6])
    again = Eagle3Method(tiny_target(), Eagle3Settings(draft_vocabulary=(5, 6)), made).checkpoint()
    assert torch.equal(again.tensors["lm_head.weight"], made.tensors["lm_head.weight"])


def test_a_checkpoint_of_the_whole_vocabulary_keeps_it() -> None:
    """Nothing is outside it, so nothing is counted."""
    start = untrained(tiny_target(), VOCAB)
    made, said = going_on(start, counts_of(t3=1))
    assert len(drafted_ids(made)) == VOCAB
    assert "every token can be drafted" in said
