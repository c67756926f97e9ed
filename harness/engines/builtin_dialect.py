"""What a builtin server that runs already tells when it is asked; runs have :mod:`harness.engines.builtin`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.engines.base import ServerState
from harness.engines.builtin_reader import BuiltinReader
from harness.engines.counters import spec_counters, total
from harness.engines.dialect import Announced, Paths
from harness.records import SpecCounters

_BUSY = ("vllm:num_requests_running", "vllm:num_requests_waiting")


class BuiltinDialect:
    """Implements :class:`harness.engines.dialect.Dialect`."""

    name = "builtin"
    paths = Paths(config=("/server_info",), reset_cache="/reset_prefix_cache", tokenize="/tokenize")
    counts_when_drafting = False

    @property
    def remedies(self) -> Mapping[str, str]:
        """Nothing is left out: the server tells all it knows."""
        return {}

    def extra_bodies(self) -> tuple[Mapping[str, Any], ...]:
        """Ask for every round."""
        return ({"return_rounds": True},)

    def reader(self, *, drafts: bool) -> BuiltinReader:
        """Return a fresh reader of one response."""
        return BuiltinReader(same_clock=False)

    def counters(self, text: str) -> SpecCounters | None:
        """Return the server's lifetime counters, over all drafters."""
        return spec_counters(text)

    def state(self, text: str) -> ServerState:
        """Return running and waiting requests, and those that ended."""
        return ServerState(total(text, *_BUSY), total(text, "vllm:request_success_total"))

    def announced(self, path: str, value: Any) -> Announced:
        """Read the drafter of requests that name none, and the names of all."""
        config = value.get("config") if isinstance(value, Mapping) else None
        if not isinstance(config, Mapping):
            return Announced()
        versions = value.get("versions")
        version = versions.get("spec-harness") if isinstance(versions, Mapping) else None
        drafters = config.get("drafters")
        named = drafters if isinstance(drafters, Mapping) else {}
        default = config.get("default_drafter")
        context = config.get("context_tokens")
        return Announced(
            version=version if isinstance(version, str) else None,
            speculative_config={} if default is None else {"drafter": default},
            max_model_len=context if isinstance(context, int) else None,
            settings={"drafters": sorted(named)} if named else {},
        )

    def announced_on_page(self, text: str) -> Announced:
        """Return nothing: the page tells no settings."""
        return Announced()

    def tokenize_body(self, model: str, text: str) -> Mapping[str, Any]:
        """Return the body of ``/tokenize``."""
        return {"prompt": text}
