"""What the replay needs of an engine, whichever it is. Every engine is another process reached over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.access import OPEN, Access
from harness.records import Round, SpecCounters, SpecSource


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how one arm takes chat completions; ``extra_body`` is merged into every request.

    ``access`` holds the keys and headers of the server, its certificates and its proxy; ``headers`` come besides and hold no secret.
    """

    base_url: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    access: Access = OPEN


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What an adapter read out of one finished stream, beyond text and times; ``None`` where the engine does not tell."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    decode_passes: int | None = None
    spec: SpecCounters | None = None
    spec_source: SpecSource | None = None
    rounds: tuple[Round, ...] | None = None


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a server tells of its work: requests being worked on or waiting, and requests finished since its start.

    ``None`` where it does not tell.
    """

    busy: int | None = None
    finished: int | None = None


class StreamReader(Protocol):
    """Collects an engine's own fields from the chunks of one response. One object a request."""

    def chunk(self, t_ns: int, value: Mapping[str, Any]) -> None:
        """Take one decoded chunk that arrived at ``t_ns``; must cost microseconds."""

    def facts(self) -> StreamFacts:
        """Return what the finished stream told."""


class RequestWindow(Protocol):
    """Counts single requests by the server's lifetime counters, for servers whose answers do not tell their acceptance.

    Of use only while no more than one request is sent at a time. Never raises: where counters cannot be read, nothing is counted.
    """

    async def open(self) -> None:
        """Begin a window, before a request is sent; at once if the one before ended here."""

    async def close(self, facts: StreamFacts) -> StreamFacts:
        """End the window after a request; return what its stream told, with the counts that can be told to be its own."""

    def forget(self) -> None:
        """Let the next window begin with fresh counters: something else may have run."""


class Engine(Protocol):
    """An engine under test with all arms of a run. Methods raise :class:`harness.errors.EngineError`."""

    async def start(self) -> None:
        """Start or reach the server of every arm and wait until each is healthy; servers that do not fit side by side wait for
        :meth:`bring_up`."""

    async def stop(self) -> None:
        """Stop everything that :meth:`start` started; never raises, safe to call twice."""

    async def bring_up(self, arm: str) -> None:
        """Make ready what the next cell needs: where servers do not fit side by side, stop those of other arms and start this one's.

        Nothing where :meth:`start` has all of them up. Called before each cell.
        """

    async def restart(self, arm: str) -> None:
        """Bring one arm's server back after it died.

        Raises:
            EngineUnreachable: if it cannot be restarted (it was attached, not started).
        """

    def endpoint(self, arm: str) -> Endpoint:
        """Return the endpoint of one arm."""

    def reader(self, arm: str) -> StreamReader:
        """Return a fresh reader for one response of one arm."""

    def carries_state(self, arm: str) -> bool:
        """Tell whether this arm's drafter remembers earlier requests, so that a cell should begin with a fresh server.

        ``False`` for a server that was attached, not started here: it cannot be made fresh.
        """

    def shares_cache(self) -> bool:
        """Tell whether arms find each other's prompts in one server's cache; arms send the same ones, salted or not."""

    def alive(self, arm: str) -> bool:
        """Tell whether the arm's server process still runs (always true for an attached server)."""

    async def counters(self, arm: str) -> SpecCounters | None:
        """Return the server's lifetime counters, ``None`` where it has none."""

    async def state(self, arm: str) -> ServerState:
        """Return what the server tells of the requests on it, ours and those of others."""

    def window(self, arm: str) -> RequestWindow | None:
        """Return what counts single requests by the server's counters; ``None`` where answers tell themselves, or nothing tells.

        All arms of a run have one, or none has: reading counters takes time between requests.
        """

    async def reset_prompt_cache(self, arm: str) -> bool:
        """Empty the server's prompt cache; ``False`` if it cannot."""

    async def reset_drafting(self, arm: str) -> None:
        """Let the server's choice of draft lengths forget earlier requests, before each cell; nothing where none remembers
        or :meth:`carries_state` sees to it."""

    async def drain(self, arm: str) -> bool | None:
        """Wait (a minute at most) until the server works on no request; ``False`` if it still does, ``None`` if it cannot tell."""

    async def tokenize(self, arm: str, text: str) -> tuple[int, ...] | None:
        """Return the server's tokens of a text, ``None`` where it has no such call; any server of the run may answer for one that is
        not up, as all have one model."""

    async def describe(self) -> dict[str, Any]:
        """Return name, version, model with hash, and the effective flags of each arm, for the manifest.

        Under ``arms`` stands ``None`` for an arm whose server has not been up in this session. Nothing that differs between two
        starts of the same thing, such as a port, stands in it: a continued run is compared by it.
        """
