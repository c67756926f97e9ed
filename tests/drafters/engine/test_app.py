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
from tests.drafters.engine.test_worker import working


def described(runner: Runner, costs: object) -> Assembled:
    """An engine that describes itself by the thread that asks it to."""

    class Engine(SimpleNamespace):
        @property
        def description(self) -> Mapping[str, Any]:
            """The thread."""
            return {"thread": threading.current_thread().name}

    config = EngineConfig(model=Path("model"))
    return cast("Assembled", Engine(runner=runner, text=None, name="tiny", config=config, costs=costs))


@asynccontextmanager
async def client(costs: object = None) -> AsyncIterator[tuple[httpx.AsyncClient, Api]]:
    """A client of the routes, without a socket between them."""
    async with working() as (worker, runner, rounds):
        api = Api(described(runner, costs), worker, rounds)
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
