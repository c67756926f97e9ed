"""TensorRT-LLM's dialect (``trtllm-serve`` 1.2), from its source: counters of finished requests on ``/prometheus/metrics``.

``/metrics`` is not read: it is a queue of iteration statistics that reading empties, also for the server's own metrics. Nor are the
counters made of those statistics (``trtllm_spec_decode_num_draft_tokens_total``): the server adds the latest iteration at the end of
a request and skips those before. An answer tells nothing of its own acceptance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from harness.engines.base import ServerState
from harness.engines.counters import labels_of, parse_samples, total, whole
from harness.engines.dialect import Announced, Paths
from harness.engines.remote_reader import RemoteReader
from harness.errors import EngineProtocolError
from harness.records import SpecCounters

_DRAFTED = "trtllm_spec_decode_drafted_tokens_total"
_ACCEPTED = "trtllm_spec_decode_accepted_tokens_total"
_CONFIGS = ("model", "parallel", "kv_cache")


class TrtLlm:
    """Implements :class:`harness.engines.dialect.Dialect`."""

    name = "trtllm"
    paths = Paths(metrics=("/prometheus/metrics",), version=("/version",))
    counts_when_drafting = False  # they appear with the first request that was drafted for

    @property
    def remedies(self) -> Mapping[str, str]:
        """Keys of the file given to ``trtllm-serve --extra_llm_api_options``."""
        counters = "return_perf_metrics: true in the file of --extra_llm_api_options"
        return {"counters": counters, "per_request_acceptance": f"none in this release; counters: {counters}"}

    def extra_bodies(self) -> tuple[Mapping[str, Any], ...]:
        """Return none: there is nothing to ask for."""
        return ({},)

    def reader(self, *, drafts: bool) -> RemoteReader:
        """Return a fresh reader of one response."""
        return RemoteReader(drafts=drafts)

    def counters(self, text: str) -> SpecCounters | None:
        """Return the counters of finished requests: drafted and accepted tokens for each place in the draft, from 0.

        Tokens drafted for the first place are the rounds. Some backends put all tokens at place 0, so where no other place was ever
        drafted for, the rounds and places are unknown.
        """
        drafted, accepted = _places(text, _DRAFTED), _places(text, _ACCEPTED)
        if not drafted:
            return None
        if max(drafted) == 0:
            return SpecCounters(None, drafted[0], accepted.get(0, 0))
        per_position = tuple(accepted.get(place, 0) for place in range(max(drafted) + 1))
        return SpecCounters(drafted.get(0, 0), sum(drafted.values()), sum(accepted.values()), per_position)

    def state(self, text: str) -> ServerState:
        """Return the finished requests. Those being worked on are unknown: the page has them as of the end of the latest request."""
        return ServerState(None, total(text, "trtllm_request_success_total"))

    def announced(self, path: str, value: Any) -> Announced:
        """Read ``/version``."""
        version = value.get("version") if isinstance(value, Mapping) else None
        return Announced(version=version if isinstance(version, str) else None)

    def announced_on_page(self, text: str) -> Announced:
        """Read the configurations that the page has as labels (1.3); one without the drafter's is that of a server without one."""
        told = {key: value for name in _CONFIGS for key, value in labels_of(text, f"trtllm_{name}_config_info").items()}
        drafter = labels_of(text, "trtllm_speculative_config_info")
        drafter.pop("spec_enabled", None)
        named = {
            key.removeprefix("spec_"): int(value) if value.isdecimal() else value for key, value in drafter.items()
        }
        return Announced(speculative_config=named if named or told else None, settings=told)

    def tokenize_body(self, model: str, text: str) -> Mapping[str, Any]:
        """Return an empty body: there is no such path."""
        return {}


def _places(text: str, name: str) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    for sample in parse_samples(text):
        if sample.name == name:
            place = sample.labels.get("token_position", "")
            if not place.isdecimal():
                raise EngineProtocolError(f"{name} has token_position {place!r}; expected a whole number from 0")
            found[int(place)] += whole(sample)
    return dict(found)
