"""A server of another maker that the harness starts for an arm, watches, and stops with everything it started."""

from __future__ import annotations

import json
import os
import random
import shlex
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from harness.engines.flags import ArmFlags, from_command
from harness.engines.guard import SERVER_ENV
from harness.engines.process import ChildProcess
from harness.errors import EngineRefused, EngineStartError
from harness.models import Progress
from harness.printable import printable
from harness.redaction import environment_secrets, forms, mask
from harness.workload_launch import Launch

GRACE_S = 20.0  # a server that holds a GPU needs some seconds to give it back
_GUARD_S = 3.0  # for the guard to see that all are gone
_POLL_S = 0.25
_PORT_TRIES = 100
_FIRST_PORT = 10_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LAST_LINE = 60

StatusCheck = Callable[[str, str], Awaitable[int | None]]
"""Takes base address and path, returns the status that is answered there, ``None`` where nothing is; never raises."""
_OK = 200
_NO_SUCH_PATH = frozenset({401, 403, 404, 405, 410})  # waiting changes none of these; 503 is a model that loads
_PATIENCE_S = 30.0  # some answer 404 for a moment, before their routes are there


class LaunchedServer:
    """The server of one arm: ``launch`` says how it is started, ``model`` fills ``{model}``.

    Its output goes to ``launch.log``, or to ``<arm>.log`` below ``folder``. A command without ``{port}`` starts a server whose address is
    known: ``base_url``. ``hidden`` are spellings of secrets that it may know besides those of its launch and of the environment that
    it inherits: none stands in a message, nor is one ever written to its log. ``status`` asks it; ``progress`` is told how long it has
    been waited for and the last line of its log; ``grace_s`` is how long it may take to end by itself, ``patience_s`` how long it may
    say that its health path is none.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        model: str,
        folder: Path,
        status: StatusCheck,
        base_url: str | None = None,
        hidden: Sequence[str] = (),
        progress: Progress | None = None,
        grace_s: float = GRACE_S,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self.launch = launch
        self.base_url = (base_url or "").rstrip("/")
        self._fixed = self.base_url
        self._model = model
        self._folder = folder
        self._status = status
        self._progress = progress
        self._grace_s = grace_s
        self._patience_s = patience_s
        self._process: ChildProcess | None = None
        self._stopped = False
        own = (form for value in launch.secrets() for form in forms(value))
        known = {*own, *hidden, *environment_secrets(os.environ)}
        self._secrets = tuple(sorted(known, key=len, reverse=True))  # a key that begins like another is masked whole

    @property
    def who(self) -> str:
        """How errors call it."""
        return f"the server of arm {self.launch.arm!r}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """All spellings of the secrets that it may know, for whatever else it says."""
        return self._secrets

    @property
    def flags(self) -> ArmFlags:
        """The flags of its command line; the port is left out, which differs from start to start."""
        return from_command(self.launch)

    @property
    def log(self) -> Path:
        """The file of its output."""
        named = self.launch.log
        return (
            self._folder / f"{self.launch.arm}.log" if named is None else Path(self._filled(named, None)).expanduser()
        )

    @property
    def started(self) -> bool:
        """Whether it has been started at all; it may have ended since."""
        return self._process is not None

    @property
    def died(self) -> bool:
        """Whether it has ended without being told to."""
        return self._process is not None and not self._stopped and not self._process.alive()

    def alive(self) -> bool:
        """Tell whether its process still runs."""
        return self._process is not None and self._process.alive()

    async def start(self) -> None:
        """Start it and wait until it is healthy; nothing if it runs. Its address may be another one than before.

        Raises:
            EngineRefused: if something else already answers at its address, or the environment lacks what it asks for.
            EngineStartError: if it does not come up in time; the message holds the end of its log. It is stopped then.
        """
        if self.alive():
            return
        await self.stop()  # what a server that died has left behind
        if not self.launch.takes_port and await self._status(self._fixed, self.launch.health) is not None:
            raise EngineRefused(
                f"{self.who} is to be started at {self._fixed}, but something already answers there; stop it, or remove launch to "
                "measure what runs"
            )
        port = free_port() if self.launch.takes_port else None
        self.base_url = self._fixed if port is None else f"http://127.0.0.1:{port}"
        process = self._process = self._child(port)
        self._stopped = False
        process.start()
        began = time.monotonic()
        timeout_s = self.launch.start_timeout_s

        answer: int | None = None
        refused_since: float | None = None

        async def ready() -> bool:
            nonlocal answer, refused_since
            answer = await self._status(self.base_url, self.launch.health)
            if answer == _OK:
                return True
            now = time.monotonic()
            waited = now - began
            refused_since = (now if refused_since is None else refused_since) if answer in _NO_SUCH_PATH else None
            if refused_since is not None and now - refused_since > self._patience_s:
                raise EngineStartError(
                    f"{self.who} runs, but has not been ready: its health path seems to be another one; give launch.health a path that "
                    f"answers 200 without a key once the model is loaded\n{process.log_end()}"
                )
            self._report(f"{self._last_line(process)} · {waited:.0f} of {timeout_s:.0f} s", waited / timeout_s)
            return False

        self._report("", 0.0)
        try:
            await process.wait_until(ready, timeout_s, poll_s=_POLL_S)
        except EngineStartError as error:
            await self.stop()
            command = printable(shlex.join(self.launch.shown(port=port, model=self._model)))
            last = "no answer" if answer is None else f"status {answer}"
            asked = f"asked: GET {self.base_url}{self.launch.health}, the last time with {last}"
            raise EngineStartError(mask(f"{error}\n{asked}\nstarted with: {command}", self._secrets)) from None
        except BaseException:
            await self.stop()
            raise
        self._report("ready", 1.0)

    async def stop(self) -> None:
        """Stop it with everything it started. Never raises, safe to repeat."""
        if self._process is not None:
            self._stopped = True
            await self._process.stop(self._grace_s + _GUARD_S)

    def _child(self, port: int | None) -> ChildProcess:
        try:
            command = self.launch.arguments(port=port, model=self._model)
            env = {f"{SERVER_ENV}{name}": self._filled(value, port) for name, value in self.launch.env.items()}
        except KeyError as error:
            raise EngineRefused(
                f"{self.who}: the environment has no {error.args[0]}, which its launch asks for; set it"
            ) from error
        guard = [sys.executable, "-m", "harness.engines.guard", "--grace", f"{self._grace_s:g}", "--masked"]
        if self.launch.cwd is not None:
            guard += ["--cwd", str(Path(self.launch.cwd).expanduser())]
        secrets = f"{json.dumps(self._secrets)}\n".encode()
        return ChildProcess(self.who, [*guard, "--", *command], self.log, env, secrets)

    def _filled(self, text: str, port: int | None) -> str:
        return self.launch.filled(text, port=port, model=self._model)

    def _last_line(self, process: ChildProcess) -> str:
        lines = [line.strip() for line in process.log_since_start(tail_bytes=4096).splitlines() if line.strip()]
        return mask(printable(lines[-1]), self._secrets)[:_LAST_LINE] if lines else "no output yet"

    def _report(self, stage: str, fraction: float) -> None:
        if self._progress is not None:
            self._progress(f"start {self.launch.arm}: {stage}".rstrip(": "), min(fraction, 1.0))


async def make_room(servers: Mapping[str, LaunchedServer], arm: str) -> list[str]:
    """Stop the servers that may not be up beside that of ``arm``; return their arms. Two may if both say ``side_by_side``."""
    own = servers[arm].launch.side_by_side
    others = [name for name, server in servers.items() if name != arm and server.alive()]
    leaving = [name for name in others if not (own and servers[name].launch.side_by_side)]
    for name in leaving:
        await servers[name].stop()
    return leaving


def free_port() -> int:
    """Return a port of the loopback interface on which nothing listens.

    It lies below the range from which the system takes ports of outgoing connections: a server binds its port only after it has
    loaded its model, and a connection made meanwhile must not sit on it.
    """
    below = _first_ephemeral()
    for _ in range(_PORT_TRIES):
        port = random.SystemRandom().randrange(_FIRST_PORT, below)
        if _is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _first_ephemeral() -> int:
    try:
        first = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
    return first if first > _FIRST_PORT + _PORT_TRIES else 32_768


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))  # servers may listen on every interface
        except OSError:
            return False
    return True
