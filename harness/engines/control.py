"""Control calls over HTTP, as the adapters of all engines make them: everything but the measured completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from harness.errors import EngineProtocolError, EngineUnreachable

_TIMEOUT_S = 30.0  # control calls wait for the batch being computed
_HEALTH_TIMEOUT_S = 5.0


class ControlCalls:
    """Calls to one server; ``who`` is how errors call it. A connection per call: they are rare, and servers close idle ones.

    Methods raise :class:`EngineUnreachable` if nothing answers and :class:`EngineProtocolError` on an unexpected answer.
    """

    def __init__(self, who: str, base_url: str) -> None:
        self.who = who
        self.base_url = base_url

    async def healthy(self) -> bool:
        """Tell whether ``/health`` says that the server is up and its model loaded; never raises."""
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=_HEALTH_TIMEOUT_S) as client:
                response = await client.get(f"{self.base_url}/health")
        except (httpx.TransportError, httpx.InvalidURL):
            return False
        return response.status_code == httpx.codes.OK

    async def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        """Return the answer, whatever its status."""
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=_TIMEOUT_S) as client:
                return await client.request(method, f"{self.base_url}{path}", json=body)
        except httpx.TransportError as error:
            raise EngineUnreachable(
                f"{self.who} at {self.base_url} does not answer {path}: {type(error).__name__} {error}"
            ) from error

    def ok(self, response: httpx.Response) -> httpx.Response:
        """Return an answer of status 200 and refuse any other."""
        if response.status_code != httpx.codes.OK:
            raise EngineProtocolError(
                f"{response.request.url.path} of {self.who} at {self.base_url} answered {response.status_code}: "
                f"{response.text!r:.200}"
            )
        return response

    async def json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the JSON object of an answer of status 200."""
        response = self.ok(await self.send(method, path, body))
        try:
            value = response.json()
        except ValueError as error:
            raise EngineProtocolError(
                f"{path} of {self.who} at {self.base_url} gave no JSON: {response.text!r:.120}"
            ) from error
        if not isinstance(value, dict):
            raise EngineProtocolError(
                f"{path} of {self.who} at {self.base_url} gave {type(value).__name__}, not an object"
            )
        return value

    async def tokens(self, body: Mapping[str, Any]) -> tuple[int, ...]:
        """Return what ``/tokenize`` makes of ``body``."""
        answer = await self.json("POST", "/tokenize", body)
        tokens = answer.get("tokens")
        if not isinstance(tokens, list):
            raise EngineProtocolError(
                f"/tokenize of {self.who} at {self.base_url} gave no list 'tokens': {answer!r:.120}"
            )
        return tuple(tokens)
