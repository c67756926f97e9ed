"""What a server tells about itself, found out by asking it: facts, each with how it was found. Nothing is assumed from its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """One thing found out: its value and what was asked; ``None`` with the reason, and what on the server would let it tell.

    ``remedy`` is a flag or setting of the server, ``None`` where none is known. A fact that is known may have one too, where the
    server could tell more (counts of a request, but not of its single rounds).
    """

    value: T | None
    how: str
    remedy: str | None = None

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return self.value is not None


@dataclass(frozen=True, slots=True)
class Probed:
    """Everything that was found out about one server.

    ``per_request_acceptance`` is ``"round"`` (each verify round), ``"request"`` (sums of a request) or ``"none"`` (asked, and the
    answer held none). ``counters`` tells whether lifetime counters of speculative decoding are on the metrics page, ``per_position``
    whether they or the answers count accepted tokens for each draft position. ``running_requests`` is how many requests the server
    worked on when it was asked, besides ours: 0 is an idle server. ``tokens_per_chunk`` tells whether each chunk says how many tokens
    have come. ``extra_body`` are the fields beyond OpenAI's that the server took and that are sent with every request.
    """

    version: Fact[str]
    models: Fact[tuple[str, ...]]
    max_model_len: Fact[int]
    streaming: Fact[bool]
    usage_in_stream: Fact[bool]
    tokens_per_chunk: Fact[bool]
    per_request_acceptance: Fact[str]
    counters: Fact[bool]
    per_position: Fact[bool]
    cached_tokens: Fact[bool]
    running_requests: Fact[int]
    cache_reset: Fact[bool]
    tokenize: Fact[bool]
    speculative_config: Fact[Mapping[str, Any]]
    extra_body: Mapping[str, Any]

    def facts(self) -> dict[str, Fact[Any]]:
        """Return every fact by name, in the order above."""
        return {item.name: value for item in fields(self) if isinstance(value := getattr(self, item.name), Fact)}

    def to_json(self) -> dict[str, Any]:
        """Return the facts for the manifest: ``{name: {"value", "how", "remedy"}}`` and the extra fields of the requests."""
        told = {
            name: {"value": fact.value, "how": fact.how, "remedy": fact.remedy} for name, fact in self.facts().items()
        }
        return {**told, "extra_body": dict(self.extra_body)}
