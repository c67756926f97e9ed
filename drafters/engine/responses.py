"""The bodies and chunks of both endpoints, in OpenAI's form with this engine's own additions. Imports no torch."""

from __future__ import annotations

import codecs
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import uuid4

import orjson

from drafters.engine import request_metrics
from drafters.engine.jobs import Job
from drafters.engine.protocol import ChatRequest, Generate
from drafters.engine.sequence import RunningSequence
from drafters.engine.text import Detokenizer, StopText, Text

__all__ = ["DONE", "Answer", "Scored", "event"]

DONE = b"data: [DONE]\n\n"
# What JSON can say and OpenAI's clients expect of a token that cannot be.
LOWEST_LOGPROB = -9999.0


class Scored(Protocol):
    """A token's log probability and the alternatives asked for (id, log probability)."""

    @property
    def token_id(self) -> int:
        """The token."""
        ...

    @property
    def logprob(self) -> float:
        """Its log probability."""
        ...

    @property
    def top(self) -> tuple[tuple[int, float], ...]:
        """The most probable tokens."""
        ...


class Answer:
    """One answer as it grows: takes a job's rounds, gives the chunks of a stream or the whole body."""

    def __init__(self, asked: Generate, job: Job, text: Text, model: str, num_spec_tokens: int | None) -> None:
        """``num_spec_tokens`` is the most that a round may draft for it; ``None`` when nothing drafts."""
        self._chat = isinstance(asked, ChatRequest)
        self._job = job
        self._text = text
        self._token_ids = asked.return_token_ids
        self._num_spec_tokens = num_spec_tokens
        kind = "chatcmpl" if self._chat else "cmpl"
        self._head: dict[str, Any] = {
            "id": f"{kind}-{uuid4().hex}",
            "object": "chat.completion" if self._chat else "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._chunk_head = {**self._head, "object": "chat.completion.chunk"} if self._chat else self._head
        self._detokenizer = Detokenizer(text)
        self._stop = StopText(job.request.stop)
        self._scores = _Scores(text, self._chat) if job.request.logprobs is not None else None
        self._first = True

    def chunk(self, token_ids: Sequence[int], scored: Sequence[Scored] | None, last: bool) -> bytes | None:
        """The event of one round; ``None`` when there is nothing to show yet."""
        shown = self._take(token_ids, last)
        scores = self._scores.more(scored) if self._scores is not None and scored is not None else None
        if not (shown or self._token_ids or scores):
            return None
        choice: dict[str, Any] = {"index": 0, "logprobs": scores, "finish_reason": None}
        if self._chat:
            choice["delta"] = {"role": "assistant", "content": shown} if self._first else {"content": shown}
        else:
            choice["text"] = shown
        if self._token_ids:
            choice["token_ids"] = token_ids
        made = {**self._chunk_head, "choices": [choice]}
        if self._token_ids and self._first:
            made["prompt_token_ids"] = self._job.request.prompt
        self._first = False
        return event(made)

    def last_chunk(self) -> bytes:
        """The event that says why the text ended."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, **self._end()}
        if self._chat:
            choice["delta"] = {"role": "assistant", "content": ""} if self._first else {}
        else:
            choice["text"] = ""
        return event({**self._chunk_head, "choices": [choice]})

    def usage_chunk(self) -> bytes:
        """The event with the counts."""
        return event({**self._chunk_head, "choices": [], "usage": self._usage(), "metrics": self._metrics()})

    def body(self, rounds: Sequence[tuple[Sequence[int], Sequence[Scored] | None]]) -> bytes:
        """The whole answer, made of all rounds' tokens."""
        token_ids = [token for tokens, _ in rounds for token in tokens]
        shown = self._take(token_ids, last=True)
        scores = None
        if self._scores is not None:
            scores = self._scores.more([score for _, scored in rounds for score in scored or ()])
        choice: dict[str, Any] = {"index": 0, "logprobs": scores, **self._end()}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": shown, "refusal": None}
        else:
            choice["text"] = shown
        made = {**self._head, "choices": [choice], "usage": self._usage(), "metrics": self._metrics()}
        if self._token_ids:
            choice["token_ids"] = token_ids
            made["prompt_token_ids"] = self._job.request.prompt
        return orjson.dumps(made)

    def _take(self, token_ids: Sequence[int], last: bool) -> str:
        stopped = last and self._sequence.matched_stop is not None
        return self._stop.feed(self._detokenizer.feed(token_ids), last, stopped)

    def _end(self) -> dict[str, Any]:
        sequence = self._sequence
        return {"finish_reason": sequence.finish_reason, "stop_reason": sequence.matched_stop}

    def _usage(self) -> dict[str, Any]:
        sequence = self._sequence
        prompt, output = len(sequence.request.prompt), sequence.num_output_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": sequence.cached_tokens},
        }

    def _metrics(self) -> dict[str, Any]:
        job, own = self._job, self._sequence.rounds
        spec = None
        if self._num_spec_tokens is not None:
            spec = request_metrics.speculative_decoding(own, self._num_spec_tokens)
        made: dict[str, Any] = {
            "time_to_first_token_ms": request_metrics.milliseconds(job.arrived_ns, job.first_ns),
            "generation_time_ms": request_metrics.milliseconds(job.first_ns, job.last_ns),
            "queue_time_ms": request_metrics.milliseconds(job.queued_ns, job.admitted_ns),
            "speculative_decoding": spec,
        }
        if job.wants_rounds:
            made["rounds"] = request_metrics.rounds(own, job.round_records)
        return made

    @property
    def _sequence(self) -> RunningSequence:
        assert self._job.sequence is not None  # an answer begins with the engine's first event
        return self._job.sequence


class _Scores:
    """Log probabilities in the form of either endpoint."""

    def __init__(self, text: Text, chat: bool) -> None:
        self._text = text
        self._chat = chat
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def more(self, scored: Sequence[Scored]) -> dict[str, Any]:
        """Those of some tokens that follow the ones before."""
        if self._chat:
            content = [
                {**self._one(score.token_id, score.logprob), "top_logprobs": [self._one(*pair) for pair in score.top]}
                for score in scored
            ]
            return {"content": content, "refusal": None}
        made: dict[str, list[Any]] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
        for score in scored:
            made["tokens"].append(self._name(score.token_id))
            made["token_logprobs"].append(_finite(score.logprob))
            made["text_offset"].append(self._offset)
            pairs = [*score.top, (score.token_id, score.logprob)]
            made["top_logprobs"].append({self._name(token): _finite(value) for token, value in pairs})
            if not self._text.is_special(score.token_id):
                self._offset += len(self._decoder.decode(self._text.token_bytes(score.token_id)))
        return made

    def _one(self, token_id: int, logprob: float) -> dict[str, Any]:
        raw = self._text.token_bytes(token_id)
        return {"token": self._name(token_id), "logprob": _finite(logprob), "bytes": list(raw)}

    def _name(self, token_id: int) -> str:
        """The token's text; bytes that are none are written out, as OpenAI does, so that no two look alike."""
        raw = self._text.token_bytes(token_id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def event(body: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(body) + b"\n\n"


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST_LOGPROB)
