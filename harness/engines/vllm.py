"""vLLM's dialect, recorded from 0.32.0.

Acceptance of a request stands on its usage chunk once the server has ``--per-request-spec-decode-metrics``. Its counters are on
``/metrics``, with those of running and finished requests. ``/reset_prefix_cache`` and ``/server_info`` exist in its development mode
alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.engines.base import ServerState
from harness.engines.counters import labels_of, spec_counters, total
from harness.engines.dialect import Announced, Paths
from harness.engines.remote_reader import RemoteReader
from harness.records import SpecCounters

_CONFIG = "/server_info?config_format=json"
_CACHE = ("block_size", "cache_dtype", "enable_prefix_caching", "gpu_memory_utilization", "sliding_window")
_SETTINGS = {
    "model_config": ("dtype", "quantization", "enforce_eager", "max_model_len", "seed"),
    "scheduler_config": ("max_num_seqs", "max_num_batched_tokens", "async_scheduling", "enable_chunked_prefill"),
    "parallel_config": ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
}
_DEVELOPMENT = "the environment variable VLLM_SERVER_DEV_MODE=1 (never on a server that strangers reach)"


class Vllm:
    """Implements :class:`harness.engines.dialect.Dialect`."""

    name = "vllm"
    paths = Paths(version=("/version",), config=(_CONFIG,), reset_cache="/reset_prefix_cache", tokenize="/tokenize")
    counts_when_drafting = True

    @property
    def remedies(self) -> Mapping[str, str]:
        """Flags of ``vllm serve``."""
        metrics = "start it without --disable-log-stats"
        return {
            # 0.32 refuses the second flag on a server that does not draft
            "per_request_acceptance": "--enable-per-request-metrics --per-request-spec-decode-metrics detailed",
            "counters": metrics,
            "running_requests": metrics,
            "cached_tokens": "--enable-prompt-tokens-details",
            "cache_reset": _DEVELOPMENT,
            "speculative_config": _DEVELOPMENT,
        }

    def extra_bodies(self) -> tuple[Mapping[str, Any], ...]:
        """Ask for the number of tokens so far with every chunk, so that rounds find their chunks; sent for all arms alike."""
        return ({"stream_options": {"include_usage": True, "continuous_usage_stats": True}}, {})

    def reader(self, *, drafts: bool) -> RemoteReader:
        """Return a fresh reader of one response."""
        return RemoteReader(drafts=drafts)

    def counters(self, text: str) -> SpecCounters | None:
        """Return the lifetime counters of all engines behind the address."""
        return spec_counters(text)

    def state(self, text: str) -> ServerState:
        """Return running and waiting requests, and those that ended in whatever way."""
        busy = total(text, "vllm:num_requests_running", "vllm:num_requests_waiting")
        return ServerState(busy, total(text, "vllm:request_success_total"))

    def announced(self, path: str, value: Any) -> Announced:
        """Read ``/version``, and of ``/server_info`` the speculative configuration alone: it tells environment and keys too."""
        if not isinstance(value, Mapping):
            return Announced()
        if path != _CONFIG:
            version = value.get("version")
            return Announced(version=version if isinstance(version, str) else None)
        config = value.get("vllm_config")
        return _of_config(config) if isinstance(config, Mapping) else Announced()

    def announced_on_page(self, text: str) -> Announced:
        """Read the settings of its cache, which the page has as labels; its size follows from the free memory and is left out."""
        told = labels_of(text, "vllm:cache_config_info")
        return Announced(settings={key: told[key] for key in _CACHE if key in told})

    def tokenize_body(self, model: str, text: str) -> Mapping[str, Any]:
        """Return the body of ``/tokenize``."""
        return {"model": model, "prompt": text, "add_special_tokens": False}


def _of_config(config: Mapping[str, Any]) -> Announced:
    settings = {
        key: part[key]
        for section, keys in _SETTINGS.items()
        if isinstance(part := config.get(section), Mapping)
        for key in keys
        if part.get(key) is not None
    }
    if "speculative_config" not in config:
        return Announced(settings=settings)
    told = config["speculative_config"]
    if told is not None and not isinstance(told, Mapping):
        return Announced(settings=settings)
    keys = ("method", "model", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min", "quantization")
    speculative = {key: told[key] for key in keys if told.get(key) is not None} if told else {}
    return Announced(speculative_config=speculative, settings=settings)
