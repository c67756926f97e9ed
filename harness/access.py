"""How servers are reached: keys and headers, certificates, proxies. Secrets come from environment variables alone.

:class:`AccessSpec` is what a workload file says; it holds names of variables, never values. :class:`Access` is the same with
variables and files read, made once before the first request; it knows its secrets, and masks them in any text.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict

from harness import proxies, tls
from harness.errors import UsageError
from harness.redaction import forms, header_holds_secret, mask, redacted

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(r"\$\{([^}]*)\}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
# fmt: off
_OWN = frozenset({
    "accept", "accept-encoding", "connection", "content-length", "content-type", "host", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade",
})
# fmt: on
_PASSWORD = re.compile(r"^[^/@]*//[^/@]*:(?P<password>[^@]*)@|^[^/@:]+:(?P<bare>[^@]*)@")


def _variable(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        # the value is not repeated: it may be the key itself
        raise ValueError(
            "give the name of an environment variable, such as OPENAI_API_KEY; a key itself has no place in a file"
        )
    return name


def _headers(headers: dict[str, str]) -> dict[str, str]:
    seen: set[str] = set()
    for name, value in headers.items():
        if _HEADER.fullmatch(name) is None:
            raise ValueError("the name of a header is letters, digits and dashes, such as x-tenant")
        if name.lower() in _OWN:
            raise ValueError(f"the header {name} is set by the harness itself; remove it")
        if name.lower() in seen:
            raise ValueError(f"the header {name} appears twice; keep one")
        seen.add(name.lower())
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"the value of the header {name} must be printable ASCII")
        for place in _PLACE.findall(value):
            _variable(place)
        if header_holds_secret(name) and _PLACE.search(value) is None:
            raise ValueError(
                f"the header {name} looks like a secret; put its value into an environment variable and write ${{NAME}} here"
            )
    return headers


def _proxy(proxy: str) -> str:
    if proxy == "env":
        return proxy
    for place in _PLACE.findall(proxy):
        _variable(place)
    found = _PASSWORD.match(proxy)
    if found is not None and _PLACE.fullmatch(found["password"] or found["bare"] or "") is None:
        raise ValueError(
            "a proxy's password has no place in a file; put it into an environment variable and write ${NAME} in its place"
        )
    try:
        proxies.parse_proxy(_PLACE.sub("x", proxy))
    except UsageError as error:
        raise ValueError(str(error)) from error
    return proxy


class AccessSpec(BaseModel):
    """How to reach the servers of an engine, ``engine.access`` of a workload file.

    ``api_key_env`` names the variable whose value is sent as ``authorization: Bearer …``. ``headers`` go with every request; in
    their values ``${NAME}`` stands for a variable. ``ca_file`` (instead of the system's authorities, for a proxy too),
    ``client_cert`` and ``client_key`` are PEM files, relative to the workload file; ``verify: false`` trusts any server.
    ``proxy`` is the address of an HTTP proxy (a password in it as ``${NAME}``), or ``env`` for those of the environment, which are
    not used for servers on this machine; absent: no proxy, whatever the environment says.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    api_key_env: Annotated[str, AfterValidator(_variable)] | None = None
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = {}
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    verify: bool = True
    proxy: Annotated[str, AfterValidator(_proxy)] | None = None


class AccessError(UsageError):
    """A part of ``engine.access`` cannot be used; ``key`` names it, so that the caller can name the line."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """Everything needed to reach servers, with the values of variables; ``repr`` shows none of them.

    ``headers`` go with every request. ``tls`` is ``None`` for the system's own trust. ``proxy`` is a proxy's address, ``env`` or
    ``None``. ``key_from`` says in words where the key came from. ``hidden`` are all spellings of the secrets.
    """

    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    tls: ssl.SSLContext | None = None
    proxy: str | None = field(default=None, repr=False)
    key_from: str | None = None
    verify: bool = True
    hidden: tuple[str, ...] = field(default=(), repr=False)

    def context(self, base_url: str) -> ssl.SSLContext | None:
        """Return the TLS context for an address of a server or proxy, ``None`` for plain HTTP."""
        if urlsplit(base_url).scheme != "https":
            return None
        return self.tls or tls.context(tls.TlsFiles())

    def proxy_for(self, base_url: str) -> proxies.Proxy | None:
        """Return the proxy for an address, ``None`` to reach it directly.

        Raises:
            UsageError: if the environment names a proxy that cannot be used.
        """
        if self.proxy is None:
            return None
        parts = urlsplit(base_url)
        url = self.proxy
        if url == "env":
            found = proxies.environment_proxy(parts.scheme, parts.hostname or "", parts.port)
            if found is None:
                return None
            url = found
        return proxies.parse_proxy(url)[0]

    def direct(self) -> Access:
        """Return the same without a proxy, for servers that were started on this machine."""
        return replace(self, proxy=None)

    def redact(self, text: str) -> str:
        """Return a text without any of the secrets."""
        return mask(text, self.hidden) if self.hidden else text

    def redacted(self, value: Any) -> Any:
        """Return a JSON-like value without any of the secrets, nor settings that hold one by their name."""
        return redacted(value, self.hidden)

    def refusal(self, status: int | None) -> str | None:
        """Return what an answer of status 401, 403 or 407 means for whoever set up the access, ``None`` for any other."""
        if status == 407:
            return "the proxy wants a user and a password; write them into engine.access.proxy as http://user:${NAME}@host:port"
        if status not in (401, 403):
            return None
        if self.key_from is not None:
            return f"the key from {self.key_from} was refused; check its value"
        return (
            "no key was sent; put it into an environment variable and name that in engine.access.api_key_env "
            "(doctor: --api-key-env)"
        )


OPEN = Access()
"""Plain access: no key, the system's trust, no proxy."""


def open_access(spec: AccessSpec | None, *, folder: Path = Path(), environ: Mapping[str, str] | None = None) -> Access:
    """Read the variables and files that a specification names; relative paths start from ``folder``.

    Raises:
        AccessError: naming key and variable or file, if one is missing or cannot be used; nothing has been sent then.
    """
    if spec is None:
        return OPEN
    values = _Variables(os.environ if environ is None else environ)
    headers = {name: values.fill(text, "headers") for name, text in spec.headers.items()}
    if spec.api_key_env is not None:
        if any(name.lower() == "authorization" for name in headers):
            raise AccessError(
                "api_key_env", "api_key_env and a header authorization say the same thing twice; keep one of them"
            )
        headers["authorization"] = f"Bearer {values.get(spec.api_key_env, 'api_key_env')}"
    for name, value in headers.items():
        if not value.isascii() or not value.isprintable():
            raise AccessError("headers", f"the header {name} cannot be sent: its value is not printable ASCII")
    proxy = spec.proxy if spec.proxy in (None, "env") else values.fill(spec.proxy, "proxy")
    hidden = [*values.used]
    if proxy is not None:
        hidden += _proxy_secrets(proxy, values.environ)
    return Access(
        headers=MappingProxyType(headers),
        tls=_context(spec, folder),
        proxy=proxy,
        key_from=_key_from(spec),
        verify=spec.verify,
        hidden=tuple(dict.fromkeys(form for secret in hidden for form in forms(secret))),
    )


@dataclass(slots=True)
class _Variables:
    """Environment variables, with a list of the values that were used."""

    environ: Mapping[str, str] = field(repr=False)
    used: list[str] = field(default_factory=list, repr=False)

    def get(self, name: str, key: str) -> str:
        value = self.environ.get(name, "").strip()  # a file read into a variable ends with a line break
        if not value:
            raise AccessError(
                key,
                f"{key} names the environment variable {name}, which is {'empty' if name in self.environ else 'not set'}; set it",
            )
        self.used.append(value)
        return value

    def fill(self, text: str, key: str) -> str:
        return _PLACE.sub(lambda place: self.get(place[1], key), text)


def _context(spec: AccessSpec, folder: Path) -> ssl.SSLContext | None:
    paths = {
        name: None if value is None else folder / Path(value).expanduser()
        for name, value in (
            ("ca_file", spec.ca_file), ("client_cert", spec.client_cert), ("client_key", spec.client_key),
        )
    }  # fmt: skip
    if spec.client_key is not None and spec.client_cert is None:
        raise AccessError("client_key", "client_key without client_cert; give the certificate too")
    if spec.verify and not any(paths.values()):
        return None
    try:
        return tls.context(tls.TlsFiles(**paths, verify=spec.verify))
    except tls.TlsFileError as error:
        raise AccessError(error.key, str(error)) from error


def _proxy_secrets(proxy: str, environ: Mapping[str, str]) -> list[str]:
    urls = [proxy]
    if proxy == "env":
        urls = [value for name, value in environ.items() if name.lower().endswith("_proxy") and "@" in value]
    found: list[str] = []
    for url in urls:
        try:
            known, password = proxies.parse_proxy(url)
        except UsageError:
            continue  # an address that is no proxy's is refused where it would be used
        if password is not None:
            found += [password, url.rpartition("@")[0].rpartition(":")[2]]  # as a URL writes it, too
        if known.authorization is not None:
            found.append(known.authorization.removeprefix("Basic "))
    return found


def _key_from(spec: AccessSpec) -> str | None:
    if spec.api_key_env is not None:
        return f"${spec.api_key_env}"
    given = next((name for name in spec.headers if header_holds_secret(name)), None)
    return None if given is None else f"the header {given}"
