"""TLS and proxies of the streaming client and of the control calls, over real sockets with certificates made for the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.access import OPEN, Access, AccessSpec, open_access
from harness.engines.base import Endpoint, StreamFacts
from harness.engines.control import ControlCalls
from harness.errors import EngineProtocolError, EngineUnreachable
from harness.replay.client import StreamClient, StreamResult
from harness.replay.clock import MonotonicClock
from tests.authority import Authority
from tests.fake_proxy import FakeProxy
from tests.fake_server import DONE, FakeLlama, FakeServer, Reply, delta, json_reply

BODY = {"messages": [{"role": "user", "content": "안녕"}], "max_tokens": 4}
PASSWORD = "open-sesame-42"


class Silent:
    """A reader that reads nothing."""

    def chunk(self, t_ns: int, value: Mapping[str, Any]) -> None:
        """Take a chunk."""

    def facts(self) -> StreamFacts:
        """Tell nothing."""
        return StreamFacts()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Make the certificates once for all tests of the file."""
    return Authority.create(tmp_path_factory.mktemp("certificates"))


async def ask(base_url: str, access: Access, times: int = 1) -> StreamResult:
    """Send the standard request, several times over one client; return what came of the last."""
    async with StreamClient(clock=MonotonicClock(), request_timeout_s=5, connections=1) as client:
        for _ in range(times):
            result = await client.complete(Endpoint(base_url, "fake", access=access), BODY, Silent())
    return result


def opened(**spec: Any) -> Access:
    """Return the access of a specification, with the password of the tests in the environment."""
    return open_access(AccessSpec(**spec), environ={"PROXY_PASSWORD": PASSWORD, "KEY": "sk-0123456789"})


def trusting(authority: Authority, **spec: Any) -> Access:
    """Return access that trusts the authority of the tests."""
    return opened(ca_file=str(authority.ca_file), **spec)


# TLS


async def test_own_authority(authority: Authority) -> None:
    """A server whose certificate comes from the named authority is trusted; two requests go over one connection."""
    async with FakeServer(FakeLlama(), tls=authority.server()) as server:
        access = trusting(authority)
        result = await ask(server.base_url, access, times=2)
        assert server.connections_made == 1
        assert await ControlCalls("the server", server.base_url, access).healthy()
    assert (result.error_kind, result.chunks) == (None, 4)


async def test_not_trusted(authority: Authority) -> None:
    """A certificate that nobody vouches for ends in a record that says so and names the settings that would help; nothing is sent."""
    async with FakeServer(FakeLlama(), tls=authority.server()) as server:
        result = await ask(server.base_url, OPEN)
        with pytest.raises(EngineUnreachable, match=r"not trusted \(.*\); name its .*\.ca_file"):
            await ControlCalls("the server", server.base_url).json("GET", "/props")
        assert server.requests == []
    assert (result.error_kind, result.sent_ns) == ("connect", None)
    assert "not trusted" in (result.error_message or "")
    assert "engine.access.ca_file" in (result.error_message or "")


async def test_verification_switched_off(authority: Authority) -> None:
    """With verify: false any certificate will do."""
    async with FakeServer(FakeLlama(), tls=authority.server("elsewhere.example")) as server:
        access = opened(verify=False)
        assert (await ask(server.base_url, access)).error_kind is None
        assert await ControlCalls("the server", server.base_url, access).healthy()


@pytest.mark.parametrize(
    ("names", "days", "words"),
    [(("elsewhere.example",), 2, "is for another name"), ((), -1, "is not valid today")],
)
async def test_wrong_certificate(authority: Authority, names: tuple[str, ...], days: int, words: str) -> None:
    """A certificate made out to another name, or an expired one, is told from one that nobody vouches for."""
    async with FakeServer(FakeLlama(), tls=authority.server(*names, days=days)) as server:
        result = await ask(server.base_url, trusting(authority))
    assert result.error_kind == "connect"
    assert words in (result.error_message or "")


async def test_client_certificate(authority: Authority) -> None:
    """A server that asks for a client's certificate takes the one of the access."""
    async with FakeServer(FakeLlama(), tls=authority.server(asks_for_certificate=True)) as server:
        access = trusting(authority, client_cert=str(authority.client_cert), client_key=str(authority.client_key))
        assert (await ask(server.base_url, access)).error_kind is None
        assert await ControlCalls("the server", server.base_url, access).healthy()


async def test_client_certificate_is_missing(authority: Authority) -> None:
    """A server that asks for a client's certificate and gets none is told from a dead one; the message names the settings."""
    async with FakeServer(FakeLlama(), tls=authority.server(asks_for_certificate=True)) as server:
        access = trusting(authority)
        result = await ask(server.base_url, access)
        with pytest.raises(EngineUnreachable, match="client_cert"):
            await ControlCalls("the server", server.base_url, access).json("GET", "/props")
    assert result.error_kind is not None
    assert "engine.access.client_cert" in (result.error_message or "")


async def test_https_to_a_plain_server(authority: Authority) -> None:
    """An https:// address of a server without TLS, which takes the first bytes for a bad request, is named as that."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        result = await ask(url, trusting(authority))
        with pytest.raises(EngineUnreachable, match="does not speak TLS"):
            await ControlCalls("the server", url, trusting(authority)).json("GET", "/props")
    assert result.error_kind == "connect"
    assert "does not speak TLS" in (result.error_message or "")


async def test_http_to_a_tls_server(authority: Authority) -> None:
    """A plain request to a server with TLS fails with a record, not with a crash or a hang."""
    async with FakeServer(FakeLlama(), tls=authority.server()) as server:
        result = await ask(server.base_url.replace("https", "http"), OPEN)
    assert result.error_kind in ("protocol", "disconnect")


# Proxies


async def test_tunnel(authority: Authority) -> None:
    """A TLS server behind a proxy is reached through a tunnel, by its name and with its own certificate; the tunnel is kept."""
    async with FakeServer(FakeLlama(), tls=authority.server("engine.example")) as server, FakeProxy() as proxy:
        url = f"https://engine.example:{server.port}"
        access = trusting(authority, proxy=proxy.url)
        result = await ask(url, access, times=2)
        assert proxy.asked == [f"CONNECT engine.example:{server.port} HTTP/1.1"]
        assert await ControlCalls("the server", url, access).healthy()
        assert {request.headers["host"] for request in server.requests} == {f"engine.example:{server.port}"}
    assert (result.error_kind, result.chunks) == (None, 4)


async def test_plain_server_behind_a_proxy() -> None:
    """A plain server behind a proxy is asked for by its whole address, over a kept connection."""
    async with FakeServer(FakeLlama()) as server, FakeProxy() as proxy:
        url = f"http://engine.example:{server.port}"
        access = opened(proxy=proxy.url, api_key_env="KEY")
        result = await ask(url, access, times=2)
        assert proxy.asked == [f"POST {url}/v1/chat/completions HTTP/1.1"]  # the second went the same way
        assert await ControlCalls("the server", url, access).healthy()
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer sk-0123456789"}
    assert (result.error_kind, result.chunks) == (None, 4)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_proxy_over_tls(authority: Authority, scheme: str) -> None:
    """A proxy that is itself reached over TLS is trusted by the same authority; the server's own TLS runs inside."""
    context = authority.server("engine.example") if scheme == "https" else None
    async with FakeServer(FakeLlama(), tls=context) as server, FakeProxy(tls=authority.server()) as proxy:
        url = f"{scheme}://engine.example:{server.port}"
        access = trusting(authority, proxy=proxy.url)
        assert proxy.url.startswith("https:")
        assert (await ask(url, access, times=2)).error_kind is None
        assert await ControlCalls("the server", url, access).healthy()
    assert (await ask(url, opened(proxy=proxy.url))).error_kind == "connect"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_proxy_with_a_password(authority: Authority, scheme: str) -> None:
    """The proxy's user and password go to the proxy alone, the server's key to the server alone."""
    context = authority.server("engine.example") if scheme == "https" else None
    wants = "Basic dXNlcjpvcGVuLXNlc2FtZS00Mg=="  # user:open-sesame-42
    async with FakeServer(FakeLlama(), tls=context) as server, FakeProxy(wants=wants) as proxy:
        url = f"{scheme}://engine.example:{server.port}"
        through = proxy.url.replace("//", "//user:${PROXY_PASSWORD}@")
        access = trusting(authority, proxy=through, api_key_env="KEY")
        assert (await ask(url, access)).error_kind is None
        assert await ControlCalls("the server", url, access).healthy()
        assert set(proxy.authorizations) == {wants}
        assert not any("proxy-authorization" in request.headers for request in server.requests)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_proxy_that_wants_a_password(authority: Authority, scheme: str) -> None:
    """A proxy that refuses is told from a server that does, and the record says where the password belongs."""
    async with FakeProxy(wants="Basic x") as proxy:
        result = await ask(f"{scheme}://engine.example:9", trusting(authority, proxy=proxy.url))
    assert result.error_kind is not None
    assert "407" in (result.error_message or "")
    assert "engine.access.proxy" in (result.error_message or "")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "502 Bad Gateway"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "does not answer like an HTTP proxy"),
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", "bytes of its own"),
    ],
)
async def test_proxy_without_a_way(authority: Authority, answer: bytes, words: str) -> None:
    """A proxy that opens no tunnel, or is none, makes a record that names the proxy and what it said."""
    async with FakeProxy(answer=answer) as proxy:
        result = await ask("https://engine.example:9", trusting(authority, proxy=proxy.url))
    assert (result.error_kind, result.sent_ns) == ("connect", None)
    assert words in (result.error_message or "")
    assert "proxy" in (result.error_message or "")


async def test_dead_proxy() -> None:
    """If nothing listens where the proxy should be, the record names the proxy, not the server."""
    result = await ask("http://engine.example:8000", opened(proxy="http://127.0.0.1:9"))
    assert result.error_kind == "connect"
    assert "the proxy 127.0.0.1:9" in (result.error_message or "")


@pytest.mark.parametrize("spec", [{}, {"proxy": "env"}])
async def test_environment_does_not_send_loopback_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, str]
) -> None:
    """Servers on this machine are reached directly, whatever the environment says, even where its proxies are asked for."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    async with FakeServer(FakeLlama()) as server:
        access = opened(**spec)
        for url in (server.base_url, server.base_url.replace("127.0.0.1", "localhost")):
            assert (await ask(url, access)).error_kind is None
            assert await ControlCalls("the server", url, access).healthy()


async def test_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the environment's proxies are asked for, a server elsewhere is reached through them, unless NO_PROXY names it."""
    async with FakeServer(FakeLlama()) as server, FakeProxy() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "direct.example")
        access = opened(proxy="env")
        url = f"http://engine.example:{server.port}"
        assert (await ask(url, access)).error_kind is None
        assert len(proxy.asked) == 1
        assert access.proxy_for(f"http://direct.example:{server.port}") is None
        assert OPEN.proxy_for(url) is None


# Secrets


def echo(status: int, place: Callable[[str], Any]) -> Callable[..., Reply]:
    """Return a script that answers with the key that it got, in a body that ``place`` makes."""
    return lambda request: json_reply(place(request.headers["authorization"]), status)


@pytest.mark.parametrize("status", [200, 400, 401, 500])
@pytest.mark.parametrize("before", [0, 280, 292])
async def test_echoed_key(status: int, before: int) -> None:
    """A server that repeats the key in its answer does not get it into a record, not even the part before an excerpt's end."""

    def place(header: str) -> Any:
        return {"error": {"message": "x" * before + header + " is no key of mine"}}

    async with FakeServer(echo(status, place)) as server:
        access = opened(api_key_env="KEY")
        result = await ask(server.base_url, access)
        calls = ControlCalls("the server", server.base_url, access)
        with pytest.raises(EngineProtocolError, match="the server") as caught:
            await calls.tokens({})
    for message in (result.error_message or "", str(caught.value)):
        assert message
        assert "sk-01234" not in message


async def test_key_in_a_broken_stream() -> None:
    """A key in an event that cannot be read is masked in the record, too."""
    async with FakeServer([Reply([(0, delta(content="a") + b"data: {sk-0123456789\n\n" + DONE)])]) as server:
        result = await ask(server.base_url, opened(api_key_env="KEY"))
    assert result.error_kind == "protocol"
    assert "sk-" not in (result.error_message or "")


@pytest.mark.parametrize(("key", "words"), [(None, "no key was sent"), ("KEY", "the key from $KEY was refused")])
async def test_refused_key(key: str | None, words: str) -> None:
    """Status 401 says whether a key was missing or refused, and which variable it came from."""
    async with FakeServer(lambda _: json_reply({"error": "Unauthorized"}, 401)) as server:
        access = opened(api_key_env=key)
        result = await ask(server.base_url, access)
    assert (result.error_kind, result.http_status) == ("http_status", 401)
    assert words in (result.error_message or "")


def test_nothing_shows_a_secret(tmp_path: Path) -> None:
    """Neither an access nor what holds it shows a key, a password or a header's value when it is printed."""
    access = opened(
        api_key_env="KEY", headers={"x-tenant": "${PROXY_PASSWORD}"}, proxy="http://u:${PROXY_PASSWORD}@proxy.example:1"
    )
    shown = repr((access, Endpoint("http://a", "m", access=access), access.proxy_for("http://a"), access.direct()))
    assert "sk-0" not in shown
    assert PASSWORD not in shown
