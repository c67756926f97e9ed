"""Control traffic with one llama.cpp server: everything but the measured completions."""

from __future__ import annotations

from typing import Any

import httpx

from harness.access import OPEN, Access
from harness.engines.control import ControlCalls

DRAFTS_SOMEHOW = {False: "none", True: "unnamed"}  # what /slots tells of a server too old to name its drafter


class LlamaCppControl:
    """The control calls of the server of one arm."""

    def __init__(self, arm: str, base_url: str, access: Access = OPEN) -> None:
        self.calls = ControlCalls(f"the server of arm {arm!r}", base_url, access)

    async def props(self) -> dict[str, Any]:
        """Return ``/props``."""
        return await self.calls.json("GET", "/props")

    async def drafter(self) -> str | None:
        """Return what the server drafts with, ``None`` if it does not tell.

        ``/props`` says none of every server (b11549); the settings of a real completion tell the truth.
        """
        body = {"prompt": "1", "n_predict": 1, "temperature": 0, "cache_prompt": False}
        answer = await self.calls.json("POST", "/completion", body)
        types = (answer.get("generation_settings") or {}).get("speculative.types")
        if isinstance(types, str):
            return types
        slots = await self.calls.send("GET", "/slots")
        listed = slots.json() if slots.status_code == httpx.codes.OK else []
        known = [slot["speculative"] for slot in listed if isinstance(slot, dict) and "speculative" in slot]
        return DRAFTS_SOMEHOW[any(known)] if known else None

    async def model_facts(self) -> str:
        """Return what tells one model from another: parameters, bytes and vocabulary."""
        data = (await self.calls.json("GET", "/v1/models")).get("data")
        first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
        meta = first.get("meta") or {}
        return ", ".join(f"{key} {meta.get(key)}" for key in ("n_params", "size", "n_vocab"))

    async def metrics(self) -> str | None:
        """Return the metrics page, ``None`` if the server was started without."""
        response = await self.calls.send("GET", "/metrics")
        if response.status_code in (httpx.codes.NOT_FOUND, httpx.codes.NOT_IMPLEMENTED):
            return None
        return self.calls.ok(response).text

    async def erase(self, slot: int) -> None:
        """Erase the cached prompt of a slot; the server needs ``--slot-save-path`` for it."""
        await self.calls.json("POST", f"/slots/{slot}?action=erase", {})

    async def tokenize(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text, without a begin-of-sequence token."""
        return await self.calls.tokens({"content": text, "add_special": False})
