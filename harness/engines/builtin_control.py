"""Control traffic with one builtin server: everything but the measured completions."""

from __future__ import annotations

from typing import Any

from harness.access import OPEN, Access
from harness.engines.control import ControlCalls
from harness.engines.counters import total
from harness.errors import EngineProtocolError

_BUSY = ("vllm:num_requests_running", "vllm:num_requests_waiting")


class BuiltinControl:
    """The control calls of one builtin server."""

    def __init__(self, base_url: str, access: Access = OPEN) -> None:
        self.calls = ControlCalls("the builtin server", base_url, access)

    async def info(self) -> dict[str, Any]:
        """Return ``/server_info``."""
        return await self.calls.json("GET", "/server_info")

    async def served_name(self) -> str:
        """Return the name under which the server knows its model."""
        data = (await self.calls.json("GET", "/v1/models")).get("data")
        first = data[0] if isinstance(data, list) and data else None
        if not isinstance(first, dict) or not isinstance(first.get("id"), str):
            raise EngineProtocolError(f"/v1/models of {self.calls.base_url} names no model: {data!r:.120}")
        return str(first["id"])

    async def metrics(self) -> str:
        """Return the metrics page."""
        return self.calls.ok(await self.calls.send("GET", "/metrics")).text

    async def busy(self) -> int | None:
        """Return how many requests run or wait, ``None`` if the server does not say."""
        return total(await self.metrics(), *_BUSY)

    async def reset_prefix_cache(self) -> None:
        """Forget the K/V that is kept for prompts that begin alike."""
        self.calls.ok(await self.calls.send("POST", "/reset_prefix_cache"))

    async def reset_drafting(self) -> None:
        """Forget what earlier rounds taught the choice of draft lengths."""
        self.calls.ok(await self.calls.send("POST", "/reset_drafting"))

    async def tokenize(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text."""
        return await self.calls.tokens({"prompt": text})
