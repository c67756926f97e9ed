"""``python -m drafters.engine.server``: the builtin engine behind OpenAI's HTTP interface.

Progress goes to stderr. One line on stdout, ``LISTENING http://HOST:PORT``, says that the server is ready. SIGTERM and SIGINT
end it within two seconds, whatever it is doing.

A client keeps its sending side open until it has its answer. The end of what it sends (``shutdown(SHUT_WR)``) is taken for its
leaving: the two look alike, and one that has left must free its place at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import reprlib
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import uvicorn
from pydantic import ValidationError

from drafters.engine.app import Api
from drafters.engine.config import EngineConfig
from drafters.engine.connection import BoundedProtocol, listening
from drafters.engine.jobs import RoundLog
from drafters.engine.large_pages import start_with_large_pages

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = ["main"]

GRACE_S = 1
HARD_END_S = 1.6
KEEP_ALIVE_S = 600
BACKLOG = 1024
# A thread that wants the interpreter waits this long for one that holds it; the engine asks for it hundreds of times a round.
SWITCH_INTERVAL_S = 0.0005

logger = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """uvicorn that says when it listens, without its own signal handlers: they would raise the signal again at the end."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        host, port = (sockets or [])[0].getsockname()[:2]
        sys.stdout.write(f"LISTENING http://{f'[{host}]' if ':' in host else host}:{port}\n")
        sys.stdout.flush()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal comes. Returns 2 for a configuration that is wrong or does not fit the machine."""
    parser = argparse.ArgumentParser(
        prog="python -m drafters.engine.server", description="The builtin speculative engine."
    )
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--config", help="the engine's configuration as JSON")
    given.add_argument("--config-file", type=Path, help="a file that holds it")
    parser.add_argument("--parent-pid", type=int, help="end when this process, the parent, is gone")
    options = parser.parse_args(arguments)
    # Until the server listens nothing needs to be closed: the system's own way to end a process is the quickest.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if options.parent_pid is not None:
        threading.Thread(target=_follow, args=(options.parent_pid,), name="parent", daemon=True).start()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        raw = options.config if options.config is not None else options.config_file.read_bytes()
        config = EngineConfig.model_validate_json(raw)
        if not (config.model / "config.json").is_file():  # told before anything heavy is imported
            raise ValueError(f"{config.model} holds no config.json; give a local Hugging Face model folder")
        listener = listening(config.host, config.port)
        _serve(config, listener)
    except ValidationError as error:
        _say("\n".join(map(_complaint, error.errors())))
    except (ValueError, OSError) as error:
        _say(str(error))
    return 2


def _serve(config: EngineConfig, listener: socket.socket) -> NoReturn:
    from drafters.engine.assembly import assemble
    from drafters.engine.worker import Worker

    rounds = RoundLog()
    engine = assemble(config, on_round=rounds.append, progress=_say)
    # What is loaded stays; a collection that went through it all would hold up a round.
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_INTERVAL_S)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        worker = Worker(engine.runner, rounds, loop, config.threads)
        server = _Server(
            uvicorn.Config(
                Api(engine, worker, rounds).app(),
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
                backlog=BACKLOG,
            )
        )

        def end() -> None:
            threading.Thread(target=_end_hard, name="end", daemon=True).start()
            worker.stop()
            server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        worker.start()
        await server.serve(sockets=[listener])

    asyncio.run(run())
    # The engine's thread may be in the middle of a forward, which the interpreter's own end would wait for or trip over.
    _leave(0)


def _follow(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def _end_hard() -> None:
    time.sleep(HARD_END_S)
    _leave(0)


def _leave(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _complaint(fault: ErrorDetails) -> str:
    """One line: where the configuration is wrong, what stands there, what is allowed."""
    place = ".".join(str(part) for part in fault["loc"] if part != "[key]")  # a key that is wrong ends its own place
    given = fault["input"]
    shown = f"{place} is {reprlib.repr(given)}" if place and isinstance(given, str | int | float) else place or "config"
    return f"{shown}: {fault['msg']}"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    start_with_large_pages()
    sys.exit(main())
