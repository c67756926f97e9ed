"""A server that speaks vLLM's dialect (0.32) over a real socket: chunks of whole passes, counters, what it tells being up to the test."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.fake_server import DONE, Part, Reply, Request, delta, echo_answer, event, json_reply

TEXT = "text/plain; version=0.0.4"


@dataclass
class FakeVllm:
    """A script for :class:`tests.fake_server.FakeServer`.

    ``draft`` is (tokens drafted, tokens accepted) of every verify round, ``None`` for a server without a drafter. ``per_request`` is
    how its answers tell acceptance. ``refused`` are fields that it refuses, ``loading`` how many requests for ``/health`` it answers
    503, ``foreign`` how many requests of others it finishes beside each of ours.
    """

    draft: tuple[int, int] | None = None
    per_request: Literal["none", "summary", "detailed"] = "none"
    models: tuple[str, ...] = ("smol",)
    max_model_len: int | None = 4096
    metrics: bool = True
    config: Mapping[str, Any] | None = None
    refused: frozenset[str] = frozenset()
    key: str | None = None
    loading: int = 0
    foreign: int = 0
    tokens: int = 12
    finished: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    resets: int = 0

    def __call__(self, request: Request) -> Reply:
        """Answer one request."""
        path = request.path.partition("?")[0]
        if path == "/health":
            self.loading -= 1
            return json_reply({}, 503 if self.loading >= 0 else 200)
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return json_reply({"error": "Unauthorized"}, 401)
        if path == "/v1/chat/completions":
            return self._chat(request.json)
        return self._control(request, path)

    def _control(self, request: Request, path: str) -> Reply:
        if path == "/metrics" and self.metrics:
            return Reply([(0, self._page().encode())], content_type=TEXT, framing="length")
        if path == "/tokenize":
            return json_reply({"tokens": [zlib.crc32(word.encode()) % 999 for word in request.json["prompt"].split()]})
        if path == "/reset_prefix_cache" and self.config is not None:
            self.resets += request.method == "POST"
            return json_reply({}, 200 if request.method == "POST" else 405)
        plain: dict[str, Any] = {
            "/version": {"version": "0.32.0"},
            "/v1/models": {"data": [{"id": name, "max_model_len": self.max_model_len} for name in self.models]},
        }
        if self.config is not None:
            plain["/server_info"] = {"vllm_config": self.config}
        return json_reply(plain[path]) if path in plain else json_reply({"detail": "Not Found"}, 404)

    def _chat(self, body: dict[str, Any]) -> Reply:
        self.bodies.append(body)
        if taken := self.refused & {*body, *body.get("stream_options", {})}:
            return json_reply({"error": {"message": f"unknown field {min(taken)}"}}, 400)
        if body["model"] not in self.models:
            return json_reply({"error": {"message": f"The model `{body['model']}` does not exist."}}, 404)
        words = echo_answer(body)
        sizes = self._passes(len(words))
        counted = body.get("stream_options", {}).get("continuous_usage_stats")
        prompt = sum(len(message["content"].split()) for message in body["messages"])
        parts: list[Part] = [(0, delta(role="assistant", content=""))]
        sent = 0
        for size in [1, *sizes]:
            choice = {"index": 0, "delta": {"content": "".join(words[sent : sent + size])}, "finish_reason": None}
            sent += size
            usage = {"prompt_tokens": prompt, "completion_tokens": sent}
            parts.append((0, event({"choices": [choice], **({"usage": usage} if counted else {})})))
        self.finished += 1 + self.foreign
        last: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": len(words)}}
        if self.draft is not None:
            self._count(len(sizes))
            if self.per_request != "none":
                last["metrics"] = {"speculative_decoding": self._told(len(sizes))}
        return Reply([*parts, (0, delta("stop")), (0, event(last)), (0, DONE)])

    def _passes(self, tokens: int) -> list[int]:
        """Return how many tokens each pass after the prompt's brings; the last one may be cut short."""
        size = 1 if self.draft is None else self.draft[1] + 1
        left = tokens - 1
        return [size] * (left // size) + ([left % size] if left % size else [])

    def _count(self, rounds: int) -> None:
        assert self.draft is not None
        self.rounds += rounds
        self.drafted += rounds * self.draft[0]
        self.accepted += rounds * self.draft[1]

    def _told(self, rounds: int) -> dict[str, Any]:
        assert self.draft is not None
        drafted, accepted = self.draft
        histogram = [0] * (drafted + 1)
        histogram[accepted] = rounds
        told: dict[str, Any] = {
            "acceptance_histogram": histogram,
            "num_spec_steps": rounds,
            "num_draft_tokens": rounds * drafted,
            "num_accepted_draft_tokens": rounds * accepted,
        }
        if self.per_request == "detailed":
            told |= {"per_step_accepted": [accepted] * rounds, "per_step_drafted": [drafted] * rounds}
        return told

    def _page(self) -> str:
        lines = [
            "vllm:num_requests_running 0.0",
            "vllm:num_requests_waiting 0.0",
            f'vllm:request_success_total{{finished_reason="stop"}} {self.finished}.0',
            'vllm:cache_config_info{block_size="16",cache_dtype="auto",num_gpu_blocks="182"} 1.0',
        ]
        if self.draft is not None:
            counts = {"drafts": self.rounds, "draft_tokens": self.drafted, "accepted_tokens": self.accepted}
            lines += [f"vllm:spec_decode_num_{name}_total {count}.0" for name, count in counts.items()]
        return "\n".join(lines) + "\n"
