"""What an examination of a server found: observations by topic, each with a code that the reports put into words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["good", "note", "warning", "bad"]

# topic.code → names of its values. The texts are in reports/texts/doctor.*.yaml; a test holds them to these.
CODES: Mapping[str, tuple[str, ...]] = {
    "reach.direct": ("place", "connect_ms", "round_trip_ms"),
    "reach.proxy": ("place", "proxy", "connect_ms", "round_trip_ms"),
    "reach.failed": ("why",),
    "tls.none": (),
    "tls.trusted": ("version", "name", "until"),
    "tls.unchecked": ("version",),
    "tls.failed": ("why",),
    "key.none": (),
    "key.accepted": ("source",),
    "key.unneeded": ("source",),
    "key.refused": ("status", "why"),
    "models.only": ("name",),
    "models.chosen": ("name", "others"),
    "models.first": ("name", "others"),
    "models.unlisted": ("name", "names"),
    "models.untold": ("name", "why"),
    "models.no_interface": ("why",),
    "models.loading": ("why",),
    "engine.told": ("kind", "version"),
    "engine.unversioned": ("kind",),
    "engine.unknown": (),
    "streaming.good": ("chunks", "first_token_ms", "seconds"),
    "streaming.failed": ("why",),
    "usage.good": ("prompt_tokens", "output_tokens"),
    "usage.missing": (),
    "tools.structured": ("name",),
    "tools.text": (),
    "tools.unused": (),
    "tools.refused": ("why",),
    "logprobs.good": (),
    "logprobs.missing": (),
    "logprobs.refused": ("why",),
    "speculation.told": ("accepted", "drafted", "rounds"),
    "speculation.told_sums": ("accepted", "drafted"),
    "speculation.counted": ("accepted", "drafted"),
    "speculation.said": ("how",),
    "speculation.by_request": ("names",),
    "speculation.off": ("how",),
    "speculation.unknown": (),
    "acceptance.round": (),
    "acceptance.request": (),
    "acceptance.window": (),
    "acceptance.no_draft": (),
    "acceptance.unseen": (),
    "acceptance.nowhere": (),
    "cache.hit": ("cached_tokens", "prompt_tokens"),
    "cache.miss": ("prompt_tokens",),
    "cache.untold": ("first_ms", "again_ms"),
    "emptying.possible": (),
    "emptying.impossible": (),
    "traffic.none": ("seconds",),
    "traffic.some": ("requests",),
    "traffic.unknown": (),
    "clock.told": ("offset_s", "resolution_ns"),
    "clock.untold": ("resolution_ns",),
}

TOPICS: tuple[str, ...] = tuple(dict.fromkeys(code.partition(".")[0] for code in CODES))
"""In the order in which they are shown."""
FACTS: tuple[str, ...] = (
    "version",
    "max_model_len",
    "per_request_acceptance",
    "counters",
    "per_position",
    "cached_tokens",
    "running_requests",
    "cache_reset",
    "speculative_config",
)
"""What may stay unknown."""
GRADES: tuple[str, ...] = ("unfit", "times", "tokens", "undrafted", "unseen", "totals", "acceptance")
"""How much can be measured, from nothing to everything; ``undrafted``: everything of a server that drafts nothing,
``unseen``: of one that was not seen to draft."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One line: ``topic.code`` with its values. ``bad`` alone makes a server unfit, a ``warning`` leaves figures out."""

    topic: str
    code: str
    level: Level
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that the server does not tell, or not finely, and the setting of the server that would change it."""

    fact: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was found out. ``kind`` and ``model`` are how a workload file would name the server, where they are known;
    ``further`` are the other keys of its ``engine`` that a run needs as the examination did: ``access`` and ``options``."""

    base_url: str
    observations: tuple[Observation, ...]
    unknown: tuple[Unknown, ...] = ()
    kind: str | None = None
    model: str | None = None
    further: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fit(self) -> bool:
        """Whether a run against this server would give valid times."""
        return bool(self.observations) and not self.obstacles

    @property
    def obstacles(self) -> tuple[str, ...]:
        """The topics that make it unfit."""
        return tuple(item.topic for item in self.observations if item.level == "bad")

    @property
    def grade(self) -> str:
        """How much can be measured, one of ``GRADES``; ``totals`` is acceptance by the server's counters alone."""
        if not self.fit:
            return "unfit"
        codes = {item.topic: item.code for item in self.observations}
        if codes.get("usage") != "good":
            return "times"
        found = {
            "round": "acceptance",
            "request": "acceptance",
            "window": "totals",
            "no_draft": "undrafted",
            "unseen": "unseen",
        }
        return found.get(codes.get("acceptance", ""), "tokens")
