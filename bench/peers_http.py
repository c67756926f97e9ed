"""Two servers side by side, each a process of its own on loopback: this project's and llama.cpp's out of xllamacpp.

Both take the same token ids over ``/v1/completions`` and stream; a rate counts tokens by their arrival here. Only one is
ever asked at a time: the other sits idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
import orjson

__all__ = ["Answer", "Arrivals", "ask_all", "decode_rate", "engine_server", "llamacpp_server"]

_LISTENING = "LISTENING "
_START_S = 180.0
Arrivals = list[tuple[int, int]]
"""One answer: (nanoseconds, tokens) of each of its chunks."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request."""

    arrivals: Arrivals
    text: str


def decode_rate(answers: Sequence[Arrivals]) -> float | None:
    """Tokens a second while all answers are being written: from the last one's first token to the first one's last.

    The first token of each is not counted, so prompt processing is in neither side of the ratio. ``None`` where the
    answers do not overlap.
    """
    began = max(arrivals[0][0] for arrivals in answers)
    ended = min(arrivals[-1][0] for arrivals in answers)
    if ended <= began:
        return None
    tokens = sum(count for arrivals in answers for t_ns, count in arrivals[1:] if began < t_ns <= ended)
    return tokens / (ended - began) * 1e9


@contextlib.contextmanager
def llamacpp_server(gguf: Path, threads: int, slots: int, context_tokens: int) -> Iterator[str]:
    """Run llama.cpp's server without drafting; yields its address."""
    config = {
        "model": str(gguf),
        "n_parallel": slots,
        "context_tokens": context_tokens,
        "threads": threads,
        "type": None,
        "settings": {},
        "draft_model": None,
        "cache_ram_mib": 0,
        "slot_save_path": None,
    }
    with _server("harness.engines.llamacpp_server", json.dumps(config), threads) as url:
        yield url


@contextlib.contextmanager
def engine_server(config: str, threads: int) -> Iterator[str]:
    """Run the builtin engine's server on a configuration in JSON; yields its address."""
    with _server("drafters.engine.server", config, threads, f"--parent-pid={os.getpid()}") as url:
        yield url


@contextlib.contextmanager
def _server(module: str, config: str, threads: int, *arguments: str) -> Iterator[str]:
    command = [sys.executable, "-m", module, "--config", config, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
        try:
            yield _address(process, module, log)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _address(process: subprocess.Popen[str], module: str, log: IO[str]) -> str:
    assert process.stdout is not None
    timer = threading.Timer(_START_S, process.kill)
    timer.start()
    try:
        for line in process.stdout:
            if line.startswith(_LISTENING):
                return line.removeprefix(_LISTENING).strip()
    finally:
        timer.cancel()
    log.seek(0)
    raise RuntimeError(f"{module} did not start (exit code {process.poll()}): {log.read()[-2000:]}")


def ask_all(url: str, prompts: Sequence[Sequence[int]], tokens: int, extra: Mapping[str, Any]) -> list[Answer]:
    """Send all prompts at once and return the answers in order. Raises RuntimeError for any that is not whole."""
    return asyncio.run(_ask_all(url, prompts, tokens, extra))


async def _ask_all(url: str, prompts: Sequence[Sequence[int]], tokens: int, extra: Mapping[str, Any]) -> list[Answer]:
    # A connection for each request: one server was seen to close idle ones under the next request.
    headers = {"Connection": "close"}
    async with httpx.AsyncClient(base_url=url, timeout=300, trust_env=False, headers=headers) as client:
        return list(await asyncio.gather(*(_ask(client, prompt, tokens, extra) for prompt in prompts)))


async def _ask(client: httpx.AsyncClient, prompt: Sequence[int], tokens: int, extra: Mapping[str, Any]) -> Answer:
    body = {
        "model": "target",
        "prompt": list(prompt),
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        **extra,
    }
    stamps: list[int] = []
    texts: list[str] = []
    completed: int | None = None
    async with client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            raise RuntimeError(f"{client.base_url} answered {response.status_code}: {(await response.aread())[:500]!r}")
        async for line in response.aiter_lines():
            t_ns = time.monotonic_ns()
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            value = orjson.loads(line[6:])
            if value.get("usage"):
                completed = value["usage"]["completion_tokens"]
            if value["choices"] and value["choices"][0].get("text"):
                stamps.append(t_ns)
                texts.append(value["choices"][0]["text"])
    if completed != tokens or not stamps:
        raise RuntimeError(
            f"{client.base_url} wrote {completed} tokens in {len(stamps)} chunks; {tokens} were asked for"
        )
    return Answer(_spread(stamps, completed), "".join(texts))


def _spread(stamps: Sequence[int], tokens: int) -> Arrivals:
    """Share the tokens evenly among the chunks.

    Without drafting a chunk is one token, but a server holds back one that ends within a character, so that a few chunks
    may be missing.
    """
    if len(stamps) > tokens:
        raise RuntimeError(f"{len(stamps)} chunks for {tokens} tokens; without drafting there is one a token at most")
    ends = [tokens * (index + 1) // len(stamps) for index in range(len(stamps))]
    return [(t_ns, end - before) for t_ns, end, before in zip(stamps, ends, [0, *ends], strict=False)]
