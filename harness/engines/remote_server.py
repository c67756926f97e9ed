"""The server of one arm: how it is called, whether it was started here, and what it told when it was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.engines.control import ControlCalls
from harness.engines.facts import Probed
from harness.engines.flags import ArmFlags, combined, from_server
from harness.engines.launched import LaunchedServer
from harness.engines.remote_checks import acceptance_source
from harness.engines.window import ExclusiveWindow
from harness.workload import Arm

# Between requests: suffix decoding (vLLM) and SGLang's n-grams draft from what earlier requests of the server said
_CARRIES_STATE = frozenset({("vllm", "suffix"), ("sglang", "ngram")})


@dataclass(slots=True)
class RemoteServer:
    """The server of one arm; ``launched`` is ``None`` for an attached one, ``probed`` until it has been reached."""

    arm: Arm
    calls: ControlCalls
    window: ExclusiveWindow
    launched: LaunchedServer | None = None
    probed: Probed | None = None

    @property
    def where(self) -> str:
        """How errors call it, with its address."""
        return f"{self.calls.who} at {self.calls.base_url}"

    @property
    def may_draft(self) -> bool:
        """Whether it drafts as far as it showed, or else as its arm says."""
        shown = None if self.probed is None else self.probed.drafts.value
        return self.arm.method != "none" if shown is None else shown

    @property
    def needs_window(self) -> bool:
        """Whether its counters are the only way to the acceptance of a request."""
        if self.probed is None or self.probed.drafts.value is False:
            return False
        return self.probed.per_request_acceptance.value is None and self.probed.counters.value is True

    def flags(self) -> ArmFlags:
        """Return its effective settings, as far as they are known."""
        told = from_server(self.arm.name, {} if self.probed is None else self.probed.settings)
        return told if self.launched is None else combined(self.launched.flags, told)

    def facts(self) -> dict[str, Any] | None:
        """Return what it told, for the manifest; ``None`` before it has been reached."""
        if self.probed is None:
            return None
        told: dict[str, Any] = self.calls.access.redacted(self.probed.to_json())
        return {**told, "acceptance_source": acceptance_source(self.probed)}

    def describe(self, kind: str) -> dict[str, Any] | None:
        """Return what it is, for the manifest: nothing that differs between two starts; ``None`` before it has been reached."""
        if self.probed is None:
            return None
        config = self.probed.speculative_config.value
        if config is None and self.launched is not None:
            config = self.launched.launch.speculative_config
        told: dict[str, Any] = self.calls.access.redacted(
            {
                "method": self.arm.method,
                "options": self.arm.options,
                "options_effective": self.probed.speculative_config.known,  # otherwise they are what the file claims
                "drafter": None if config is None else dict(config),
                "drafter_carries_state": (kind, self.arm.method.lower()) in _CARRIES_STATE,
                "base_url": self.calls.base_url if self.launched is None else None,
                "flags": self.flags().to_json(),
            }
        )
        return told
