"""A server that speaks OpenAI's chat completions and no more, each of its habits up to the test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.fake_server import DONE, Part, Reply, Request, delta, event, json_reply, usage


@dataclass
class PlainServer:
    """A script for :class:`tests.fake_server.FakeServer`.

    ``models`` are those it lists, ``None`` where it has no such list. ``cached`` are the prompt tokens that come from a cache from the
    second request on, ``None`` where it does not tell. ``tools`` is what it makes of a request with tools.
    """

    models: tuple[str, ...] | None = ("m",)
    streams: bool = True
    tells_usage: bool = True
    cached: int | None = None
    tools: str = "structured"
    logprobs: bool = True
    key: str | None = None
    date: str | None = None
    asked: list[Any] = field(default_factory=list)

    def __call__(self, request: Request) -> Reply:
        """Answer one request."""
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return json_reply({"error": {"message": f"no: {request.headers.get('authorization')}"}}, 401)
        if request.path == "/v1/models" and self.models is not None:
            headers = {} if self.date is None else {"date": self.date}
            reply = json_reply({"data": [{"id": name, "owned_by": "somebody"} for name in self.models]})
            return Reply(reply.parts, 200, reply.content_type, "length", headers=headers)
        if request.path != "/v1/chat/completions":
            return json_reply({"detail": "Not Found"}, 404)
        self.asked.append(request.json)
        return self._chat(request.json)

    def _chat(self, body: Any) -> Reply:
        if not self.streams:
            choice = {"index": 0, "message": {"role": "assistant", "content": "네."}, "finish_reason": "stop"}
            return json_reply({"choices": [choice], "usage": {"prompt_tokens": 300, "completion_tokens": 2}})
        if "tools" in body and self.tools == "refused":
            return json_reply({"error": {"message": "start me with a tool parser"}}, 400)
        parts: list[Part] = [(0, item) for item in self._deltas(body)]
        if self.tells_usage:
            cached = {} if self.cached is None else {"cached": self.cached if len(self.asked) > 1 else 0}
            counted = usage(300, 2, **cached)
            if self.cached is None:
                counted = event({"choices": [], "usage": {"prompt_tokens": 300, "completion_tokens": 2}})
            parts.append((0, counted))
        return Reply([*parts, (0, DONE)])

    def _deltas(self, body: Any) -> list[bytes]:
        if "tools" in body and self.tools == "structured":
            call = {"index": 0, "id": "c", "function": {"name": "get_weather", "arguments": "{}"}}
            return [delta(tool_calls=[call]), delta("tool_calls")]
        if "tools" in body and self.tools == "text":
            return [delta(content='<tool_call>{"name": "get_weather"}</tool_call>'), delta("stop")]
        choice: dict[str, Any] = {"index": 0, "delta": {"content": "네."}, "finish_reason": None}
        if body.get("logprobs") and self.logprobs:
            choice["logprobs"] = {"content": [{"token": "네", "logprob": -0.1}]}
        return [event({"choices": [choice]}), delta("stop")]
