"""Carries one request through the engine and its answer to the client, who may leave at any moment. Imports no torch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from drafters.engine.jobs import Job
from drafters.engine.messages import ApiError
from drafters.engine.responses import DONE, Answer, event

if TYPE_CHECKING:
    from drafters.engine.runner import Event
    from drafters.engine.worker import Worker

__all__ = ["Generation", "refusal"]


class Generation(Response):
    """The response to a submitted job: a stream of events, or one body when all is done.

    Nothing is sent before the engine's first event, so that an error until then has its own status.
    """

    def __init__(self, worker: Worker, job: Job, answer: Answer, stream: bool, include_usage: bool) -> None:
        self._worker = worker
        self._job = job
        self._answer = answer
        self._stream = stream
        self._include_usage = include_usage
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer over ASGI; whatever ends this ends the job too."""
        async with _watched(self._worker, self._job, receive):
            first = await self._job.updates.get()
            if isinstance(first, ApiError):
                await refusal(first)(scope, receive, send)
            elif first is not None:
                await (self._events(first, send) if self._stream else self._whole(first, scope, receive, send))

    async def _whole(self, first: Event, scope: Scope, receive: Receive, send: Send) -> None:
        rounds = [(first.token_ids, first.logprobs)]
        update: Event | ApiError | None = first
        while update is not None:
            if isinstance(update, ApiError):
                await refusal(update)(scope, receive, send)
                return
            if update.finished:
                body = self._answer.body(rounds)
                await Response(body, media_type="application/json")(scope, receive, send)
                return
            update = await self._job.updates.get()
            if update is not None and not isinstance(update, ApiError):
                rounds.append((update.token_ids, update.logprobs))

    async def _events(self, first: Event, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        update: Event | ApiError | None = first
        while update is not None:
            if isinstance(update, ApiError):
                await send({"type": "http.response.body", "body": event(update.body()) + DONE, "more_body": False})
                return
            made = self._answer.chunk(update.token_ids, update.logprobs, update.finished) or b""
            if update.finished:
                made += self._answer.last_chunk()
                if self._include_usage:
                    made += self._answer.usage_chunk()
                await send({"type": "http.response.body", "body": made + DONE, "more_body": False})
                return
            if made:
                await send({"type": "http.response.body", "body": made, "more_body": True})
            update = await self._job.updates.get()


@asynccontextmanager
async def _watched(worker: Worker, job: Job, receive: Receive) -> AsyncIterator[None]:
    """Abort the job when the client disconnects, and when the block is left before its end."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        worker.abort(job)
        job.updates.put_nowait(None)

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        if not job.gone and (job.sequence is None or job.sequence.finish_reason is None):
            worker.abort(job)


def refusal(error: ApiError) -> Response:
    """The response that tells of an error."""
    return Response(orjson.dumps(error.body()), error.status, media_type="application/json")
