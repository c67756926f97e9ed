"""Control traffic with one llama.cpp server: everything but the measured completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from harness.errors import EngineProtocolError, EngineUnreachable

_TIMEOUT_S = 30.0  # control calls queue behind the batch being computed
_HEALTH_TIMEOUT_S = 5.0
DRAFTS_SOMEHOW = {False: "none", True: "unnamed"}  # what /slots tells of a server too old to name its drafter


class LlamaCppControl:
    """The control calls of one server; ``arm`` is how errors call it. A connection per call: the server closes idle ones soon.

    Methods raise :class:`EngineUnreachable` if nothing answers and :class:`EngineProtocolError` on an unexpected answer.
    """

    def __init__(self, arm: str, base_url: str) -> None:
        self.arm = arm
        self.base_url = base_url

    async def healthy(self) -> bool:
        """Tell whether the server is up and its model loaded; never raises."""
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=_HEALTH_TIMEOUT_S) as client:
                response = await client.get(f"{self.base_url}/health")
        except (httpx.TransportError, httpx.InvalidURL):
            return False
        return response.status_code == httpx.codes.OK

    async def props(self) -> dict[str, Any]:
        """Return ``/props``."""
        return await self._json("GET", "/props")

    async def drafter(self) -> str | None:
        """Return what the server drafts with, ``None`` if it does not tell.

        ``/props`` says none of every server (b11549); the settings of a real completion tell the truth.
        """
        body = {"prompt": "1", "n_predict": 1, "temperature": 0, "cache_prompt": False}
        answer = await self._json("POST", "/completion", body)
        types = (answer.get("generation_settings") or {}).get("speculative.types")
        if isinstance(types, str):
            return types
        slots = await self._send("GET", "/slots")
        listed = slots.json() if slots.status_code == httpx.codes.OK else []
        known = [slot["speculative"] for slot in listed if isinstance(slot, dict) and "speculative" in slot]
        return DRAFTS_SOMEHOW[any(known)] if known else None

    async def model_facts(self) -> str:
        """Return what tells one model from another: parameters, bytes and vocabulary."""
        data = (await self._json("GET", "/v1/models")).get("data")
        first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
        meta = first.get("meta") or {}
        return ", ".join(f"{key} {meta.get(key)}" for key in ("n_params", "size", "n_vocab"))

    async def metrics(self) -> str | None:
        """Return the metrics page, ``None`` if the server was started without."""
        response = await self._send("GET", "/metrics")
        if response.status_code in (httpx.codes.NOT_FOUND, httpx.codes.NOT_IMPLEMENTED):
            return None
        return self._ok(response).text

    async def erase(self, slot: int) -> None:
        """Erase the cached prompt of a slot; the server needs ``--slot-save-path`` for it."""
        await self._json("POST", f"/slots/{slot}?action=erase", {})

    async def tokenize(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text, without a begin-of-sequence token."""
        answer = await self._json("POST", "/tokenize", {"content": text, "add_special": False})
        tokens = answer.get("tokens")
        if not isinstance(tokens, list):
            raise EngineProtocolError(f"/tokenize of arm {self.arm!r} gave no list 'tokens': {answer!r:.120}")
        return tuple(tokens)

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=_TIMEOUT_S) as client:
                return await client.request(method, f"{self.base_url}{path}", json=body)
        except httpx.TransportError as error:
            raise EngineUnreachable(
                f"the server of arm {self.arm!r} at {self.base_url} does not answer {path}: {type(error).__name__} {error}"
            ) from error

    def _ok(self, response: httpx.Response) -> httpx.Response:
        if response.status_code != httpx.codes.OK:
            raise EngineProtocolError(
                f"{response.request.url.path} of arm {self.arm!r} answered {response.status_code}: {response.text!r:.200}"
            )
        return response

    async def _json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        response = self._ok(await self._send(method, path, body))
        try:
            value = response.json()
        except ValueError as error:
            raise EngineProtocolError(f"{path} of arm {self.arm!r} gave no JSON: {response.text!r:.120}") from error
        if not isinstance(value, dict):
            raise EngineProtocolError(f"{path} of arm {self.arm!r} gave {type(value).__name__}, not an object")
        return value
