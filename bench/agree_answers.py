"""One step asked of both engines: how each answer is read, and what their difference is.

Answers are streamed and read by the engines' own adapters, so that counts are those of a run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from harness.engines.base import Endpoint, StreamReader
from harness.records import SpecCounters
from harness.sse import EventParser

__all__ = ["Answer", "Outcome", "Side", "Verdict", "ask", "compare", "top_two_gap"]

Verdict = Literal["equal", "too long", "text", "prompt tokens", "refused"]
Counts = tuple[SpecCounters, SpecCounters]
"""Of llama.cpp and of the builtin engine."""

_PATH = "/v1/chat/completions"
_TIMEOUT_S = 600.0
_SHOWN = 60
# How each engine says that a prompt does not fit: llama.cpp by the type of the error, the builtin engine by its code.
_TOO_LONG = {"exceed_context_size_error", "context_length_exceeded"}


@dataclass(frozen=True, slots=True)
class Side:
    """One engine's arm: where it takes requests, and how its answers are read."""

    endpoint: Endpoint
    reader: Callable[[], StreamReader]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request: ``error`` as the server wrote it, or the rest; ``counts`` only where the arm drafts."""

    text: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    counts: SpecCounters | None = None
    error: dict[str, Any] | None = None

    @property
    def too_long(self) -> bool:
        """Whether the prompt does not fit the engine's context, and nothing else was wrong."""
        return self.error is not None and bool(_TOO_LONG & {str(self.error.get(key)) for key in ("type", "code")})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one step. ``gap`` is that of the two best tokens where the texts part, ``None`` where that is unknown.

    ``ended``: the answer ended itself. ``counts`` are there for equal answers of arms that draft.
    """

    step: str
    verdict: Verdict
    llamacpp: str = ""
    builtin: str = ""
    gap: float | None = None
    ended: bool = False
    counts: Counts | None = None


def top_two_gap(content: Sequence[dict[str, Any]], agreed: bytes) -> float | None:
    """Return the difference of the two best log probabilities at the first token beyond the text ``agreed``.

    ``None`` where no token lies beyond it: the answer ended there, and what it would have said next is not told.
    ``content`` is ``choices[0].logprobs.content`` with ``top_logprobs`` 2.
    """
    written = 0
    for token in content:
        written += len(bytes(token.get("bytes") or token["token"].encode()))
        if written > len(agreed):
            best = sorted((item["logprob"] for item in token["top_logprobs"]), reverse=True)
            return best[0] - best[1] if len(best) > 1 else None
    return None


async def compare(client: httpx.AsyncClient, llamacpp: Side, builtin: Side, step: str, body: dict[str, Any]) -> Outcome:
    """Ask both engines; answers that differ are asked of the builtin engine once more, for the gap where they part."""
    ours, theirs = await ask(client, builtin, body), await ask(client, llamacpp, body)
    if ours.too_long and (theirs.too_long or theirs.error is None):  # llama.cpp keeps no room for the answer
        return Outcome(step, "too long")
    if ours.error is not None or theirs.error is not None:
        return Outcome(step, "refused", _said(theirs), _said(ours))
    if ours.prompt_tokens != theirs.prompt_tokens:
        return Outcome(step, "prompt tokens", str(theirs.prompt_tokens), str(ours.prompt_tokens))
    if (ours.text, ours.finish_reason) == (theirs.text, theirs.finish_reason):
        both = theirs.counts, ours.counts
        counts = None if both[0] is None or both[1] is None else (both[0], both[1])
        return Outcome(step, "equal", ended=ours.finish_reason == "stop", counts=counts)
    agreed = _common(ours.text.encode(), theirs.text.encode())
    told = [
        f"{answer.text.encode()[len(agreed) :].decode(errors='replace')[:_SHOWN]} ({answer.finish_reason})"
        for answer in (theirs, ours)
    ]
    return Outcome(step, "text", told[0], told[1], await _gap(client, builtin.endpoint, body, agreed))


async def ask(client: httpx.AsyncClient, side: Side, body: dict[str, Any]) -> Answer:
    """Stream one chat completion and return what came of it."""
    endpoint, reader, events = side.endpoint, side.reader(), EventParser()
    request = {**endpoint.extra_body, "model": endpoint.model, **body}
    request |= {"stream": True, "stream_options": {"include_usage": True}}
    pieces: list[str] = []
    finish = None
    async with client.stream("POST", f"{endpoint.base_url}{_PATH}", json=request, timeout=_TIMEOUT_S) as response:
        if response.status_code != 200:
            return Answer(error=_error(response.status_code, await response.aread()))
        async for block in response.aiter_bytes():
            for name, data in events.feed(block):
                if data == b"[DONE]":
                    continue
                value = json.loads(data)
                if name == b"error" or "error" in value:
                    return Answer(error=_error(200, data))
                reader.chunk(time.monotonic_ns(), value)
                for choice in value.get("choices") or ():
                    pieces.append((choice.get("delta") or {}).get("content") or "")
                    finish = choice.get("finish_reason") or finish
    facts = reader.facts()
    if facts.prompt_tokens is None:
        return Answer(error={"message": "the answer broke off before its usage", "type": "broken off"})
    return Answer("".join(pieces), finish, facts.prompt_tokens, facts.spec)


async def _gap(client: httpx.AsyncClient, endpoint: Endpoint, body: dict[str, Any], agreed: bytes) -> float | None:
    extra = {key: value for key, value in endpoint.extra_body.items() if key != "return_rounds"} | {"drafter": None}
    request = {**extra, "model": endpoint.model, **body, "logprobs": True, "top_logprobs": 2}
    response = await client.post(f"{endpoint.base_url}{_PATH}", json=request, timeout=_TIMEOUT_S)
    if response.status_code != 200:
        return None
    scores = response.json()["choices"][0].get("logprobs") or {}
    return top_two_gap(scores.get("content") or [], agreed)


def _error(status: int, body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    told = value.get("error", value) if isinstance(value, dict) else body.decode(errors="replace")
    return {"status": status, **(told if isinstance(told, dict) else {"message": str(told)})}


def _said(answer: Answer) -> str:
    return "an answer" if answer.error is None else json.dumps(answer.error, ensure_ascii=False)[:200]


def _common(one: bytes, other: bytes) -> bytes:
    parted = (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one[: next(parted, min(len(one), len(other)))]
