"""How many streamed chunks a second one core carries, and how late they are stamped: our client beside general ones.

``python -m bench.client`` starts a server that computes nothing on one core and runs each client in a process of its
own on the other, in turn (A B C D A B C D …), then the same with a known send time in every chunk. Every answer's
chunks are counted and its text compared. The bare loops do less than ours: no reader, no tool calls, no timeouts, no
times; all of them decode with orjson, as ours does.

A server this fast fills the socket of a busy client, which then reads many packets at once; the scheduled runs show the
cost of a read for every chunk.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import orjson

from bench.zero_compute_server import WORD
from harness.engines.base import Endpoint, StreamFacts
from harness.replay.client import StreamClient
from harness.replay.clock import MonotonicClock

BODY = {"model": "zero", "messages": [{"role": "user", "content": "hello"}], "stream": True}
PATH = "/v1/chat/completions"
Take = Callable[[int, str], None]
"""Takes the arrival time in nanoseconds and the content of one chunk."""
Ask = Callable[[Take], Any]
"""Coroutine function that sends one request and gives every token-bearing chunk to its argument."""


class _Reader:
    """The smallest adapter: passes content on and counts distinct arrival times, that is, reads of the socket."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._last_ns = 0
        self.reads = 0

    def chunk(self, t_ns: int, value: Mapping[str, Any]) -> None:
        if t_ns != self._last_ns:
            self.reads += 1
            self._last_ns = t_ns
        for choice in value["choices"]:
            content = choice["delta"].get("content")
            if content:
                self._take(t_ns, content)

    def facts(self) -> StreamFacts:
        return StreamFacts()


@contextlib.asynccontextmanager
async def ours(url: str, streams: int, totals: dict[str, int]) -> AsyncIterator[Ask]:
    """Our client through its whole public path, reader and result included."""
    endpoint = Endpoint(url, "zero")
    async with StreamClient(clock=MonotonicClock(), request_timeout_s=30, connections=streams) as client:

        async def ask(take: Take) -> None:
            reader = _Reader(take)
            result = await client.complete(endpoint, {"messages": BODY["messages"]}, reader)
            if result.error_kind is not None:
                raise RuntimeError(f"{result.error_kind}: {result.error_message}")
            totals["reads"] = totals.get("reads", 0) + reader.reads

        yield ask


@contextlib.asynccontextmanager
async def bare_aiohttp(url: str, streams: int, totals: dict[str, int]) -> AsyncIterator[Ask]:
    """A loop over the lines of aiohttp's response."""
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(take: Take) -> None:
            async with session.post(url + PATH, json=BODY) as response:
                async for line in response.content:
                    _take_line(line, take)

        yield ask


@contextlib.asynccontextmanager
async def bare_httpx(url: str, streams: int, totals: dict[str, int]) -> AsyncIterator[Ask]:
    """A loop over the lines of httpx's response."""
    import httpx

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=30, trust_env=False) as client:

        async def ask(take: Take) -> None:
            async with client.stream("POST", url + PATH, json=BODY) as response:
                async for line in response.aiter_lines():
                    _take_line(line.encode(), take)

        yield ask


@contextlib.asynccontextmanager
async def openai_client(url: str, streams: int, totals: dict[str, int]) -> AsyncIterator[Ask]:
    """The openai package's stream of typed chunks."""
    import openai

    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:

        async def ask(take: Take) -> None:
            messages: Any = BODY["messages"]
            stream = await client.chat.completions.create(model="zero", messages=messages, stream=True)
            async for chunk in stream:
                t_ns = time.monotonic_ns()
                if chunk.choices and chunk.choices[0].delta.content:
                    take(t_ns, chunk.choices[0].delta.content)

        yield ask


CLIENTS = {"ours": ours, "aiohttp": bare_aiohttp, "httpx": bare_httpx, "openai": openai_client}


def _take_line(line: bytes, take: Take) -> None:
    t_ns = time.monotonic_ns()
    if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
        choices = orjson.loads(line[6:])["choices"]
        if choices and (content := choices[0]["delta"].get("content")):
            take(t_ns, content)


async def measure(name: str, url: str, *, streams: int, seconds: float, chunks: int, timed: bool) -> dict[str, Any]:
    """Run one client and return its figures.

    Raises:
        RuntimeError: if any answer has another number of chunks or another text than was sent.
    """
    totals: dict[str, int] = {}
    errors_ns: list[int] = []
    counts: list[int] = []

    async def answer(ask: Ask) -> None:
        contents: list[str] = []

        def take(t_ns: int, content: str) -> None:
            contents.append(content)
            if timed:
                errors_ns.append(t_ns - int(content))

        await ask(take)
        if len(contents) != chunks or not (timed or set(contents) == {WORD}):
            raise RuntimeError(
                f"{name}: {chunks} chunks of {WORD!r} were sent, {len(contents)} arrived: {contents[:3]}"
            )
        counts.append(len(contents))

    async def loop(ask: Ask, stop: float) -> None:
        while time.monotonic() < stop:
            await answer(ask)

    async with CLIENTS[name](url, streams, totals) as ask:
        await ask(lambda t_ns, content: None)  # imports and first-call costs are not the client's rate
        totals.clear()
        start, cpu = time.monotonic(), time.process_time()
        await asyncio.gather(*[loop(ask, start + seconds) for _ in range(streams)])
        wall_s, cpu_s = time.monotonic() - start, time.process_time() - cpu
    figures = {"chunks": sum(counts), "wall_s": wall_s, "cpu_s": cpu_s, **totals}
    if timed:
        cuts = statistics.quantiles(errors_ns, n=100)
        figures |= {"p50_us": cuts[49] / 1e3, "p99_us": cuts[98] / 1e3, "max_us": max(errors_ns) / 1e3}
    return figures


@contextlib.contextmanager
def server(chunks: int, interval_ms: float, cpu: int | None) -> Iterator[str]:
    """Run the zero-compute server as a process and yield its address."""
    command = [sys.executable, "-m", "bench.zero_compute_server", f"--chunks={chunks}", f"--interval-ms={interval_ms}"]
    command += [] if cpu is None else [f"--cpu={cpu}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        port = process.stdout.readline().split()[1]
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()


def run_one(name: str, url: str, arguments: argparse.Namespace, cpu: int | None, *, timed: bool) -> dict[str, Any]:
    """Run one client in a process of its own and return its figures."""
    command = [sys.executable, "-m", "bench.client", f"--one={name}", f"--url={url}", f"--streams={arguments.streams}"]
    command += [f"--seconds={arguments.seconds}", f"--chunks={arguments.chunks}"]
    command += ["--timed"] * timed + ([] if cpu is None else [f"--cpu={cpu}"])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def compare(arguments: argparse.Namespace) -> None:
    """Run all clients in turn, both modes, and print the tables."""
    cores = sorted(os.sched_getaffinity(0))
    server_cpu, client_cpu = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    names = arguments.clients.split(",")
    print(
        f"{arguments.streams} streams, {arguments.chunks} chunks an answer, one packet each; {arguments.seconds:g} s a run"
    )
    print(
        "server and client share a core"
        if client_cpu is None
        else f"server on core {server_cpu}, client on {client_cpu}"
    )
    print("\nas fast as the client takes it; every answer counted and compared")
    rates: dict[str, list[float]] = {name: [] for name in names}
    costs: dict[str, list[float]] = {name: [] for name in names}
    with server(arguments.chunks, 0.0, server_cpu) as url:
        for number in range(arguments.rounds):
            for name in names:
                figures = run_one(name, url, arguments, client_cpu, timed=False)
                rates[name].append(figures["chunks"] / figures["wall_s"])
                costs[name].append(figures["chunks"] / figures["cpu_s"])
                print(f"  round {number + 1} {name:8} {_load(figures)}", flush=True)
    rate = {name: statistics.median(values) for name, values in rates.items()}
    cost = {name: statistics.median(values) for name, values in costs.items()}
    print("medians: chunks/s of wall time, and of the client's processor time (what counts when others use the core)")
    for name in names:
        ratio, cpu_ratio = rate[names[0]] / rate[name], cost[names[0]] / cost[name]
        print(f"  {name:8} wall {rate[name]:9,.0f} ({names[0]} is {ratio:5.2f} times that)", end="")
        print(f"   processor {cost[name]:9,.0f} ({names[0]} is {cpu_ratio:5.2f} times that)")
    for interval_ms in map(float, arguments.interval_ms.split(",")):
        print(f"\na chunk every {interval_ms:g} ms on each stream: arrival stamp minus send time")
        with server(arguments.chunks, interval_ms, server_cpu) as url:
            for name in names:
                figures = run_one(name, url, arguments, client_cpu, timed=True)
                late = f"p50 {figures['p50_us']:7,.0f} µs  p99 {figures['p99_us']:8,.0f} µs"
                print(f"  {name:8} {late}  max {figures['max_us']:8,.0f} µs  {_load(figures)}", flush=True)


def _load(figures: Mapping[str, Any]) -> str:
    rate, busy = figures["chunks"] / figures["wall_s"], figures["cpu_s"] / figures["wall_s"]
    reads = f", {figures['chunks'] / figures['reads']:5.2f} chunks a read" if "reads" in figures else ""
    cost = figures["chunks"] / figures["cpu_s"]
    return f"{rate:9,.0f} chunks/s, core busy {busy:4.0%}, {cost:9,.0f} a processor second{reads}"


def main() -> None:
    """Read the arguments; without any, compare all clients."""
    parser = argparse.ArgumentParser(description="Chunk rate and timing error of streaming clients on one core.")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="in this order; ratios are to the first")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--chunks", type=int, default=64, help="token-bearing chunks of an answer")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one run of one client")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--interval-ms", default="5,1", help="the schedules of the timing runs, comma-separated")
    parser.add_argument("--one", choices=list(CLIENTS), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--cpu", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--timed", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is None:
        compare(arguments)
        return
    if arguments.cpu is not None:
        os.sched_setaffinity(0, {arguments.cpu})
    figures = asyncio.run(
        measure(
            arguments.one,
            arguments.url,
            streams=arguments.streams,
            seconds=arguments.seconds,
            chunks=arguments.chunks,
            timed=arguments.timed,
        )
    )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
