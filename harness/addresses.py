"""The address of a server as people write it: what is wrong with it, and how it is shown without any secret in it."""

from __future__ import annotations

import difflib
import re
from urllib.parse import urlsplit

_BETWEEN = re.compile(r",(?=[\w.-]+=\S|https?://)")
_QUERY = re.compile(r"[?#].*", re.DOTALL)
_EXAMPLE = "give an address like http://127.0.0.1:8000, without /v1"
_BARE = re.compile(r"\[?[\w.:-]+\]?(?:/\S*)?")  # a host, as people copy it from a server's log


def shown_address(given: str) -> str:
    """Return one address or several (``NAME=URL,NAME=URL``) for a message, without any user, password or query in them."""
    return ",".join(_shown(address) for address in _BETWEEN.split(given))


def _shown(address: str) -> str:
    user, at, place = address.rpartition("@")
    before, slashes, _ = user.partition("//")
    head = f"{before}//***@" if slashes else "***@"
    return (head if at else "") + _QUERY.sub(lambda found: f"{found[0][0]}***", place)


def address_fault(address: str) -> str | None:
    """Return what is wrong with an address and what to write instead, ``None`` if requests can go there; no secret is repeated."""
    shown = repr(shown_address(address))
    if "${" in address:
        return f"{shown}: nothing is filled in here; write the address itself, such as http://127.0.0.1:8000"
    if address.count("://") > 1:
        return f"{shown}: that is more than one address; give each arm its own (on the command line --base-url NAME=URL,NAME=URL)"
    if not address or any(sign.isspace() or not sign.isprintable() for sign in address):
        return f"{shown}: an address has no blanks; {_EXAMPLE}"
    scheme = address.partition("://")[0] if "://" in address else ""
    if scheme not in ("http", "https"):
        return f"{shown}; {_EXAMPLE}{_scheme_advice(address, scheme)}"
    return _parts_fault(address, shown)


def _scheme_advice(address: str, scheme: str) -> str:
    if not scheme and _BARE.fullmatch(address):
        return f"; http:// is missing in front of it: http://{shown_address(address)}"
    close = difflib.get_close_matches(scheme.lower(), ("http", "https"), n=1)
    return f"; did you mean {close[0]}://?" if close else ""


def _parts_fault(address: str, shown: str) -> str | None:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
        if ":" not in host:
            host.encode("idna")
    except ValueError as error:
        why = "its port is no number up to 65535" if "ort" in str(error) else "its host cannot be read"
        return f"{shown}: {why}; {_EXAMPLE}"
    if parts.username is not None or parts.query or parts.fragment or address.endswith(("?", "#")):
        return (
            f"{shown}: an address has no user, password or query; put a key into an environment variable and name that in "
            "engine.access.api_key_env (on the command line --api-key-env)"
        )
    if not host or not all(sign.isalnum() or sign in "-._:%" for sign in host) or port == 0:
        return f"{shown}: there is no {'port 0' if host and port == 0 else 'usable host in it'}; {_EXAMPLE}"
    path = parts.path.rstrip("/")
    if path.endswith("/v1") or not path.isascii():
        return f"{shown}; {_EXAMPLE}"
    return None
