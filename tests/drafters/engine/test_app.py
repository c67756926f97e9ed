"""The routes over a tiny engine in this process: what a server on its own does not show."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from drafters.engine.app import Api
from drafters.engine.assembly import Assembled
from drafters.engine.config import EngineConfig
from drafters.engine.runner import Runner
from drafters.engine.text import Text
from tests.drafters.engine.serving import fast, tokenizer
from tests.drafters.engine.test_worker import working


def described(runner: Runner, costs: object, text: Text | None = None) -> Assembled:
    """An engine that describes itself by the thread that asks it to."""

    class Engine(SimpleNamespace):
        @property
        def description(self) -> Mapping[str, Any]:
            """The thread."""
            return {"thread": threading.current_thread().name}

    config = EngineConfig(model=Path("model"), context_tokens=200)
    return cast("Assembled", Engine(runner=runner, text=text, name="tiny", config=config, costs=costs))


@asynccontextmanager
async def client(costs: object = None, text: Text | None = None) -> AsyncIterator[tuple[httpx.AsyncClient, Api]]:
    """A client of the routes, without a socket between them."""
    async with working() as (worker, runner, rounds):
        api = Api(described(runner, costs, text), worker, rounds)
        transport = httpx.ASGITransport(app=api.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://tiny") as made:
            yield made, api


async def test_costs_are_told_by_the_thread_that_changes_them() -> None:
    """A table of costs is made between rounds; where there is none, nobody has to wait for a round."""
    async with client(costs=object()) as (http, _):
        assert (await http.get("/server_info")).json() == {"thread": "engine"}
    async with client(costs=None) as (http, _):
        assert (await http.get("/server_info")).json() == {"thread": threading.current_thread().name}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize"])
async def test_requests_that_are_still_being_read_are_bounded(path: str) -> None:
    """With as many on their way as may be, the next is told to come again, in OpenAI's form, and later is let in."""
    async with client() as (http, api):
        most = api.intake.requests = 4096
        answer = await http.post(path, content=b"{}")
        assert answer.status_code == 429
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert api.intake.requests == most
        api.intake.requests = 0
        assert (await http.post(path, content=b"{}")).status_code == 400
        assert api.intake.requests == 0


CHAT, PLAIN, TOKENIZE = "/v1/chat/completions", "/v1/completions", "/tokenize"


def said(text: str, **fields: Any) -> dict[str, Any]:
    """A body with one message."""
    return {"messages": [{"role": "user", "content": text}], **fields}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, said("x" * 500), "messages"),
        (CHAT, said("x" * 7_000_000), "messages"),
        (CHAT, said("x", max_tokens=200), "messages"),
        (CHAT, said("x", max_completion_tokens=2**63), "messages"),
        (PLAIN, {"prompt": "x" * 500}, "prompt"),
        (PLAIN, {"prompt": "x" * 7_000_000}, "prompt"),
        (PLAIN, {"prompt": [5] * 200}, "prompt"),
        (PLAIN, {"prompt": [5, 6], "max_tokens": 199}, "prompt"),
        (PLAIN, {"prompt": [5, 6], "max_tokens": 199, "stream": True}, "prompt"),
    ],
)
async def test_whatever_the_context_does_not_hold_has_openai_s_code(
    path: str, body: dict[str, Any], param: str
) -> None:
    """A prompt, one that is not even looked at, or a prompt and the answer asked for; the context is 200 tokens here."""
    async with client(text=Text(fast(tokenizer(0)))) as (http, _):
        answer = await http.post(path, json={"model": "tiny", **body})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"], error["type"]) == (param, "context_length_exceeded", "invalid_request_error")


async def test_an_answer_may_fill_the_context_to_its_last_token() -> None:
    """Two tokens and 198 of 200."""
    asked = {"model": "tiny", "prompt": [5, 6], "max_tokens": 198, "temperature": 0, "ignore_eos": True}
    async with client(text=Text(fast(tokenizer(0)))) as (http, _):
        assert (await http.post(PLAIN, json=asked)).json()["usage"]["total_tokens"] == 200


@pytest.mark.parametrize("path", [CHAT, TOKENIZE])
async def test_tools_that_the_model_would_never_hear_of_are_refused(path: str) -> None:
    """The template shows messages alone; ``tool_choice`` none asks for no more than that."""
    text = Text(fast(tokenizer(0), chat_template="{%- for message in messages %}{{ message.content }}{%- endfor %}"))
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = said("A", tools=tools, model="tiny")
    async with client(text=text) as (http, _):
        answer = await http.post(path, json=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "tools"
        assert "no place for tools" in answer.json()["error"]["message"]
        if path == CHAT:
            assert (await http.post(path, json={**body, "tool_choice": "none", "max_tokens": 1})).status_code == 200
