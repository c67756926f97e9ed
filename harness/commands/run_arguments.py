"""`harness run`: its arguments, and what they change about the workload files."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.overrides import Overrides

RUNS = Path("reports/runs")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    command.add_argument(
        "workloads",
        nargs="*",
        type=Path,
        metavar="WORKLOAD.yaml",
        help="one or more workload files: one run, one report",
    )
    command.add_argument(
        "--resume", type=Path, metavar="RUN", help="continue a killed run without repeating finished cells"
    )
    command.add_argument("--engine", help="engine kind instead of the file's own")
    command.add_argument(
        "--model", help="model name (see harness models list), or path of a GGUF file (builtin: a Hugging Face folder)"
    )
    command.add_argument(
        "--context-tokens", type=int, metavar="N", help="tokens of context for each request instead of the file's own"
    )
    command.add_argument(
        "--base-url",
        metavar="URL | ARM=URL,…",
        help="attach to running servers instead of starting them: one address (llamacpp: for the one arm named with --arms), or, for "
        "vllm, sglang, trtllm, lmdeploy and openai, an arm each, as in baseline=http://a:8000,eagle3=http://b:8000",
    )
    command.add_argument(
        "--api-key-env",
        metavar="NAME",
        help="environment variable with the key of the servers (vllm, sglang, trtllm, …)",
    )
    command.add_argument(
        "--concurrency", type=_integers, metavar="N,N,…", help="tasks in progress at once, for example 1,4,16"
    )
    command.add_argument("--arms", type=_names, metavar="NAME,…", help="only these arms of the file, in this order")
    command.add_argument(
        "--limit-tasks", type=int, metavar="N", help="count N tasks a cell (never fewer than the concurrency)"
    )
    command.add_argument("--limit-steps", type=int, metavar="N", help="send only the first N steps of each task")
    command.add_argument("--max-tokens", type=int, metavar="N", help="cut every answer at N tokens")
    command.add_argument(
        "--repeats", type=int, metavar="N", help="how often each cell is run; arms alternate A B B A over two repeats"
    )
    command.add_argument(
        "--quick",
        action="store_true",
        help="a short profile: five tasks, one repeat, concurrency 1 and 4, short outputs",
    )
    command.add_argument(
        "--slo",
        action="append",
        metavar="NAME=LIMIT",
        default=[],
        help="service level instead of the files' own, for example task_time_p90=40s; may be given several times",
    )
    command.add_argument("--out", type=Path, metavar="FOLDER", help=f"run folder (default {RUNS}/<stamp>-<name>)")
    command.add_argument("--lang", choices=("ko", "en"), help="language of the report (default en)")


def overrides(args: argparse.Namespace) -> Overrides:
    """Return what the arguments change about the files.

    Raises:
        UsageError: if an objective is none.
    """
    from harness.overrides import Overrides

    return Overrides(
        engine=args.engine,
        model=args.model,
        base_url=args.base_url,
        concurrency=args.concurrency,
        arms=args.arms,
        limit_tasks=args.limit_tasks,
        limit_steps=args.limit_steps,
        repeats=args.repeats,
        max_tokens=args.max_tokens,
        quick=args.quick,
        api_key_env=args.api_key_env,
        context_tokens=args.context_tokens,
        slo=_objectives(args.slo),
    )


def _objectives(given: Sequence[str]) -> Mapping[str, str] | None:
    if not given:  # and nothing is imported for it
        return None
    from harness.analysis.slo import read_objectives

    return read_objectives(given)


def _integers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of whole numbers; for example 1,4,16") from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
