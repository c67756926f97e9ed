"""Control calls over HTTP, as the adapters of all engines make them: everything but the measured completions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx

from harness import tls
from harness.access import OPEN, Access
from harness.errors import EngineProtocolError, EngineUnreachable

_TIMEOUT_S = 30.0  # control calls wait for the batch being computed
_HEALTH_TIMEOUT_S = 5.0
_LATE = "it hangs, works on something long, or is out of reach; look at its log, and try again when it is idle"


class ControlCalls:
    """Calls to one server; ``who`` is how errors call it. A connection per call: they are rare, and servers close idle ones.

    Methods raise :class:`EngineUnreachable` if nothing answers and :class:`EngineProtocolError` on an unexpected answer; no message
    holds a secret of ``access``.
    """

    def __init__(self, who: str, base_url: str, access: Access = OPEN) -> None:
        self.who = who
        self.base_url = base_url
        self.access = access
        self._context = access.tls

    async def healthy(self, path: str = "/health") -> bool:
        """Tell whether ``path`` says that the server is up and its model loaded; never raises for a server that does not."""
        return await self.status(path) == httpx.codes.OK

    async def status(self, path: str) -> int | None:
        """Return the status that ``path`` answers, ``None`` if nothing does; never raises for a server that does not."""
        try:
            async with self._client(_HEALTH_TIMEOUT_S) as client:
                response = await client.get(f"{self.base_url}{path}")
        except (httpx.TransportError, httpx.InvalidURL):
            return None
        return response.status_code

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = _TIMEOUT_S
    ) -> httpx.Response:
        """Return the answer, whatever its status."""
        try:
            async with self._client(timeout_s) as client:
                return await client.request(method, f"{self.base_url}{path}", json=body)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self._unreached(path, error, timeout_s) from error

    async def round_trips(self, path: str, times: int) -> tuple[list[int], httpx.Response]:
        """Return the nanoseconds that each GET of ``path`` took, over one connection that stood already, and the last answer."""
        taken: list[int] = []
        try:
            async with self._client(_TIMEOUT_S) as client:
                response = await client.get(f"{self.base_url}{path}")
                for _ in range(times):
                    began = time.monotonic_ns()
                    response = await client.get(f"{self.base_url}{path}")
                    taken.append(time.monotonic_ns() - began)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self._unreached(path, error, _TIMEOUT_S) from error
        return taken, response

    def _unreached(self, path: str, error: Exception, timeout_s: float) -> EngineUnreachable:
        failed = tls.ssl_error(error)
        if isinstance(error, httpx.TimeoutException):
            text = f"{self.who} at {self.base_url} does not answer {path} within {timeout_s:g} s: {type(error).__name__}; {_LATE}"
            return EngineUnreachable(self.access.redact(text))
        why = f"{type(error).__name__} {error}" if failed is None else tls.explain(failed, self._authority)
        if isinstance(error, httpx.ReadError) and failed is None and self.base_url.startswith("https:"):
            why += f"; {tls.CUT_OFF}"
        elif isinstance(error, httpx.ReadError | httpx.RemoteProtocolError) and self.base_url.startswith("http:"):
            why += "; is it https? Then write https:// in its address"
        return EngineUnreachable(self.access.redact(f"{self.who} at {self.base_url} does not answer {path}: {why}"))

    @property
    def _authority(self) -> str:
        return httpx.URL(self.base_url).netloc.decode()

    def _client(self, timeout_s: float) -> httpx.AsyncClient:
        """Return a client for one call. Its TLS context is made once: reading a system's authorities takes tens of milliseconds."""
        if self._context is None:
            self._context = self.access.context(self.base_url) or tls.trusting_nobody()
        proxy = self.access.proxy_for(self.base_url)
        through = None
        if proxy is not None:
            own = None if proxy.authorization is None else {"proxy-authorization": proxy.authorization}
            through = httpx.Proxy(proxy.url, headers=own, ssl_context=self.access.context(proxy.url))
        return httpx.AsyncClient(
            trust_env=False, timeout=timeout_s, headers=self.access.headers, verify=self._context, proxy=through
        )

    def ok(self, response: httpx.Response) -> httpx.Response:
        """Return an answer of status 200 and refuse any other."""
        if response.status_code != httpx.codes.OK:
            refusal = self.access.refusal(response.status_code)
            raise EngineProtocolError(
                self.access.redact(
                    f"{response.request.url.path} of {self.who} at {self.base_url} answered {response.status_code}: "
                    f"{response.text!r:.200}{'' if refusal is None else f'; {refusal}'}"
                )
            )
        return response

    async def json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the JSON object of an answer of status 200."""
        response = self.ok(await self.send(method, path, body))
        try:
            value = response.json()
        except ValueError as error:
            raise EngineProtocolError(
                self.access.redact(f"{path} of {self.who} at {self.base_url} gave no JSON: {response.text!r:.120}")
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
                self.access.redact(f"/tokenize of {self.who} at {self.base_url} gave no list 'tokens': {answer!r:.120}")
            )
        return tuple(tokens)
