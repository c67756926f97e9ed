"""Any server that speaks OpenAI's chat completions: times and tokens. What more it tells is read where it is found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.engines.base import ServerState
from harness.engines.dialect import Announced, Paths
from harness.engines.remote_reader import RemoteReader
from harness.records import SpecCounters


class OpenAi:
    """The dialect that all of them share; implements :class:`harness.engines.dialect.Dialect`."""

    name = "openai"
    paths = Paths(metrics=(), health="/v1/models")
    counts_when_drafting = False

    @property
    def remedies(self) -> Mapping[str, str]:
        """Nothing is known of a server of unknown make, but that the kinds of known makers can tell more."""
        kinds = "if the server is vLLM, SGLang, TensorRT-LLM, LMDeploy or llama-server, say so as engine kind"
        return dict.fromkeys(("per_request_acceptance", "counters", "running_requests", "cache_reset"), kinds)

    def extra_bodies(self) -> tuple[Mapping[str, Any], ...]:
        """Return none: a strict server refuses fields that it does not know."""
        return ({},)

    def reader(self, *, drafts: bool) -> RemoteReader:
        """Return a fresh reader of one response."""
        return RemoteReader(drafts=drafts)

    def counters(self, text: str) -> SpecCounters | None:
        """Return ``None``: there is no metrics page."""
        return None

    def state(self, text: str) -> ServerState:
        """Return nothing: there is no metrics page."""
        return ServerState()

    def announced(self, path: str, value: Any) -> Announced:
        """Return nothing: there is no such path."""
        return Announced()

    def announced_on_page(self, text: str) -> Announced:
        """Return nothing: there is no metrics page."""
        return Announced()

    def tokenize_body(self, model: str, text: str) -> Mapping[str, Any]:
        """Return an empty body: there is no such path."""
        return {}
