"""A server that sends what a real engine sends (``tests/engines/wires``), byte by byte in awkward pieces, over a real socket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fake_server import Reply, Request, json_reply

WIRES = Path(__file__).parent / "wires"
CHAT = "/v1/chat/completions"
PIECE = 7  # bytes: no multiple of a Hangul letter, of an event or of a line


def wire(name: str) -> bytes:
    """Return a recorded or written body."""
    return (WIRES / f"{name}.txt").read_bytes()


@dataclass
class WireServer:
    """A script for :class:`tests.fake_server.FakeServer` that plays one release of one engine.

    ``pages`` maps paths to bodies of plain answers. The metrics page changes with the first chat completion from ``metrics-before``
    to ``metrics``, where the release has both. ``plain`` names the answer to a request that does not ask for acceptance, where that is
    another, and ``refuses`` a field that is refused.
    """

    release: str
    metrics: str = "/metrics"
    pages: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, Any] = field(default_factory=lambda: {"id": "qwen3", "object": "model"})
    asks: str | None = None
    refuses: str | None = None
    chats: int = 0
    bodies: list[Any] = field(default_factory=list)

    def __call__(self, request: Request) -> Reply:
        """Answer one request."""
        path = request.path.partition("?")[0]
        if path == CHAT:
            return self._chat(request.json)
        if path == "/v1/models":
            return json_reply({"object": "list", "data": [self.models]})
        if path == self.metrics:
            before = f"{self.release}-metrics-before"
            name = before if not self.chats and (WIRES / f"{before}.txt").exists() else f"{self.release}-metrics"
            return Reply([(0, wire(name))], content_type="text/plain; version=0.0.4", framing="length")
        if path in self.pages:
            return Reply(
                [(0, wire(f"{self.release}-{self.pages[path]}"))], content_type="application/json", framing="length"
            )
        return json_reply({"detail": "Not Found"}, 404)

    def _chat(self, body: Any) -> Reply:
        self.bodies.append(body)
        if self.refuses is not None and self.refuses in body:
            return Reply([(0, wire(f"{self.release}-refusal"))], 400, "application/json", "length")
        self.chats += 1
        plain = self.asks is not None and not body.get(self.asks)
        data = wire(f"{self.release}-chat-plain" if plain else f"{self.release}-chat")
        return Reply([(0, data[at : at + PIECE]) for at in range(0, len(data), PIECE)])
