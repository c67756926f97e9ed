"""Requests to an OpenAI-compatible server: bounded in time, repeated where the server only asks for patience."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Self

import httpx

from drafters.training.stage import StageError

__all__ = ["AnswerError", "Connection"]

AGAIN = (429, 502, 503, 504)
FATAL = {401: "the key is refused; see --api-key-env", 403: "access is refused; see --api-key-env"}
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
CONNECT_S = 10.0


class AnswerError(Exception):
    """A request without a usable answer; ``status`` is the last HTTP status, ``None`` when there was none."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Connection:
    """A server at ``url``, with or without ``/v1`` at its end. An asynchronous context.

    Statuses 429, 502, 503 and 504 and lost connections are tried again up to ``retries`` times, with twice the wait each
    time, or as long as ``Retry-After`` says.
    """

    def __init__(
        self, url: str, api_key: str | None = None, timeout_s: float = 600, retries: int = 5, connections: int = 16
    ) -> None:
        """Raises StageError for an address that is none."""
        try:
            parsed = httpx.URL(url.rstrip("/").removesuffix("/v1"))
        except httpx.InvalidURL as error:
            raise StageError(
                f"--base-url {url!r} is no address ({error}); give one like http://host:8000/v1"
            ) from error
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise StageError(f"--base-url {url!r} given; allowed: http://host:port or https://host, /v1 or not")
        self.url = str(parsed.copy_with(username=None, password=None)).rstrip("/")
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._retries, self._first_wait_s = retries, FIRST_WAIT_S
        self._client = httpx.AsyncClient(
            headers=headers,
            auth=(parsed.username, parsed.password) if parsed.username else None,
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_S, pool=None),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            trust_env=not _local(parsed.host),  # a proxy of the environment cannot reach this machine's own servers
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> dict[str, Any]:
        """The object at a path. Raises AnswerError, or StageError when the server refuses us altogether."""
        return await self._request("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """What the server answers to an object. Raises as `get`."""
        return await self._request("POST", path, body)

    async def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        wait_s = self._first_wait_s
        for left in range(self._retries, -1, -1):
            after: float | None = None
            try:
                answer = await self._client.request(method, self.url + path, json=body)
            except httpx.RequestError as error:
                problem = AnswerError(f"{type(error).__name__} {error}".strip())
            else:
                if answer.is_success:
                    return _object(answer)
                if answer.status_code in FATAL:
                    raise StageError(f"{self.url} answers {answer.status_code}: {FATAL[answer.status_code]}")
                problem = AnswerError(f"HTTP {answer.status_code}: {_shown(answer)}", answer.status_code)
                if answer.status_code not in AGAIN:
                    raise problem
                after = _retry_after(answer)
            if not left:
                tries = self._retries + 1
                raise AnswerError(f"{problem}, {tries} times" if tries > 1 else str(problem), problem.status)
            # Not all at once: those that were refused together would come back together.
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0) if after is None else after)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        raise AssertionError("the last try returns or raises")


def _object(answer: httpx.Response) -> dict[str, Any]:
    try:
        value = answer.json()
    except ValueError as error:
        raise AnswerError(f"HTTP {answer.status_code} with a body that is no JSON: {_shown(answer)}") from error
    if not isinstance(value, dict):
        raise AnswerError(f"HTTP {answer.status_code} with a body that is no object: {_shown(answer)}")
    return value


def _shown(answer: httpx.Response) -> str:
    try:
        message = answer.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = answer.text
    return " ".join(str(message).split())[:300] or "an empty body"


def _retry_after(answer: httpx.Response) -> float | None:
    given = answer.headers.get("retry-after", "")
    try:
        return min(max(float(given), 0.0), LONGEST_WAIT_S)
    except ValueError:
        return None


def _local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
