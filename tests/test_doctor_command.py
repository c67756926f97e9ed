"""`harness doctor` from the command line: exit codes, one screen, and no key in what it prints."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harness import cli
from tests.doctor.plain_server import PlainServer
from tests.fake_server import FakeServer, Reply
from tests.fake_vllm import FakeVllm

KEY = "sk-0123456789"


async def command(*arguments: str) -> int:
    """Run the command beside the servers of the test."""
    return await asyncio.get_running_loop().run_in_executor(None, cli.run, ["doctor", *arguments])


async def test_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """A good server ends with 0, its verdict on one screen; an address with /v1 is taken, as other clients want it."""
    async with FakeServer(FakeVllm(draft=(4, 2), per_request="detailed")) as server:
        assert await command(f"{server.base_url}/v1/", "--engine", "vllm") == 0
    printed = capsys.readouterr()
    assert "FIT to measure times, tokens and the acceptance of each request" in printed.out
    assert f'engine: {{kind: vllm, base_url: "{server.base_url}", model: "smol"}}' in printed.out
    assert len(printed.out.splitlines()) <= 30
    assert "looking for the server" in printed.err


async def test_unfit(capsys: pytest.CaptureFixture[str]) -> None:
    """A web server and a port where nothing listens end with 4."""
    async with FakeServer(lambda _: Reply([(0, b"<html>")], 200, "text/html", "length")) as server:
        assert await command(server.base_url) == 4
    assert await command("http://127.0.0.1:9", "--lang", "ko") == 4
    printed = capsys.readouterr().out
    assert "NOT FIT to measure: model" in printed
    assert "측정 부적합: 연결" in printed


async def test_key_of_the_environment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of a variable opens the server; neither it nor a refused one is printed, though the server repeats it."""
    monkeypatch.setenv("ENGINE_KEY", KEY)
    monkeypatch.setenv("OLD_KEY", "sk-9876543210")
    async with FakeServer(PlainServer(key=KEY)) as server:
        assert await command(server.base_url, "--api-key-env", "ENGINE_KEY") == 0
        assert await command(server.base_url, "--api-key-env", "OLD_KEY") == 4
        assert await command(server.base_url, "--header", "Authorization: Bearer ${ENGINE_KEY}") == 0
    printed = capsys.readouterr()
    assert "from $ENGINE_KEY: accepted" in printed.out
    joined = " ".join(printed.out.split())
    assert 'access: {api_key_env: "ENGINE_KEY"}}' in joined
    assert 'access: {headers: {"Authorization": "Bearer ${ENGINE_KEY}"}}}' in joined
    assert "the key from $OLD_KEY was refused" in printed.out
    assert "sk-" not in printed.out + printed.err


async def test_extra_fields(capsys: pytest.CaptureFixture[str]) -> None:
    """Fields for every request are sent with every request, and the workload's line has them."""
    script = PlainServer()
    async with FakeServer(script) as server:
        assert await command(server.base_url, "--extra-body", '{"user": "harness"}') == 0
    assert {body.get("user") for body in script.asked} == {"harness"}
    assert 'options: {extra_body: {user: "harness"}}' in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["127.0.0.1:8000"], "http:// is missing in front of it: http://127.0.0.1:8000"),
        (["http://user:hunter22@a"], "cannot use the address 'http://***@a'"),
        (["http://a", "--engine", "vlm"], "'vlm' is no kind of server; known: llamacpp, builtin, vllm"),
        (["http://a", "--api-key-env", "sk-hunter22-key"], "--api-key-env: give the name of an environment variable"),
        (["http://a", "--api-key-env", "NOT_THERE"], "NOT_THERE, which is not set"),
        (["http://a", "--header", "authorization: hunter22"], "--header: the header authorization looks like a secret"),
        (["http://a", "--header", "hunter22"], "give it as NAME:VALUE"),
        (["http://a", "--ca-file", "none.pem"], "ca_file 'none.pem' cannot be used"),
        (["http://a", "--proxy", "http://u:hunter22@p"], "--proxy: a proxy's password has no place"),
        (["http://a", "--extra-body", "drafter"], "--extra-body is no JSON"),
        (["http://a", "--extra-body", "[]"], "--extra-body is a JSON object, not list"),
        (["http://a", "--timeout", "0"], "give seconds above 0"),
        (["http://a", "--timeout", "nan"], "--timeout is nan; give seconds above 0"),
    ],
)
def test_bad_arguments(capsys: pytest.CaptureFixture[str], arguments: list[Any], words: str) -> None:
    """A mistake in the arguments ends with 2 before anything is sent; the message says what is allowed and repeats no secret."""
    assert cli.run(["doctor", *arguments]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert "hunter22" not in printed.err
