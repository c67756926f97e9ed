"""Chat messages as a client writes them, and the error that refuses them. Imports no torch."""

from __future__ import annotations

import reprlib
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

__all__ = ["FIRST_FAULT", "ApiError", "Body", "Message", "Messages", "Objects"]

MAX_ITEMS = 10_000


class _FirstFault(FailFast):
    """Lists stop at the first fault: a body full of faults must not cost more than one of them."""

    __hash__ = object.__hash__  # pydantic's own has none, so that it could not be part of a union


FIRST_FAULT = _FirstFault()
Objects = Annotated[list[dict[str, Any]], FIRST_FAULT, Field(max_length=MAX_ITEMS)]


class ApiError(Exception):
    """A request that is refused: HTTP status and OpenAI's error object."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        kind: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.kind = kind

    def body(self) -> dict[str, Any]:
        """The error as OpenAI's clients read it."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


class Body(BaseModel):
    """Nothing is converted, nothing unknown is passed over."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Message(Body):
    """One message. Parts of a content are joined; the rest goes to the chat template as it is."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Objects | None = None
    name: str | None = None
    tool_calls: Objects | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"content of a {self.role} message is null; give a text")
        return self

    def text(self) -> str:
        """The content as one text. Raises ApiError for parts that are no text."""
        if not isinstance(self.content, list):
            return self.content or ""
        texts: list[str] = []
        for part in self.content:
            text = part.get("text")
            if part.get("type") != "text" or not isinstance(text, str):
                raise ApiError(
                    400,
                    f"a content part is {reprlib.repr(part)}; allowed: {{'type': 'text', 'text': …}}",
                    "messages",
                )
            texts.append(text)
        return "\n".join(texts)

    def for_template(self) -> dict[str, Any]:
        """The message as chat templates take it: arguments of tool calls as objects where they are valid JSON."""
        made: dict[str, Any] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": self.text(),
        }
        for key in ("name", "tool_call_id", "function_call", "reasoning", "reasoning_content"):
            if (value := getattr(self, key)) is not None:
                made[key] = value
        if self.tool_calls:
            made["tool_calls"] = [_with_arguments(call) for call in self.tool_calls]
        return made


def _with_arguments(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = orjson.loads(function["arguments"])
    except orjson.JSONDecodeError:
        return call  # what a model once wrote wrongly is part of the history all the same
    return {**call, "function": {**function, "arguments": arguments}} if isinstance(arguments, dict) else call


Messages = Annotated[list[Message], FIRST_FAULT, Field(min_length=1, max_length=MAX_ITEMS)]
