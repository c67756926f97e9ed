"""Text and tokens: what is held back, what is cut, and what the template refuses."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models

from drafters.engine.text import Detokenizer, PromptError, StopText, Text, TextError
from tests.drafters.engine.serving import fast, tokenizer

HANGUL = "안녕하세요, 회의록을 요약해 주세요. OK? 네!"
BYTES = Text(fast(tokenizer(merges=0)))
MERGED = Text(fast(tokenizer()))


def fallback() -> Text:
    """A tokenizer in the manner of Llama 2: words begin with a mark, unknown letters are byte tokens."""
    words = ["<unk>", "▁hello", "▁world", "▁", *(f"<0x{byte:02X}>" for byte in range(256))]
    made = Tokenizer(
        models.BPE({word: place for place, word in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True)
    )
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Text(fast(made, eos_token=None))


def byte_tokens(text: Text, letters: str) -> list[int]:
    """The byte tokens of a tokenizer that falls back to them."""
    return [text._tokens.token_to_id(f"<0x{byte:02X}>") for byte in letters.encode()]


def pieces(token_ids: list[int], cuts: random.Random) -> list[list[int]]:
    """Cut a list at random places."""
    made, start = [], 0
    while start < len(token_ids):
        end = start + cuts.randint(1, 5)
        made.append(token_ids[start:end])
        start = end
    return made


@pytest.mark.parametrize("text", [BYTES, MERGED], ids=["bytes", "merged"])
def test_hangul_never_shows_as_a_broken_sign_however_its_bytes_arrive(text: Text) -> None:
    """Each piece is valid text, and together they are the text."""
    ids = text.encode(HANGUL * 20)
    for seed in range(10):
        detokenizer = Detokenizer(text)
        shown = [detokenizer.feed(piece) for piece in pieces(ids, random.Random(seed))]
        assert "".join(shown) == HANGUL * 20
        assert not any("\ufffd" in piece for piece in shown)


def test_the_last_byte_of_a_character_releases_it() -> None:
    """가 has three bytes: nothing, nothing, 가."""
    detokenizer = Detokenizer(BYTES)
    assert [detokenizer.feed([token]) for token in BYTES.encode("가")] == ["", "", "가"]


@pytest.mark.parametrize("text", [BYTES, MERGED], ids=["bytes", "merged"])
def test_babble_reads_the_same_in_any_pieces_and_as_a_whole(text: Text) -> None:
    """Broken bytes show as broken signs; only an unfinished last character may be missing."""
    chance = random.Random(3)
    for _ in range(20):
        ids = [chance.randrange(3, 256 + 3) for _ in range(200)]
        detokenizer = Detokenizer(text)
        shown = "".join(detokenizer.feed(piece) for piece in pieces(ids, chance))
        assert shown == text.decode(ids).removesuffix("\ufffd")


def test_byte_fallback_tokens_read_the_same_in_any_pieces() -> None:
    """Runs of byte tokens, leading spaces, and an end inside a character."""
    text = fallback()
    word = [1, 2]
    ids = [*word, 3, *byte_tokens(text, "한글은 좋다"), *word, *byte_tokens(text, "끝")[:2]]
    for seed in range(5):
        detokenizer = Detokenizer(text)
        shown = [detokenizer.feed(piece) for piece in pieces(ids * 4, random.Random(seed))]
        assert "".join(shown).startswith("hello world 한글은 좋다 hello world")
        whole = Detokenizer(text).feed(ids * 4)
        assert "".join(shown) == whole
    ids = ids[:-2] * 4
    detokenizer = Detokenizer(text)
    assert "".join(detokenizer.feed([token]) for token in ids) == text.decode(ids)


def test_a_text_is_settled_but_for_a_part_of_a_character_at_its_end() -> None:
    """A byte that begins no character is settled when something follows it; in a run of byte tokens no sign is before the
    run has ended."""
    one, two, three = BYTES.encode("가")
    assert [BYTES.settled(ids) for ids in ([one], [one, two], [one, two, three])] == ["", "", "가"]
    assert [BYTES.settled(ids) for ids in ([two], [two, two], [two, one, two])] == ["", "\ufffd", "\ufffd"]
    text = fallback()
    one, two, three = byte_tokens(text, "가")
    assert [text.settled(ids) for ids in ([one, two], [two, two], [two, two, 1])] == ["", "", "\ufffd\ufffd hello"]
    assert text.settled([one, two, three]) == "가"


def test_special_tokens_are_no_text_but_are_read_as_such() -> None:
    """The end-of-turn token is one token, and decodes to nothing."""
    ids = BYTES.encode("a<|im_end|>b")
    assert len(ids) == 3
    assert BYTES.decode(ids) == "ab"
    assert BYTES.is_special(ids[1])


def test_tokens_are_bytes() -> None:
    """A part of a character has its bytes; so has a byte token of a tokenizer that falls back to them."""
    assert [BYTES.token_bytes(token) for token in BYTES.encode("가 ")] == [b"\xea", b"\xb0", b"\x80", b" "]
    text = fallback()
    assert [text.token_bytes(token) for token in byte_tokens(text, "가")] == [b"\xea", b"\xb0", b"\x80"]
    assert BYTES.token_bytes(10**6) == b""


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        (["abc", "def"], ["abc", "def"]),
        (["ab", "END"], ["ab", ""]),
        (["abE", "N", "D and more"], ["ab", "", ""]),
        (["abE", "N", "E"], ["ab", "", "EN"]),
        (["EE", "ND"], ["E", ""]),
    ],
)
def test_a_possible_beginning_of_a_stop_string_is_held_back(parts: list[str], shown: list[str]) -> None:
    """It is shown when it turns out to be none, and never when it is one."""
    cutter = StopText(("END",))
    stopped = "END" in "".join(parts)
    made = [
        cutter.feed(part, last=False, stopped=stopped and place == len(parts) - 1) for place, part in enumerate(parts)
    ]
    assert made == shown


def test_the_earliest_of_several_stop_strings_cuts() -> None:
    """Whatever their order; without the engine's word nothing is cut."""
    assert StopText(("d", "bc")).feed("abcd", last=True, stopped=True) == "a"
    assert StopText(("d", "bc")).feed("abcd", last=True) == "abcd"
    assert StopText(("bcx",)).feed("abc", last=True) == "abc"


def test_the_template_gets_messages_and_tools() -> None:
    """Tools stand in the prompt, and it ends where the answer begins."""
    tool = {"type": "function", "function": {"name": "날씨", "parameters": {"type": "object"}}}
    prompt = BYTES.chat([{"role": "user", "content": "서울?"}], [tool])
    assert "날씨: {" in prompt
    assert prompt.endswith("<|im_start|>user\n서울?<|im_end|><|im_start|>assistant\n")


def test_tools_that_the_template_leaves_out_are_a_prompt_error() -> None:
    """A template of messages alone, and one that shows tools to a system; without tools both are content."""
    tool = {"type": "function", "function": {"name": "f"}}
    plain = "{%- for message in messages %}{{ message.content }}{%- endfor %}"
    sometimes = "{%- if messages[0].role == 'system' %}{{ tools | tojson }}{%- endif %}" + plain
    for template in (plain, sometimes):
        text = Text(fast(tokenizer(0), chat_template=template))
        assert text.chat([{"role": "user", "content": "x"}], []) == "x"
        with pytest.raises(PromptError, match="no place for tools") as caught:
            text.chat([{"role": "user", "content": "x"}], [tool])
        assert caught.value.param == "tools"
    assert "function" in text.chat([{"role": "system", "content": "x"}], [tool])


def test_what_breaks_the_template_is_a_prompt_error() -> None:
    """Its own refusal, garbage for a tool, and a content of the wrong type."""
    with pytest.raises(PromptError, match="no functions"):
        BYTES.chat([{"role": "function", "content": "x"}])
    with pytest.raises(PromptError, match="template refuses"):
        BYTES.chat([{"role": "user", "content": "x"}], [{"function": {"name": 5}}])
    with pytest.raises(PromptError, match="template refuses"):
        BYTES.chat([{"role": "user", "content": "x"}], [{"function": None}])
    plain = Text(fast(tokenizer(0), chat_template=None))
    with pytest.raises(PromptError, match="no chat template"):
        plain.chat([{"role": "user", "content": "x"}])


def test_a_text_far_beyond_the_context_is_refused_unread() -> None:
    """Ten tokens allowed, a million letters given."""
    with pytest.raises(PromptError, match="1000000 characters") as caught:
        MERGED.encode("a" * 1_000_000, most=10)
    assert caught.value.code == "context_length_exceeded"
    assert len(BYTES.encode("a" * 40, most=10)) == 40


def test_ends_of_text_come_from_all_files_of_the_folder(tmp_path: Path) -> None:
    """One from the generation settings, one from the model, one from the tokenizer."""
    fast(tokenizer(0)).save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [0]}')
    (tmp_path / "config.json").write_text('{"eos_token_id": 5, "model_type": "qwen3"}')
    assert Text.load(tmp_path).eos == {0, 2, 5}


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    """The message names the missing file."""
    with pytest.raises(TextError, match=r"tokenizer\.json"):
        Text.load(tmp_path)
