"""Certificates for tests, made afresh: an authority that no system trusts, servers and a client that it vouches for."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority with its certificate in a file, and a client's certificate and key."""

    ca: trustme.CA
    ca_file: Path
    client_cert: Path
    client_key: Path

    @classmethod
    def create(cls, folder: Path) -> Authority:
        """Make an authority and write its files into ``folder``."""
        ca = trustme.CA()
        client = ca.issue_cert("client@desk.example")
        found = cls(ca, folder / "ca.pem", folder / "client.pem", folder / "client.key")
        ca.cert_pem.write_to_path(found.ca_file)
        client.cert_chain_pems[0].write_to_path(found.client_cert)
        client.private_key_pem.write_to_path(found.client_key)
        return found

    def server(self, *names: str, days: int = 2, asks_for_certificate: bool = False) -> ssl.SSLContext:
        """Return the context of a server of these names, 127.0.0.1 where none is given; with ``days`` below 0 its certificate has
        expired."""
        end = datetime.now(UTC) + timedelta(days=days)
        certificate = self.ca.issue_cert(*(names or ("127.0.0.1",)), not_before=end - timedelta(days=2), not_after=end)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        certificate.configure_cert(context)
        if asks_for_certificate:
            self.ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
