"""The streaming client reads what the openai package reads from the same server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import openai
import pytest

from harness.engines.base import Endpoint, StreamFacts
from harness.replay.client import StreamClient
from harness.replay.clock import MonotonicClock
from tests.fake_server import DONE, FakeLlama, FakeServer, Reply, delta, usage

CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "find", "arguments": ""}}
ANSWERS = {
    "words": [
        delta(role="assistant", content=None),
        delta(content="보고"),
        delta(content="서입니다."),
        delta("stop"),
        usage(7, 3),
        DONE,
    ],
    "a tool call in pieces": [
        delta(tool_calls=[CALL]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"q": '}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '"색"}'}}]),
        delta("tool_calls"),
        usage(7, 9),
        DONE,
    ],
    "an empty chunk between": [
        delta(content=""),
        delta(content="a"),
        delta(content=""),
        delta(content="b"),
        delta("length"),
        usage(1, 2),
        DONE,
    ],
}


class Nothing:
    """A reader that takes no notice."""

    def chunk(self, t_ns: int, value: Mapping[str, Any]) -> None:
        """Ignore a chunk."""

    def facts(self) -> StreamFacts:
        """Know nothing."""
        return StreamFacts()


async def both(server: FakeServer) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return text, calls, finish reason and usage as our client and as the openai package read them."""
    messages = [{"role": "user", "content": "go"}]
    async with StreamClient(clock=MonotonicClock(), request_timeout_s=5, connections=1) as client:
        ours = await client.complete(
            Endpoint(server.base_url, "fake"), {"messages": messages, "max_tokens": 6}, Nothing()
        )
    text, finish, counts = "", None, None
    calls: dict[int, tuple[str, str]] = {}
    async with openai.AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0) as peer:
        stream = await peer.chat.completions.create(
            model="fake",
            messages=[{"role": "user", "content": "go"}],
            max_tokens=6,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            if chunk.usage is not None:
                counts = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
                for part in choice.delta.tool_calls or []:
                    name, arguments = calls.get(part.index, ("", ""))
                    function = part.function
                    if function is not None:
                        calls[part.index] = (name + (function.name or ""), arguments + (function.arguments or ""))
    mine = (ours.text, ours.tool_calls, ours.finish_reason, (ours.prompt_tokens, ours.completion_tokens))
    return mine, (text, tuple(calls.values()), finish, counts)


@pytest.mark.parametrize("answer", ANSWERS)
async def test_same_answer_as_the_openai_package(answer: str) -> None:
    """Text, tool calls, finish reason and usage agree, whatever the chunks look like."""
    async with FakeServer(lambda request: Reply([(0, part) for part in ANSWERS[answer]])) as server:
        ours, theirs = await both(server)
    assert ours == theirs


async def test_same_answer_from_the_dialect_of_llama_cpp() -> None:
    """The extra fields of llama.cpp's chunks disturb neither reader."""
    async with FakeServer(FakeLlama(draft=(2, 1))) as server:
        ours, theirs = await both(server)
    assert ours == theirs
    assert ours[3][1] == 6
