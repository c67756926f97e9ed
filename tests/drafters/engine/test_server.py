"""The server as its clients see it: OpenAI's own client, curl, and the figures it gives."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from drafters.base import Sampling
from drafters.engine.assembly import assemble
from drafters.engine.config import EngineConfig
from drafters.engine.sequence import Request
from tests.drafters.engine.serving import SONG, Served

HELLO: list[Any] = [{"role": "user", "content": "회의록을 요약해 주세요. 회의록을 요약해 주세요."}]
GREEDY: dict[str, Any] = {"model": "babble", "temperature": 0, "max_tokens": 60}


def client(served: Served) -> OpenAI:
    """OpenAI's client for a server."""
    return OpenAI(
        base_url=served.url + "/v1", api_key="none", max_retries=0, http_client=DefaultHttpxClient(trust_env=False)
    )


def events(served: Served, path: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a stream, which must end as OpenAI's do."""
    asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
    with httpx.stream("POST", served.url + path, json=asked, trust_env=False, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


def test_openai_client_chats_streaming_or_not(babble: Served) -> None:
    """One text, one reason to end and one usage, with rounds in which drafts were accepted."""
    openai = client(babble)
    whole = openai.chat.completions.create(messages=HELLO, **GREEDY)
    chunks = list(
        openai.chat.completions.create(messages=HELLO, stream=True, stream_options={"include_usage": True}, **GREEDY)
    )
    text = whole.choices[0].message.content
    assert text
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
    assert chunks[0].choices[0].delta.role == whole.choices[0].message.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason == "length"
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 60
    assert [model.id for model in openai.models.list()] == ["babble"]
    assert openai.models.retrieve("babble").id == "babble"


async def test_async_openai_client_completes_streaming_or_not(babble: Served) -> None:
    """The same for the endpoint without messages."""
    openai = AsyncOpenAI(
        base_url=babble.url + "/v1", api_key="x", max_retries=0, http_client=DefaultAsyncHttpxClient(trust_env=False)
    )
    whole = await openai.completions.create(prompt="def merge(", **GREEDY)
    stream = await openai.completions.create(prompt="def merge(", stream=True, **GREEDY)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == whole.choices[0].text


def test_curl_works(babble: Served) -> None:
    """Without a content type, and one line an event."""
    curl = shutil.which("curl")
    assert curl is not None, "this test runs curl, and there is none; install it"
    body = json.dumps({**GREEDY, "messages": HELLO, "stream": True, "max_tokens": 5})
    command = [curl, "--silent", "--noproxy", "*", "--no-buffer", f"{babble.url}/v1/chat/completions", "--data", body]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    assert lines[0].startswith('data: {"id":"chatcmpl-')
    assert lines[-2:] == ["data: [DONE]", ""]


def test_the_server_says_what_the_engine_says(babble: Served, babble_folder: Path) -> None:
    """Token for token and letter for letter, for each drafter, for tokens as prompt, and after a seed."""
    engine = assemble(EngineConfig(model=babble_folder, dtype="float64", context_tokens=2048))
    prompt = engine.text.encode("The quick brown fox jumps over the quick brown")
    for sampling, seed in ((Sampling(0), None), (Sampling(1.0, 0.9, 20), 11)):
        sequence = engine.runner.add(Request(tuple(prompt), 40, sampling, seed))
        while engine.runner.busy:
            engine.runner.step()
        asked = {
            "model": "babble", "prompt": prompt, "max_tokens": 40, "return_token_ids": True, "ignore_eos": True,
            "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k, "seed": seed,
        }  # fmt: skip
        # Sampled tokens are the same with a seed, not over different drafts: those take other draws.
        for drafter in ("lookup", "tree", "table", None) if sampling.greedy else (None,):
            chunks = events(babble, "/v1/completions", {**asked, "drafter": drafter})
            whole = babble.post("/v1/completions", {**asked, "drafter": drafter})
            tokens = [token for chunk in chunks for choice in chunk["choices"] for token in choice.get("token_ids", ())]
            assert tokens == whole["choices"][0]["token_ids"] == sequence.output
            text = "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])
            assert text == whole["choices"][0]["text"] == engine.text.decode(sequence.output).removesuffix("\ufffd")
            assert chunks[0]["prompt_token_ids"] == prompt


def test_hangul_split_over_rounds_is_shown_whole(song: Served) -> None:
    """A round is a byte or a few of them, and no chunk has a part of a letter."""
    for drafter in (None, "lookup"):
        asked = {"model": "song", "messages": HELLO, "temperature": 0, "max_tokens": 64, "drafter": drafter}
        chunks = events(song, "/v1/chat/completions", asked)
        shown = [choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"]]
        assert "".join(shown) == (SONG * 6)[: 64 // 3]
        assert not any("\ufffd" in piece for piece in shown)
        assert set("".join(shown)) == set(SONG)


def test_a_stop_string_and_what_follows_it_are_never_shown(song: Served) -> None:
    """Split over rounds, drafted past, or found at once."""
    for drafter in (None, "lookup"):
        asked = {"model": "song", "messages": HELLO, "temperature": 0, "stop": ["한가다", "없음"], "drafter": drafter}
        chunks = events(song, "/v1/chat/completions", asked)
        shown = "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])
        whole = song.post("/v1/chat/completions", asked)
        assert shown == whole["choices"][0]["message"]["content"] == "가다씨"
        assert whole["choices"][0]["finish_reason"] == chunks[-2]["choices"][0]["finish_reason"] == "stop"
        assert whole["choices"][0]["stop_reason"] == "한가다"
        assert whole["usage"]["completion_tokens"] == 18


def test_the_sign_for_a_broken_character_does_not_stop_a_text_of_whole_ones(song: Served) -> None:
    """Each token is a third of a letter, and no letter stays broken."""
    for drafter in (None, "lookup"):
        asked = {"model": "song", "messages": HELLO, "temperature": 0, "max_tokens": 66, "drafter": drafter}
        answer = song.post("/v1/chat/completions", {**asked, "stop": ["\ufffd"]})["choices"][0]
        assert answer["message"]["content"] == (SONG * 6)[:22]
        assert answer["finish_reason"] == "length"


def test_without_a_limit_the_answer_fills_the_context(song: Served) -> None:
    """256 tokens of context, prompt included."""
    usage = song.post("/v1/completions", {"model": "song", "prompt": "abcdef", "temperature": 0})["usage"]
    assert usage == {
        "prompt_tokens": 6,
        "completion_tokens": 250,
        "total_tokens": 256,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


@pytest.mark.parametrize("drafter", ["lookup", "tree", "table"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_request_s_figures_are_one_story(babble: Served, drafter: str, temperature: float) -> None:
    """Histogram, sums, lists and rounds agree; tokens are the first one and those of the rounds."""
    asked = {**GREEDY, "messages": HELLO, "drafter": drafter, "temperature": temperature, "return_rounds": True}
    asked |= {"seed": 5, "ignore_eos": True, "max_tokens": 150}
    for answer in (
        events(babble, "/v1/chat/completions", asked)[-1],
        babble.post("/v1/chat/completions", {**asked, "num_speculative_tokens": 2}),
    ):
        metrics, usage = answer["metrics"], answer["usage"]
        spec, rounds = metrics["speculative_decoding"], metrics["rounds"]
        drafted = [step for step in rounds if step["num_draft_tokens"]]
        assert usage["completion_tokens"] == 1 + sum(step["num_tokens"] for step in rounds)
        assert spec["num_spec_steps"] == len(drafted) == len(spec["per_step_drafted"]) > 0
        assert spec["per_step_accepted"] == [step["num_accepted_tokens"] for step in drafted]
        assert spec["per_step_drafted"] == [step["num_draft_tokens"] for step in drafted]
        assert sum(spec["acceptance_histogram"]) == len(drafted)
        assert len(spec["acceptance_histogram"]) == spec["num_spec_tokens"] + 1
        counts = spec["acceptance_histogram"]
        assert sum(j * n for j, n in enumerate(counts)) == spec["num_accepted_draft_tokens"]
        by_length = spec["acceptance_histogram_by_draft_length"]
        assert {int(d): sum(n) for d, n in by_length.items()} == {
            d: spec["per_step_drafted"].count(d) for d in set(spec["per_step_drafted"])
        }
        assert spec["mean_acceptance_length"] == 1 + spec["num_accepted_draft_tokens"] / len(drafted)
        assert spec["draft_acceptance_rate"] == spec["num_accepted_draft_tokens"] / spec["num_draft_tokens"]
        indices = [step["round_index"] for step in rounds]
        assert indices == list(range(indices[0], indices[0] + len(indices)))
        times = [step["t_ns"] for step in rounds]
        assert times == sorted(times)
        assert 0 <= metrics["queue_time_ms"] <= metrics["time_to_first_token_ms"]
        assert metrics["generation_time_ms"] > 0


def test_a_request_without_a_drafter_has_no_acceptance(babble: Served) -> None:
    """None by its own wish, or by a draft length of 0; its rounds are told all the same."""
    for wish in ({"drafter": None}, {"num_speculative_tokens": 0}):
        answer = babble.post("/v1/completions", {**GREEDY, "prompt": "a", "return_rounds": True, **wish})
        assert answer["metrics"]["speculative_decoding"] is None
        assert len(answer["metrics"]["rounds"]) == 59
    assert "rounds" not in babble.post("/v1/completions", {**GREEDY, "prompt": "a"})["metrics"]


def test_the_metrics_page_is_the_sum_of_the_requests(babble: Served) -> None:
    """Drafts, drafted, accepted, by position, prompt and output, prompts found again."""
    babble.post("/reset_prefix_cache")
    before = babble.counters()
    answers = [
        babble.post("/v1/chat/completions", {**GREEDY, "messages": HELLO, "drafter": drafter, "return_rounds": True})
        for drafter in ("lookup", "tree", "table", None, "lookup")
    ]
    babble.settled()
    after = babble.counters()
    more = {name: value - before.get(name, 0) for name, value in after.items()}
    specs = [answer["metrics"]["speculative_decoding"] for answer in answers]
    specs = [spec for spec in specs if spec is not None]
    assert more["spec_decode_num_drafts_total"] == sum(spec["num_spec_steps"] for spec in specs)
    assert more["spec_decode_num_draft_tokens_total"] == sum(spec["num_draft_tokens"] for spec in specs)
    assert more["spec_decode_num_accepted_tokens_total"] == sum(spec["num_accepted_draft_tokens"] for spec in specs)
    accepted = [count for spec in specs for count in spec["per_step_accepted"]]
    for position in range(max(accepted)):
        told = more[f'spec_decode_num_accepted_tokens_per_pos_totalposition="{position}"']
        assert told == sum(count > position for count in accepted)
    usages = [answer["usage"] for answer in answers]
    prompts = sum(usage["prompt_tokens"] for usage in usages)
    assert more["prompt_tokens_total"] == more["prefix_cache_queries_total"] == prompts
    assert more["generation_tokens_total"] == sum(usage["completion_tokens"] for usage in usages)
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert more["prefix_cache_hits_total"] == cached > 0
    assert after["num_requests_running"] == after["num_requests_waiting"] == after["kv_cache_usage_perc"] == 0


def test_log_probabilities_come_in_both_endpoints_forms(babble: Served) -> None:
    """One entry a token, alternatives in falling order, bytes that make up the text; a stream tells the same."""
    openai = client(babble)
    asked: dict[str, Any] = {**GREEDY, "messages": HELLO, "logprobs": True, "top_logprobs": 3}
    whole = openai.chat.completions.create(**asked)
    scores = whole.choices[0].logprobs
    assert scores is not None
    assert scores.content is not None
    assert len(scores.content) == 60
    for score in scores.content:
        assert [top.logprob for top in score.top_logprobs] == sorted(
            (t.logprob for t in score.top_logprobs), reverse=True
        )
        assert score.top_logprobs[0].logprob == score.logprob <= 0  # greedy takes the most probable one
    text = b"".join(bytes(score.bytes or []) for score in scores.content).decode(errors="replace")
    assert text.removesuffix("\ufffd") == whole.choices[0].message.content
    told = [s for c in events(babble, "/v1/chat/completions", asked) for o in c["choices"] for s in (o["logprobs"] or {}).get("content", ())]  # fmt: skip  # noqa: E501
    assert [entry["token"] for entry in told] == [score.token for score in scores.content]

    plain = openai.completions.create(**GREEDY, prompt="def f(", logprobs=2).choices[0]
    assert plain.logprobs is not None
    assert len(plain.logprobs.tokens or []) == len(plain.logprobs.top_logprobs or []) == 60
    offsets = plain.logprobs.text_offset or []
    assert offsets[0] == 0
    assert offsets == sorted(offsets)
    assert offsets[-1] <= len(plain.text)


def test_a_second_prompt_with_the_same_beginning_is_partly_read_from_memory(babble: Served) -> None:
    """Until what is kept is forgotten."""
    asked = {**GREEDY, "prompt": list(range(50, 150)), "max_tokens": 2}
    babble.post("/reset_prefix_cache")
    cached = [
        babble.post("/v1/completions", asked)["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(2)
    ]
    assert cached == [0, 99]
    babble.post("/reset_prefix_cache")
    assert babble.settled()["kept_tokens"] == 0
    assert babble.post("/v1/completions", asked)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_rounds_of_the_engine_are_told_from_an_index_on(babble: Served) -> None:
    """What a request says of its rounds is what the engine says of them."""
    answer = babble.post("/v1/completions", {**GREEDY, "prompt": "a", "return_rounds": True})
    own = answer["metrics"]["rounds"]
    found = babble.get(f"/rounds?since={own[0]['round_index']}")
    assert [r["round_index"] for r in found["rounds"]][: len(own)] == [step["round_index"] for step in own]
    assert found["rounds"][0]["verify_ns"] == own[0]["verify_ns"]
    assert found["next"] == found["rounds"][-1]["round_index"] + 1
    assert babble.get(f"/rounds?since={found['next']}") == {"rounds": [], "next": found["next"]}


def test_drafting_is_reset_by_a_call(babble: Served) -> None:
    """200 with nothing in it; other methods are refused."""
    answer = httpx.post(f"{babble.url}/reset_drafting", trust_env=False, timeout=30)
    assert (answer.status_code, answer.content) == (200, b"")
    assert httpx.get(f"{babble.url}/reset_drafting", trust_env=False, timeout=30).status_code == 405


def test_every_position_of_a_draft_is_counted_from_the_start(babble_folder: Path) -> None:
    """The longest draft here has three tokens: three lines of 0 before anything is asked, none without a drafter."""
    config: dict[str, Any] = {"model": str(babble_folder), "context_tokens": 64}
    drafters = {"copy": {"spec": {"method": "prompt_lookup", "num_tokens": 3}}}
    with Served({**config, "drafters": drafters}) as served:
        seen = {name: value for name, value in served.counters().items() if "per_pos" in name}
    name = "spec_decode_num_accepted_tokens_per_pos_total"
    assert seen == {f'{name}position="{at}"': 0 for at in range(3)}


def test_tokenize_counts_as_the_prompt_does(babble: Served) -> None:
    """A text, and messages with their template and tools."""
    count = babble.post("/v1/chat/completions", {**GREEDY, "messages": HELLO, "max_tokens": 1})["usage"][
        "prompt_tokens"
    ]
    answer = babble.post("/tokenize", {"messages": HELLO})
    assert answer["count"] == len(answer["tokens"]) == count
    assert answer["max_model_len"] == 2048
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert babble.post("/tokenize", {"messages": HELLO, "tools": tools})["count"] > count
    with_tools = babble.post("/v1/chat/completions", {**GREEDY, "messages": HELLO, "tools": tools, "max_tokens": 1})
    assert with_tools["usage"]["prompt_tokens"] > count
    ids = babble.post("/tokenize", {"prompt": "The quick"})["tokens"]
    assert babble.post("/v1/completions", {**GREEDY, "prompt": ids})["usage"]["prompt_tokens"] == len(ids)


def test_the_server_tells_what_it_is(babble: Served) -> None:
    """Configuration, versions and the model's facts."""
    info = babble.get("/server_info")
    assert info["config"]["drafters"]["tree"]["spec"]["method"] == "eagle3"
    assert info["config"]["context_tokens"] == 2048
    assert info["versions"]["torch"].startswith("2.")
    assert info["model"]["architecture"] == "Qwen3ForCausalLM"
    assert info["model"]["layers"] == 2
    assert len(info["model"]["sha256"]) == 64
    assert info["costs"] is None
