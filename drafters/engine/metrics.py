"""The page at ``/metrics``: the engine's own counters under vLLM's names. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from drafters.engine.jobs import State

__all__ = ["MetricsPage"]


class MetricsPage:
    """Writes the page from what ``state`` returns, so that nothing is counted twice.

    ``capacity`` is the memory bound in tokens; ``prefix_reuse`` off means that no prompt token was ever looked up.
    ``positions`` is the longest draft that there can be: each of its positions has a line from the start, as in vLLM.
    """

    def __init__(
        self, state: Callable[[], State], model_name: str, capacity: int, prefix_reuse: bool, positions: int = 0
    ) -> None:
        self._state = state
        self._labels = ["0", model_name]
        self._capacity = capacity
        self._prefix_reuse = prefix_reuse
        self._positions = positions
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """The page."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """All metrics as prometheus-client asks for them."""
        state = self._state()
        counters = state.counters
        yield self._counter(
            "spec_decode_num_drafts", "Sequence rounds that drafted at least one token.", counters.num_drafts
        )
        yield self._counter("spec_decode_num_draft_tokens", "Drafted tokens.", counters.num_draft_tokens)
        yield self._counter("spec_decode_num_accepted_tokens", "Accepted draft tokens.", counters.num_accepted_tokens)
        positions = CounterMetricFamily(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Accepted draft tokens by position in the draft, from 0.",
            labels=["engine", "model_name", "position"],
        )
        seen = counters.accepted_per_position
        for position, accepted in enumerate([*seen, *[0] * (self._positions - len(seen))]):
            positions.add_metric([*self._labels, str(position)], accepted)
        yield positions
        yield self._gauge(
            "num_requests_running", "Requests that hold memory, prompts being read included.", state.running
        )
        yield self._gauge("num_requests_waiting", "Requests in the queue.", state.waiting)
        yield self._gauge(
            "kv_cache_usage_perc",
            "Share of the memory bound held by running requests, 1 is all; what is kept for reuse is free.",
            state.owned_tokens / self._capacity,
        )
        yield self._counter(
            "prompt_tokens", "Prompt tokens of admitted requests, reused ones included.", counters.prompt_tokens
        )
        yield self._counter("generation_tokens", "Generated tokens.", counters.generation_tokens)
        queries = counters.prompt_tokens if self._prefix_reuse else 0
        yield self._counter("prefix_cache_queries", "Prompt tokens looked up for reuse.", queries)
        yield self._counter("prefix_cache_hits", "Prompt tokens reused.", counters.cached_tokens)

    def _counter(self, name: str, what: str, value: float) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", what, labels=["engine", "model_name"])
        family.add_metric(self._labels, value)
        return family

    def _gauge(self, name: str, what: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", what, labels=["engine", "model_name"])
        family.add_metric(self._labels, value)
        return family
