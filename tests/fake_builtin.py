"""A script for `FakeServer` that speaks the dialect of the builtin server, for tests of the whole harness without torch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fake_server import DONE, Part, Reply, Request, delta, echo_answer, event, json_reply, word_tokens

ROUND_NS = 1_000


@dataclass
class FakeBuiltin:
    """One server with drafters by name. A drafter's ``(drafted, accepted)`` is the same in every round but the last, which is cut
    where the answer ends; a request that names no drafter drafts nothing.

    ``clock_ns`` is added to the server's clock, as that of another machine. ``faults`` replaces the reply of the chat requests with
    these numbers. Counters move when a request begins, so read them when the server is quiet.
    """

    drafts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    specs: Mapping[str, Any] = field(default_factory=dict)
    context_tokens: int = 4096
    max_sequences: int = 8
    clock_ns: int = 0
    miscounted: int = 0
    """Drafted tokens that the metrics page leaves out."""
    faults: dict[int, Reply] = field(default_factory=dict)
    chat_requests: int = 0
    rounds: int = 0
    resets: int = 0
    drafting_resets: int = 0
    drafts_counted: int = 0
    drafted: int = 0
    accepted_per_position: list[int] = field(default_factory=list)

    def __call__(self, request: Request) -> Reply:
        """Answer one request."""
        path = request.path.partition("?")[0]
        if path == "/v1/chat/completions":
            self.chat_requests += 1
            return self.faults.get(self.chat_requests - 1) or self._chat(request.json)
        if path == "/metrics":
            return Reply([(0, self._metrics().encode())], content_type="text/plain; version=0.0.4", framing="length")
        if path == "/tokenize":
            tokens = word_tokens(request.json["prompt"])
            return json_reply({"tokens": tokens, "count": len(tokens), "max_model_len": self.context_tokens})
        if path in ("/reset_prefix_cache", "/reset_drafting") and request.method == "POST":
            self.resets += path == "/reset_prefix_cache"
            self.drafting_resets += path == "/reset_drafting"
            return Reply([], framing="length")
        plain: dict[str, Any] = {
            "/health": {},
            "/v1/models": {"object": "list", "data": [{"id": "tiny", "object": "model", "owned_by": "spec-harness"}]},
            "/server_info": {
                "config": {
                    "model": "tiny",
                    "dtype": "float32",
                    "port": 1,
                    "drafters": dict(self.specs),
                    "context_tokens": self.context_tokens,
                    "max_sequences": self.max_sequences,
                },
                "versions": {"torch": "2"},
                "model": {"sha256": "00", "storage": "float32"},
                "threads": 1,
            },
        }
        if path in plain:
            return json_reply(plain[path])
        return json_reply({"error": {"message": "no such path", "type": "not_found", "param": None, "code": None}}, 404)

    def _chat(self, body: Mapping[str, Any]) -> Reply:
        name = body["drafter"]
        if name is not None and name not in self.drafts:
            error = {
                "message": f"unknown drafter {name!r}",
                "type": "invalid_request_error",
                "param": "drafter",
                "code": None,
            }
            return json_reply({"error": error}, 400)
        words = echo_answer(body)
        rounds = self._rounds(len(words) - 1, self.drafts.get(name, (0, 0)))
        parts: list[Part] = [(0, delta(role="assistant", content=""))]
        done = 0
        for size in [1, *(item["num_tokens"] for item in rounds)]:
            parts.append((0, delta(content="".join(words[done : done + size]))))
            done += size
        prompt = sum(len(word_tokens(message["content"] or "")) for message in body["messages"])
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": len(words),
            "total_tokens": prompt + len(words),
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        metrics = {"time_to_first_token_ms": 1.0, "rounds": rounds} if body.get("return_rounds") else {}
        last = event({"choices": [], "usage": usage, "metrics": metrics})
        reason = "length" if len(words) == body.get("max_tokens") else "stop"
        return Reply([*parts, (0, delta(reason)), (0, last), (0, DONE)])

    def _rounds(self, tokens: int, draft: tuple[int, int]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        drafted, accepted = draft
        while tokens > 0:
            kept = min(accepted + 1, tokens)
            tokens -= kept
            self.rounds += 1
            self.drafts_counted += drafted > 0
            self.drafted += drafted
            self._count(accepted)
            found.append(
                {
                    "round_index": self.rounds,
                    "t_ns": time.monotonic_ns() + self.clock_ns,
                    "batch_size": 1,
                    "num_draft_tokens": drafted,
                    "num_accepted_tokens": accepted,
                    "num_tokens": kept,
                    "draft_ns": ROUND_NS,
                    "verify_ns": 2 * ROUND_NS,
                    "host_ns": 3 * ROUND_NS,
                }
            )
        return found

    def _count(self, accepted: int) -> None:
        self.accepted_per_position += [0] * (accepted - len(self.accepted_per_position))
        for position in range(accepted):
            self.accepted_per_position[position] += 1

    def _metrics(self) -> str:
        label = 'engine="0",model_name="tiny"'
        totals = {
            "spec_decode_num_drafts_total": self.drafts_counted,
            "spec_decode_num_draft_tokens_total": self.drafted - self.miscounted,
            "spec_decode_num_accepted_tokens_total": sum(self.accepted_per_position),
            "num_requests_running": 0,
            "num_requests_waiting": 0,
        }
        lines = [f"vllm:{name}{{{label}}} {float(value)}" for name, value in totals.items()]
        lines += [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{label},position="{position}"}} {float(count)}'
            for position, count in enumerate(self.accepted_per_position)
        ]
        return "\n".join(["# HELP vllm:num_requests_running Requests.", *lines, ""])


def described(**specs: Mapping[str, Any]) -> dict[str, Any]:
    """Return drafters as a server's configuration describes them, with every default spelt out."""
    from drafters.engine.config import ServedDrafter

    return {
        name: ServedDrafter.model_validate(
            {
                "spec": {key: value for key, value in spec.items() if key != "lengths"},
                "lengths": spec.get("lengths", "fixed"),
            }
        ).model_dump(mode="json")
        for name, spec in specs.items()
    }


__all__: Sequence[str] = ["FakeBuiltin", "described"]
