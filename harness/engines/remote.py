"""Servers of other makers as engines under test: attached by address, or started once an arm; one dialect an engine kind.

A server cannot change its drafter from request to request, so each arm has a server of its own. What one can tell is asked when it is
reached (:mod:`harness.engines.probe`) and decides how its acceptance is found: told with each answer, else by its counters around a
request that had it to itself, else unknown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from harness.access import OPEN, Access
from harness.engines.base import Endpoint, ServerState
from harness.engines.control import ControlCalls
from harness.engines.dialects import dialect
from harness.engines.launched import LaunchedServer, make_room
from harness.engines.probe import probe, token_ids
from harness.engines.remote_checks import check_places, check_server, check_together
from harness.engines.remote_options import extra_body
from harness.engines.remote_reader import RemoteReader
from harness.engines.remote_server import RemoteServer
from harness.engines.window import ExclusiveWindow
from harness.errors import EngineUnreachable
from harness.models import Progress
from harness.records import SpecCounters
from harness.workload import Arm, EngineSpec

_DRAIN_S = 60.0
_POLL_S = 0.05
_LOADING_POLL_S = 1.0


class RemoteEngine:
    """All arms of a run on servers of one family; implements :class:`harness.engines.base.Engine`.

    ``concurrency`` is the most requests a server must take at once. Logs of servers that are started here go below ``folder``.
    ``access`` is how servers are reached.
    """

    def __init__(
        self,
        spec: EngineSpec,
        arms: Sequence[Arm],
        *,
        concurrency: int,
        folder: Path,
        access: Access = OPEN,
        progress: Progress | None = None,
    ) -> None:
        self._spec = spec
        self._concurrency = concurrency
        self._progress = progress
        self._dialect = dialect(spec.kind)
        self._servers = {arm.name: self._server(arm, folder, access) for arm in arms}

    def _server(self, arm: Arm, folder: Path, access: Access) -> RemoteServer:
        address = (arm.base_url or self._spec.base_url or "").rstrip("/")
        launch = self._spec.launch_for(arm)
        calls = ControlCalls(f"the server of arm {arm.name!r}", address, access if launch is None else access.direct())

        async def page() -> str | None:
            return await self._page(arm.name)

        server = RemoteServer(arm, calls, ExclusiveWindow(page, self._dialect))
        if launch is not None:

            async def status(base_url: str, path: str) -> int | None:
                return await ControlCalls(calls.who, base_url, calls.access).status(path)

            server.launched = LaunchedServer(
                launch,
                model=self._spec.model,
                folder=folder,
                status=status,
                base_url=address or None,
                hidden=access.hidden,
                progress=self._progress,
            )
            calls.access = replace(calls.access, hidden=server.launched.secrets)  # its answers may hold them, too
        return server

    async def start(self) -> None:
        """Reach every attached server, start those that may be up together, and ask each what it can tell.

        Servers that do not fit side by side wait for :meth:`bring_up`.

        Raises:
            EngineStartError: if a server does not come up.
            EngineUnreachable: if one that should run does not answer.
            EngineRefused: if one drafts or is sized otherwise than its arm says, or the arms serve different models.
        """
        try:
            for index, server in enumerate(self._servers.values()):
                alone = server.launched is not None and not server.launched.launch.side_by_side
                if not alone:
                    self._report(f"reach {server.arm.name}", index / len(self._servers))
                    await self._reach(server)
            self._report("start", 1.0)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop every server started here; attached ones are left alone."""
        started = [server.launched for server in self._servers.values() if server.launched is not None]
        await asyncio.gather(*(launched.stop() for launched in started))

    async def bring_up(self, arm: str) -> None:
        """Start the arm's server if it is to be started here and is not up, after those that do not fit beside it have stopped.

        One that died is left to :meth:`restart`, so that its death is seen.
        """
        server = self._servers[arm]
        if server.launched is None or server.launched.alive() or server.launched.died:
            return
        launched = {name: item.launched for name, item in self._servers.items() if item.launched is not None}
        for name in await make_room(launched, arm):
            self._servers[name].window.forget()
        await self._reach(server)

    async def restart(self, arm: str) -> None:
        """Start one arm's server again.

        Raises:
            EngineUnreachable: if the server was attached, not started here.
        """
        server = self._servers[arm]
        if server.launched is None:
            raise EngineUnreachable(
                f"{server.where} is gone and was not started here; start it again and resume the run"
            )
        await server.launched.stop()
        await self._reach(server)

    def endpoint(self, arm: str) -> Endpoint:
        """Return the endpoint of one arm."""
        server = self._servers[arm]
        probed = server.probed
        return Endpoint(
            server.calls.base_url,
            self._model(server.arm) if probed is None else probed.model.value or "",
            extra_body={} if probed is None else probed.extra_body,
            access=server.calls.access,
        )

    def reader(self, arm: str) -> RemoteReader:
        """Return a fresh reader for one response of one arm."""
        return RemoteReader(drafts=self._servers[arm].may_draft)

    def carries_state(self, arm: str) -> bool:
        """Return ``False``: starting such a server takes minutes. What its drafter remembers stands in the description."""
        return False

    def shares_cache(self) -> bool:
        """Tell whether two arms have one server (``openai``: told apart by the name of the model)."""
        addresses = [server.calls.base_url for server in self._servers.values() if server.launched is None]
        return len(set(addresses)) < len(addresses)

    def alive(self, arm: str) -> bool:
        """Tell whether the arm's server still runs (always true for an attached one)."""
        launched = self._servers[arm].launched
        return launched is None or launched.alive()

    async def counters(self, arm: str) -> SpecCounters | None:
        """Return the server's lifetime counters, ``None`` where it has none."""
        text = await self._page(arm)
        return None if text is None else self._dialect.counters(text)

    async def state(self, arm: str) -> ServerState:
        """Return what the server tells of the requests on it, ours and those of others."""
        text = await self._page(arm)
        return ServerState() if text is None else self._dialect.state(text)

    def window(self, arm: str) -> ExclusiveWindow | None:
        """Return the arm's window if the acceptance of some arm can be found in no better way; all arms have one then, or none."""
        needed = any(server.needs_window for server in self._servers.values())
        return self._servers[arm].window if needed else None

    async def drain(self, arm: str) -> bool | None:
        """Wait until the server works on no request; ``False`` if it still does after a minute, ``None`` if it does not tell."""
        deadline = time.monotonic() + _DRAIN_S
        while busy := (await self.state(arm)).busy:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_S)
        return None if busy is None else busy == 0

    async def reset_drafting(self, arm: str) -> None:
        """Do nothing: no server of these families has a call for it."""

    async def reset_prompt_cache(self, arm: str) -> bool:
        """Empty the server's prompt cache; ``False`` if it cannot, or will not now."""
        server, path = self._servers[arm], self._dialect.paths.reset_cache
        if path is None or server.probed is None or not server.probed.cache_reset.value:
            return False
        return (await server.calls.send("POST", path)).status_code == httpx.codes.OK

    async def tokenize(self, arm: str, text: str) -> tuple[int, ...] | None:
        """Return the tokens of a text, from this arm's server or, if it is not up, from another that is; all have one model."""
        path = self._dialect.paths.tokenize
        own = self._servers[arm]
        for server in (own, *(item for item in self._servers.values() if item is not own)):
            probed = server.probed
            if path is not None and self.alive(server.arm.name) and probed is not None and probed.tokenize.value:
                body = self._dialect.tokenize_body(probed.model.value or "", text)
                return token_ids(await server.calls.json("POST", path, body))
        return None

    async def describe(self) -> dict[str, Any]:
        """Return kind, version, model, and what each server is, tells and was started with; ``None`` for an arm not reached yet."""
        reached = [server.probed for server in self._servers.values() if server.probed is not None]
        first = reached[0] if reached else None
        return {
            "engine": self._spec.kind,
            "attached": all(server.launched is None for server in self._servers.values()),
            "version": None if first is None else first.version.value,
            "model": None if first is None else {"name": first.model.value, "max_model_len": first.max_model_len.value},
            "arms": {name: server.describe(self._spec.kind) for name, server in self._servers.items()},
            "probed": {name: server.facts() for name, server in self._servers.items()},
        }

    async def _reach(self, server: RemoteServer) -> None:
        """Bring one server up or find it, ask it everything, and check that it is what its arm says."""
        if server.launched is not None:
            await server.launched.start()
            server.calls.base_url = server.launched.base_url
        else:
            await self._wait_for_loading(server)
        server.window.forget()
        always = {**extra_body(self._spec.options), **extra_body(server.arm.options if self._is_open else {})}
        self._report(f"ask {server.arm.name} what it can tell", 0.5)
        server.probed = await probe(server.calls, self._dialect, self._model(server.arm), always)
        check_server(server.where, server.arm, server.probed, context_tokens=self._spec.context_tokens)
        check_places(server.where, server.flags().flags, self._concurrency)
        reached = {name: item.probed for name, item in self._servers.items() if item.probed is not None}
        check_together(reached, named=bool(self._model(server.arm)))

    async def _wait_for_loading(self, server: RemoteServer) -> None:
        """Wait while an attached server says that it is still loading its model (503), as long as a server may take to start."""
        deadline = time.monotonic() + self._spec.start_timeout_s
        path = self._dialect.paths.health
        while True:
            try:
                status = (await server.calls.send("GET", path)).status_code
            except EngineUnreachable as error:
                raise EngineUnreachable(f"{error}; start the server, or correct base_url") from error
            if status != httpx.codes.SERVICE_UNAVAILABLE:
                return
            if time.monotonic() > deadline:
                raise EngineUnreachable(
                    f"{server.where} still says 503 (loading, or out of order) after "
                    f"{self._spec.start_timeout_s:g} s; wait for it, or raise engine.start_timeout_s"
                )
            self._report(f"{server.arm.name} is still loading (503)", 0.0)
            await asyncio.sleep(_LOADING_POLL_S)

    @property
    def _is_open(self) -> bool:
        return self._spec.kind == "openai"

    def _model(self, arm: Arm) -> str:
        own = arm.options.get("model") if self._is_open else None
        return own if isinstance(own, str) else self._spec.model

    async def _page(self, arm: str) -> str | None:
        server = self._servers[arm]
        path = None if server.probed is None else server.probed.metrics_path
        return None if path is None else server.calls.ok(await server.calls.send("GET", path)).text

    def _report(self, stage: str, fraction: float) -> None:
        if self._progress is not None:
            self._progress(stage, fraction)
