"""`harness serve`: its arguments, and how they become a server of the builtin engine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from harness.progress import LiveBar

SETTINGS = (
    "default_drafter",
    "host",
    "port",
    "dtype",
    "weights",
    "device",
    "threads",
    "context_tokens",
    "max_sequences",
)
"""Options that stand over keys of the same name in the configuration."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    command.add_argument(
        "model", nargs="?", metavar="MODEL", help="model name (see harness models list) or a Hugging Face folder"
    )
    command.add_argument(
        "--drafter",
        action="append",
        default=[],
        metavar="NAME=METHOD[,key=value…]",
        help="a drafter that requests may name; can be given several times",
    )
    command.add_argument(
        "--default-drafter", metavar="NAME", help="drafter of requests that name none (default: they draft nothing)"
    )
    command.add_argument("--host", metavar="ADDRESS", help="address to listen on (default 127.0.0.1)")
    command.add_argument("--port", type=int, metavar="N", help="port to listen on (default: a free one)")
    command.add_argument("--dtype", choices=("float32", "bfloat16", "float64"), help="type of the weights")
    command.add_argument(
        "--weights", choices=("plain", "rtn4", "nf4"), help="how weights are held: as they are, or in 4 bits"
    )
    command.add_argument("--device", help="cpu, cuda, cuda:1 … (default cpu)")
    command.add_argument("--threads", type=int, metavar="N", help="threads of one forward pass (default 1)")
    command.add_argument("--context-tokens", type=int, metavar="N", help="room of one request, prompt and output")
    command.add_argument("--max-sequences", type=int, metavar="N", help="requests worked on at once; others wait")
    command.add_argument("--no-prefix-reuse", action="store_true", help="compute every prompt from its first token on")
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="JSON with the whole configuration; the options above stand over it"
    )


def serve(args: argparse.Namespace, bar: LiveBar) -> NoReturn:
    """Become the server; a model that must be fetched shows on ``bar``, which is closed before."""
    from harness.engines.builtin_serve import ServeRequest, become_server, configuration

    settings = {name: getattr(args, name) for name in SETTINGS if getattr(args, name) is not None}
    if args.no_prefix_reuse:
        settings["prefix_reuse"] = False
    with bar:
        config = configuration(ServeRequest(args.model, args.drafter, args.config, settings), bar.update)
    become_server(config)
