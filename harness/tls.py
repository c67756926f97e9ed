"""TLS as clients of a server need it: a context from files on disk, and what a failed handshake means in plain words."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Which certificates to trust and which to show; all ``None``: those of the system, and none.

    ``ca_file`` stands instead of the system's authorities, as in curl. ``client_key`` may be left out where ``client_cert``
    holds the key too. ``verify=False`` trusts any server.
    """

    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    verify: bool = True


CUT_OFF = (
    "a server that wants a client's certificate, or another one, ends a connection like this: engine.access.client_cert and "
    "client_key (doctor: --client-cert, --client-key)"
)
"""What a TLS connection that is lost before the first byte of an answer may mean: the alert that would tell is often lost with it."""


class TlsFileError(UsageError):
    """A certificate or key file cannot be used; ``key`` is the setting that names it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def context(files: TlsFiles) -> ssl.SSLContext:
    """Return a client's context.

    Raises:
        TlsFileError: if a file is missing, holds no certificate or key, or an encrypted one.
    """
    try:
        made = ssl.create_default_context(cafile=files.ca_file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise _unusable("ca_file", files.ca_file, error, "a PEM file with the authority's certificate") from error
    if files.client_cert is not None:
        try:
            made.load_cert_chain(files.client_cert, files.client_key, password=_no_password)
        except _EncryptedKey as error:
            raise TlsFileError(
                "client_key",
                f"the key in {files.client_key or files.client_cert} is encrypted; give one without a password, readable by you alone",
            ) from error
        except (OSError, ValueError) as error:
            broken = files.client_cert
            if files.client_cert.is_file() and files.client_key is not None and not files.client_key.is_file():
                broken = files.client_key
            key = "client_key" if broken is files.client_key else "client_cert"
            wanted = "a PEM file with the certificate, and its own key in client_key or in the same file"
            raise _unusable(key, broken, error, wanted) from error
    if not files.verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made


def trusting_nobody() -> ssl.SSLContext:
    """Return a context for plain HTTP, where none is used: it loads no certificates, which takes most of a context's time."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def ssl_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the TLS error among an exception and what caused it, ``None`` if there is none."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, ssl.SSLError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def explain(error: ssl.SSLError, authority: str) -> str:
    """Return what a TLS failure with a server means and what to do about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = (error.verify_message or str(error)).rstrip(".")
        if "hostname" in why.lower() or "ip address" in why.lower():
            return f"the certificate of {authority} is for another name ({why}); use the name it is made out to in the address"
        if "expired" in why or "not yet valid" in why:
            return f"the certificate of {authority} is not valid today ({why}); renew it, or check this machine's date"
        return (
            f"the certificate of {authority} is not trusted ({why}); name its authority's certificate in "
            "engine.access.ca_file (doctor: --ca-file), or trust any server with verify: false (doctor: --insecure)"
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if any(word in reason for word in ("certificate required", "bad certificate", "unknown ca", "handshake failure")):
        return (
            f"{authority} refused this client's certificate or the lack of one ({reason}); give engine.access.client_cert and "
            "client_key (doctor: --client-cert, --client-key)"
        )
    if any(
        word in reason
        for word in ("wrong version", "record layer", "http request", "packet length", "unknown protocol")
    ):
        return f"{authority} does not speak TLS ({reason}); is it an http:// address?"
    return f"no TLS with {authority}: {reason}"


class _EncryptedKey(Exception):
    """The key asks for a password."""


def _no_password() -> str:
    raise _EncryptedKey  # or OpenSSL would ask on the terminal


def _unusable(key: str, path: Path | None, error: Exception, wanted: str) -> TlsFileError:
    why = error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
    return TlsFileError(key, f"{key} {str(path)!r} cannot be used: {why or error}; give {wanted}")
