"""Bodies on their way in: bounded one by one, and all together."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from drafters.engine.intake import Intake
from drafters.engine.messages import ApiError


class Client:
    """One that sends its body part by part, when it is told to."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self.request = Request({"type": "http", "headers": []}, self._messages.get)

    def send(self, part: bytes, more: bool = True) -> None:
        """A part of the body."""
        self._messages.put_nowait({"type": "http.request", "body": part, "more_body": more})

    def leave(self) -> None:
        """Be gone."""
        self._messages.put_nowait({"type": "http.disconnect"})


async def read(intake: Intake, client: Client) -> bytes:
    """The client's body."""
    async with intake.body(client.request) as raw:
        return raw


async def turns() -> None:
    """Let everyone go on who can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_more_requests_than_may_be_read_are_sent_away() -> None:
    """Two slow ones fill a bound of two; the third gets 429 and, once one of them is through, its turn."""
    intake, slow = Intake(most_requests=2), [Client(), Client()]
    reading = [asyncio.create_task(read(intake, client)) for client in slow]
    await turns()
    third = Client()
    third.send(b"x", more=False)
    with pytest.raises(ApiError, match="2 requests are being read already") as caught:
        await read(intake, third)
    assert caught.value.status == 429
    slow[0].send(b"a", more=False)
    assert await reading[0] == b"a"
    assert await read(intake, third) == b"x"
    slow[1].leave()
    with pytest.raises(ClientDisconnect):
        await reading[1]
    assert (intake.requests, intake.bytes) == (0, 0)


async def test_bodies_count_by_their_bytes_until_they_are_queued() -> None:
    """Of ten bytes in all eight are held by one whose prompt is being read; a body of three does not fit beside it."""
    intake, first, second = Intake(most_bytes=10), Client(), Client()
    first.send(b"12345678", more=False)
    second.send(b"ab")
    second.send(b"c", more=False)
    async with intake.body(first.request) as raw:
        assert raw == b"12345678"
        with pytest.raises(ApiError, match="10 bytes of requests are being read already") as caught:
            await read(intake, second)
        assert caught.value.status == 429
        assert (intake.requests, intake.bytes) == (1, 8)
    assert (intake.requests, intake.bytes) == (0, 0)
