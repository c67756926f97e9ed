"""Control traffic with one builtin server: everything but the measured completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from harness.engines.counters import parse_samples
from harness.errors import EngineProtocolError, EngineUnreachable

_TIMEOUT_S = 30.0  # control calls wait for the round being computed
_HEALTH_TIMEOUT_S = 5.0
_BUSY = ("vllm:num_requests_running", "vllm:num_requests_waiting")


class BuiltinControl:
    """The control calls of one server. A connection per call: they are rare.

    Methods raise :class:`EngineUnreachable` if nothing answers and :class:`EngineProtocolError` on an unexpected answer.
    """

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    async def healthy(self) -> bool:
        """Tell whether the server is up and its engine works; never raises."""
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=_HEALTH_TIMEOUT_S) as client:
                response = await client.get(f"{self.base_url}/health")
        except (httpx.TransportError, httpx.InvalidURL):
            return False
        return response.status_code == httpx.codes.OK

    async def info(self) -> dict[str, Any]:
        """Return ``/server_info``."""
        return await self._json("GET", "/server_info")

    async def served_name(self) -> str:
        """Return the name under which the server knows its model."""
        data = (await self._json("GET", "/v1/models")).get("data")
        first = data[0] if isinstance(data, list) and data else None
        if not isinstance(first, dict) or not isinstance(first.get("id"), str):
            raise EngineProtocolError(f"/v1/models of {self.base_url} names no model: {data!r:.120}")
        return str(first["id"])

    async def metrics(self) -> str:
        """Return the metrics page."""
        return (await self._send("GET", "/metrics")).text

    async def busy(self) -> bool | None:
        """Tell whether any request runs or waits, ``None`` if the server does not say."""
        found = [item.value for item in parse_samples(await self.metrics()) if item.name in _BUSY]
        return any(found) if found else None

    async def reset_prefix_cache(self) -> None:
        """Forget the K/V that is kept for prompts that begin alike."""
        await self._send("POST", "/reset_prefix_cache")

    async def reset_drafting(self) -> None:
        """Forget what earlier rounds taught the choice of draft lengths."""
        await self._send("POST", "/reset_drafting")

    async def tokenize(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text."""
        answer = await self._json("POST", "/tokenize", {"prompt": text})
        tokens = answer.get("tokens")
        if not isinstance(tokens, list):
            raise EngineProtocolError(f"/tokenize of {self.base_url} gave no list 'tokens': {answer!r:.120}")
        return tuple(tokens)

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=_TIMEOUT_S) as client:
                response = await client.request(method, f"{self.base_url}{path}", json=body)
        except httpx.TransportError as error:
            raise EngineUnreachable(
                f"the builtin server at {self.base_url} does not answer {path}: {type(error).__name__} {error}"
            ) from error
        if response.status_code != httpx.codes.OK:
            raise EngineProtocolError(
                f"{path} of {self.base_url} answered {response.status_code}: {response.text!r:.200}"
            )
        return response

    async def _json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        response = await self._send(method, path, body)
        try:
            value = response.json()
        except ValueError as error:
            raise EngineProtocolError(f"{path} of {self.base_url} gave no JSON: {response.text!r:.120}") from error
        if not isinstance(value, dict):
            raise EngineProtocolError(f"{path} of {self.base_url} gave {type(value).__name__}, not an object")
        return value
