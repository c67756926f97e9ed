"""Which proxy, if any, requests to a server go through."""

from __future__ import annotations

import base64
import ipaddress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed lacks one

from harness.errors import UsageError


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; ``tls`` tells that it is itself reached over TLS, ``authorization`` is the value of its own header."""

    host: str
    port: int
    tls: bool = False
    authorization: str | None = field(default=None, repr=False)

    @property
    def authority(self) -> str:
        """Host and port, without any password."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The address without user and password."""
        return f"{'https' if self.tls else 'http'}://{self.authority}"


def parse_proxy(url: str) -> tuple[Proxy, str | None]:
    """Return a proxy and its password (``None`` if it has none).

    Raises:
        UsageError: if the address is none of an HTTP proxy; a password in it is not repeated.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"cannot read the address of the proxy: {error}; {_EXAMPLE}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"a proxy of the form {parts.scheme}://… cannot be used; {_EXAMPLE}")
    authorization, password = None, None
    if parts.username is not None:
        user, password = unquote(parts.username), unquote(parts.password or "")
        authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    tls = parts.scheme == "https"
    return Proxy(host, port or (443 if tls else 80), tls, authorization), password or None


def environment_proxy(scheme: str, host: str, port: int | None) -> str | None:
    """Return the address of the proxy that the environment names for a server, ``None`` for none.

    ``NO_PROXY`` is obeyed, and a server on this machine is always reached directly: a proxy would reach its own machine.
    """
    if is_loopback(host) or proxy_bypass_environment(host if port is None else f"{host}:{port}"):
        return None
    proxies = getproxies_environment()
    return proxies.get(scheme) or proxies.get("all")


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address means this machine itself."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


_EXAMPLE = "give one like http://proxy.example:3128, or env for those of the environment"
