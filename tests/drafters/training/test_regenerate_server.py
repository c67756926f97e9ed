"""``drafters regenerate`` through a server: what is sent, what is believed, and what is done about faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from drafters.training.conversations import Conversation
from drafters.training.regenerate import connection
from drafters.training.stage import StageError, read_manifest
from tests.drafters.engine.serving import Served, fast, random_folder, tokenizer
from tests.drafters.training.regenerating import (
    END,
    TOOLS,
    answers_of,
    corpus,
    examples_of,
    regenerate,
    report_of,
    talk,
)
from tests.fake_server import FakeServer, Reply, Request, json_reply

TOKENS = tokenizer(merges=0)
Say = Callable[[Request, dict[str, Any]], Reply]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits before another try are short."""
    monkeypatch.setattr(connection, "FIRST_WAIT_S", 0.001)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of bytes."""
    made = tmp_path_factory.mktemp("tokenizer")
    fast(TOKENS).save_pretrained(made)
    return made


def completion(text: str, finish: str = "stop", **more: Any) -> Reply:
    """An answer of the completions endpoint."""
    return json_reply({"choices": [{"index": 0, "text": text, "finish_reason": finish, **more}]})


def script(say: Say, models: Sequence[str] = ("m",)) -> Callable[[Request], Reply]:
    """A server that lists its models, takes the test request, and then says what the test wants."""

    def answer(request: Request) -> Reply:
        if request.path == "/v1/models":
            return json_reply({"data": [{"id": name} for name in models]})
        if request.path == "/tokenize":
            return json_reply({"error": {"message": "no such thing"}}, 404)
        body = request.json
        if body["max_tokens"] == 1:
            return completion("x", "length")
        return say(request, body)

    return answer


async def ask(
    server: FakeServer, tmp_path: Path, folder: Path, made: Sequence[Conversation], *arguments: object
) -> Path:
    """Run the stage against a server, in a thread; return its folder."""
    source = corpus(tmp_path / "corpus", made)
    given = ("--corpus", source, "--base-url", server.base_url + "/v1", "--model", "m", "--tokenizer", folder)
    await asyncio.to_thread(regenerate, *given, "--out", tmp_path / "out", *arguments)
    return tmp_path / "out"


def asked(server: FakeServer) -> list[dict[str, Any]]:
    """The bodies of the requests for answers, but for the test requests."""
    found = [request.json for request in server.requests if request.path.endswith("completions")]
    return [body for body in found if body["max_tokens"] > 1]


async def test_prompts_go_as_tokens_and_texts_come_back_as_tokens(tmp_path: Path, folder: Path) -> None:
    """The second prompt holds the first answer; the manifest says where the tokens come from; the seed goes along only
    where chance has a part."""
    async with FakeServer(script(lambda request, body: completion("fine"))) as server:
        out = await ask(server, tmp_path, folder, [talk("a", "one", "two")], "--temperature", 0.5)
    first, second = asked(server)
    start = "<|im_start|>user\none<|im_end|><|im_start|>assistant\n"  # the template's blocks eat a line's end
    assert first["prompt"] == TOKENS.encode(start).ids
    assert second["prompt"][: len(first["prompt"]) + 5] == [*first["prompt"], *TOKENS.encode("fine").ids, END]
    assert (first["temperature"], first["top_p"], first["max_tokens"], "seed" in first) == (0.5, 1.0, 200, True)
    assert first["seed"] != second["seed"]
    assert list(answers_of(examples_of(out)["a"])) == [(*TOKENS.encode("fine").ids, END)] * 2
    counts = read_manifest(out, "regenerate").counts
    assert (counts["tokens_from"], counts["server"]) == ("tokenizer", server.base_url)


async def test_many_are_asked_at_once_and_no_more_than_told(tmp_path: Path, folder: Path) -> None:
    """Twelve conversations, three at a time."""

    def slowly(request: Request, body: dict[str, Any]) -> Reply:
        made = completion("fine")
        return Reply([(0.02, made.parts[0][1])], 200, "application/json", "length")

    async with FakeServer(script(slowly)) as server:
        made = [talk(f"c{number:02}", "one") for number in range(12)]
        out = await ask(server, tmp_path, folder, made, "--concurrency", 3)
    assert server.peak_requests == 3
    assert sorted(examples_of(out)) == list(examples_of(out)) == [conversation.id for conversation in made]


async def test_a_server_that_only_chats_gets_messages_and_its_calls_are_written_out_again(
    tmp_path: Path, folder: Path
) -> None:
    """A call comes back parsed; the template tells what the target wrote for it, and the recorded result finds its id."""
    messages = (
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "tool_calls": [{"id": "r1", "type": "function", "function": {"name": "weather"}}]},
        {"role": "tool", "tool_call_id": "r1", "content": "SUNNY"},
        {"role": "assistant", "content": "RECORDED"},
    )
    call = {"id": "x9", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Seoul"}'}}

    def say(request: Request, body: dict[str, Any]) -> Reply:
        if len(body["messages"]) == 1:
            message, finish = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        else:
            message, finish = {"role": "assistant", "content": "sunny"}, "stop"
        return json_reply({"choices": [{"message": message, "finish_reason": finish}]})

    conversation = Conversation("a", "hand", "en", "chat", "train", messages, TOOLS)
    async with FakeServer(script(say)) as server:
        out = await ask(server, tmp_path, folder, [conversation], "--endpoint", "chat")
    first, second = asked(server)
    assert first["tools"] == list(TOOLS)
    assert second["messages"][1]["tool_calls"] == [{**call, "id": "r1"}]
    assert second["messages"][2] == messages[2]
    assert [TOKENS.decode(list(answer), skip_special_tokens=False) for answer in answers_of(examples_of(out)["a"])] == [
        "<tool_call>Seoul</tool_call><|im_end|>",
        "sunny<|im_end|>",
    ]


async def test_tokens_that_the_server_tells_are_taken_as_they_are(tmp_path: Path, folder: Path) -> None:
    """And its prompt tokens must be ours."""

    def answer(request: Request) -> Reply:
        if request.path != "/v1/completions":
            return json_reply({}, 404)
        ids = [*TOKENS.encode("fine").ids, END]
        return completion("fine", token_ids=ids, prompt_token_ids=request.json["prompt"])

    async with FakeServer(answer) as server:
        out = await ask(server, tmp_path, folder, [talk("a", "one")])
    assert list(answers_of(examples_of(out)["a"])) == [(*TOKENS.encode("fine").ids, END)]
    assert read_manifest(out, "regenerate").counts["tokens_from"] == "server"


@pytest.mark.parametrize(
    "told",
    [{"token_ids": TOKENS.encode("other").ids}, {"token_ids": TOKENS.encode("fine").ids, "prompt_token_ids": [1, 2]}],
)
async def test_a_server_with_another_tokenizer_is_refused(tmp_path: Path, folder: Path, told: dict[str, Any]) -> None:
    """Its tokens read as another text here, or it read other tokens than were sent."""
    async with FakeServer(script(lambda request, body: completion("fine", **told))) as server:
        with pytest.raises(StageError, match="is not the one of --tokenizer"):
            await ask(server, tmp_path, folder, [talk("a", "one")])
    assert not (tmp_path / "out/manifest.json").exists()


async def test_a_server_that_cuts_a_test_text_otherwise_is_refused_before_anything_is_asked(
    tmp_path: Path, folder: Path
) -> None:
    """By its own /tokenize."""

    def answer(request: Request) -> Reply:
        return json_reply({"tokens": [5, 6, 7]}) if request.path == "/tokenize" else json_reply({}, 404)

    async with FakeServer(answer) as server:
        with pytest.raises(StageError, match="cuts a test text into other tokens"):
            await ask(server, tmp_path, folder, [talk("a", "one")])
    assert asked(server) == []


@pytest.mark.parametrize("fault", [429, 503, "reset", "close"])
async def test_what_passes_is_tried_again(tmp_path: Path, folder: Path, fault: int | str) -> None:
    """Two refusals or lost connections, then an answer."""
    left = [fault, fault]

    def say(request: Request, body: dict[str, Any]) -> Reply:
        if not left:
            return completion("fine")
        now = left.pop()
        return json_reply({"error": {"message": "busy"}}, now) if isinstance(now, int) else Reply(then=now)  # type: ignore[arg-type]

    async with FakeServer(script(say)) as server:
        out = await ask(server, tmp_path, folder, [talk("a", "one")])
    assert len(asked(server)) == 3
    assert report_of(out)["answers"] == 1


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (json_reply({"error": {"message": "too long"}}, 400), "HTTP 400: too long"),
        (json_reply({"error": {"message": "overloaded"}}, 503), "HTTP 503: overloaded, 3 times"),
        (Reply([(0, b"<html>")], 200, "text/html", "length"), "no JSON: <html>"),
        (json_reply({"choices": []}), "no choices"),
        (completion("", "stop"), "answer 1 is empty"),
        (completion("x", "content_filter"), "ended with 'content_filter'"),
        (Reply(then="hang"), "ReadTimeout"),
        (Reply(status=307, framing="length"), "HTTP 307"),
    ],
)
async def test_what_is_no_answer_fails_the_conversation_with_its_reason(
    tmp_path: Path, folder: Path, reply: Reply, reason: str
) -> None:
    """One conversation of four is refused for good; half may fail; the others are kept."""

    def say(request: Request, body: dict[str, Any]) -> Reply:
        return reply if "bad" in TOKENS.decode(body["prompt"]) else completion("fine")

    made = [talk("bad", "bad"), *(talk(f"good{number}", "one") for number in range(3))]
    async with FakeServer(script(say)) as server:
        arguments = ("--max-failures", 0.5, "--retries", 2, "--timeout", 0.3)
        out = await ask(server, tmp_path, folder, made, *arguments)
    (failure,) = [json.loads(line) for line in (out / "failures.jsonl").read_text().splitlines()]
    assert failure["id"] == "bad"
    assert reason in failure["reason"]
    assert list(examples_of(out)) == ["good0", "good1", "good2"]


async def test_a_server_that_fails_everything_is_not_asked_to_the_end(tmp_path: Path, folder: Path) -> None:
    """A hundred conversations: refused when more failed than may."""
    async with FakeServer(script(lambda request, body: json_reply({}, 400))) as server:
        with pytest.raises(StageError, match=r"of 100 conversations failed, more than --max-failures 0\.1"):
            await ask(server, tmp_path, folder, [talk(f"c{number}", "one") for number in range(100)])
    assert len(asked(server)) < 40


async def test_failed_conversations_are_asked_again_and_the_others_are_not(tmp_path: Path, folder: Path) -> None:
    """The second try of the same command completes what the first left."""
    broken = [True]

    def say(request: Request, body: dict[str, Any]) -> Reply:
        return json_reply({}, 500) if broken and "bad" in TOKENS.decode(body["prompt"]) else completion("fine")

    made = [talk("bad", "bad"), talk("good", "one")]
    async with FakeServer(script(say)) as server:
        source = corpus(tmp_path / "corpus", made)
        given = ("--corpus", source, "--base-url", server.base_url, "--model", "m", "--tokenizer", folder)
        more = ("--concurrency", 1, "--out", tmp_path / "out")
        with pytest.raises(StageError, match="1 of 2 conversations failed"):
            await asyncio.to_thread(regenerate, *given, *more)
        first = len(asked(server))
        broken.clear()
        await asyncio.to_thread(regenerate, *given, *more)
    assert first in (1, 2)  # the failure may come before the other is asked
    assert len(asked(server)) == 3
    assert list(examples_of(tmp_path / "out")) == ["bad", "good"]
    assert (tmp_path / "out/failures.jsonl").read_text() == ""


async def test_the_key_comes_from_the_environment_and_is_written_nowhere(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent with every request; a refused one ends the stage at once; one that is not set is named."""
    monkeypatch.setenv("TEST_SERVER_KEY", "secret-1")

    def answer(request: Request) -> Reply:
        if request.headers.get("authorization") != "Bearer secret-1":
            return json_reply({"error": {"message": "no"}}, 401)
        return script(lambda request, body: completion("fine"))(request)

    async with FakeServer(answer) as server:
        out = await ask(server, tmp_path, folder, [talk("a", "one")], "--api-key-env", "TEST_SERVER_KEY")
        assert all(b"secret-1" not in path.read_bytes() for path in out.iterdir())
        monkeypatch.setenv("TEST_SERVER_KEY", "wrong")
        given = ("--corpus", tmp_path / "corpus", "--base-url", server.base_url, "--model", "m", "--tokenizer", folder)
        more = ("--out", tmp_path / "other", "--api-key-env", "TEST_SERVER_KEY")
        with pytest.raises(StageError, match="401: the key is refused"):
            await asyncio.to_thread(regenerate, *given, *more)
        monkeypatch.delenv("TEST_SERVER_KEY")
        with pytest.raises(StageError, match="no such variable is set"):
            await asyncio.to_thread(regenerate, *given, *more)


async def test_a_model_that_the_server_lacks_and_a_server_that_is_not_there_are_named(
    tmp_path: Path, folder: Path
) -> None:
    """With what there is instead."""
    async with FakeServer(script(lambda request, body: completion("fine"), ["other"])) as server:
        with pytest.raises(StageError, match="--model 'm' given; this server has: other"):
            await ask(server, tmp_path, folder, [talk("a", "one")])
    given = ("--corpus", tmp_path / "corpus", "--base-url", server.base_url, "--model", "m", "--tokenizer", folder)
    with pytest.raises(StageError, match="can be asked: ConnectError"):
        await asyncio.to_thread(regenerate, *given, "--out", tmp_path / "gone", "--retries", 0)
    with pytest.raises(StageError, match="allowed: http://host:port"):
        await asyncio.to_thread(regenerate, *given, "--out", tmp_path / "bad", "--base-url", "localhost:80")


def test_the_builtin_server_and_the_engine_in_this_process_write_the_same(tmp_path: Path) -> None:
    """Every byte of the examples, at temperature 0 and above: same prompts, same seeds, the server's own tokens."""
    model = random_folder(tmp_path / "babble")
    made = [talk(f"c{number}", f"질문 {number}", "more") for number in range(8)]
    made.append(Conversation("text", "hand", "ko", "essay", "train", text="회의록"))
    source = corpus(tmp_path / "corpus", made)
    shared = ("--corpus", source, "--max-tokens", 30, "--temperature", 0, 0.9)
    regenerate(*shared, "--target", model, "--dtype", "float64", "--out", tmp_path / "local")
    config = {"model": str(model), "served_name": "m", "dtype": "float64", "context_tokens": 1024}
    with Served(config) as served:
        given = ("--base-url", served.url, "--model", "m", "--tokenizer", model)
        regenerate(*shared, *given, "--out", tmp_path / "served")
    local, remote = (tmp_path / name / "examples.jsonl" for name in ("local", "served"))
    assert local.read_bytes() == remote.read_bytes()
    assert read_manifest(tmp_path / "served", "regenerate").counts["tokens_from"] == "server"
