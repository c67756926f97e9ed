"""What a llama-server that runs already tells when it is asked, recorded from b11549; runs have :mod:`harness.engines.llamacpp`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.engines.base import ServerState
from harness.engines.counters import spec_counters, total
from harness.engines.dialect import Announced, Paths
from harness.engines.llamacpp_reader import LlamaCppReader
from harness.records import SpecCounters

_SLOTS = "/slots"
_BUSY = ("llamacpp:requests_processing", "llamacpp:requests_deferred")


class LlamaCppDialect:
    """Implements :class:`harness.engines.dialect.Dialect`."""

    name = "llamacpp"
    paths = Paths(version=("/props",), config=(_SLOTS,), tokenize="/tokenize")
    counts_when_drafting = False

    @property
    def remedies(self) -> Mapping[str, str]:
        """Flags of ``llama-server``."""
        return {
            "counters": "--metrics",
            "running_requests": "--metrics",
            "speculative_config": "--slots",
        }

    def extra_bodies(self) -> tuple[Mapping[str, Any], ...]:
        """Ask for running sums with every chunk, out of which single rounds can be read."""
        return ({"timings_per_token": True, "cache_prompt": True},)

    def reader(self, *, drafts: bool) -> LlamaCppReader:
        """Return a fresh reader of one response."""
        return LlamaCppReader(drafts=drafts)

    def counters(self, text: str) -> SpecCounters | None:
        """Return the server's lifetime counters."""
        return spec_counters(text)

    def state(self, text: str) -> ServerState:
        """Return requests that are processed or wait for a slot; finished ones are not counted."""
        return ServerState(busy=total(text, *_BUSY))

    def announced(self, path: str, value: Any) -> Announced:
        """Read version and context of ``/props``, and of ``/slots`` whether it drafts: ``/props`` says none of every server."""
        if path == _SLOTS:
            slots = [slot for slot in value if isinstance(slot, Mapping)] if isinstance(value, list) else []
            known = [slot["speculative"] for slot in slots if isinstance(slot.get("speculative"), bool)]
            return Announced(speculative_config=({"drafter": _drafter(slots)} if any(known) else {}) if known else None)
        if not isinstance(value, Mapping):
            return Announced()
        version = value.get("build_info")
        context = (value.get("default_generation_settings") or {}).get("n_ctx")
        slots_total = value.get("total_slots")
        return Announced(
            version=version if isinstance(version, str) else None,
            max_model_len=context if isinstance(context, int) else None,
            settings={"slots": slots_total} if isinstance(slots_total, int) else {},
        )

    def announced_on_page(self, text: str) -> Announced:
        """Return nothing: the page tells no settings."""
        return Announced()

    def tokenize_body(self, model: str, text: str) -> Mapping[str, Any]:
        """Return the body of ``/tokenize``."""
        return {"content": text, "add_special": False}


def _drafter(slots: list[Mapping[str, Any]]) -> str:
    """Return what a slot that has worked drafted with; before the first request it is unnamed."""
    types = ((slot.get("params") or {}).get("speculative.types") for slot in slots)
    return next((name for name in types if isinstance(name, str)), "unnamed")
