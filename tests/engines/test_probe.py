"""A server is asked what it can tell: what it shows is known, what it does not show is unknown, and nothing on it is changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.access import AccessSpec, open_access
from harness.engines.control import ControlCalls
from harness.engines.dialects import dialect
from harness.engines.probe import Probed, probe, token_ids
from harness.errors import EngineUnreachable
from tests.fake_server import DONE, FakeServer, Reply, Request, delta, event, json_reply, usage
from tests.fake_vllm import FakeVllm


async def ask(
    script: Callable[[Request], Reply], kind: str = "vllm", model: str = "", key: str | None = None
) -> Probed:
    """Return what the probe finds out of a script."""
    access = open_access(AccessSpec(api_key_env="KEY"), environ={"KEY": key}) if key else open_access(None)
    async with FakeServer(script) as server:
        return await probe(ControlCalls("the server", server.base_url, access), dialect(kind), model)


async def test_a_server_that_drafts_shows_it() -> None:
    """Its answers tell each round, its page has counters, and both are named as the source."""
    probed = await ask(FakeVllm(draft=(3, 2), per_request="detailed"))
    assert (probed.drafts.value, probed.per_request_acceptance.value, probed.counters.value) == (True, "round", True)
    assert probed.drafts.how == "an answer told 8 of 12 drafted tokens accepted"
    assert (probed.version.value, probed.models.value, probed.max_model_len.value) == ("0.32.0", ("smol",), 4096)
    assert (probed.streaming.value, probed.usage_in_stream.value, probed.tokens_per_chunk.value) == (True, True, True)
    assert probed.settings == {"block_size": "16", "cache_dtype": "auto"}


async def test_drafting_shows_in_the_counters_where_answers_do_not_tell() -> None:
    """Two questions are two times four rounds of three tokens; the flag that would make answers tell is named."""
    probed = await ask(FakeVllm(draft=(3, 2)))
    assert (probed.drafts.value, probed.drafts.how) == (True, "the server's counters grew by 24 drafted tokens")
    assert probed.per_request_acceptance.value is None
    assert "--per-request-spec-decode-metrics detailed" in (probed.per_request_acceptance.remedy or "")


async def test_a_page_without_counters_shows_that_vllm_does_not_draft() -> None:
    """vLLM has the counters whenever it drafts; without any page nobody knows."""
    assert (await ask(FakeVllm())).drafts.value is False
    hidden = await ask(FakeVllm(metrics=False))
    assert (hidden.drafts.value, hidden.counters.value, hidden.running_requests.value) == (None, None, None)
    assert hidden.counters.how == "GET /metrics answered 404"
    assert hidden.counters.remedy == "start it without --disable-log-stats"


async def test_what_a_server_says_of_itself_counts_too() -> None:
    """In development mode vLLM tells its drafter, and that its cache can be emptied, which is asked and not done."""
    script = FakeVllm(config={"speculative_config": {"method": "suffix", "num_speculative_tokens": 8}})
    probed = await ask(script)
    assert probed.speculative_config.value == {"method": "suffix", "num_speculative_tokens": 8}
    assert (probed.cache_reset.value, script.resets) == (True, 0)
    assert (await ask(FakeVllm())).cache_reset.value is False


async def test_fields_that_a_server_refuses_are_left_out() -> None:
    """A gateway that knows no continuous_usage_stats is asked again without it, and measured without it."""
    script = FakeVllm(draft=(3, 2), per_request="summary", refused=frozenset({"continuous_usage_stats"}))
    probed = await ask(script)
    assert probed.extra_body == {}
    assert (probed.chat.value, probed.tokens_per_chunk.value, probed.per_request_acceptance.value) == (
        True,
        False,
        "request",
    )
    assert "continuous_usage_stats" not in script.bodies[-1]["stream_options"]


async def test_a_refused_key_is_no_answer() -> None:
    """The reason is kept, the key is not."""
    probed = await ask(FakeVllm(key="right"), key="wrong-key-value")
    assert probed.chat.value is None
    assert probed.chat.how.startswith("POST /v1/chat/completions answered 401")
    assert "the key from $KEY was refused" in probed.chat.how
    assert "wrong-key-value" not in str(probed.to_json())
    assert (await ask(FakeVllm(key="right"), key="right")).chat.value is True


async def test_a_model_that_the_server_does_not_know() -> None:
    """Its names are known, and its refusal is quoted."""
    probed = await ask(FakeVllm(models=("smol", "big")), model="smoll")
    assert (probed.models.value, probed.chat.value) == (("smol", "big"), None)
    assert "404" in probed.chat.how
    assert "does not exist" in probed.chat.how


async def test_a_plain_web_server_tells_nothing() -> None:
    """Pages of HTML are neither models nor metrics nor answers."""
    probed = await ask(lambda _: Reply([(0, b"<html>hello</html>")], content_type="text/html", framing="length"))
    known = {name for name, fact in probed.facts().items() if fact.value}
    assert known == {"cache_reset"}  # any path answers there
    assert probed.chat.how == "POST /v1/chat/completions gave neither events nor JSON: '<html>hello</html>'"


async def test_a_server_without_streams_or_usage() -> None:
    """One document instead of events, and none of the tokens: both are facts, with no acceptance assumed."""
    whole = {"choices": [{"index": 0, "message": {"content": "ja"}, "finish_reason": "stop"}]}
    probed = await ask(lambda request: json_reply(whole), kind="openai", model="m")
    assert (probed.chat.value, probed.streaming.value, probed.usage_in_stream.value) == (True, False, False)
    assert probed.drafts.value is None


async def test_events_of_every_form_are_read() -> None:
    """Lines that end in CR LF, a comment, and data over two lines."""
    body = (
        b": hi\r\n\r\n"
        + delta(content="x").replace(b"\n", b"\r\n")
        + b'data: {"choices": [],\ndata: "usage": {"completion_tokens": 1}}\n\n'
    )
    script = FakeVllm()

    def answer(request: Request) -> Reply:
        return Reply([(0, body), (0, DONE)]) if request.path.endswith("completions") else script(request)

    probed = await ask(answer, kind="openai")
    assert (probed.streaming.value, probed.usage_in_stream.value) == (True, True)


async def test_an_error_with_status_200_is_no_answer() -> None:
    """Some gateways say so in the stream."""
    script = FakeVllm()
    wrong = Reply([(0, event({"error": {"message": "no backend"}})), (0, DONE)])
    probed = await ask(lambda request: wrong if request.path.endswith("completions") else script(request))
    assert probed.chat.value is None
    assert "gave no chat completion" in probed.chat.how


async def test_cached_tokens_show_at_the_second_of_two_equal_requests() -> None:
    """vLLM leaves the field out of an answer for which nothing was cached."""
    seen: list[Request] = []
    script = FakeVllm()

    def answer(request: Request) -> Reply:
        if not request.path.endswith("completions"):
            return script(request)
        seen.append(request)
        last = (
            usage(300, 1, cached=256)
            if len(seen) > 1
            else event({"choices": [], "usage": {"prompt_tokens": 300, "completion_tokens": 1}})
        )
        return Reply([(0, delta("stop", content="x")), (0, last), (0, DONE)])

    probed = await ask(answer)
    assert probed.cached_tokens.value is True
    assert seen[0].body == seen[1].body
    assert (await ask(FakeVllm())).cached_tokens.remedy == "--enable-prompt-tokens-details"


async def test_a_server_that_is_not_there() -> None:
    """Nothing listens: that is an error, not a fact."""
    with pytest.raises(EngineUnreachable, match=r"the server at http://127\.0\.0\.1:9 does not answer"):
        await probe(ControlCalls("the server", "http://127.0.0.1:9"), dialect("openai"))


def test_tokens_in_every_form() -> None:
    """vLLM and SGLang call them tokens, LMDeploy input_ids; anything else is none."""
    assert token_ids({"tokens": [1, 2]}) == token_ids({"input_ids": [1, 2], "length": 2}) == (1, 2)
    assert token_ids({"tokens": ["a"]}) is token_ids([1]) is token_ids({}) is None
