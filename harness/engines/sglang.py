"""SGLang's dialect, from its source (0.5): acceptance comes with each answer that asks for it, and from nowhere else.

Its gauges ``sglang:spec_accept_length`` and ``sglang:spec_accept_rate`` are those of the latest interval, over all requests: they
say nothing about one request and cannot be subtracted, so they are not read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from harness.engines.base import ServerState
from harness.engines.counters import parse_samples, total
from harness.engines.dialect import Announced, Paths
from harness.engines.remote_reader import RemoteReader
from harness.records import SpecCounters
from harness.redaction import holds_secret

_BUSY = ("sglang:num_running_reqs", "sglang:num_queue_reqs")
# what the server measured of itself, or what differs from start to start
_NOT_SETTINGS = frozenset({
    "version", "status", "port", "host", "nccl_port", "random_seed", "dist_init_addr", "max_total_num_tokens", "max_req_input_len",
    "internal_states", "served_model_name",
})  # fmt: skip
_SPECULATIVE = (
    "num_steps",
    "eagle_topk",
    "num_draft_tokens",
    "draft_model_path",
    "draft_model_quantization",
    "accept_threshold_single",
    "accept_threshold_acc",
    "adaptive",
)


class SgLang:
    """Implements :class:`harness.engines.dialect.Dialect`."""

    name = "sglang"
    paths = Paths(
        version=(), config=("/server_info", "/get_server_info"), reset_cache="/flush_cache", tokenize="/tokenize"
    )
    counts_when_drafting = False

    @property
    def remedies(self) -> Mapping[str, str]:
        """Flags of ``sglang.launch_server``."""
        return {
            "per_request_acceptance": "a release that takes return_spec_tokens_details in a chat completion (2026, #33518)",
            "counters": "none: its counters do not tell drafted and accepted tokens",
            "running_requests": "--enable-metrics",
            "cached_tokens": "--enable-cache-report",
        }

    def extra_bodies(self) -> tuple[Mapping[str, Any], ...]:
        """Ask for acceptance and cached tokens with the answer, the newer way first."""
        return (
            {"return_spec_tokens_details": True, "return_cached_tokens_details": True},
            {"return_meta_info": True},
            {},
        )

    def reader(self, *, drafts: bool) -> RemoteReader:
        """Return a fresh reader of one response."""
        return RemoteReader(drafts=drafts)

    def counters(self, text: str) -> SpecCounters | None:
        """Return ``None``: there is a counter of verify calls, but none of drafted or accepted tokens."""
        return None

    def state(self, text: str) -> ServerState:
        """Return running and queued requests, and those that ended.

        Each rank of a group of data-parallel replicas repeats the same requests for each tensor-parallel rank, and beside the whole
        for each priority: of those the largest is meant.
        """
        busy: dict[tuple[str, str], float] = defaultdict(float)
        for sample in parse_samples(text):
            if sample.name in _BUSY:
                place = (sample.name, sample.labels.get("dp_rank", ""))
                busy[place] = max(busy[place], sample.value)
        return ServerState(round(sum(busy.values())) if busy else None, total(text, "sglang:num_requests_total"))

    def announced(self, path: str, value: Any) -> Announced:
        """Read ``/server_info``: the server's arguments, beside which stand its keys and what it measured of itself."""
        if not isinstance(value, Mapping):
            return Announced()
        version, context = value.get("version"), value.get("context_length")
        config: dict[str, Any] | None = None
        if "speculative_algorithm" in value:
            config = {}
            if value["speculative_algorithm"] is not None:
                config["method"] = value["speculative_algorithm"]
                given = {key: value.get(f"speculative_{key}") for key in _SPECULATIVE}
                config |= {key: item for key, item in given.items() if item is not None}
        return Announced(
            version=version if isinstance(version, str) else None,
            speculative_config=config,
            max_model_len=context if isinstance(context, int) else None,
            settings={key: item for key, item in value.items() if _is_setting(key, item)},
        )

    def announced_on_page(self, text: str) -> Announced:
        """Return nothing: ``/server_info`` tells it all."""
        return Announced()

    def tokenize_body(self, model: str, text: str) -> Mapping[str, Any]:
        """Return the body of ``/tokenize``."""
        return {"model": model, "prompt": text, "add_special_tokens": False}


def _is_setting(key: str, value: Any) -> bool:
    return key not in _NOT_SETTINGS and not holds_secret(key) and isinstance(value, bool | int | float | str)
