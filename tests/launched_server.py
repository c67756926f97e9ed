"""The fake server as a program that the harness starts: ``python -m tests.launched_server --port N …``.

It prints its arguments, waits ``--load-s``, then answers like a server with (``--speculative-config``) or without a drafter until it is
stopped. ``--worker FILE`` starts a worker in a session of its own, whose process id goes into the file; ``--deaf`` ignores SIGTERM.
``--starts FILE`` gets one line each time the program starts; ``--needs FILE`` lets it fail where that file is not there;
``--dies-once FILE`` lets it die at its tenth completion, if that file is not there, and makes it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.fake_server import FakeLlama, FakeServer, Reply, Request

SLEEPER = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--name", default="")
    parser.add_argument("--load-s", type=float, default=0.0)
    parser.add_argument("--speculative-config", type=json.loads)
    parser.add_argument("--worker", type=Path)
    parser.add_argument("--starts", type=Path)
    parser.add_argument("--needs", type=Path)
    parser.add_argument("--dies-once", type=Path)
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--api-key", default="")
    arguments = parser.parse_args()
    _say(f"arguments {json.dumps(sys.argv[1:])} tuning {os.environ.get('TUNING')}")
    if arguments.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if arguments.starts is not None:
        with arguments.starts.open("a", encoding="utf-8") as file:
            file.write(f"{arguments.name}\n")
    if arguments.needs is not None and not arguments.needs.exists():
        sys.exit(f"no model at {arguments.needs}")
    if arguments.worker is not None:
        worker = subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True)
        arguments.worker.write_text(str(worker.pid), encoding="utf-8")
    _say("loading the weights")
    time.sleep(arguments.load_s)
    asyncio.run(_serve(arguments))


async def _serve(arguments: argparse.Namespace) -> None:
    llama = FakeLlama(draft=None if arguments.speculative_config is None else (2, 1))

    def script(request: Request) -> Reply:
        reply = llama(request)
        if arguments.dies_once is not None and llama.chat_requests == 10 and not arguments.dies_once.exists():
            arguments.dies_once.touch()
            os._exit(9)
        return reply

    async with FakeServer(script, listen_on=arguments.port):
        _say("ready")
        await asyncio.Event().wait()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
