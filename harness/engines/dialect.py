"""What one family of servers says on the wire, apart from asking it: names of fields, pages and paths, and how they are read.

A dialect is pure: bytes and decoded chunks in, counts out. Which of it a server really speaks is found out by
:mod:`harness.engines.probe`; the calls are made by :mod:`harness.engines.remote`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.engines.base import ServerState, StreamReader
from harness.records import SpecCounters


@dataclass(frozen=True, slots=True)
class Paths:
    """Where a family answers control calls, below the base address; ``None`` or empty where it has no such call.

    Of several paths the first that answers counts: releases moved them. ``reset_cache`` is posted to.
    """

    health: str = "/health"
    metrics: tuple[str, ...] = ("/metrics",)
    version: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    reset_cache: str | None = None
    tokenize: str | None = None


@dataclass(frozen=True, slots=True)
class Announced:
    """What a family's version and configuration pages tell; ``None`` where they do not.

    ``speculative_config`` is empty for a server that says it drafts nothing. ``settings`` are those of the server by name: nothing
    secret, and nothing that differs between two starts of the same thing.
    """

    version: str | None = None
    speculative_config: Mapping[str, Any] | None = None
    max_model_len: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


class Dialect(Protocol):
    """One family of servers. Its methods keep nothing between calls."""

    @property
    def name(self) -> str:
        """The engine kind, as workload files have it."""

    @property
    def paths(self) -> Paths:
        """Where the family answers control calls."""

    @property
    def counts_when_drafting(self) -> bool:
        """Whether the family's metrics page has counters of speculative decoding whenever it is on, so that none means off."""

    @property
    def remedies(self) -> Mapping[str, str]:
        """The server's flag or setting that would let it tell a fact, by the name of the field of ``Probed``."""

    def extra_bodies(self) -> tuple[Mapping[str, Any], ...]:
        """Return the fields, beyond OpenAI's, that ask for all that an answer can tell: releases differ, the best first."""

    def reader(self, *, drafts: bool) -> StreamReader:
        """Return a fresh reader of one response; ``drafts`` tells whether the arm has a drafter."""

    def counters(self, text: str) -> SpecCounters | None:
        """Return the lifetime counters of speculative decoding on a metrics page, ``None`` where it has none.

        Raises:
            EngineProtocolError: if the page is malformed.
        """

    def state(self, text: str) -> ServerState:
        """Return what a metrics page tells of the requests on the server.

        Raises:
            EngineProtocolError: if the page is malformed.
        """

    def announced(self, path: str, value: Any) -> Announced:
        """Return what the decoded answer of a version or configuration path tells."""

    def announced_on_page(self, text: str) -> Announced:
        """Return what a metrics page tells of the server's configuration."""

    def tokenize_body(self, model: str, text: str) -> Mapping[str, Any]:
        """Return the request whose answer has the tokens of a text, without a begin-of-sequence token."""
