"""Questions to the model itself: is the answer streamed, with what counts, with tools and log-probabilities."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.doctor.diagnosis import Observation
from harness.engines.base import Endpoint, StreamFacts, StreamReader
from harness.replay.answer import StreamResult
from harness.replay.client import StreamClient
from harness.replay.clock import MonotonicClock

_MAX_TOKENS = 48
_SENTENCE = "The quarterly report of the branch office goes to the head office on Thursday afternoon. "
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells today's weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One streamed answer, with what its reader found in it."""

    result: StreamResult
    facts: StreamFacts

    @property
    def first_token_ms(self) -> float | None:
        """From sending to the first token."""
        first, sent = self.result.first_token_ns, self.result.sent_ns
        return None if first is None or sent is None else (first - sent) / 1e6

    @property
    def seconds(self) -> float | None:
        """From sending to the end."""
        return None if self.result.sent_ns is None else (self.result.end_ns - self.result.sent_ns) / 1e9


def fresh_prompt() -> str:
    """Return a text to be repeated, which no cache of prompts can hold: it is long enough to fill some blocks of one."""
    return f"Note {secrets.token_hex(8)}. {_SENTENCE * 20}\n\nRepeat the text above, word for word."


async def stream(endpoint: Endpoint, reader: StreamReader, prompt: str, timeout_s: float) -> Asked:
    """Ask for an answer of 48 tokens the way a run does, over the same client."""
    result = await _complete(endpoint, reader, _question(prompt, _MAX_TOKENS), timeout_s)
    return Asked(result, reader.facts())


def streaming(asked: Asked) -> Observation:
    """Tell how the answer came."""
    if asked.result.error_kind is not None:
        return Observation("streaming", "failed", "bad", {"why": asked.result.error_message})
    values = {
        "chunks": asked.result.chunks,
        "first_token_ms": asked.first_token_ms,
        "seconds": asked.seconds,
    }
    return Observation("streaming", "good", "good", values)


def usage(asked: Asked) -> Observation:
    """Tell whether the stream carried counts of tokens."""
    prompt, output = asked.result.prompt_tokens, asked.result.completion_tokens
    if prompt is None or output is None:
        return Observation("usage", "missing", "warning")
    return Observation("usage", "good", "good", {"prompt_tokens": prompt, "output_tokens": output})


async def tools(endpoint: Endpoint, reader: StreamReader, timeout_s: float) -> Observation:
    """Tell whether tool calls come as such, as text, or not at all."""
    body = _question("What is the weather in Seoul today? Use the tool.", 64) | {
        "tools": [_TOOL],
        "tool_choice": "auto",
    }
    result = await _complete(endpoint, reader, body, timeout_s)
    if result.error_kind not in (None, "empty"):
        return Observation("tools", "refused", "note", {"why": result.error_message})
    if result.tool_calls:
        return Observation("tools", "structured", "good", {"name": result.tool_calls[0][0]})
    return Observation("tools", "text" if "get_weather" in result.text else "unused", "note")


async def logprobs(endpoint: Endpoint, timeout_s: float) -> Observation:
    """Tell whether log-probabilities come with an answer."""
    reader = _Logprobs()
    body = _question("Say hello.", 2) | {"logprobs": True, "top_logprobs": 1}
    result = await _complete(endpoint, reader, body, timeout_s)
    if result.error_kind not in (None, "empty"):
        return Observation("logprobs", "refused", "note", {"why": result.error_message})
    return Observation("logprobs", "good", "good") if reader.found else Observation("logprobs", "missing", "note")


class _Logprobs:
    """Looks for log-probabilities and reads nothing else."""

    def __init__(self) -> None:
        self.found = False

    def chunk(self, t_ns: int, value: Mapping[str, Any]) -> None:
        """Look at one chunk."""
        for choice in value.get("choices") or ():
            told = choice.get("logprobs")
            self.found = self.found or bool(told and told.get("content"))

    def facts(self) -> StreamFacts:
        """Tell nothing."""
        return StreamFacts()


def _question(content: str, max_tokens: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": max_tokens, "temperature": 0.0}


async def _complete(
    endpoint: Endpoint, reader: StreamReader, body: Mapping[str, Any], timeout_s: float
) -> StreamResult:
    async with StreamClient(clock=MonotonicClock(), request_timeout_s=timeout_s, connections=1) as client:
        return await client.complete(endpoint, body, reader)
