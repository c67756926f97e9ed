"""Facts about a server: each a value with how it was found out, or no value with the reason and what would let the server tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """One thing found out: its value and what was asked; ``None`` with the reason, and what on the server would let it tell.

    ``remedy`` is a flag or setting of the server, ``None`` where none is known or needed.
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

    ``model`` is the name that requests carry. ``chat`` tells whether a chat completion was answered, ``streaming`` whether as events.
    ``drafts`` tells whether the server speculates; it is unknown where nothing shows either way. ``per_request_acceptance`` is
    ``"round"`` (each verify round) or ``"request"`` (sums of a request). ``counters`` tells whether lifetime counters of speculative
    decoding are on the metrics page, ``per_position`` whether counters or answers count accepted tokens for each draft position.
    ``running_requests`` is how many requests the server had when it was asked, ours not among them. ``tokens_per_chunk`` tells whether
    each chunk says how many tokens have come. ``speculative_config`` is empty for a server that says it drafts nothing.
    ``extra_body`` are the fields beyond OpenAI's that the server took and that are sent with every request, ``settings`` are those
    that the server tells of itself, ``metrics_path`` is where its metrics page was found, and
    ``chat_status`` the HTTP status of a chat completion.
    """

    version: Fact[str]
    models: Fact[tuple[str, ...]]
    model: Fact[str]
    max_model_len: Fact[int]
    chat: Fact[bool]
    streaming: Fact[bool]
    usage_in_stream: Fact[bool]
    tokens_per_chunk: Fact[bool]
    drafts: Fact[bool]
    per_request_acceptance: Fact[str]
    counters: Fact[bool]
    per_position: Fact[bool]
    cached_tokens: Fact[bool]
    running_requests: Fact[int]
    cache_reset: Fact[bool]
    tokenize: Fact[bool]
    speculative_config: Fact[Mapping[str, Any]]
    extra_body: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    metrics_path: str | None = None
    chat_status: int | None = None

    def facts(self) -> dict[str, Fact[Any]]:
        """Return every fact by name, in the order above."""
        return {item.name: value for item in fields(self) if isinstance(value := getattr(self, item.name), Fact)}

    def to_json(self) -> dict[str, Any]:
        """Return the facts for the manifest: ``{name: {"value", "how", "remedy"}}`` and the extra fields of the requests."""
        told = {
            name: {"value": fact.value, "how": fact.how, "remedy": fact.remedy} for name, fact in self.facts().items()
        }
        return {**told, "extra_body": dict(self.extra_body), "metrics_path": self.metrics_path}
