"""What each engine's release sends is read right, over a real socket: what the server can tell, one answer, and its counters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.engines.base import Endpoint, ServerState, StreamFacts, StreamReader
from harness.engines.control import ControlCalls
from harness.engines.counters import spec_counters
from harness.engines.dialects import dialect
from harness.engines.llamacpp_reader import LlamaCppReader
from harness.engines.probe import Probed, probe
from harness.engines.told import told_in
from harness.engines.window import ExclusiveWindow, foreign_requests
from harness.records import SpecCounters
from harness.replay.client import StreamClient, StreamResult
from harness.replay.clock import MonotonicClock
from tests.engines.wire_server import WireServer, wire
from tests.fake_server import FakeServer, Reply, Request, json_reply

FOUR_ROUNDS = SpecCounters(4, 12, 7, (3, 3, 1))
"""Of the written answers: rounds that accepted 3, 2, 0 and 2 of three drafted tokens."""
TEXT = "회의 결과를 정리했습니다."


def vllm() -> WireServer:
    """vLLM 0.32.0, recorded."""
    models = {"id": "smol", "object": "model", "max_model_len": 1024}
    return WireServer("vllm-0.32.0", pages={"/version": "version"}, models=models)


def sglang() -> WireServer:
    """SGLang 0.5.23."""
    return WireServer("sglang-0.5.23", pages={"/server_info": "server_info"}, asks="return_spec_tokens_details")


def old_sglang() -> WireServer:
    """SGLang 0.5.9, which knows nothing of the newer field and refuses the older one in a stream; started without metrics."""
    return WireServer("sglang-0.5.9", metrics="/none", refuses="return_meta_info")


def trtllm() -> WireServer:
    """TensorRT-LLM 1.3.0."""
    return WireServer("trtllm-1.3.0", metrics="/prometheus/metrics", pages={"/version": "version"})


def old_trtllm() -> WireServer:
    """TensorRT-LLM 1.2.1, whose metrics page has no counters of speculation."""
    return WireServer("trtllm-1.2.1", metrics="/prometheus/metrics", pages={"/version": "version"})


def lmdeploy() -> WireServer:
    """LMDeploy 0.18.0."""
    return WireServer("lmdeploy-0.18.0")


def openai() -> WireServer:
    """A server of unknown make."""
    return WireServer("openai-v1", metrics="/none")


async def ask(kind: str, wires: WireServer) -> Probed:
    """Return what the probe finds out."""
    async with FakeServer(wires) as server:
        return await probe(ControlCalls("the server", server.base_url), dialect(kind))


async def complete(
    server: FakeServer, reader: StreamReader, body: Mapping[str, Any]
) -> tuple[StreamResult, StreamFacts]:
    """Send one measured request."""
    async with StreamClient(clock=MonotonicClock(), request_timeout_s=5, connections=1) as client:
        message = {"messages": [{"role": "user", "content": "go"}], "max_tokens": 40}
        result = await client.complete(Endpoint(server.base_url, "any", extra_body=body), message, reader)
    assert result.error_kind is None, result.error_message
    return result, reader.facts()


@dataclass(frozen=True, slots=True)
class Expected:
    """What the probe must find of a release; facts that are not named must be unknown or false."""

    kind: str
    wires: Callable[[], WireServer]
    known: Mapping[str, Any]
    remedies: Mapping[str, str] = field(default_factory=dict)


RELEASES = [
    Expected(
        "vllm", vllm,
        {"version": "0.32.0", "models": ("smol",), "model": "smol", "max_model_len": 1024, "drafts": True,
         "per_request_acceptance": "round", "counters": True, "per_position": True, "running_requests": 0},
        {"cached_tokens": "--enable-prompt-tokens-details", "cache_reset": "VLLM_SERVER_DEV_MODE"},
    ),
    Expected(
        "sglang", sglang,
        {"version": "0.5.23", "max_model_len": 32_768, "drafts": True, "per_request_acceptance": "request", "per_position": True,
         "cached_tokens": True, "running_requests": 0,
         "speculative_config": {"method": "EAGLE3", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4,
                                "draft_model_path": "/models/qwen3-eagle3"}},
    ),
    Expected("sglang", old_sglang, {}, {"per_request_acceptance": "return_spec_tokens_details", "running_requests": "--enable-metrics"}),
    Expected(
        "trtllm", trtllm,
        {"version": "1.3.0", "drafts": True, "counters": True, "per_position": True, "cached_tokens": True,
         "speculative_config": {"method": "Eagle3", "num_tokens": 3}},
    ),
    Expected("trtllm", old_trtllm, {"version": "1.2.1", "cached_tokens": True}, {"counters": "return_perf_metrics"}),
    Expected(
        "lmdeploy", lmdeploy,
        {"drafts": True, "counters": True, "per_position": True, "running_requests": 0, "tokens_per_chunk": True},
    ),
    Expected("openai", openai, {}, {"per_request_acceptance": "engine kind"}),
]  # fmt: skip
ALWAYS = {"models": ("qwen3",), "model": "qwen3", "chat": True, "streaming": True, "usage_in_stream": True}
NAMES = [expected.wires().release for expected in RELEASES]


@pytest.mark.parametrize("expected", RELEASES, ids=NAMES)
async def test_what_a_release_can_tell_is_found_out(expected: Expected) -> None:
    """Every fact that its pages and answers show is found, nothing else is taken for known, and what is missing comes with the flag."""
    probed = await ask(expected.kind, expected.wires())
    found = {name: fact.value for name, fact in probed.facts().items() if fact.known and fact.value is not False}
    assert found == {**ALWAYS, **expected.known}
    for name, remedy in expected.remedies.items():
        assert remedy in (probed.facts()[name].remedy or ""), name


@pytest.mark.parametrize(
    ("kind", "wires", "cached", "spec"),
    [
        ("sglang", sglang, 256, FOUR_ROUNDS),
        ("sglang", old_sglang, None, None),
        ("trtllm", trtllm, 288, None),
        ("trtllm", old_trtllm, 288, None),
        ("lmdeploy", lmdeploy, None, None),
        ("openai", openai, None, None),
    ],
    ids=[name for name in NAMES if not name.startswith("vllm")],
)  # fmt: skip
async def test_one_answer(
    kind: str, wires: Callable[[], WireServer], cached: int | None, spec: SpecCounters | None
) -> None:
    """Text, tokens and what the answer tells of its acceptance, out of bytes that arrive in pieces of seven."""
    script, made = wires(), dialect(kind)
    async with FakeServer(script) as server:
        result, facts = await complete(server, made.reader(drafts=True), made.extra_bodies()[0])
    assert (result.text, result.finish_reason) == (TEXT, "stop")
    assert (facts.prompt_tokens, facts.cached_tokens, facts.output_tokens) == (320, cached, 12)
    assert (facts.spec, facts.spec_source) == (spec, None if spec is None else "request")


async def test_a_recorded_answer_of_vllm() -> None:
    """Four rounds of four drafted tokens accepted 4, 2, 0 and 1 of them: the histogram gives the positions."""
    made = dialect("vllm")
    async with FakeServer(vllm()) as server:
        result, facts = await complete(server, made.reader(drafts=True), made.extra_bodies()[0])
    assert (facts.prompt_tokens, facts.output_tokens, result.finish_reason) == (53, 40, "length")
    assert facts.spec == SpecCounters(4, 16, 7, (3, 2, 1, 1))
    assert (facts.spec_source, facts.decode_passes) == ("round", 32)  # the token ids of its chunks place the rounds


async def test_the_older_names_of_sglang_are_read_too() -> None:
    """An answer of 0.5.9 that was not streamed tells the same four rounds under its own names."""
    told = told_in(json.loads(wire("sglang-0.5.9-chat-whole")))
    assert told is not None
    assert told.spec == FOUR_ROUNDS


@pytest.mark.parametrize(
    ("kind", "wires", "spec"),
    [
        ("trtllm", trtllm, SpecCounters(4, 11, 7, (3, 2, 2))),
        ("lmdeploy", lmdeploy, SpecCounters(4, 12, 7, (3, 2, 2))),
        ("vllm", vllm, SpecCounters(4, 16, 7, (3, 2, 1, 1))),
    ],
    ids=["trtllm", "lmdeploy", "vllm"],
)
async def test_counters_around_a_request_are_its_own(
    kind: str, wires: Callable[[], WireServer], spec: SpecCounters
) -> None:
    """A request that had the server to itself is given what its counters grew by; vLLM's equal what the answer itself tells."""
    made = dialect(kind)
    async with FakeServer(wires()) as server:
        calls = ControlCalls("the server", server.base_url)

        async def page() -> str:
            return (await calls.send("GET", made.paths.metrics[0])).text

        window = ExclusiveWindow(page, made)
        await window.open()
        _, facts = await complete(server, made.reader(drafts=True), {})
        closed = await window.close(facts)
    assert closed.spec == spec
    assert closed.spec_source == ("round" if kind == "vllm" else "window")


async def test_gauges_of_sglang_are_attributed_to_nothing() -> None:
    """Its page has mean lengths and rates and a counter of calls: no counters of tokens, so no window."""
    made, pages = dialect("sglang"), [wire(f"sglang-0.5.23-metrics{which}").decode() for which in ("-before", "")]
    assert all("sglang:spec_accept_length" in page for page in pages)
    assert [made.counters(page) for page in pages] == [None, None]


async def test_a_request_of_somebody_else_shows() -> None:
    """SGLang finished one request between the two pages: ours, if we sent one; somebody else's, if we sent none."""
    made = dialect("sglang")
    before, after = (made.state(wire(f"sglang-0.5.23-metrics{which}").decode()) for which in ("-before", ""))
    assert (before, after) == (ServerState(0, 40), ServerState(0, 41))
    assert [foreign_requests(before, after, own) for own in (1, 0)] == [0, 1]


async def test_keys_that_a_server_tells_are_not_kept() -> None:
    """SGLang's ``/server_info`` holds the key of the server; nothing of it reaches the manifest."""
    probed = await ask("sglang", sglang())
    assert b"not-to-be-kept" in wire("sglang-0.5.23-server_info")
    assert "not-to-be-kept" not in json.dumps(probed.to_json() | {"settings": dict(probed.settings)})


async def test_a_llama_server_over_a_socket() -> None:
    """Recorded bytes of b11549: two rounds of eight drafted tokens, ten accepted, and counters that grew over the whole recording."""
    fixtures = Path(__file__).parent.parent / "fixtures"
    answer = (fixtures / "llamacpp_b11549_ngrammod_chat_stream_timings_per_token.sse").read_bytes()

    def script(request: Request) -> Reply:
        if request.path == "/v1/chat/completions":
            return Reply([(0, answer[at : at + 7]) for at in range(0, len(answer), 7)])
        if request.path == "/metrics":
            which = "after" if any(item.path != "/metrics" for item in server.requests) else "before"
            page = (fixtures / f"llamacpp_b11549_ngrammod_metrics_{which}.txt").read_bytes()
            return Reply([(0, page)], content_type="text/plain", framing="length")
        return json_reply({"status": "ok"})

    async with FakeServer(script) as server:
        calls = ControlCalls("the server", server.base_url)
        before = spec_counters((await calls.send("GET", "/metrics")).text)
        result, facts = await complete(
            server, LlamaCppReader(drafts=True, longest_draft=8), {"timings_per_token": True}
        )
        after = spec_counters((await calls.send("GET", "/metrics")).text)
    assert (facts.output_tokens, facts.decode_passes, facts.spec_source) == (17, 6, "round")
    assert facts.spec == SpecCounters(2, 16, 10, (2, 2, 1, 1, 1, 1, 1, 1))
    assert result.finish_reason == "stop"
    assert before is not None
    assert after is not None
    assert (after - before).num_draft_tokens >= 16
