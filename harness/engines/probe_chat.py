"""The short chat completions with which a server is asked what its answers tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from harness.engines.base import StreamFacts
from harness.engines.control import ControlCalls
from harness.engines.dialect import Dialect
from harness.engines.facts import Fact
from harness.errors import EngineProtocolError
from harness.sse import EventParser, SseError

CHAT = "/v1/chat/completions"
_CHAT_TIMEOUT_S = 300.0  # a cold server compiles at its first request
_MAX_TOKENS = 48
# Long enough to fill two blocks of any prompt cache (vLLM on a CPU: 128 tokens each), and an answer that look-up drafters draft for.
_TEXT = "The quarterly report of the branch office goes to the head office on Thursday afternoon. "
_MESSAGES = ({"role": "user", "content": f"{_TEXT * 20}\n\nRepeat the text above, word for word."},)


@dataclass(frozen=True, slots=True)
class Answer:
    """One chat completion of the probe; ``error`` says why there is none."""

    extra_body: Mapping[str, Any]
    error: str | None = None
    status: int | None = None
    streamed: bool = False
    has_usage: bool = False
    usage_with_tokens: bool = False
    facts: StreamFacts = field(default_factory=StreamFacts)

    def fact(self, value: bool, yes: str, no: str, remedy: str | None = None) -> Fact[bool]:
        """Return what this answer showed; nothing if there was none."""
        if self.error is not None:
            return Fact(None, "no chat completion was answered")
        return Fact(True, yes) if value else Fact(False, no, remedy)


async def ask_twice(calls: ControlCalls, dialect: Dialect, model: str, always: Mapping[str, Any]) -> list[Answer]:
    """Return two answers to the same request, with the first extra fields that bring acceptance, or else the first that are taken."""
    taken: Answer | None = None
    for extra in dialect.extra_bodies():
        if taken is not None and not extra:
            break  # it cannot bring more
        answer = await _chat(calls, dialect, model, {**extra, **always})
        if answer.error is None and (taken is None or answer.facts.spec is not None):
            taken = answer
        if answer.facts.spec is not None:
            break
        if answer.error is not None and answer.status not in (400, 422):
            break  # no objection to a field: another request would meet the same
    if taken is None:
        return [answer]
    return [taken, await _chat(calls, dialect, model, taken.extra_body)]


async def _chat(calls: ControlCalls, dialect: Dialect, model: str, extra: Mapping[str, Any]) -> Answer:
    body = {
        "model": model, "messages": list(_MESSAGES), "max_tokens": _MAX_TOKENS, "temperature": 0.0, "stream": True,
        "stream_options": {"include_usage": True}, **extra,
    }  # fmt: skip
    response = await calls.send("POST", CHAT, body, timeout_s=_CHAT_TIMEOUT_S)
    said = calls.access.redact(f"{response.text.strip()[:200]!r}")
    if response.status_code != httpx.codes.OK:
        refusal = calls.access.refusal(response.status_code)
        why = f"POST {CHAT} answered {response.status_code}: {said}" + (f"; {refusal}" if refusal else "")
        return Answer(extra, error=why, status=response.status_code)
    streamed = response.headers.get("content-type", "").startswith("text/event-stream")
    try:
        chunks = _events(response.content) if streamed else [orjson.loads(response.content)]
    except (SseError, orjson.JSONDecodeError):
        return Answer(extra, error=f"POST {CHAT} gave neither events nor JSON: {said}", status=200)
    wrong = next((chunk for chunk in chunks if not isinstance(chunk, dict) or chunk.get("error")), None)
    if wrong is not None or not any(chunk.get("choices") for chunk in chunks):
        return Answer(extra, error=f"POST {CHAT} gave no chat completion: {said}", status=200)
    reader = dialect.reader(drafts=True)
    try:
        for number, chunk in enumerate(chunks):
            reader.chunk(number, chunk)
        facts = reader.facts()
    except (EngineProtocolError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return Answer(extra, error=f"POST {CHAT}: a chunk of unknown shape ({error}): {said}", status=200)
    counted = [chunk for chunk in chunks if (chunk.get("usage") or {}).get("completion_tokens")]
    return Answer(
        extra,
        status=200,
        streamed=streamed,
        has_usage=bool(counted),
        usage_with_tokens=streamed and sum(bool(chunk.get("choices")) for chunk in counted) > 1,
        facts=facts,
    )


def _events(content: bytes) -> list[Any]:
    parser = EventParser()
    events = [*parser.feed(content), *parser.finish()]
    return [orjson.loads(data) for name, data in events if data != b"[DONE]" and name in (b"", b"error")]
