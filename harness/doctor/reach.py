"""The way to a server: connection, TLS, key, list of models, round trips and clocks."""

from __future__ import annotations

import asyncio
import ssl
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

import httpx

from harness import tls
from harness.access import Access
from harness.doctor.diagnosis import Observation
from harness.engines.control import ControlCalls
from harness.errors import EngineUnreachable
from harness.replay.dialing import ProxyRefused, Route, dial, reason, route_to

_MODELS = "/v1/models"
_CONNECT_S = 10.0
_ROUND_TRIPS = 5
_WHO = "the server"
_CLOCK_OFF_S = 5.0


@dataclass(frozen=True, slots=True)
class Way:
    """What was found on the way; ``names`` are the served models, empty where they are not told, ``owners`` who made them."""

    observations: tuple[Observation, ...]
    names: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    listed: str | None = None
    """Why the models are not told."""

    @property
    def blocked(self) -> bool:
        """Whether the examination ends here."""
        return any(item.level == "bad" for item in self.observations)


async def explore(base_url: str, access: Access) -> Way:
    """Go to the server as far as its list of models.

    Raises:
        UsageError: if the address is none.
    """
    route = route_to(base_url, access)
    seen, connect_ns = await _connect(route, access)
    if isinstance(seen, Observation):
        return Way((seen,))
    calls = ControlCalls(_WHO, base_url, access)
    try:
        taken, response = await calls.round_trips(_MODELS, _ROUND_TRIPS)
    except EngineUnreachable as error:
        return Way((Observation("reach", "failed", "bad", {"why": str(error)}),))
    values: dict[str, Any] = {
        "place": route.authority,
        "connect_ms": connect_ns / 1e6,
        "round_trip_ms": statistics.median(taken) / 1e6,
    }
    code = "direct"
    if route.proxy is not None:
        code, values["proxy"] = "proxy", route.proxy.authority
    reached = Observation("reach", code, "good" if code == "direct" else "warning", values)
    first = (reached, _tls(route, access, seen))
    refusal = access.refusal(response.status_code)
    if refusal is not None:
        why = {"status": response.status_code, "why": refusal}
        return Way((*first, Observation("key", "refused", "bad", why)))
    blocked = _no_interface(response)
    if blocked is not None:
        return Way((*first, blocked))
    names, owners = _models(response)
    listed = None if names else access.redact(f"GET {_MODELS} answered {_unlisted(response)}")
    found = (*first, await _key(base_url, access), _clock(response))
    return Way(found, names, owners, listed)


class _Look(asyncio.Protocol):
    """Carries nothing: looks at the connection and leaves."""

    def __init__(self) -> None:
        self.secure: ssl.SSLObject | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take what the handshake showed."""
        self.transport = cast(asyncio.Transport, transport)
        self.secure = transport.get_extra_info("ssl_object")


async def _connect(route: Route, access: Access) -> tuple[ssl.SSLObject | Observation | None, int]:
    began = time.monotonic_ns()
    try:
        async with asyncio.timeout(_CONNECT_S):
            look = await dial(route, _Look)
    except TimeoutError:
        why = f"no connection to {route.first_hop} within {_CONNECT_S:g} s"
        return Observation("reach", "failed", "bad", {"why": why}), 0
    except ProxyRefused as error:
        why = f"the proxy {route.first_hop} opens no way to {route.authority}: {error}"
        return Observation("reach", "failed", "bad", {"why": access.redact(why)}), 0
    except OSError as error:
        failed = tls.ssl_error(error)
        if failed is not None:
            return Observation("tls", "failed", "bad", {"why": tls.explain(failed, route.authority)}), 0
        why = f"cannot connect to {route.first_hop}: {reason(error)}; is the server running there?"
        return Observation("reach", "failed", "bad", {"why": access.redact(why)}), 0
    taken = time.monotonic_ns() - began
    if look.transport is not None:
        look.transport.abort()
    return look.secure, taken


def _tls(route: Route, access: Access, seen: ssl.SSLObject | None) -> Observation:
    if route.tls is None or seen is None:
        return Observation("tls", "none", "good")
    version = seen.version() or "TLS"
    certificate = seen.getpeercert()
    if not access.verify or not certificate:
        return Observation("tls", "unchecked", "warning", {"version": version})
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), UTC).date().isoformat()
    return Observation("tls", "trusted", "good", {"version": version, "name": _name(certificate), "until": until})


def _name(certificate: Mapping[str, Any]) -> str:
    """Return the first name that a certificate is made out to."""
    alternatives = certificate.get("subjectAltName") or ()
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return str(next((value for _, value in alternatives), None) or next(iter(common), "?"))


async def _key(base_url: str, access: Access) -> Observation:
    """Tell whether the server asks for a key at all, once it has let us in."""
    if access.key_from is None:
        return Observation("key", "none", "good")
    response = await ControlCalls(_WHO, base_url, replace(access, headers={})).send("GET", _MODELS)
    asked = response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)
    return Observation("key", "accepted" if asked else "unneeded", "good", {"source": access.key_from})


def _no_interface(response: httpx.Response) -> Observation | None:
    """Return what speaks against an OpenAI-compatible server behind the answer to the list of models."""
    status = response.status_code
    if status == httpx.codes.SERVICE_UNAVAILABLE:
        return Observation("models", "loading", "bad", {"why": f"GET {_MODELS} answered 503"})
    page = response.headers.get("content-type", "").startswith(("text/html", "text/plain"))
    why = f"GET {_MODELS} answered {status} ({response.headers.get('content-type', 'no content type')})"
    if 300 <= status < 400:
        why += f", pointing to {response.headers.get('location', 'nowhere')!r:.120}"
        return Observation("models", "no_interface", "bad", {"why": why})
    if page or status >= 500:
        return Observation("models", "no_interface", "bad", {"why": why})
    return None


def _models(response: httpx.Response) -> tuple[tuple[str, ...], tuple[str, ...]]:
    try:
        value = response.json()
    except ValueError:
        return (), ()
    data = value.get("data") if isinstance(value, Mapping) else None
    listed = [item for item in data if isinstance(item, Mapping)] if isinstance(data, list) else []
    names = tuple(item["id"] for item in listed if isinstance(item.get("id"), str))
    return names, tuple(item["owned_by"] for item in listed if isinstance(item.get("owned_by"), str))


def _unlisted(response: httpx.Response) -> str:
    """Say what was wrong with an answer that names no model."""
    status = response.status_code
    if status != httpx.codes.OK:
        return str(status)
    try:
        value = response.json()
    except ValueError:
        return f"{status}, but no JSON: {response.text[:80]!r}"
    data = value.get("data") if isinstance(value, Mapping) else None
    if not isinstance(data, list):
        return f"{status} with JSON that has no list 'data': {response.text[:80]!r}"
    if not data:
        return f"{status} with an empty list of models; has it loaded one?"
    return f"{status} with models that have no text 'id': {response.text[:80]!r}"


def _clock(response: httpx.Response) -> Observation:
    """Compare the server's date with ours. Measured times are this machine's monotonic clock alone, whose steps are told too."""
    resolution = {"resolution_ns": max(1, round(time.get_clock_info("monotonic").resolution * 1e9))}
    try:
        there = parsedate_to_datetime(response.headers["date"])
    except (KeyError, ValueError):
        return Observation("clock", "untold", "note", resolution)
    offset_s = (there - datetime.now(there.tzinfo or UTC)).total_seconds() + 0.5  # the date is cut to whole seconds
    far = abs(offset_s) > _CLOCK_OFF_S
    return Observation("clock", "told", "note" if far else "good", {"offset_s": round(offset_s), **resolution})
