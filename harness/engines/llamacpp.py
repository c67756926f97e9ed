"""llama.cpp's server as an engine under test: one server an arm, started here (package xllamacpp) or attached by address.

llama.cpp has no switch per request for its drafter (b11549), hence one server an arm; only one of them is loaded at a time.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.access import OPEN, Access
from harness.engines.base import Endpoint, ServerState
from harness.engines.counters import spec_counters, total
from harness.engines.llamacpp_control import DRAFTS_SOMEHOW, LlamaCppControl
from harness.engines.llamacpp_options import (
    CARRIES_STATE,
    ENGINE_OPTIONS,
    METHODS,
    check_arms,
    engine_config,
    longest_draft,
    settings,
)
from harness.engines.llamacpp_reader import LlamaCppReader
from harness.engines.llamacpp_server import LISTENING, SYSTEM
from harness.engines.process import ChildProcess
from harness.errors import EngineRefused, EngineUnreachable
from harness.models import ModelFile, Progress, resolve
from harness.records import SpecCounters
from harness.workload import Arm, EngineSpec

__all__ = ["METHODS", "LlamaCppEngine", "check_arms"]

_DRAIN_S = 60.0  # a cancelled prompt is given up at the end of its batch of 512 tokens at the latest
# for prompts of tasks that wait for a tool while another task takes their slot; the engine's own 8192 for each arm is too much
_CACHE_RAM_MIB = 1024


@dataclass(slots=True)
class _Server:
    """The server of one arm; ``process`` is ``None`` for an attached one."""

    arm: Arm
    control: LlamaCppControl
    process: ChildProcess | None = None
    drafter: str | None = None  # as the server tells it; None: it does not
    props: Mapping[str, Any] = field(default_factory=dict)
    system: str | None = None


class LlamaCppEngine:
    """All arms of a run on llama.cpp; implements :class:`harness.engines.base.Engine`.

    ``concurrency`` is the most requests a server must work on at once (its number of slots). Logs and slot files go below
    ``folder``. ``prompt_cache="reset"`` starts servers whose caches can be emptied, at the price of no cache outside the slots.
    ``access`` is how attached servers are reached.
    """

    def __init__(
        self,
        spec: EngineSpec,
        arms: Sequence[Arm],
        *,
        concurrency: int,
        folder: Path,
        prompt_cache: Literal["salt", "reset", "shared"] = "salt",
        access: Access = OPEN,
        progress: Progress | None = None,
    ) -> None:
        self._spec = spec
        self._concurrency = concurrency
        self._folder = folder
        self._resettable = prompt_cache == "reset"
        self._progress = progress
        self._attached = spec.base_url is not None or any(arm.base_url for arm in arms)
        self._servers = {
            arm.name: _Server(arm, LlamaCppControl(arm.name, (arm.base_url or spec.base_url or "").rstrip("/"), access))
            for arm in arms
        }
        self._model: ModelFile | None = None
        self._drafts: dict[str, ModelFile] = {}

    async def start(self) -> None:
        """Start or reach every arm's server, one after the other, and check that each drafts the way its arm says.

        Raises:
            ModelError: if a model is missing or damaged.
            EngineStartError: if a server does not come up.
            EngineRefused: if one drafts or is sized otherwise, or the arms serve different models.
        """
        try:
            if not self._attached:
                await asyncio.to_thread(self._resolve_models)
            for index, server in enumerate(self._servers.values()):
                self._report(f"start {server.arm.name}", index / len(self._servers))
                await self._bring_up(server)
            await self._check_same_model()
            self._report("start", 1.0)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop every server started here; attached ones are left alone."""
        started = [server.process for server in self._servers.values() if server.process is not None]
        await asyncio.gather(*(process.stop() for process in started))

    async def bring_up(self, arm: str) -> None:
        """Do nothing: each arm has its own server, all of them up."""

    async def restart(self, arm: str) -> None:
        """Start one arm's server again on a new address.

        Raises:
            EngineUnreachable: if the server was attached, not started here.
        """
        server = self._servers[arm]
        if server.process is None:
            raise EngineUnreachable(
                f"the server of arm {arm!r} at {server.control.calls.base_url} is gone and was not started here; "
                "start it again and resume the run"
            )
        await server.process.stop()
        await self._bring_up(server)

    def endpoint(self, arm: str) -> Endpoint:
        """Return the endpoint of one arm.

        The sampler chain is cut to temperature, then top_p, in that order, as other engines have it: the engine's defaults
        (top_k 40, min_p 0.05) would change the distribution, and setting those to 0 costs 4–8 % of a token's time (b11549,
        SmolLM2 135M, one thread) in sorting the whole vocabulary.
        """
        server = self._servers[arm]
        # timings for the baseline too: arms must differ in the drafter alone, in the work of server and client as well
        extra: dict[str, Any] = {"cache_prompt": True, "samplers": ["temperature", "top_p"], "timings_per_token": True}
        return Endpoint(
            server.control.calls.base_url,
            str(server.props.get("model_alias") or self._spec.model),
            extra_body=extra,
            access=server.control.calls.access,
        )

    def reader(self, arm: str) -> LlamaCppReader:
        """Return a fresh reader for one response of one arm."""
        server = self._servers[arm]
        # an attached server's own draft length is unknown, whatever the arm's options say
        longest = None if server.process is None else longest_draft(server.arm)
        return LlamaCppReader(drafts=server.arm.method != "none", longest_draft=longest)

    def carries_state(self, arm: str) -> bool:
        """Tell whether this arm's drafter remembers earlier requests and its server can be started afresh."""
        server = self._servers[arm]
        return server.process is not None and server.arm.method in CARRIES_STATE

    def shares_cache(self) -> bool:
        """Return ``False``: each arm has a server of its own."""
        return False

    def alive(self, arm: str) -> bool:
        """Tell whether the arm's server process still runs (always true for an attached server)."""
        process = self._servers[arm].process
        return process is None or process.alive()

    async def counters(self, arm: str) -> SpecCounters | None:
        """Return the server's lifetime counters, ``None`` where its metrics are off; they grow at the end of each request."""
        text = await self._servers[arm].control.metrics()
        return None if text is None else spec_counters(text)

    async def state(self, arm: str) -> ServerState:
        """Return the requests that are being worked on or wait; how many have finished it does not tell."""
        text = await self._servers[arm].control.metrics()
        return ServerState() if text is None else ServerState(busy=total(text, *_BUSY))

    def window(self, arm: str) -> None:
        """Return ``None``: answers tell their acceptance."""

    async def drain(self, arm: str) -> bool:
        """Wait until the server works on no request; ``False`` if it still does after a minute or does not tell."""
        deadline = time.monotonic() + _DRAIN_S
        while busy := (await self.state(arm)).busy:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.05)
        return busy == 0

    async def reset_drafting(self, arm: str) -> None:
        """Do nothing: an arm whose drafter remembers gets a fresh server (:meth:`carries_state`)."""

    async def reset_prompt_cache(self, arm: str) -> bool:
        """Erase every slot; ``False`` unless the engine was made with ``prompt_cache="reset"`` and the server started here.

        A server's cache in main memory cannot be emptied (b11549), so a server with one, or an unknown one, cannot be reset.
        """
        server = self._servers[arm]
        if server.process is None or not self._resettable:
            return False
        for slot in range(self._concurrency):
            await server.control.erase(slot)
        return True

    async def tokenize(self, arm: str, text: str) -> tuple[int, ...] | None:
        """Return the server's tokens of a text."""
        return await self._servers[arm].control.tokenize(text)

    async def describe(self) -> dict[str, Any]:
        """Return engine, package version, model and the effective flags of each arm, for the manifest."""
        some = next(iter(self._servers.values()))
        return {
            "engine": "llamacpp",
            "attached": self._attached,
            "package": None if self._attached else "xllamacpp",
            "version": some.props.get("build_info") if self._attached else importlib.metadata.version("xllamacpp"),
            "system_info": some.system,
            "model": _describe_model(self._model)
            if self._model
            else {"file": Path(_text(some.props, "model_path")).name},
            "model_ftype": some.props.get("model_ftype"),
            "threads": None if self._attached else self._spec.threads,
            "cache_ram_mib": None if self._attached else self._cache_ram_mib,
            "attention": None if self._attached else self._attention,
            "arms": {name: self._describe_arm(server) for name, server in self._servers.items()},
        }

    def _describe_arm(self, server: _Server) -> dict[str, Any]:
        draft = self._drafts.get(server.arm.draft_model or "")
        return {
            "method": server.arm.method,
            "options": server.arm.options if server.process is None else settings(server.arm),
            "options_effective": server.process is not None,  # an attached server's options are what the file claims
            "drafter": server.drafter,
            "drafter_carries_state": server.arm.method in CARRIES_STATE,  # between requests
            "draft_model": None if draft is None else _describe_model(draft),
            "n_slots": server.props.get("total_slots"),
            "context_tokens": _context(server.props),
            "base_url": server.control.calls.base_url if server.process is None else None,
        }

    def _resolve_models(self) -> None:
        self._model = resolve(self._spec.model, progress=self._progress)
        for server in self._servers.values():
            if server.arm.draft_model is not None:
                self._drafts[server.arm.draft_model] = resolve(server.arm.draft_model, progress=self._progress)

    @property
    def _attention(self) -> str:
        return str(self._spec.options.get("attention", ENGINE_OPTIONS["attention"].default))

    @property
    def _cache_ram_mib(self) -> int:
        return 0 if self._resettable else _CACHE_RAM_MIB

    def _config(self, arm: Arm) -> dict[str, Any]:
        assert self._model is not None  # start() resolves it before any server is brought up
        slots = self._folder / "slots"
        if self._resettable:
            slots.mkdir(parents=True, exist_ok=True)
        return {
            **engine_config(arm),
            "model": str(self._model.path),
            "draft_model": None if arm.draft_model is None else str(self._drafts[arm.draft_model].path),
            "n_parallel": self._concurrency,
            "context_tokens": self._spec.context_tokens,
            "threads": self._spec.threads,
            "attention": self._attention,
            "cache_ram_mib": self._cache_ram_mib,
            "slot_save_path": str(slots) if self._resettable else None,
        }

    async def _bring_up(self, server: _Server) -> None:
        if not self._attached:
            await self._launch(server)
        elif not await server.control.calls.healthy():
            raise EngineUnreachable(
                f"no healthy llama-server at {server.control.calls.base_url} for arm {server.arm.name!r}; start it with "
                "--metrics --slots, or correct base_url"
            )
        server.props = await server.control.props()
        server.drafter = await server.control.drafter()
        wanted = engine_config(server.arm)["type"] or "none"
        known_any = server.arm.method == "synthetic" and self._attached and server.drafter not in (None, "none")
        if (
            server.drafter is not None
            and not known_any
            and server.drafter not in (wanted, DRAFTS_SOMEHOW[wanted != "none"])
        ):
            raise EngineRefused(
                f"arm {server.arm.name!r} is method {server.arm.method!r}, but the server at {server.control.calls.base_url} drafts with "
                f"{server.drafter!r}; start it with --spec-type {wanted}, or correct the arm"
            )
        self._check_size(server)

    def _check_size(self, server: _Server) -> None:
        context, slots = _context(server.props), server.props.get("total_slots")
        who = f"the server of arm {server.arm.name!r}"
        if context is not None and context < self._spec.context_tokens:
            raise EngineRefused(
                f"{who} has {context} tokens of context for a request, but engine.context_tokens is {self._spec.context_tokens}; "
                "lower engine.context_tokens, or start the server with a larger context (-c is shared by all slots)"
            )
        if isinstance(slots, int) and slots < self._concurrency:
            raise EngineRefused(
                f"{who} has {slots} slots, but the highest concurrency is {self._concurrency}; requests would queue in the server: "
                f"start it with -np {self._concurrency}, or lower --concurrency"
            )

    async def _launch(self, server: _Server) -> None:
        arm = server.arm
        if server.process is None:
            command = [
                sys.executable,
                "-m",
                "harness.engines.llamacpp_server",
                "--config",
                json.dumps(self._config(arm)),
            ]
            server.process = ChildProcess(
                f"the llama.cpp server of arm {arm.name!r}", command, self._folder / f"{arm.name}.log"
            )
        process = server.process
        process.start()

        async def listening() -> bool:
            lines = process.log_since_start().splitlines()
            server.system = next((line.removeprefix(SYSTEM) for line in lines if line.startswith(SYSTEM)), None)
            server.control.calls.base_url = next(
                (line.removeprefix(LISTENING) for line in lines if line.startswith(LISTENING)), ""
            )
            return bool(server.control.calls.base_url) and await server.control.calls.healthy()

        await process.wait_until(listening, self._spec.start_timeout_s)

    async def _check_same_model(self) -> None:
        models = {name: await server.control.model_facts() for name, server in self._servers.items()}
        first = next(iter(models))
        other = next((name for name in models if models[name] != models[first]), None)
        if other is not None:
            raise EngineRefused(
                f"arms {first!r} and {other!r} serve different models ({models[first]}; {models[other]}); "
                "arms of a run share one model"
            )

    def _report(self, stage: str, fraction: float) -> None:
        if self._progress is not None:
            self._progress(stage, fraction)


_BUSY = ("llamacpp:requests_processing", "llamacpp:requests_deferred")


def _describe_model(model: ModelFile) -> dict[str, Any]:
    return {
        "name": model.name,
        "file": model.path.name,
        "sha256": model.sha256,
        "source_sha256": model.source_sha256,
        "kind": model.kind,
        "licence": model.licence,
    }


def _context(props: Mapping[str, Any]) -> int | None:
    value = props.get("default_generation_settings", {}).get("n_ctx")
    return value if isinstance(value, int) else None


def _text(props: Mapping[str, Any], key: str) -> str:
    value = props.get(key)
    return value if isinstance(value, str) else ""
