"""The builtin speculative engine as an engine under test: one server with all arms, started here or attached by address.

Each arm is a named drafter of the server, chosen by a field of the request; arms so share weights, memory and kernels, and differ
in the drafter alone.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.access import OPEN, Access
from harness.engines.base import Endpoint, ServerState
from harness.engines.builtin_control import BuiltinControl
from harness.engines.builtin_options import check_arms, differences, engine_config, served, shipped_by_name
from harness.engines.builtin_reader import BuiltinReader
from harness.engines.counters import spec_counters
from harness.engines.process import ChildProcess
from harness.errors import EngineRefused, EngineStartError, EngineUnreachable
from harness.models import ModelFolder, Progress, resolve_folder
from harness.records import SpecCounters
from harness.workload import Arm, EngineSpec

__all__ = ["BuiltinEngine", "check_arms", "require_packages"]

LISTENING = "LISTENING "
PACKAGES = ("torch", "transformers", "safetensors", "starlette", "uvicorn", "prometheus_client")
_REFUSED = 2  # the server's exit code for a configuration that is wrong or does not fit the machine
_DRAIN_S = 60.0
_DRAIN_POLL_S = 0.05


def require_packages() -> None:
    """Check that what the server needs is installed; imports none of it.

    Raises:
        EngineStartError: naming what is missing and how to get it.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise EngineStartError(
            f"the builtin engine needs {', '.join(missing)}, not installed here: pip install 'spec-harness[builtin]'"
        )


class BuiltinEngine:
    """All arms of a run on one builtin server; implements :class:`harness.engines.base.Engine`.

    ``concurrency`` is the most requests the server must work on at once. Its configuration and log go below ``folder``.
    ``access`` is how an attached server is reached.
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
        self._arms = {arm.name: arm for arm in arms}
        self._concurrency = concurrency
        self._folder = folder
        self._progress = progress
        self._control = BuiltinControl((spec.base_url or "").rstrip("/"), access)
        self._process: ChildProcess | None = None
        self._model: ModelFolder | None = None
        self._served_name = spec.model
        self._info: Mapping[str, Any] = {}

    async def start(self) -> None:
        """Start or reach the server and check that it has every arm's drafter as the arm describes it.

        Raises:
            ModelError: if the model is missing or cannot be made.
            EngineStartError: if the server does not come up.
            EngineRefused: if it refuses its configuration, or drafts or is sized otherwise.
        """
        try:
            if self._spec.base_url is None:
                require_packages()
                self._model = await asyncio.to_thread(resolve_folder, self._spec.model, progress=self._progress)
                await self._launch()
            elif not await self._control.calls.healthy():
                raise EngineUnreachable(
                    f"no healthy builtin server at {self._control.calls.base_url}; start it with 'harness serve', or correct base_url"
                )
            self._served_name = await self._control.served_name()
            self._info = await self._control.info()
            self._check()
            self._report("start", 1.0)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the server if it was started here."""
        if self._process is not None:
            await self._process.stop()

    async def bring_up(self, arm: str) -> None:
        """Do nothing: one server has all arms."""

    async def restart(self, arm: str) -> None:
        """Start the server of all arms again, on a new address.

        Raises:
            EngineUnreachable: if it was attached, not started here.
        """
        if self._process is None:
            raise EngineUnreachable(
                f"the builtin server at {self._control.calls.base_url} is gone and was not started here; start it again and resume the run"
            )
        await self._process.stop()
        await self._launch()

    def endpoint(self, arm: str) -> Endpoint:
        """Return the endpoint of one arm: the same address for all, and the drafter's name in every request."""
        drafter = None if self._arms[arm].method == "none" else arm
        # rounds for the baseline too: arms must differ in the drafter alone, in the work of server and client as well
        return Endpoint(
            self._control.calls.base_url,
            self._served_name,
            extra_body={"drafter": drafter, "return_rounds": True},
            access=self._control.calls.access,
        )

    def reader(self, arm: str) -> BuiltinReader:
        """Return a fresh reader for one response."""
        return BuiltinReader(same_clock=self._process is not None or _is_loopback(self._control.calls.base_url))

    def carries_state(self, arm: str) -> bool:
        """Return ``False``: what the server learns of costs and acceptance, a call makes it forget; none need be fresh."""
        return False

    def shares_cache(self) -> bool:
        """Return ``True``: all arms have one server, which keeps the K/V of prompts whatever drafter they came with."""
        return True

    def alive(self, arm: str) -> bool:
        """Tell whether the server process still runs (always true for an attached server)."""
        return self._process is None or self._process.alive()

    async def counters(self, arm: str) -> SpecCounters | None:
        """Return the server's lifetime counters, over all arms: a cell has the server to itself."""
        return spec_counters(await self._control.metrics())

    async def state(self, arm: str) -> ServerState:
        """Return the requests that are being worked on or wait; how many have finished it does not tell."""
        return ServerState(busy=await self._control.busy())

    def window(self, arm: str) -> None:
        """Return ``None``: answers tell their rounds."""

    async def drain(self, arm: str) -> bool:
        """Wait until no request runs or waits; ``False`` if one still does after a minute or the server does not tell."""
        deadline = time.monotonic() + _DRAIN_S
        while busy := await self._control.busy():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_DRAIN_POLL_S)
        return busy == 0

    async def reset_prompt_cache(self, arm: str) -> bool:
        """Empty the server's prefix cache, that of all arms."""
        await self._control.reset_prefix_cache()
        return True

    async def reset_drafting(self, arm: str) -> None:
        """Let the server choose draft lengths as it did when it started: those of all arms learn from every round."""
        await self._control.reset_drafting()

    async def tokenize(self, arm: str, text: str) -> tuple[int, ...] | None:
        """Return the server's tokens of a text."""
        return await self._control.tokenize(text)

    async def describe(self) -> dict[str, Any]:
        """Return engine, versions, model with hash and settings, and each arm's drafter as the server has it."""
        config = dict(self._info.get("config") or {})
        drafters = config.pop("drafters", None) or {}
        model = dict(self._info.get("model") or {})
        if self._model is not None:
            given = {
                "name": self._model.name,
                "licence": self._model.licence,
                "source_sha256": self._model.source_sha256,
            }
            model = {**given, **model}
        # a folder is what it says it is; a file written from it tells the same hash as its source
        model["source_sha256"] = model.get("source_sha256") or model.get("sha256")
        arms = {
            name: {
                "method": arm.method,
                "drafter": None if arm.method == "none" else shipped_by_name(drafters.get(name)),
                # Drafters keep nothing; under "goodput" lengths follow what earlier requests taught, of other arms too.
                "drafter_carries_state": (drafters.get(name) or {}).get("lengths") == "goodput",
                "drafting_state": "reset before each cell",
            }
            for name, arm in self._arms.items()
        }
        return {
            "engine": "builtin",
            "attached": self._process is None,
            "version": None if self._process is None else _version(),
            **{key: self._info[key] for key in ("versions", "threads") if key in self._info},
            "model": model,
            "settings": {key: value for key, value in config.items() if key not in _PER_START},
            "arms": arms,
        }

    async def _launch(self) -> None:
        assert self._model is not None  # start() resolves it before the server is brought up
        config = engine_config(
            self._spec,
            list(self._arms.values()),
            self._model.path,
            concurrency=self._concurrency,
            served_name=self._model.name,
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "builtin.json"
        file.write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
        command = [sys.executable, "-m", "drafters.engine.server", "--config-file", str(file)]
        command += ["--parent-pid", str(os.getpid())]
        process = self._process = ChildProcess("the builtin server", command, self._folder / "builtin.log")
        self._report("start", 0.0)
        process.start()

        async def listening() -> bool:
            lines = process.log_since_start().splitlines()
            self._control.calls.base_url = next(
                (line.removeprefix(LISTENING).strip() for line in lines if line.startswith(LISTENING)), ""
            )
            if self._control.calls.base_url:
                return await self._control.calls.healthy()
            stages = [line.strip() for line in lines if line.strip() and "%|" not in line]  # without bars of libraries
            if stages:
                self._report(f"start: {stages[-1][:70]}", 0.5)
            return False

        try:
            await process.wait_until(listening, self._spec.start_timeout_s)
        except EngineStartError as error:
            if process.exit_code == _REFUSED:
                raise EngineRefused(str(error)) from error
            raise

    def _check(self) -> None:
        """Raise :class:`EngineRefused` unless the server has the arms' drafters and the room that the run needs."""
        config = self._info.get("config")
        where = f"the builtin server at {self._control.calls.base_url}"
        if not isinstance(config, dict):
            raise EngineRefused(
                f"{where} does not tell its configuration at /server_info; start it with 'harness serve'"
            )
        drafters = config.get("drafters") or {}
        for name, arm in self._arms.items():
            if arm.method == "none":
                continue
            if name not in drafters:
                raise EngineRefused(
                    f"{where} has no drafter {name!r}, it has {', '.join(drafters) or 'none'}; start it with "
                    f"--drafter {name}={arm.method}, or correct the arm"
                )
            wrong = [] if self._process is not None else differences(served(arm.method, arm.options), drafters[name])
            if wrong:
                raise EngineRefused(
                    f"the drafter {name!r} of {where} is not the arm of that name: {'; '.join(wrong)}; start it as the arm says, or "
                    "correct the arm"
                )
        room, places = config.get("context_tokens"), config.get("max_sequences")
        if isinstance(room, int) and room < self._spec.context_tokens:
            raise EngineRefused(
                f"{where} has {room} tokens of context for a request, but engine.context_tokens is {self._spec.context_tokens}; lower "
                "it, or start the server with a larger --context-tokens"
            )
        if isinstance(places, int) and places < self._concurrency:
            raise EngineRefused(
                f"{where} works on {places} requests at once, but the highest concurrency is {self._concurrency}; requests would "
                f"queue in the server: start it with --max-sequences {self._concurrency}, or lower --concurrency"
            )

    def _report(self, stage: str, fraction: float) -> None:
        if self._progress is not None:
            self._progress(stage, fraction)


_PER_START = ("port", "host", "model")  # of the server's configuration: no setting, or told under model


def _is_loopback(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


def _version() -> str | None:
    try:
        return importlib.metadata.version("spec-harness")
    except importlib.metadata.PackageNotFoundError:
        return None
