"""A sequence and the rules that end it; nothing here needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from drafters.engine.sequence import Request, RequestError, RunningSequence, Status


def letters(token_ids: Sequence[int]) -> str:
    """Token 0 is a, token 1 is b, …"""
    return "".join(chr(ord("a") + token_id) for token_id in token_ids)


def running(**rules: Any) -> RunningSequence:
    """A sequence with the prompt 'xy' and ten tokens to go, unless told otherwise."""
    return RunningSequence(0, Request((23, 24), **({"max_tokens": 10} | rules)), 12, letters)


def test_an_end_token_inside_an_accepted_run_cuts_the_rest() -> None:
    """Of five decided tokens the third ends the text: three kept, two cut."""
    sequence = running(stop_token_ids=frozenset({9}))
    assert sequence.extend([1, 2, 9, 3, 4]) == 3
    assert (sequence.output, sequence.num_cut_tokens, sequence.finish_reason) == ([1, 2, 9], 2, "stop")


def test_the_length_cuts_exactly() -> None:
    """Four tokens allowed, three said, three more decided: one is kept."""
    sequence = running(max_tokens=4)
    assert sequence.extend([1, 2, 3]) == 3
    assert sequence.status is not Status.FINISHED
    assert sequence.extend([4, 5, 6]) == 1
    assert (sequence.output, sequence.num_cut_tokens, sequence.finish_reason) == ([1, 2, 3, 4], 2, "length")


def test_a_stop_string_may_begin_in_an_earlier_round() -> None:
    """'cde' begins with the last token of one round and ends with the second of the next."""
    sequence = running(stop=("zz", "cde"))
    assert sequence.extend([0, 1, 2]) == 3
    assert sequence.extend([3, 4, 5]) == 2
    assert (letters(sequence.output), sequence.matched_stop, sequence.finish_reason) == ("abcde", "cde", "stop")


def test_a_stop_string_reaches_across_tokens_without_text() -> None:
    """Token 99 shows nothing: 'ab' with fifty of them between its letters, after thirty other letters, ends the text."""

    def passed_over(token_ids: Sequence[int]) -> str:
        return letters([token_id for token_id in token_ids if token_id != 99])

    sequence = RunningSequence(0, Request((23, 24), 100, stop=("ab",)), 102, passed_over)
    assert sequence.extend([2] * 30 + [0] + [99] * 50) == 81
    assert sequence.extend([1, 1]) == 1
    assert (sequence.matched_stop, sequence.num_output_tokens) == ("ab", 82)


def test_a_stop_string_in_the_prompt_does_not_count() -> None:
    """The prompt ends with 'y'; saying 'a' makes 'ya' of both, which nobody said."""
    sequence = running(stop=("ya",))
    assert sequence.extend([0]) == 1
    assert sequence.status is not Status.FINISHED


def test_the_end_token_wins_over_the_length() -> None:
    """The last token allowed is also an end token: the text ended by itself."""
    sequence = running(max_tokens=1, stop_token_ids=frozenset({7}))
    sequence.extend([7])
    assert sequence.finish_reason == "stop"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"prompt": ()}, "no tokens"),
        ({"max_tokens": 0}, "max_tokens is 0; allowed: 1 or more"),
        ({"num_draft_tokens": -1}, "num_draft_tokens is -1; allowed: 0 or more"),
        ({"stop": ("",)}, "stop string is empty"),
        ({"seed": 2**64}, "seed is 18446744073709551616; allowed"),
        ({"logprobs": 21}, "logprobs is 21; allowed: 0 to 20"),
    ],
)
def test_a_request_out_of_range_is_refused(wrong: dict[str, Any], said: str) -> None:
    """Each limit is named."""
    fields: dict[str, Any] = {"prompt": (1,), "max_tokens": 5} | wrong
    with pytest.raises(RequestError, match=said):
        Request(**fields)


def test_stop_strings_need_a_tokenizer() -> None:
    """Without a way to make text there is nothing to compare with."""
    with pytest.raises(RequestError, match="no tokenizer"):
        RunningSequence(0, Request((1,), 5, stop=("a",)), 6)
