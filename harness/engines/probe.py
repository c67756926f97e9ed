"""Asks a server what it can tell, before anything is measured: two or three short chat completions and some control calls.

Nothing on the server is changed: its prompt cache is only asked whether it could be emptied. What the family of the server
(:mod:`harness.engines.dialect`) says about it decides where to ask, never what is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from harness.engines.base import ServerState, StreamFacts
from harness.engines.control import ControlCalls
from harness.engines.dialect import Announced, Dialect
from harness.engines.facts import Fact, Probed
from harness.engines.probe_chat import CHAT, Answer, ask_twice
from harness.errors import EngineProtocolError
from harness.records import SpecCounters

__all__ = ["ANSWER_TOLD", "Fact", "Probed", "probe", "token_ids"]

ANSWER_TOLD = "an answer told"
"""How a fact begins that an answer's own counts show."""


async def probe(
    calls: ControlCalls, dialect: Dialect, model: str = "", extra_body: Mapping[str, Any] | None = None
) -> Probed:
    """Ask one server everything; ``model`` is the name that requests carry, empty: the first that the server tells.

    ``extra_body`` are fields that all requests have anyway, such as those of a chat template; ``Probed.extra_body`` has them too.

    Raises:
        EngineUnreachable: if the server does not answer at all.
    """
    models, told_len = await _models(calls)
    name = model or (models.value[0] if models.value else "")
    path, before, page_how = await _page(calls, dialect)
    announced = await _announced(calls, dialect, before)
    answers = await ask_twice(calls, dialect, name, extra_body or {})
    after = None if path is None else (await calls.send("GET", path)).text
    seen = _Seen(dialect, answers, announced, _counters(dialect, before), _counters(dialect, after), before is not None)
    first, remedies = answers[0], dialect.remedies
    length = told_len if told_len is not None else announced.max_model_len
    state = _state(dialect, before)
    return Probed(
        version=_fact(announced.version, "told by the server", "not told", remedies.get("version")),
        models=models,
        model=Fact(name, "given" if model else "the first that /v1/models names")
        if name
        else Fact(None, "no name was given, and none told"),
        max_model_len=_fact(length, "told by the server", "told by no path that was asked"),
        chat=Fact(True, f"POST {CHAT} answered") if first.error is None else Fact(None, first.error),
        streaming=first.fact(first.streamed, "events came", "the answer came as one document"),
        usage_in_stream=first.fact(
            first.has_usage, "a chunk held the usage", "no chunk held a usage", remedies.get("usage_in_stream")
        ),
        tokens_per_chunk=first.fact(
            first.usage_with_tokens, "chunks held the tokens so far", "chunks do not hold the tokens so far"
        ),
        drafts=seen.drafts(),
        per_request_acceptance=seen.acceptance(),
        counters=seen.counters(page_how),
        per_position=seen.per_position(),
        cached_tokens=answers[-1].fact(
            answers[-1].facts.cached_tokens is not None,
            "told by the second of two equal requests",
            "two equal requests told none; the server has no prompt cache or does not say",
            remedies.get("cached_tokens"),
        ),
        running_requests=_fact(
            state.busy, f"GET {path}", "no page told requests being worked on", remedies.get("running_requests")
        ),
        cache_reset=await _cache_reset(calls, dialect),
        tokenize=await _tokenize(calls, dialect, name),
        speculative_config=_fact(
            announced.speculative_config, "told by the server", "not told", remedies.get("speculative_config")
        ),
        extra_body=first.extra_body,
        settings=announced.settings,
        metrics_path=path,
        chat_status=first.status,
    )


def token_ids(value: Any) -> tuple[int, ...] | None:
    """Return the tokens that a tokenizer's answer holds, in any family's form; ``None`` if it holds none."""
    found = value.get("tokens", value.get("input_ids")) if isinstance(value, Mapping) else None
    if not isinstance(found, list) or not all(isinstance(item, int) for item in found):
        return None
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What answers and counters show of speculative decoding."""

    dialect: Dialect
    answers: list[Answer]
    announced: Announced
    before: SpecCounters | None
    after: SpecCounters | None
    has_page: bool

    @property
    def _told(self) -> StreamFacts | None:
        return next((answer.facts for answer in self.answers if answer.facts.spec is not None), None)

    def drafts(self) -> Fact[bool]:
        told = None if self._told is None else self._told.spec
        if told is not None and told.num_draft_tokens:
            counts = f"{told.num_accepted_tokens} of {told.num_draft_tokens} drafted tokens accepted"
            return Fact(True, f"{ANSWER_TOLD} {counts}")
        if self.before is not None and self.after is not None:
            grown = (self.after - self.before).num_draft_tokens
            if grown > 0:
                return Fact(True, f"the server's counters grew by {grown} drafted tokens")
        config = self.announced.speculative_config
        if config is not None:
            return Fact(
                bool(config), f"the server says it drafts with {dict(config)}" if config else "the server says so"
            )
        if self.has_page and self.after is None and self.dialect.counts_when_drafting:
            return Fact(False, "the metrics page has no counters of speculative decoding")
        return Fact(None, "nothing was seen to be drafted, and nothing says that none could be")

    def acceptance(self) -> Fact[str]:
        told = self._told
        if told is not None:
            what = {"round": "each round", "request": "the sums of the request"}[told.spec_source or "request"]
            remedy = self.dialect.remedies.get("per_request_acceptance") if told.spec_source == "request" else None
            return Fact(told.spec_source, f"an answer told {what}", remedy)
        if self.drafts().value is False:
            return Fact(None, "the server does not draft")
        return Fact(None, "no answer told drafted and accepted tokens", self._remedy("per_request_acceptance"))

    def counters(self, page_how: str) -> Fact[bool]:
        if not self.has_page:
            return Fact(None, page_how, self._remedy("counters"))
        if self.after is None:
            remedy = None if self.drafts().value is False else self._remedy("counters")
            return Fact(False, f"{page_how}; it has no counters of drafted and accepted tokens", remedy)
        return Fact(True, page_how)

    def per_position(self) -> Fact[bool]:
        told = None if self._told is None else self._told.spec
        if told is not None and told.num_accepted_tokens_per_pos:
            return Fact(True, "told by an answer")
        if self.after is not None and self.after.num_accepted_tokens_per_pos:
            return Fact(True, "told by the counters")
        return Fact(None, "neither answers nor counters told accepted tokens by position")

    def _remedy(self, name: str) -> str | None:
        return self.dialect.remedies.get(name)


async def _models(calls: ControlCalls) -> tuple[Fact[tuple[str, ...]], int | None]:
    response = await calls.send("GET", "/v1/models")
    if response.status_code != httpx.codes.OK:
        refusal = calls.access.refusal(response.status_code)
        return Fact(None, f"GET /v1/models answered {response.status_code}" + (f"; {refusal}" if refusal else "")), None
    value = calls.access.redacted(_json(response))
    data = value.get("data") if isinstance(value, Mapping) else None
    listed = [item for item in data if isinstance(item, Mapping)] if isinstance(data, list) else []
    names = tuple(item["id"] for item in listed if isinstance(item.get("id"), str))
    if not names:
        return Fact(None, "GET /v1/models named no model"), None
    length = listed[0].get("max_model_len")
    return Fact(names, "GET /v1/models"), length if isinstance(length, int) else None


async def _announced(calls: ControlCalls, dialect: Dialect, page: str | None) -> Announced:
    """Return what metrics page, version and configuration paths tell together; of two that tell the same thing the first counts."""
    found = Announced() if page is None else dialect.announced_on_page(page)
    for paths in (dialect.paths.version, dialect.paths.config):
        for path in paths:
            response = await calls.send("GET", path)
            if response.status_code != httpx.codes.OK:
                continue
            told = dialect.announced(path, calls.access.redacted(_json(response)))
            found = Announced(
                version=found.version or told.version,
                speculative_config=told.speculative_config
                if found.speculative_config is None
                else found.speculative_config,
                max_model_len=found.max_model_len or told.max_model_len,
                settings={**told.settings, **found.settings},
            )
            break
    return found


async def _page(calls: ControlCalls, dialect: Dialect) -> tuple[str | None, str | None, str]:
    """Return path and text of the metrics page, ``None`` twice where there is none, and how that was found."""
    tried = []
    for path in dialect.paths.metrics:
        response = await calls.send("GET", path)
        if response.status_code != httpx.codes.OK:
            tried.append(f"GET {path} answered {response.status_code}")
            continue
        try:
            text = calls.access.redact(response.text)
            dialect.counters(text)
            dialect.state(text)
        except EngineProtocolError as error:
            tried.append(f"GET {path}: {error}")
            continue
        return path, text, f"GET {path}"
    return None, None, "; ".join(tried) or "there is no path to ask"


async def _cache_reset(calls: ControlCalls, dialect: Dialect) -> Fact[bool]:
    path = dialect.paths.reset_cache
    if path is None:
        return Fact(None, "there is no path to ask", dialect.remedies.get("cache_reset"))
    # asked whether it is there, not called: others may be using the server
    status = (await calls.send("OPTIONS", path)).status_code
    if status in (httpx.codes.OK, httpx.codes.NO_CONTENT, httpx.codes.METHOD_NOT_ALLOWED):
        return Fact(True, f"{path} is there (OPTIONS answered {status})")
    return Fact(False, f"{path} is not there (OPTIONS answered {status})", dialect.remedies.get("cache_reset"))


async def _tokenize(calls: ControlCalls, dialect: Dialect, model: str) -> Fact[bool]:
    path = dialect.paths.tokenize
    if path is None:
        return Fact(None, "there is no path to ask")
    response = await calls.send("POST", path, dialect.tokenize_body(model, "one two"))
    if response.status_code == httpx.codes.OK and token_ids(_json(response)) is not None:
        return Fact(True, f"POST {path}")
    return Fact(False, f"POST {path} answered {response.status_code} and no tokens")


def _fact(value: Any, found: str, missing: str, remedy: str | None = None) -> Fact[Any]:
    return Fact(None, missing, remedy) if value is None else Fact(value, found)


def _counters(dialect: Dialect, text: str | None) -> SpecCounters | None:
    return None if text is None else dialect.counters(text)


def _state(dialect: Dialect, text: str | None) -> ServerState:
    return ServerState() if text is None else dialect.state(text)


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None
