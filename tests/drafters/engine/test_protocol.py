"""Bodies of requests: what is understood, and how what is not is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drafters.engine.messages import ApiError
from drafters.engine.protocol import ChatRequest, CompletionRequest, TokenizeRequest, loads, parse

HELLO = [{"role": "user", "content": "hello"}]


def chat(**fields: Any) -> ChatRequest:
    """A chat request with these fields besides the needed ones."""
    return parse(ChatRequest, {"model": "m", "messages": HELLO, **fields})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", "1"),
        ("temperature", True),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -2),
        ("max_tokens", 0),
        ("max_tokens", -5),
        ("max_tokens", 1.5),
        ("max_completion_tokens", -1),
        ("num_speculative_tokens", -1),
        ("drafter", 7),
        ("seed", 2**64),
        ("stop", ""),
        ("stop", ["x"] * 17),
        ("stop", {"a": 1}),
        ("stream", "yes"),
        ("stream_options", {"usage": True}),
        ("messages", None),
        ("messages", []),
        ("messages", "hello"),
        ("messages", [None]),
        ("messages", [{"role": "user"}]),
        ("messages", [{"role": "user", "content": None}]),
        ("messages", [{"role": "user", "content": 5}]),
        ("messages", [{"role": "robot", "content": "x"}]),
        ("messages", [{"role": "user", "content": "x", "colour": "red"}]),
        ("model", None),
        ("tools", [5]),
        ("tools", {"name": "x"}),
        ("tool_choice", "required"),
        ("top_logprobs", 21),
        ("top_logprobs", 2),
        ("logprobs", 3),
        ("n", 2),
        ("n", True),
        ("logit_bias", {"5": 1}),
        ("presence_penalty", 0.5),
        ("frequency_penalty", 0.5),
        ("response_format", {"type": "json_object"}),
        ("parallel_tool_calls", False),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_field(field: str, value: Any) -> None:
    """Status 400, ``param`` is the field, and the message says it too."""
    with pytest.raises(ApiError) as caught:
        chat(**{field: value})
    error = caught.value.body()["error"]
    assert caught.value.status == 400
    assert error["type"] == "invalid_request_error"
    if field not in ("top_logprobs",):
        assert error["param"] == field
    assert field in error["message"] or field == "messages"


@pytest.mark.parametrize(
    ("field", "given", "shown"),
    [
        ("seed", 2**70, "about 1.18e+21 (beyond 64 bits)"),
        ("n", 2**70, "about 1.18e+21 (beyond 64 bits)"),
        ("max_tokens", -(2**70), "about -1.18e+21 (beyond 64 bits)"),
        ("n", 2**64 - 1, "18446744073709551615"),
        ("top_k", -(2**63), "-9223372036854775808"),
        ("max_tokens", 1e3, "1000.0"),
    ],
)
def test_an_integer_beyond_64_bits_is_not_shown_as_if_a_fraction_had_been_given(
    field: str, given: float, shown: str
) -> None:
    """Its digits are lost when the body is decoded, and the message says so; others are shown as they are."""
    with pytest.raises(ApiError) as caught:
        parse(ChatRequest, loads(json.dumps({"model": "m", "messages": HELLO, field: given}).encode()))
    assert f"{field} is {shown}" in caught.value.message
    assert caught.value.param == field


def test_an_unknown_field_is_named_with_the_one_that_was_meant() -> None:
    """A slip of the pen must not be passed over."""
    with pytest.raises(ApiError, match="unknown field 'temprature'; did you mean 'temperature'") as caught:
        chat(temprature=0)
    assert (caught.value.param, caught.value.code) == ("temprature", "unknown_field")


def test_fields_that_ask_for_nothing_are_taken() -> None:
    """OpenAI's clients send some of them always."""
    asked = chat(
        n=1, presence_penalty=0, frequency_penalty=0.0, logit_bias={}, response_format={"type": "text"}, user="me"
    )
    assert asked.stop is None


def test_the_engine_is_asked_what_the_body_says() -> None:
    """OpenAI's defaults where it says nothing: temperature 1, all that the context leaves, the model's end of text."""
    plain = chat().engine_request([5, 6], 90, "lookup", frozenset({2}))
    assert (plain.sampling.temperature, plain.max_tokens, plain.stop_token_ids) == (1.0, 90, frozenset({2}))
    assert (plain.drafter, plain.num_draft_tokens, plain.logprobs) == ("lookup", None, None)
    full = chat(
        max_completion_tokens=7, temperature=0, top_k=-1, stop="x", seed=3, ignore_eos=True, num_speculative_tokens=2,
        logprobs=True, top_logprobs=4,
    ).engine_request([5], 90, "lookup", frozenset({2}))  # fmt: skip
    assert (full.max_tokens, full.sampling.greedy, full.sampling.top_k) == (7, True, 0)
    assert (full.stop, full.seed, full.stop_token_ids) == (("x",), 3, frozenset())
    assert (full.num_draft_tokens, full.logprobs) == (2, 4)
    assert chat(num_speculative_tokens=0).engine_request([5], 9, "lookup", frozenset()).drafter is None


def test_prompts_are_text_or_tokens() -> None:
    """A list of one prompt is that prompt; two are refused, and so is a mixture."""
    given = [("x", "x"), (["x"], "x"), ([1, 2], [1, 2]), ([[1, 2]], [1, 2])]
    for prompt, taken in given:
        assert parse(CompletionRequest, {"model": "m", "prompt": prompt}).prompt == taken
    wrong: tuple[Any, ...] = (["x", "y"], [[1], [2]], [1, "x"], [-1], None, 5, {"a": 1})
    for prompt in wrong:
        with pytest.raises(ApiError) as caught:
            parse(CompletionRequest, {"model": "m", "prompt": prompt})
        assert caught.value.param == "prompt"


def test_arguments_of_earlier_tool_calls_are_given_to_the_template_as_objects() -> None:
    """Text that is no JSON stays text; parts of a content are joined; a developer is a system."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"city": "서울"}'}}
    broken = {"id": "2", "type": "function", "function": {"name": "f", "arguments": "{city"}}
    asked = chat(
        messages=[
            {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": None, "tool_calls": [call, broken]},
        ]
    )
    first, second = (message.for_template() for message in asked.messages)
    assert first == {"role": "system", "content": "a\nb"}
    assert second["content"] == ""
    assert [made["function"]["arguments"] for made in second["tool_calls"]] == [{"city": "서울"}, "{city"]


def test_a_picture_is_refused() -> None:
    """This engine reads text."""
    asked = chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])
    with pytest.raises(ApiError, match="image_url"):
        asked.messages[0].text()


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"nope", b'{"a": NaN}', b'{"a": "\\ud800"}', b"\xff\xfe", b"[" * 5000 + b"]" * 5000]
)
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    """Also lone halves of surrogate pairs, and nesting without end."""
    with pytest.raises(ApiError, match="no valid JSON"):
        loads(raw)


@pytest.mark.parametrize("body", [None, [], "x", 5])
def test_a_body_must_be_an_object(body: Any) -> None:
    """Whatever else is valid JSON is refused."""
    with pytest.raises(ApiError, match="allowed: a JSON object"):
        parse(ChatRequest, body)


def test_tokenize_takes_a_prompt_or_messages() -> None:
    """Not both, and not neither."""
    for body in ({}, {"prompt": "x", "messages": HELLO}):
        with pytest.raises(ApiError, match="either 'prompt' or 'messages'"):
            parse(TokenizeRequest, body)
