"""The routes of the server: OpenAI's, and the engine's own. Imports no torch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from drafters.engine.intake import Intake
from drafters.engine.jobs import Job, RoundLog
from drafters.engine.messages import ApiError, Message
from drafters.engine.metrics import MetricsPage
from drafters.engine.protocol import ChatRequest, CompletionRequest, Generate, TokenizeRequest, loads, parse
from drafters.engine.responses import Answer
from drafters.engine.stream import Generation, refusal
from drafters.engine.text import TOO_LONG, PromptError

if TYPE_CHECKING:
    from drafters.engine.assembly import Assembled
    from drafters.engine.worker import Worker

__all__ = ["Api"]

# Shorter ones are tokenized at once: handing them to another thread takes longer.
SMALL_BODY_BYTES = 4096

logger = logging.getLogger(__name__)
Made = TypeVar("Made")


class Api:
    """All routes over one engine."""

    def __init__(self, engine: Assembled, worker: Worker, rounds: RoundLog) -> None:
        self._engine = engine
        self._text = engine.text
        self._worker = worker
        self._rounds = rounds
        self._created = int(time.time())
        self._pool = ThreadPoolExecutor(2, "text")
        self.intake = Intake()
        capacity = engine.runner.scheduler.slots.capacity
        longest = max((drafter.max_nodes for drafter in engine.runner.drafting.drafters.values()), default=0)
        self._page = MetricsPage(lambda: worker.state, engine.name, capacity, engine.config.prefix_reuse, longest)

    def app(self) -> Starlette:
        """The application."""
        app = Starlette(
            routes=[
                Route("/v1/chat/completions", self.chat_completions, methods=["POST"]),
                Route("/v1/completions", self.completions, methods=["POST"]),
                Route("/v1/models", self.models, methods=["GET"]),
                Route("/v1/models/{name:path}", self.model, methods=["GET"]),
                Route("/health", self.health, methods=["GET"]),
                Route("/metrics", self.metrics, methods=["GET"]),
                Route("/rounds", self.rounds, methods=["GET"]),
                Route("/reset_prefix_cache", self.reset_prefix_cache, methods=["POST"]),
                Route("/reset_drafting", self.reset_drafting, methods=["POST"]),
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/server_info", self.server_info, methods=["GET"]),
            ],
            exception_handlers={
                ApiError: _refused,
                HTTPException: _no_route,
                ClientDisconnect: _gone,
                Exception: _failed,
            },
        )
        app.router.redirect_slashes = False
        return app

    async def chat_completions(self, request: Request) -> Response:
        """Answer messages."""
        async with self.intake.body(request) as raw:
            arrived_ns = time.monotonic_ns()
            asked = parse(ChatRequest, loads(raw))
            tools = None if asked.tool_choice == "none" else asked.tools
            self._check_model(asked.model)
            prompt = await self._off_loop(len(raw), "messages", lambda: self._chat_tokens(asked.messages, tools))
            return self._generate(asked, prompt, arrived_ns)

    async def completions(self, request: Request) -> Response:
        """Go on with a text or with tokens."""
        async with self.intake.body(request) as raw:
            arrived_ns = time.monotonic_ns()
            asked = parse(CompletionRequest, loads(raw))
            self._check_model(asked.model)
            given, most = asked.prompt, self._engine.config.context_tokens
            if isinstance(given, str):
                text = given
                prompt = await self._off_loop(
                    len(raw), "prompt", lambda: self._text.encode(text, special=True, most=most)
                )
            else:
                prompt = given
            return self._generate(asked, prompt, arrived_ns)

    async def models(self, request: Request) -> Response:
        """List the one model."""
        return _json({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """Describe the one model."""
        self._check_model(request.path_params["name"])
        return _json(self._model())

    async def health(self, request: Request) -> Response:
        """Say whether the engine runs, and what it holds."""
        state, alive = self._worker.state, self._worker.alive
        body = {
            "status": "ok" if alive else "the engine does not run",
            "running": state.running,
            "waiting": state.waiting,
            "owned_tokens": state.owned_tokens,
            "kept_tokens": state.kept_tokens,
        }
        return _json(body, 200 if alive else 503)

    async def metrics(self, request: Request) -> Response:
        """The Prometheus page."""
        return Response(self._page.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def rounds(self, request: Request) -> Response:
        """The engine's rounds from ``since`` on, as far as they are kept: one page of them, ``next`` begins the next."""
        given = request.query_params.get("since", "0")
        if not (given.isascii() and given.isdecimal() and len(given) < 19):
            raise ApiError(400, f"since is {given[:50]!r}; allowed: the index of a round, from 0", "since")
        found = self._rounds.since(int(given))
        return _json({"rounds": found, "next": found[-1].round_index + 1 if found else int(given)})

    async def reset_prefix_cache(self, request: Request) -> Response:
        """Forget what is kept for reuse."""
        await self._worker.reset_prefix_cache()
        return _json({"status": "ok"})

    async def reset_drafting(self, request: Request) -> Response:
        """Let draft lengths be chosen as if nothing had been served yet."""
        await self._worker.reset_drafting()
        return Response()

    async def tokenize(self, request: Request) -> Response:
        """Tokens of a text or of messages."""
        async with self.intake.body(request) as raw:
            asked = parse(TokenizeRequest, loads(raw))
            if asked.model is not None:
                self._check_model(asked.model)

            def tokens() -> list[int]:
                if asked.messages is not None:
                    return self._chat_tokens(asked.messages, asked.tools, bounded=False)
                return self._text.encode(asked.prompt or "", special=True)

            found = await self._off_loop(len(raw), "prompt" if asked.messages is None else "messages", tokens)
        return _json({"tokens": found, "count": len(found), "max_model_len": self._engine.config.context_tokens})

    async def server_info(self, request: Request) -> Response:
        """Configuration, versions and facts."""
        if self._engine.costs is None:
            return _json(self._engine.description)
        return _json(await self._worker.between_rounds(lambda: self._engine.description))  # rounds change the costs

    def _generate(self, asked: Generate, prompt: list[int], arrived_ns: int) -> Response:
        drafter = asked.drafter if "drafter" in asked.model_fields_set else self._engine.config.default_drafter
        runner = self._engine.runner
        if drafter is not None and drafter not in runner.drafting.drafters:
            known = ", ".join(sorted(runner.drafting.drafters)) or "none"
            raise ApiError(400, f"unknown drafter {drafter[:100]!r}; this engine has: {known}", "drafter")
        # A drafter that may draft nothing needs no memory either.
        drafting = None if drafter is None or asked.num_speculative_tokens == 0 else runner.drafting.drafters[drafter]
        slots = runner.scheduler.slots.capacity - (drafting.max_nodes if drafting is not None and drafting.tree else 0)
        room = _room(asked, len(prompt), min(self._engine.config.context_tokens, slots))
        job = Job(asked.engine_request(prompt, room, drafter, self._text.eos), arrived_ns, asked.return_rounds)
        most = None
        if drafting is not None:
            asked_for = job.request.num_draft_tokens
            most = drafting.max_nodes if asked_for is None else min(drafting.max_nodes, asked_for)
        answer = Answer(asked, job, self._text, self._engine.name, most)
        self._worker.submit(job)
        options = asked.stream_options
        usage = options is not None and bool(options.include_usage)
        return Generation(self._worker, job, answer, bool(asked.stream), usage)

    def _chat_tokens(
        self, messages: list[Message], tools: list[dict[str, Any]] | None, bounded: bool = True
    ) -> list[int]:
        text = self._text.chat([message.for_template() for message in messages], tools)
        # The template writes the special tokens itself.
        return self._text.encode(text, most=self._engine.config.context_tokens if bounded else None)

    async def _off_loop(self, size: int, param: str, make: Callable[[], Made]) -> Made:
        """What ``make`` makes of a body of so many bytes; ``param`` is the field that it reads."""
        try:
            if size <= SMALL_BODY_BYTES:
                return make()
            return await asyncio.get_running_loop().run_in_executor(self._pool, make)
        except PromptError as error:
            raise ApiError(400, str(error), error.param or param, error.code) from error

    def _check_model(self, name: str) -> None:
        if name != self._engine.name:
            raise ApiError(
                404, f"unknown model {name[:200]!r}; this server has: {self._engine.name}", "model", "model_not_found"
            )

    def _model(self) -> dict[str, Any]:
        return {
            "id": self._engine.name,
            "object": "model",
            "created": self._created,
            "owned_by": "spec-harness",
            "max_model_len": self._engine.config.context_tokens,
        }


def _room(asked: Generate, prompt: int, context: int) -> int:
    """How many tokens may follow a prompt of so many. Raises ApiError when that is none, or fewer than asked for."""
    param = "messages" if isinstance(asked, ChatRequest) else "prompt"
    if prompt >= context:
        message = f"the prompt has {prompt} tokens; allowed: up to {context - 1}, so that one can follow. Shorten it"
        raise ApiError(400, message, param, TOO_LONG)
    if asked.limit is not None and prompt + asked.limit > context:
        raise ApiError(
            400,
            f"a prompt of {prompt} tokens and max_tokens {asked.limit} make {prompt + asked.limit}; allowed: {context} "
            "together. Shorten the prompt or ask for fewer tokens",
            param,
            TOO_LONG,
        )
    return context - prompt


def _json(body: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return refusal(error)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = {404: f"nothing is at {request.url.path[:200]!r}", 405: f"{request.method} is not allowed here"}
    found = ApiError(error.status_code, what.get(error.status_code, str(error.detail)), code="not_found")
    if error.status_code != 404:
        found.code = "method_not_allowed" if error.status_code == 405 else None
    made = refusal(found)
    made.headers.update(error.headers or {})
    return made


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it: the client left while it sent its request


async def _failed(request: Request, error: Exception) -> Response:
    logger.error("a handler failed at %s", request.url.path, exc_info=error)
    message = "the server failed on this request; see its messages"
    return refusal(ApiError(500, message, kind="server_error", code="internal_error"))
