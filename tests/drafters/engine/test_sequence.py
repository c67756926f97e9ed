"""A sequence and the rules that end it; nothing here needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def lossy(token_ids: Sequence[int]) -> str:
    """Below 256 a token is a byte and bytes make characters wherever they can; 300 is 'né', 301 an 'a' and the first
    byte of 'é', 302 shows nothing."""
    pieces = {300: "né".encode(), 301: "aé".encode()[:2], 302: b""}
    return b"".join(pieces.get(token_id, bytes([token_id % 256])) for token_id in token_ids).decode(errors="replace")


def strict(token_ids: Sequence[int]) -> str:
    """The same tokens, but neighbouring single bytes make characters only all together, and else none: a single
    replacement character for each."""
    made, run = "", b""
    for token_id in [*token_ids, 302]:
        if token_id < 256:
            run += bytes([token_id])
            continue
        try:
            made += run.decode()
        except UnicodeDecodeError:
            made += "\ufffd" * len(run)
        made, run = made + {300: "né", 301: "a", 302: ""}[token_id], b""
    return made


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([lossy, strict]),
    st.lists(st.sampled_from(["a", "é", "漢", "😀", 300, 302]), min_size=1, max_size=80),
    st.lists(st.text("aé漢n😀", min_size=1, max_size=4), min_size=1, max_size=3),
    st.integers(1, 7),
)
def test_a_stop_string_is_found_where_the_whole_text_first_shows_it(
    decode: Any, said: list[str | int], stop: list[str], size: int
) -> None:
    """However the tokens come in rounds, and whether characters are tokens or bytes: as if all that was said were decoded
    after each token."""
    tokens = [t for each in said for t in ([each] if isinstance(each, int) else each.encode())]
    ends = [number for number in range(1, len(tokens) + 1) if any(text in decode(tokens[:number]) for text in stop)]
    sequence = RunningSequence(0, Request((23,), 1000, stop=tuple(stop)), 1001, decode)
    for start in range(0, len(tokens), size):
        if sequence.status is not Status.FINISHED:
            sequence.extend(tokens[start : start + size])
    assert sequence.num_output_tokens == (ends[0] if ends else len(tokens))
    assert (sequence.finish_reason == "stop") == bool(ends)


def settled(token_ids: Sequence[int]) -> str:
    """`lossy`, but a part of a character at the end is left out."""
    return lossy(token_ids).removesuffix("\ufffd")


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([*["a", "é", "漢", "😀", 300, 302] * 5, 255, 301]), min_size=1, max_size=80),
    st.sampled_from(["\ufffd", "\ufffd\ufffd", "\ufffda", "\ufffd漢", "a\ufffd"]),
    st.integers(1, 7),
)
def test_a_broken_character_is_found_where_one_was_said_and_nowhere_else(
    said: list[str | int], stop: str, size: int
) -> None:
    """Not in a character that is only half there, and not where the search begins within one: as if all that was said
    were decoded after each token."""
    tokens = [t for each in said for t in ([each] if isinstance(each, int) else each.encode())]
    ends = [number for number in range(1, len(tokens) + 1) if stop in settled(tokens[:number])]
    sequence = RunningSequence(0, Request((23,), 1000, stop=(stop,)), 1001, settled)
    for start in range(0, len(tokens), size):
        if sequence.status is not Status.FINISHED:
            sequence.extend(tokens[start : start + size])
    assert sequence.num_output_tokens == (ends[0] if ends else len(tokens))


def test_the_sign_for_a_broken_character_does_not_end_a_text_of_whole_ones() -> None:
    """One of one byte and two hundred of three, a byte a token; a byte that begins none ends it, once it is certain."""
    sequence = RunningSequence(0, Request((23,), 1000, stop=("\ufffd",)), 1001, settled)
    assert sequence.extend([*("a" + "漢" * 200).encode()]) == 601
    assert sequence.status is not Status.FINISHED
    assert sequence.extend([255, 97, 97]) == 2
    assert sequence.matched_stop == "\ufffd"


def test_a_long_run_of_bytes_hides_no_stop_string() -> None:
    """Sixty characters of three bytes each, then the stop string: cut within a character, none of them could be read."""
    sequence = RunningSequence(0, Request((23,), 1000, stop=("a",)), 1001, strict)
    assert sequence.extend([*("漢" * 60 + "ab").encode()]) == 181
    assert sequence.matched_stop == "a"


def test_looking_for_a_stop_string_reads_no_more_than_about_twice_its_length() -> None:
    """A thousand tokens of four letters each, and a string of 400 letters that comes at the end: about two hundred tokens
    hold twice its length."""
    read: list[int] = []

    def words(token_ids: Sequence[int]) -> str:
        read.append(len(token_ids))
        return "".join(f"{token_id:04}" for token_id in token_ids)

    stop = "".join(f"{number:04}" for number in range(900, 1000))
    sequence = RunningSequence(0, Request((1,), 2000, stop=(stop,)), 2001, words)
    assert sequence.extend(list(range(1100))) == 1000
    assert sequence.matched_stop == stop
    assert max(read) <= 210
    assert len(read) < 1050


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
