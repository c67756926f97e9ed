"""What a client may ask of the server: OpenAI's bodies with this engine's own fields, and OpenAI's form of an error.

Imports no torch. Every complaint is an `ApiError` with a status of 4xx: a body from outside never gets further than this
module without having been checked.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import orjson
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from drafters.base import Sampling
from drafters.engine.messages import FIRST_FAULT, ApiError, Body, Messages, Objects
from drafters.engine.sequence import Request, RequestError

__all__ = [
    "ChatRequest",
    "CompletionRequest",
    "Generate",
    "TokenizeRequest",
    "loads",
    "parse",
]

MAX_STOPS = 16
MAX_STOP_LENGTH = 400
MAX_TOKEN_IDS = 1_048_576


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


# Lists stop at the first fault: a body full of faults must not cost more than one of them.
Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
Stops = Annotated[list[Stop], FIRST_FAULT, Field(max_length=MAX_STOPS), BeforeValidator(_listed)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], FIRST_FAULT, Field(max_length=MAX_TOKEN_IDS)]


class StreamOptions(Body):
    """OpenAI's options of a stream."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: Literal[False] | None = None


class Generate(Body):
    """What both endpoints share."""

    ignored: ClassVar[frozenset[str]] = frozenset(
        {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
    )
    refused: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "n": (None, 1),
        "frequency_penalty": (None, 0),
        "presence_penalty": (None, 0),
        "repetition_penalty": (None, 1),
        "logit_bias": (None, {}),
        "min_p": (None, 0),
    }
    """OpenAI's (and two of vLLM's) fields that this engine cannot do, with the values that ask for nothing."""

    model: str
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64)
    stop: Stops | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    drafter: str | None = None
    num_speculative_tokens: int | None = Field(default=None, ge=0)
    return_rounds: bool = False
    return_token_ids: bool = False

    @property
    def limit(self) -> int | None:
        """Most tokens asked for; ``None`` for as many as the context leaves."""
        return self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """Log probabilities asked for: so many alternatives a token; ``None`` for none at all."""
        return None

    def engine_request(self, prompt: list[int], room: int, drafter: str | None, eos: frozenset[int]) -> Request:
        """What the engine is asked. ``room`` is how many tokens may follow the prompt, ``drafter`` the one that was
        settled on, ``eos`` the model's end-of-text tokens.

        Raises ApiError for what is out of range.
        """
        drafts = self.num_speculative_tokens
        try:
            return Request(
                prompt=tuple(prompt),
                max_tokens=room if self.limit is None else self.limit,
                sampling=Sampling(
                    1.0 if self.temperature is None else self.temperature,
                    1.0 if self.top_p is None else self.top_p,
                    max(self.top_k or 0, 0),
                ),
                seed=self.seed,
                stop_token_ids=frozenset() if self.ignore_eos else eos,
                stop=tuple(self.stop or ()),
                # A drafter that may draft nothing would only be fed.
                drafter=None if drafts == 0 else drafter,
                num_draft_tokens=drafts,
                logprobs=self.alternatives,
            )
        except (RequestError, ValueError) as error:
            raise ApiError(400, str(error)) from error


class ChatRequest(Generate):
    """Body of ``/v1/chat/completions``."""

    refused: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **Generate.refused,
        "response_format": (None, {"type": "text"}),
        "parallel_tool_calls": (None, True),
        "modalities": (None, ["text"]),
        "audio": (None,),
        "functions": (None, []),
        "function_call": (None, "none", "auto"),
        "prediction": (None,),
        "reasoning_effort": (None,),
        "verbosity": (None,),
        "web_search_options": (None,),
    }

    messages: Messages
    max_completion_tokens: int | None = Field(default=None, ge=1)
    tools: Objects | None = None
    tool_choice: Literal["none", "auto"] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)

    @model_validator(mode="after")
    def _agreed(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise ValueError(f"top_logprobs is {self.top_logprobs}, but logprobs is not true; set it")
        return self

    @property
    def limit(self) -> int | None:
        """``max_completion_tokens``, or ``max_tokens``, its older name."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def alternatives(self) -> int | None:
        """See `Generate`."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(Generate):
    """Body of ``/v1/completions``; the prompt is a text or token ids."""

    refused: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **Generate.refused,
        "best_of": (None, 1),
        "echo": (None, False),
        "suffix": (None, ""),
        "response_format": (None, {"type": "text"}),
    }

    prompt: str | TokenIds
    logprobs: int | None = Field(default=None, ge=0, le=20)

    @property
    def alternatives(self) -> int | None:
        """See `Generate`."""
        return self.logprobs


class TokenizeRequest(Body):
    """Body of ``/tokenize``: a prompt, or messages as the chat endpoint takes them."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    tools: Objects | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either 'prompt' or 'messages'")
        return self


Asked = TypeVar("Asked", bound=Body)


def loads(raw: bytes) -> Any:
    """Decode JSON. Raises ApiError for what is none: bad syntax, lone surrogates, more than 1024 levels."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body is no valid JSON: {error}", code="invalid_json") from error


def parse(kind: type[Asked], body: Any) -> Asked:
    """Check a decoded body. Raises ApiError that names the field, what it was, and what is allowed."""
    if not isinstance(body, dict):
        raise ApiError(400, f"the body is {reprlib.repr(body)}; allowed: a JSON object")
    fields = dict(body)
    if issubclass(kind, Generate):
        _drop_neutral(kind, fields)
        prompt = fields.get("prompt")
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            if len(prompt) > 1:
                raise ApiError(400, f"{len(prompt)} prompts given; allowed: one a request", "prompt")
            fields["prompt"] = prompt[0]
    unknown = next((key for key in fields if key not in kind.model_fields), None)
    if unknown is not None:
        raise ApiError(400, f"unknown field {unknown[:100]!r}{_close(unknown, kind)}", unknown[:100], "unknown_field")
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise _explained(error) from error


def _drop_neutral(kind: type[Generate], fields: dict[str, Any]) -> None:
    for key in list(fields):
        if key in kind.ignored:
            del fields[key]
        elif key in kind.refused:
            neutral = kind.refused[key]
            value = fields.pop(key)
            if not any(
                value == allowed and isinstance(value, bool) == isinstance(allowed, bool) for allowed in neutral
            ):
                allowed_text = ", ".join(str(item) for item in neutral if item is not None)
                only = f"; allowed: {allowed_text}" if allowed_text else "; leave it out"
                raise ApiError(
                    400, f"{key} is {_shown(value)}, which this engine cannot do{only}", key, "unsupported_field"
                )


def _shown(value: Any) -> str:
    """What was given, cut short. An integer beyond 64 bits has lost its digits when the body was decoded."""
    if isinstance(value, float) and not -(2.0**63) < value < 2.0**64:
        return f"about {value:.3g} (beyond 64 bits)"
    return reprlib.repr(value)


def _close(key: str, kind: type[Body]) -> str:
    matches = difflib.get_close_matches(key[:100], list(kind.model_fields), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def _explained(error: ValidationError) -> ApiError:
    faults = error.errors(include_url=False, include_context=False)
    found = faults[0]
    where: tuple[int | str, ...] = found["loc"]
    if where[-1:] == ("str",):  # a text, or something else: what is wrong with each
        where = where[:-1]
        faults = [fault for fault in faults if fault["loc"][: len(where)] == where]
    else:
        faults = [found]
    place = ".".join(str(part) for part in where)[:200]
    message = found["msg"].removeprefix("Value error, ")
    if found["type"] == "missing":
        message = f"{place!r} is missing; give it"
    elif found["type"] == "extra_forbidden":
        message = f"unknown field {place!r}"
    elif found["type"] != "value_error":
        texts = " or ".join(dict.fromkeys(fault["msg"][:1].lower() + fault["msg"][1:] for fault in faults))
        message = f"{place} is {_shown(found['input'])}: {texts}"
    return ApiError(400, message, str(where[0])[:100] if where else None)
