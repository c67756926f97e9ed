"""Answers by any server with OpenAI's interface, several at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from pydantic import ValidationError

from drafters.engine.messages import ApiError
from drafters.engine.text import PromptError, Text
from drafters.training.regenerate.connection import AnswerError, Connection
from drafters.training.regenerate.dialogue import Answer, Ask, Dialogue, templated
from drafters.training.stage import StageError

__all__ = ["Server", "answer_by_server"]

Endpoint = Literal["completions", "chat"]
PROBE = (
    "회의록을 3줄로 요약해 주세요. Please list the files.\ndef total(rows: list[int]) -> int:\n    return sum(rows)\n"
)
REPLACEMENT = "\ufffd"


class Server:
    """What is asked of a server. ``completions`` sends the prompt as tokens, so that it is exactly ours; ``chat`` sends
    messages, for servers that offer nothing else (plain texts go to ``completions`` all the same).

    ``reports_tokens`` says whether the server tells the tokens it wrote; if not, its text is tokenized here.
    """

    def __init__(self, connection: Connection, model: str, text: Text, endpoint: Endpoint) -> None:
        self.reports_tokens: bool | None = None
        self._connection, self._model, self._text, self._endpoint = connection, model, text, endpoint
        self._turn_end: int | None = None

    async def check(self) -> int | None:
        """Ask for a single token and compare tokenizers where the server lets us. Returns the server's context in
        tokens, where it tells.

        Raises StageError for a server that is not there, refuses us, has another model or another tokenizer.
        """
        context = await self._check_model()
        await self._check_tokenizer()
        messages: tuple[Mapping[str, Any], ...] = ()
        prompt = self._text.encode("Hello", special=True)
        if self._endpoint == "chat":
            messages = ({"role": "user", "content": "Hello"},)
            prompt = self._text.encode(self._text.chat(messages))
        ask = Ask(tuple(prompt), 1, 0.0, 0, messages)
        try:
            self.reports_tokens = True
            found = await self._post(ask)
        except AnswerError:
            self.reports_tokens = False  # it may be the field it does not know
            try:
                found = await self._post(ask)
            except AnswerError as error:
                hint = "" if self._endpoint == "chat" else "; if it offers chat completions only, give --endpoint chat"
                raise StageError(f"{self._connection.url} answers no test request: {error}{hint}") from error
        self.reports_tokens = self.reports_tokens and isinstance(_choice(found).get("token_ids"), list)
        return context

    async def answer(self, ask: Ask) -> Answer:
        """One answer. Raises AnswerError when there is none, and StageError when no further request makes sense."""
        found = await self._post(ask)
        choice = _choice(found)
        finish = _finish(choice.get("finish_reason"))
        self._check_prompt(found, ask)
        message = _message(choice) if self._chats(ask) else None
        text = _text(choice) if message is None else self._written(ask, message)
        token_ids = choice.get("token_ids")
        if not isinstance(token_ids, list):
            token_ids = self._text.encode(text)
        elif message is None:
            self._check_read(token_ids, text)
            text = self._text.settled(token_ids)
        if finish == "stop" and (not token_ids or token_ids[-1] not in self._text.eos):
            token_ids = [*token_ids, *self._end(ask)]
        return Answer(tuple(map(int, token_ids)), text, finish, message)

    async def _post(self, ask: Ask) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": ask.max_tokens,
            "temperature": ask.temperature,
            "top_p": 1.0,  # servers may take other defaults from the model's folder
        }
        if ask.temperature:
            body["seed"] = ask.seed
        if self.reports_tokens:
            body["return_token_ids"] = True
        if not self._chats(ask):
            return await self._connection.post("/v1/completions", {**body, "prompt": list(ask.prompt)})
        tools = {"tools": list(ask.tools)} if ask.tools else {}
        return await self._connection.post("/v1/chat/completions", {**body, "messages": list(ask.messages), **tools})

    def _chats(self, ask: Ask) -> bool:
        return self._endpoint == "chat" and bool(ask.messages)  # a plain text has no messages to chat about

    async def _check_model(self) -> int | None:
        try:
            entries = (await self._connection.get("/v1/models")).get("data")
        except AnswerError as error:
            if error.status in (404, 405):
                return None  # not every server lists its models
            raise StageError(f"{self._connection.url} is no server that can be asked: {error}") from error
        models = {entry["id"]: entry for entry in entries or () if isinstance(entry, dict) and "id" in entry}
        if models and self._model not in models:
            raise StageError(f"--model {self._model!r} given; this server has: {', '.join(sorted(map(str, models)))}")
        length = models.get(self._model, {}).get("max_model_len")
        return int(length) if isinstance(length, int) else None

    async def _check_tokenizer(self) -> None:
        try:
            found = (await self._connection.post("/tokenize", {"model": self._model, "prompt": PROBE})).get("tokens")
        except AnswerError:
            return
        if isinstance(found, list) and found and found != self._text.encode(PROBE, special=True):
            raise _other_tokenizer("it cuts a test text into other tokens")

    def _check_prompt(self, found: Mapping[str, Any], ask: Ask) -> None:
        prompt = found.get("prompt_token_ids") or _choice(found).get("prompt_token_ids")
        if isinstance(prompt, list) and tuple(prompt) != ask.prompt:
            raise _other_tokenizer(f"it read {len(prompt)} prompt tokens that are not our {len(ask.prompt)}")

    def _check_read(self, token_ids: list[Any], text: str) -> None:
        wrong = [token for token in token_ids if not isinstance(token, int) or token < 0]
        if wrong:
            raise AnswerError(f"a token id is {wrong[0]!r}")
        read = self._text.decode(token_ids)
        if REPLACEMENT not in read and REPLACEMENT not in text and read.strip() != text.strip():
            raise _other_tokenizer(f"its tokens read {read[:40]!r} here and {text[:40]!r} there")

    def _written(self, ask: Ask, message: Mapping[str, Any]) -> str:
        """What the model must have written for this message, by the template: tool calls are in their texts again."""
        if not message.get("tool_calls"):
            return str(message["content"])
        before, after = self._rendered(ask, ()), self._rendered(ask, (message,))
        end = self._end_text(ask)
        if not after.startswith(before) or end not in after[len(before) :]:
            raise AnswerError(
                "the chat template does not write this answer behind the prompt, so its tokens are unknown"
            )
        return after[len(before) :].split(end, 1)[0]

    def _rendered(self, ask: Ask, more: tuple[Mapping[str, Any], ...]) -> str:
        try:
            return self._text.chat(templated([*ask.messages, *more]), ask.tools or None)
        except (ApiError, PromptError, ValidationError) as error:
            raise AnswerError(str(error)[:300]) from error

    def _end(self, ask: Ask) -> list[int]:
        """The token that ends a turn by the template; none for a plain text, whose end may be any of several."""
        if not ask.messages:
            return []
        if self._turn_end is None:
            before, after = self._rendered(ask, ()), self._rendered(ask, ({"role": "assistant", "content": "x"},))
            tail = self._text.encode(after[len(before) :]) if after.startswith(before) else []
            self._turn_end = next((token for token in tail if token in self._text.eos), -1)
        return [self._turn_end] if self._turn_end >= 0 else []

    def _end_text(self, ask: Ask) -> str:
        end = self._end(ask)
        if not end:
            raise AnswerError(
                "the chat template ends no turn with an end token, so the tokens of a tool call are unknown"
            )
        return self._text.token_bytes(end[0]).decode()


async def answer_by_server(
    server: Server, dialogues: Iterator[Dialogue], concurrency: int, ended: Callable[[Dialogue], bool]
) -> None:
    """Carry ``dialogues`` to their ends, at most ``concurrency`` at once; ``ended`` is told of each and says whether to go
    on. Raises StageError when no further request makes sense."""
    enough = asyncio.Event()

    async def work() -> None:
        while not enough.is_set() and (dialogue := next(dialogues, None)) is not None:
            while (ask := dialogue.ask()) is not None:
                try:
                    dialogue.take(await server.answer(ask))
                except AnswerError as error:
                    dialogue.fail(str(error))
            if not ended(dialogue):
                enough.set()

    tasks = [asyncio.create_task(work()) for _ in range(concurrency)]
    stop = asyncio.create_task(enough.wait())
    try:
        pending: set[asyncio.Task[Any]] = set(tasks)
        while pending and not enough.is_set():
            done, _ = await asyncio.wait({*pending, stop}, return_when=asyncio.FIRST_COMPLETED)
            pending -= done
            for task in done:
                task.result()
    finally:
        for task in (*tasks, stop):
            task.cancel()
        await asyncio.gather(*tasks, stop, return_exceptions=True)


def _choice(found: Mapping[str, Any]) -> dict[str, Any]:
    choices = found.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise AnswerError("the answer has no choices")
    choice: dict[str, Any] = choices[0]
    return choice


def _finish(reason: Any) -> Literal["stop", "length"]:
    if reason in ("stop", "tool_calls"):
        return "stop"
    if reason == "length":
        return "length"
    raise AnswerError(f"the answer ended with {reason!r}; allowed: stop, tool_calls, length")


def _text(choice: Mapping[str, Any]) -> str:
    text = choice.get("text")
    if not isinstance(text, str):
        raise AnswerError(f"the answer's text is {text!r}; a string was expected")
    return text


def _message(choice: Mapping[str, Any]) -> dict[str, Any]:
    found = choice.get("message")
    if not isinstance(found, dict) or not isinstance(found.get("content") or "", str):
        raise AnswerError("the answer has no message")
    if found.get("reasoning_content") or found.get("reasoning"):
        raise AnswerError(
            "the server takes reasoning out of the answer; switch its parser off, or --endpoint completions"
        )
    made: dict[str, Any] = {"role": "assistant", "content": found.get("content") or ""}
    if found.get("tool_calls"):
        made["tool_calls"] = found["tool_calls"]
    return made


def _other_tokenizer(how: str) -> StageError:
    return StageError(
        f"the server's tokenizer or chat template is not the one of --tokenizer: {how}. Give the folder of the model that "
        "the server runs"
    )
