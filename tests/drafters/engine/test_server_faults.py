"""What clients do wrong, what they do not wait for, and how the server ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.drafters.engine.serving import Served

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
CHAT = "/v1/chat/completions"
PLAIN = "/v1/completions"


def raw(served: Served, path: str, content: bytes, method: str = "POST") -> httpx.Response:
    """Send these bytes."""
    return httpx.request(method, served.url + path, content=content, trust_env=False, timeout=60)


def chat(**fields: Any) -> bytes:
    """A chat request with these fields besides the needed ones."""
    return json.dumps({"model": "babble", "messages": HELLO, "max_tokens": 3, **fields}).encode()


def plain(**fields: Any) -> bytes:
    """A completion request likewise."""
    return json.dumps({"model": "babble", "prompt": "hello", "max_tokens": 3, **fields}).encode()


BAD: list[tuple[str, str, bytes, int]] = [
    ("unknown drafter", CHAT, chat(drafter="magic"), 400),
    ("k below 0", CHAT, chat(num_speculative_tokens=-1), 400),
    ("prompt over the context", CHAT, chat(messages=[{"role": "user", "content": "word " * 3000}]), 400),
    ("prompt far over the context", PLAIN, plain(prompt="x" * 4_000_000), 400),
    ("tokens over the context", PLAIN, plain(prompt=[5] * 2048), 400),
    ("prompt and max_tokens over the context", CHAT, chat(max_tokens=2048), 400),
    ("invalid JSON", CHAT, b'{"model": "babble", "messages": [', 400),
    ("no JSON", CHAT, b"hello", 400),
    ("nothing", CHAT, b"", 400),
    ("no object", CHAT, b"[]", 400),
    ("null", CHAT, b"null", 400),
    ("temperature -1", CHAT, chat(temperature=-1), 400),
    ("temperature as text", CHAT, chat(temperature="hot"), 400),
    ("n 2", CHAT, chat(n=2), 400),
    ("null messages", CHAT, chat(messages=None), 400),
    ("no messages", CHAT, chat(messages=[]), 400),
    ("null content", CHAT, chat(messages=[{"role": "user", "content": None}]), 400),
    ("number as content", CHAT, chat(messages=[{"role": "user", "content": 5}]), 400),
    ("a picture", CHAT, chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}]), 400),
    ("lone surrogate", CHAT, chat(messages=[{"role": "user", "content": "\ud800"}]), 400),
    ("half a UTF-8 letter", CHAT, b'{"model": "babble", "messages": "\xea\xb0"}', 400),
    ("deep nesting", CHAT, b'{"model": "babble", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    ("deep tool", CHAT, chat(tools=[{"function": {"name": "f", "x": json.loads("[" * 900 + "]" * 900)}}], stop=5), 400),
    ("many faults", CHAT, chat(messages=[{}] * 10_000), 400),
    ("negative max_tokens", CHAT, chat(max_tokens=-1), 400),
    ("huge max_tokens", CHAT, chat(max_tokens=10**30), 400),
    ("empty prompt", PLAIN, plain(prompt=""), 400),
    ("empty tokens", PLAIN, plain(prompt=[]), 400),
    ("token of no vocabulary", PLAIN, plain(prompt=[10**6]), 400),
    ("negative token", PLAIN, plain(prompt=[-1]), 400),
    ("token beyond all numbers", PLAIN, b'{"model": "babble", "prompt": [1e400]}', 400),
    ("two prompts", PLAIN, plain(prompt=["a", "b"]), 400),
    ("nameless tool", CHAT, chat(tools=[{"function": None}]), 400),
    ("tool with a number for a name", CHAT, chat(tools=[{"function": {"name": 5}}]), 400),
    ("tool that is none", CHAT, chat(tools=["f"]), 400),
    ("role that the template refuses", CHAT, chat(messages=[{"role": "function", "content": "x"}]), 400),
    ("arguments that the template cannot use", CHAT, chat(messages=[{"role": "assistant", "tool_calls": [{}]}]), 400),
    ("forced tool", CHAT, chat(tool_choice="required"), 400),
    ("empty stop", CHAT, chat(stop=[""]), 400),
    ("seed beyond 64 bits", CHAT, chat(seed=2**70), 400),
    ("unknown field", CHAT, chat(temprature=0), 400),
    ("JSON mode", CHAT, chat(response_format={"type": "json_object"}), 400),
    ("logprobs of the other endpoint", CHAT, chat(logprobs=3), 400),
    ("unknown model", CHAT, chat(model="gpt-4"), 404),
    ("unknown path", "/v1/chat", chat(), 404),
    ("wrong index", "/rounds?since=-1", b"", 405),
    ("tokenize nothing", "/tokenize", b"{}", 400),
]


@pytest.mark.parametrize(("path", "content", "status"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_input_is_refused_in_openai_s_form(babble: Served, path: str, content: bytes, status: int) -> None:
    """A 4xx with message, type, param and code; streaming asked for or not, the server goes on."""
    answer = raw(babble, path, content)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["type"] == "invalid_request_error"
    assert len(answer.content) < 2000
    assert babble.get("/health")["status"] == "ok"


def test_wrong_methods_and_paths_have_openai_s_form_too(babble: Served) -> None:
    """405 with the methods that are allowed, 404 for a model that there is not, 400 for an index that is none."""
    answer = raw(babble, CHAT, b"", "GET")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]["code"] == "method_not_allowed"
    assert raw(babble, "/v1/models/gpt-4", b"", "GET").json()["error"]["code"] == "model_not_found"
    assert raw(babble, "/rounds?since=-1", b"", "GET").status_code == 400


def test_a_body_of_50_megabytes_is_refused_unread(babble: Served) -> None:
    """By its told length, before it is sent, to one who asks first; and to one who sends it all the same."""
    with socket.create_connection(babble.address, timeout=20) as one:
        one.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 52428800\r\n\r\n")
        assert one.recv(4096).startswith(b"HTTP/1.1 413 ")
    answer = raw(babble, CHAT, b" " * 52_428_800)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"


def test_a_body_without_a_told_length_is_cut_where_it_becomes_too_large(babble: Served) -> None:
    """Chunked, 9 MiB."""

    def parts() -> Iterator[bytes]:
        yield from [b" " * 1_048_576] * 9

    answer = httpx.post(babble.url + CHAT, content=parts(), trust_env=False, timeout=60)
    assert answer.status_code == 413


def test_headers_above_64_kibibytes_are_refused_and_harm_nobody(babble: Served) -> None:
    """One header that does not end while eight megabytes of it are sent; a header of 60,000 bytes is none of these."""
    with socket.create_connection(babble.address, timeout=20) as one:
        one.sendall(b"GET /health HTTP/1.1\r\nX: ")
        for _ in range(8):
            one.sendall(b"a" * 1_048_576)
        answer = one.recv(4096)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "headers_too_large"
    assert httpx.get(babble.url + "/health", headers={"X": "a" * 60_000}, trust_env=False).json()["status"] == "ok"


def test_bad_input_harms_nobody_who_is_being_served(babble: Served) -> None:
    """An answer in progress is the same with all that rubbish beside it."""
    asked = {"model": "babble", "prompt": "The quick", "temperature": 0, "max_tokens": 1500, "ignore_eos": True}
    alone = babble.post(PLAIN, asked)["choices"][0]["text"]

    async def together() -> str:
        async with httpx.AsyncClient(trust_env=False, timeout=120, base_url=babble.url) as client:
            wanted = asyncio.create_task(client.post(PLAIN, json=asked))
            while not (await client.get("/health")).json()["running"]:
                pass
            answers = [await client.post(path, content=content) for _, path, content, _ in BAD]
            assert all(400 <= answer.status_code < 500 for answer in answers)
            answer = await wanted
            return str(answer.json()["choices"][0]["text"])

    assert asyncio.run(together()) == alone


async def _leave(served: Served, chance: random.Random, everybody: asyncio.Semaphore) -> None:
    """Ask for much, and be gone after a while: with a goodbye or without, sometimes in the middle of the request."""
    prompt = [chance.randrange(3, 200) for _ in range(chance.choice([3, 100, 1500]))]
    asked = {"model": "babble", "prompt": prompt, "stream": chance.random() < 0.5, "ignore_eos": True}
    asked["drafter"] = chance.choice(["lookup", "tree", "table", None])
    body = json.dumps(asked).encode()
    head = f"POST {PLAIN} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with everybody:
        reader, writer = await asyncio.open_connection(*served.address)
        writer.write(head + body[: chance.choice([len(body)] * 9 + [len(body) // 2])])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(chance.choice([0.0, 0.02, 0.2, 0.6])):
                while await reader.read(4096):
                    pass
        if chance.random() < 0.5:
            linger = struct.pack("ii", 1, 0)  # a reset instead of a goodbye
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()


def test_200_clients_that_leave_at_random_leave_nothing_behind(babble: Served) -> None:
    """While queued, while their prompt is read, while they are answered; each would have taken 2,000 tokens."""
    chance = random.Random(4)
    before = babble.post(PLAIN, {"model": "babble", "prompt": "The quick", "temperature": 0, "max_tokens": 30})

    async def crowd() -> None:
        everybody = asyncio.Semaphore(40)
        await asyncio.gather(*(_leave(babble, random.Random(chance.random()), everybody) for _ in range(200)))

    asyncio.run(crowd())
    health = babble.settled()
    assert health["owned_tokens"] == 0
    assert babble.counters()["kv_cache_usage_perc"] == 0
    babble.post("/reset_prefix_cache")
    assert babble.settled()["kept_tokens"] == 0
    after = babble.post(PLAIN, {"model": "babble", "prompt": "The quick", "temperature": 0, "max_tokens": 30})
    assert after["choices"] == before["choices"]


A_FEW_ROUNDS = 5


def last_round(served: Served) -> int:
    """The index of the engine's last round, after a walk through all pages."""
    index = 0
    while True:
        page = served.get(f"/rounds?since={index}")
        if not page["rounds"]:
            return index - 1
        index = page["next"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_place_at_once(babble: Served, stream: bool) -> None:
    """Also the place in the queue: of six, four run and two wait, and all are gone within a few rounds.

    The event loop needs a moment to see that a client has left, and tiny rounds go on meanwhile; that the engine itself
    ends a request before its next round is tested at the worker.
    """
    asked = {"model": "babble", "prompt": "a", "ignore_eos": True, "stream": stream, "max_tokens": 1500}
    babble.post("/reset_prefix_cache")
    body = json.dumps(asked).encode()
    head = f"POST {PLAIN} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    clients = [socket.create_connection(babble.address) for _ in range(6)]
    for one in clients:
        one.sendall(head + body)
    deadline = time.monotonic() + 20
    while (health := babble.get("/health"))["running"] + health["waiting"] < 6:
        assert time.monotonic() < deadline, health
    assert (health["running"], health["waiting"]) == (4, 2)
    for one in clients:
        one.close()
    index = last_round(babble)  # asked for after the goodbyes, which the server reads in their order
    babble.settled()
    # 1,500 tokens each were still to come.
    assert last_round(babble) - index <= A_FEW_ROUNDS


def test_sigterm_ends_the_server_within_two_seconds(babble_folder: Path) -> None:
    """In the middle of streams and with a connection that is kept open."""
    with Served({"model": str(babble_folder), "served_name": "babble", "max_sequences": 2}) as served:
        with httpx.Client(trust_env=False, base_url=served.url) as client:
            client.get("/health")
            body = chat(max_tokens=3000, stream=True, ignore_eos=True)
            head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            streams = [socket.create_connection(served.address) for _ in range(4)]
            for one in streams:
                one.sendall(head + body)
            assert streams[0].recv(100).startswith(b"HTTP/1.1 200")
            code, seconds = served.end(signal.SIGTERM)
        for one in streams:
            one.close()
    assert code == 0
    assert seconds < 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_while_it_loads(babble_folder: Path, number: signal.Signals) -> None:
    """Before it listens it has nothing to close."""
    command = [sys.executable, "-m", "drafters.engine.server", "--config", json.dumps({"model": str(babble_folder)})]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        time.sleep(1)
        start = time.monotonic()
        process.send_signal(number)
        assert process.wait(10) == -number
        assert time.monotonic() - start < 2


def test_the_server_ends_when_its_parent_has_died(babble_folder: Path) -> None:
    """Started by a process that is killed at once."""
    config = json.dumps({"model": str(babble_folder)})
    program = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'drafters.engine.server', '--config', sys.argv[1],"
        " '--parent-pid', str(os.getpid())])\n"
        "print(child.pid, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, config], stdout=subprocess.PIPE, timeout=60, check=True)
    child = int(done.stdout.split()[0])
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child}/stat").exists() and Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("{", "JSON"),
        ('{"model": "/nowhere"}', "config.json"),
        ('{"model": "/nowhere", "threads": 0}', "threads is 0: "),
        ('{"model": "/nowhere", "drafters": {"a/b": {"spec": {"method": "ngram"}}}}', "drafters.a/b is 'a/b': "),
        ('{"model": "/nowhere", "default_drafter": "x"}', "default_drafter"),
        ('{"model": "BABBLE", "device": "nonsense"}', "device 'nonsense' cannot be used"),
        ('{"model": "BABBLE", "device": "cuda:99"}', "device 'cuda:99' cannot be used"),
        ('{"model": "BABBLE", "cache_tokens": 1000000000000}', "smaller cache_tokens"),
    ],
)
def test_a_wrong_configuration_is_told_in_one_line(babble_folder: Path, config: str, complaint: str) -> None:
    """Exit code 2, no traceback, for a device that is not there and for memory that is not there too."""
    config = config.replace("BABBLE", str(babble_folder))
    command = [sys.executable, "-m", "drafters.engine.server", "--config", config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert complaint in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
