"""LMDeploy's dialect (0.18), from its source: counters on ``/metrics`` are vLLM's under its own prefix, requests tell nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.engines.base import ServerState
from harness.engines.counters import labels_of, spec_counters, total
from harness.engines.dialect import Announced, Paths
from harness.engines.remote_reader import RemoteReader
from harness.records import SpecCounters


class LmDeploy:
    """Implements :class:`harness.engines.dialect.Dialect`."""

    name = "lmdeploy"
    paths = Paths(tokenize="/v1/encode")
    counts_when_drafting = False  # the counters are there, and zero, on a server that does not draft too

    @property
    def remedies(self) -> Mapping[str, str]:
        """Flags of ``lmdeploy serve api_server``; an answer never tells its acceptance (0.18)."""
        metrics = "start it without --disable-metrics"
        return {"counters": metrics, "running_requests": metrics}

    def extra_bodies(self) -> tuple[Mapping[str, Any], ...]:
        """Return none: there is nothing to ask for."""
        return ({},)

    def reader(self, *, drafts: bool) -> RemoteReader:
        """Return a fresh reader of one response."""
        return RemoteReader(drafts=drafts)

    def counters(self, text: str) -> SpecCounters | None:
        """Return the lifetime counters; its gauges of rates and lengths are of no use for one request."""
        return spec_counters(text)

    def state(self, text: str) -> ServerState:
        """Return requests in batches, waiting for one, or waiting for a handle, and those that ended."""
        names = ("running", "waiting")
        busy = total(text, *(f"lmdeploy:num_requests_{name}" for name in names), "lmdeploy:num_api_requests_waiting")
        return ServerState(busy, total(text, "lmdeploy:request_success_total"))

    def announced(self, path: str, value: Any) -> Announced:
        """Return nothing: there is no such path."""
        return Announced()

    def announced_on_page(self, text: str) -> Announced:
        """Read the configuration that stands on the page as labels."""
        return Announced(settings=labels_of(text, "lmdeploy:backend_config_info"))

    def tokenize_body(self, model: str, text: str) -> Mapping[str, Any]:
        """Return the body of ``/v1/encode``."""
        return {"input": text, "do_preprocess": False, "add_bos": False}
