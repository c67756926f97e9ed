"""Every fault of a server, as the record it becomes: right numbers or a clear failure. Real sockets, one step of one task each."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from harness.access import OPEN, Access, AccessSpec, open_access
from harness.engines.base import Endpoint, Engine
from harness.engines.remote_reader import RemoteReader
from harness.records import CellKey, Round, StepRecord
from harness.replay.cell import CellRunner
from harness.replay.client import StreamClient
from harness.replay.schedule import plan_cell
from harness.tasks import Message, Prefix, Step, Task
from harness.workload import Arm, Workload
from tests.authority import Authority
from tests.fake_server import DONE, FakeServer, Part, Reply, Request, delta, event, json_reply, usage

STOP = delta("stop")
TASK = Task(
    "t1",
    "one question",
    "office",
    "ko",
    Prefix("p", "You are brief.", ()),
    (Step("reply", "ko", (Message("user", "안녕하세요?"),), Message("assistant", "네."), 0.0, 32),),
)
WORKLOAD = Workload(name="w", tasks="t.jsonl", arms=[Arm(name="a", method="none")], concurrency=[1])


class Turned:
    """A clock that a chunk turns on by 10 ns, so that each has a time a reader can name; it starts at 100."""

    def __init__(self) -> None:
        self.t_ns = 100

    def now_ns(self) -> int:
        """Return the time."""
        return self.t_ns

    async def sleep_until_ns(self, t_ns: int) -> None:
        """Return at once: nothing here is due later."""


class Turning(RemoteReader):
    """The reader of servers of any make, which turns the clock on."""

    def __init__(self, clock: Turned) -> None:
        super().__init__(drafts=False)
        self._clock = clock

    def chunk(self, t_ns: int, value: Mapping[str, Any]) -> None:
        """Read a chunk and turn the clock."""
        super().chunk(t_ns, value)
        self._clock.t_ns += 10


class Served:
    """The part of an engine that a single step needs: one attached server."""

    def __init__(self, endpoint: Endpoint, clock: Turned) -> None:
        self._endpoint = endpoint
        self._clock = clock

    def endpoint(self, arm: str) -> Endpoint:
        """Return the server."""
        return self._endpoint

    def reader(self, arm: str) -> Turning:
        """Return a fresh reader."""
        return Turning(self._clock)

    def window(self, arm: str) -> None:
        """Count nothing by the server's counters."""

    def alive(self, arm: str) -> bool:
        """Tell that an attached server is taken to live."""
        return True


async def record_from(base_url: str, access: Access = OPEN, model: str = "m") -> tuple[StepRecord, str]:
    """Return the record and the text of one step that is sent to an address."""
    found: list[tuple[StepRecord, str]] = []

    def sink(record: StepRecord, text: str | None, rounds: Sequence[Round] | None) -> None:
        found.append((record, text or ""))

    clock = Turned()
    async with StreamClient(clock=clock, request_timeout_s=5, connections=1) as client:
        engine = cast(Engine, Served(Endpoint(base_url, model, access=access), clock))
        key = CellKey("w", "a", 1, 1)
        await CellRunner(key, 1, plan_cell([TASK], 1, 0, "w"), WORKLOAD, engine, client, clock, sink).run()
    (only,) = found
    return only


async def record_of(reply: Reply) -> tuple[StepRecord, str]:
    """Return the record and the text of one step that is answered so."""
    async with FakeServer([reply]) as server:
        return await record_from(server.base_url)


def failure(record: StepRecord) -> tuple[str | None, str]:
    """Return kind and message of a failure, after checking that it carries no figure of an answer."""
    assert (record.output_tokens, record.spec, record.decode_passes) == (None, None, None)
    return record.error_kind, record.error_message or ""


def apart(*blocks: bytes) -> list[Part]:
    """Return parts far enough apart to arrive one by one."""
    return [(0.02, block) for block in blocks]


# No way to the server


async def test_nothing_listens() -> None:
    """A wrong port: nothing was sent, and the record asks whether the server runs there."""
    record, _ = await record_from("http://127.0.0.1:9")
    kind, message = failure(record)
    assert (kind, record.sent_ns, record.first_token_ns) == ("connect", None, None)
    assert "127.0.0.1:9" in message
    assert "is the server running there?" in message


async def test_wrong_path() -> None:
    """An address with a path that the server does not have: the record has its answer and says how the address is to be written."""

    def script(request: Request) -> Reply:
        assert request.path == "/api/v1/chat/completions"
        return json_reply({"detail": "Not Found"}, 404)

    async with FakeServer(script) as server:
        record, _ = await record_from(f"{server.base_url}/api")
    kind, message = failure(record)
    assert kind == "http_status"
    assert message.startswith("status 404: ")
    assert "without /v1" in message


async def test_some_other_web_server() -> None:
    """A page where an answer should be is quoted, whatever status it comes with."""
    page = b"<!doctype html><title>Intranet</title>"
    record, _ = await record_of(Reply([(0, page)], 200, "text/html", "length"))
    kind, message = failure(record)
    assert kind == "protocol"
    assert "no event stream" in message
    assert "Intranet" in message


async def test_redirect() -> None:
    """A redirect is not followed; the record says where it points, so that the address can be corrected."""
    reply = Reply((), 307, "text/plain", "length", headers={"location": "https://engine.example/"})
    kind, message = failure((await record_of(reply))[0])
    assert kind == "http_status"
    assert "'https://engine.example/': give the address there as base_url" in message


async def test_self_signed_certificate(tmp_path: Path) -> None:
    """A certificate that vouches for itself alone is refused, and taken once it is named as the authority."""
    authority = Authority.create(tmp_path)
    (tmp_path / "own.key").write_bytes(authority.ca.private_key_pem.bytes())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.ca_file, tmp_path / "own.key")
    async with FakeServer([Reply(apart(delta(content="네"), STOP, DONE))], tls=context) as server:
        kind, message = failure((await record_from(server.base_url))[0])
        assert server.requests == []
    assert kind == "connect"
    assert "not trusted (self-signed certificate" in message
    assert "engine.access.ca_file" in message


# The server refuses


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_key(status: int) -> None:
    """A refused key names the variable it came from, never the key, even where the server repeats it."""

    def script(request: Request) -> Reply:
        return json_reply({"error": {"message": f"bad key {request.headers['authorization']}"}}, status)

    access = open_access(AccessSpec(api_key_env="ENGINE_KEY"), environ={"ENGINE_KEY": "sk-0123456789"})
    async with FakeServer(script) as server:
        record, _ = await record_from(server.base_url, access)
    kind, message = failure(record)
    assert kind == "http_status"
    assert message == f"status {status}: bad key Bearer ***; the key from $ENGINE_KEY was refused; check its value"


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "The model `m` does not exist.", "type": "NotFoundError", "param": "model", "code": 404}},
        {"object": "error", "message": "The model `m` does not exist.", "type": "NotFoundError", "code": 404},
    ],
)
async def test_unknown_model(body: dict[str, Any]) -> None:
    """An unknown model, in the newer and the older form of vLLM's message, is quoted, and the record says where the names are."""
    kind, message = failure((await record_of(json_reply(body, 404)))[0])
    assert kind == "http_status"
    assert message.startswith("status 404: The model `m` does not exist.")
    assert "/v1/models" in message


@pytest.mark.parametrize(
    ("wait", "words"),
    [("2", "it asks to wait 2 s"), ("Wed, 21 Oct 2026 07:28:00 GMT", "it asks to wait until Wed, 21 Oct 2026")],
)
async def test_too_many_requests(wait: str, words: str) -> None:
    """429 is recorded with the wait that the server asks for; nothing is sent again, which would hide the load it refused."""
    reply = Reply([(0, b'{"error": "slow down"}')], 429, "application/json", "length", headers={"retry-after": wait})
    async with FakeServer([reply]) as server:
        record, _ = await record_from(server.base_url)
        assert len(server.requests) == 1
    kind, message = failure(record)
    assert kind == "http_status"
    assert message.startswith("status 429: slow down; ")
    assert f"{words}" in message
    assert "max_requests_per_s" in message


async def test_still_loading() -> None:
    """503 while the model loads, in llama-server's words, is told from a server that is broken."""
    body = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
    kind, message = failure((await record_of(json_reply(body, 503)))[0])
    assert kind == "http_status"
    assert message.startswith("status 503: Loading model; the server is not ready")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (json_reply({"error": {"message": "CUDA out of memory"}}), "no event stream: CUDA out of memory"),
        (Reply(apart(event({"error": {"message": "CUDA out of memory"}}), DONE)), "carries an error"),
        (Reply([(0, b'{"error": {"message": "CUDA out of memory"}}')]), "neither a finish reason nor [DONE]"),
        (Reply([(0, b"CUDA out of memory")], content_type="text/plain"), "no event stream"),
    ],
)
async def test_error_with_status_200(reply: Reply, words: str) -> None:
    """An error that comes with status 200 is a failure with the server's words, in whatever form it comes."""
    record, text = await record_of(reply)
    kind, message = failure(record)
    assert (kind, record.chunks, text) == ("protocol", 0, "")
    assert words in message
    assert "CUDA out of memory" in message


async def test_error_after_tokens() -> None:
    """An error in the middle of an answer keeps what had come, and no counts."""
    broken = event({"error": {"message": "EngineDeadError", "code": 500}})
    record, text = await record_of(Reply(apart(delta(content="네"), broken, DONE)))
    kind, message = failure(record)
    assert (kind, record.chunks, text) == ("protocol", 1, "네")
    assert "EngineDeadError" in message


# The server answers otherwise than expected


async def test_no_usage() -> None:
    """A server that tells no usage gives times and text; counts of tokens are unknown, not 0 and not those of the chunks."""
    record, text = await record_of(Reply(apart(delta(content="네"), delta(content="."), STOP, DONE)))
    assert (record.error_kind, text, record.chunks) == (None, "네.", 2)
    assert (record.prompt_tokens, record.output_tokens, record.decode_passes) == (None, None, None)
    assert record.first_token_ns is not None


async def test_no_streaming() -> None:
    """An answer that comes whole is a failure that says so: its time would pass for that of a first token."""
    whole = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "네."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2},
    }
    record, _ = await record_of(json_reply(whole))
    kind, message = failure(record)
    assert (kind, record.first_token_ns) == ("protocol", None)
    assert "the server does not stream" in message


@pytest.mark.parametrize("cut", [1, 2])
async def test_chunk_boundary_in_a_character(cut: int) -> None:
    """A Hangul character whose bytes come in two HTTP chunks is one character, of the chunk that completed it."""
    stream = delta(content="한")
    at = stream.index("한".encode()) + cut
    record, text = await record_of(Reply(apart(stream[:at], stream[at:], STOP, usage(9, 1), DONE)))
    assert (record.error_kind, text, record.chunks, record.output_tokens) == (None, "한", 1, 1)


@pytest.mark.parametrize("ending", [b"\r\n", b"\r", b"\n"])
async def test_line_ends_and_events_of_several_lines(ending: bytes) -> None:
    """Lines may end in any of three ways, an event may span several data lines, and comments are no events."""
    wide = b'data: {"choices": [{"index": 0,\ndata: "delta": {"content": "\xeb\x84\xa4"}}]}\n\n'
    stream = b": keep-alive\n\nevent: message\nid: 7\n" + wide + STOP + usage(9, 1) + DONE
    record, text = await record_of(Reply(apart(*stream.replace(b"\n", ending).splitlines(keepends=True))))
    assert (record.error_kind, text, record.output_tokens, record.finish_reason) == (None, "네", 1, "stop")


async def test_first_chunks_without_a_token() -> None:
    """A role at 100, an empty text at 110, a delta of null at 120 and the first token at 130: that is the first token's time."""
    nothing = event({"choices": [{"index": 0, "delta": None, "finish_reason": None}]})
    early = [delta(role="assistant"), delta(role="assistant", content=""), nothing]
    record, text = await record_of(Reply(apart(*early, delta(content="네"), STOP, usage(9, 1), DONE)))
    assert (record.error_kind, text, record.chunks, record.output_tokens) == (None, "네", 1, 1)
    assert (record.sent_ns, record.first_token_ns, record.end_ns) == (100, 130, 140)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning(name: str) -> None:
    """Reasoning is output: its first delta is the first token, and it is kept in front of the answer, under either name."""
    blocks = [delta(role="assistant"), delta(**{name: "음"}), delta(content="네"), STOP, usage(9, 2), DONE]
    record, text = await record_of(Reply(apart(*blocks)))
    assert (record.error_kind, text, record.chunks, record.output_tokens) == (None, "음\n네", 2, 2)
    assert (record.first_token_ns, record.end_ns) == (110, 130)


async def test_tool_call_only() -> None:
    """An answer of nothing but a tool call has a first token, its text, and the engine's count; the delta with a bare id is no token."""

    def piece(**function: str) -> bytes:
        return delta(tool_calls=[{"index": 0, "id": "c1", "type": "function", "function": function}])

    blocks = [piece(name="", arguments=""), piece(name="find"), piece(arguments='{"q": '), piece(arguments='"색"}')]
    record, text = await record_of(Reply(apart(*blocks, delta("tool_calls"), usage(9, 11), DONE)))
    assert (record.error_kind, record.finish_reason, record.chunks) == (None, "tool_calls", 3)
    assert (text, record.output_tokens) == ('<tool_call>find {"q": "색"}</tool_call>', 11)
    assert (record.first_token_ns, record.end_ns) == (110, 140)
