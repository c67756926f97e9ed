"""The examination: one question after the other, from the connection to the acceptance of single rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from harness.access import OPEN, Access
from harness.doctor import answers
from harness.doctor.diagnosis import Diagnosis, Observation, Unknown
from harness.doctor.reach import Way, explore
from harness.engines.base import Endpoint, ServerState
from harness.engines.control import ControlCalls
from harness.engines.dialect import Dialect
from harness.engines.families import family, recognise
from harness.engines.probe import ANSWER_TOLD, Probed, probe
from harness.engines.window import foreign_requests
from harness.errors import EngineError, EngineProtocolError
from harness.records import SpecCounters

TIMEOUT_S = 120.0
WATCH_S = 1.0
# facts that are lines of their own, or matter to no figure
_SAID_ELSEWHERE = frozenset(
    {"models", "model", "chat", "streaming", "usage_in_stream", "drafts", "tokenize", "tokens_per_chunk"}
)
_OF_DRAFTING = frozenset({"per_request_acceptance", "counters", "per_position", "speculative_config"})
_SHOWN = frozenset({"told", "told_sums", "counted"})  # how speculation is called that was seen; any other is only said
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Patient:
    """The server to be examined. ``model`` and ``kind`` are asked of it where they are ``None``; ``extra_body`` goes with every
    request; ``timeout_s`` is the longest silence allowed, ``watch_s`` how long requests of others are watched for."""

    base_url: str
    access: Access = OPEN
    model: str | None = None
    kind: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = TIMEOUT_S
    watch_s: float = WATCH_S


async def examine(patient: Patient, progress: Progress = lambda stage, fraction: None) -> Diagnosis:
    """Ask a server everything; some ten calls and six short answers of the model. What cannot be asked is an observation, too.

    No observation holds a secret of the access, whatever the server says.

    Raises:
        UsageError: if the address is none.
    """
    found = await _examine(patient, progress)
    shown = [replace(item, values=patient.access.redacted(item.values)) for item in found.observations]
    return replace(found, observations=tuple(shown))


async def _examine(patient: Patient, progress: Progress) -> Diagnosis:
    progress("looking for the server", 0.0)
    way = await explore(patient.base_url, patient.access)
    model = _model(patient.model, way)
    found = [*way.observations, *([] if way.blocked else [model])]
    if way.blocked or model.level == "bad":
        return Diagnosis(patient.base_url, tuple(found), kind=patient.kind, model=patient.model)
    name = str(model.values["name"])
    calls = ControlCalls("the server", patient.base_url, patient.access)
    try:
        dialect = await recognise(calls, way.owners) if patient.kind is None else family(patient.kind)
        progress("watching for other requests", 0.1)
        found.append(await _traffic(calls, dialect, patient.watch_s))
        own, unknown = await _questions(patient, name, calls, dialect, progress)
    except EngineError as error:  # it answered before
        found.append(Observation("streaming", "failed", "bad", {"why": str(error)}))
        return Diagnosis(patient.base_url, tuple(found), kind=patient.kind, model=name)
    return Diagnosis(patient.base_url, (*found, *own), unknown, dialect.name, name)


async def _questions(
    patient: Patient, name: str, calls: ControlCalls, dialect: Dialect, progress: Progress
) -> tuple[list[Observation], tuple[Unknown, ...]]:
    prompt = answers.fresh_prompt()
    extra = dict(patient.extra_body)
    path, before = await _metrics(calls, dialect)
    progress("asking for a streamed answer", 0.2)
    endpoint = Endpoint(patient.base_url, name, extra_body=extra, access=patient.access)
    first = await answers.stream(endpoint, family("openai").reader(drafts=True), prompt, patient.timeout_s)
    streamed = answers.streaming(first)
    if streamed.level == "bad":
        return [streamed], ()
    progress("asking what it can tell", 0.4)
    probed = await probe(calls, dialect, name, extra)
    progress("asking for the same answer again", 0.6)
    endpoint = Endpoint(patient.base_url, name, extra_body=probed.extra_body, access=patient.access)
    again = await answers.stream(endpoint, dialect.reader(drafts=True), prompt, patient.timeout_s)
    grown = _grown(dialect, before, await _settled(calls, dialect, path))
    progress("asking for a tool call", 0.8)
    tools = await answers.tools(endpoint, dialect.reader(drafts=True), patient.timeout_s)
    progress("asking for log-probabilities", 0.9)
    logprobs = await answers.logprobs(endpoint, patient.timeout_s)
    drafting = _speculation(probed, again, grown)
    observations = [
        _engine(dialect, probed),
        streamed,
        answers.usage(first),
        tools,
        logprobs,
        drafting,
        _acceptance(probed, drafting),
        _cache(first, again),
        _emptying(probed),
    ]
    return observations, _unknown(probed, drafts=drafting.code not in ("off", "by_request"))


def _model(wanted: str | None, way: Way) -> Observation:
    """Tell which model is asked."""
    names = way.names
    if wanted is not None and names and wanted not in names:
        return Observation("models", "unlisted", "bad", {"name": wanted, "names": names})
    name = wanted or next(iter(names), None)
    if name is None:
        return Observation("models", "no_interface", "bad", {"why": way.listed})
    if not names:
        return Observation("models", "untold", "note", {"name": name, "why": way.listed})
    others = tuple(item for item in names if item != name)
    if not others:
        return Observation("models", "only", "good", {"name": name})
    values = {"name": name, "others": others}
    return (
        Observation("models", "first", "note", values)
        if wanted is None
        else Observation("models", "chosen", "good", values)
    )


def _engine(dialect: Dialect, probed: Probed) -> Observation:
    if dialect.name == "openai":
        return Observation("engine", "unknown", "note")
    if probed.version.value is None:
        return Observation("engine", "unversioned", "good", {"kind": dialect.name})
    return Observation("engine", "told", "good", {"kind": dialect.name, "version": probed.version.value})


def _speculation(probed: Probed, asked: answers.Asked, grown: SpecCounters | None) -> Observation:
    """Tell whether the server drafts: by an answer's own counts, by its counters, or by what it says."""
    told = asked.facts.spec
    if told is not None and told.num_draft_tokens:
        values = {"accepted": told.num_accepted_tokens, "drafted": told.num_draft_tokens}
        if told.num_drafts is None:
            return Observation("speculation", "told_sums", "good", values)
        return Observation("speculation", "told", "good", {**values, "rounds": told.num_drafts})
    if grown is not None and grown.num_draft_tokens > 0:
        values = {"accepted": grown.num_accepted_tokens, "drafted": grown.num_draft_tokens}
        return Observation("speculation", "counted", "good", values)
    named = probed.settings.get("drafters")
    if not probed.speculative_config.value and named:
        return Observation("speculation", "by_request", "note", {"names": named})
    if probed.drafts.value is None:
        return Observation("speculation", "unknown", "note")
    how = {"how": probed.drafts.how}
    return (
        Observation("speculation", "said", "good", how)
        if probed.drafts.value
        else Observation("speculation", "off", "note", how)
    )


def _acceptance(probed: Probed, drafting: Observation) -> Observation:
    if drafting.code == "off":
        return Observation("acceptance", "no_draft", "note")
    source = probed.per_request_acceptance.value
    shown = drafting.code in _SHOWN or (probed.drafts.value and probed.drafts.how.startswith(ANSWER_TOLD))
    if source in ("round", "request") and shown:
        return Observation("acceptance", source, "good")
    if source is not None:  # an answer had the fields, with nothing in them
        return Observation("acceptance", "unseen", "note")
    if probed.counters.value:
        return Observation("acceptance", "window", "warning")
    return Observation("acceptance", "nowhere", "warning")


def _cache(first: answers.Asked, again: answers.Asked) -> Observation:
    """Tell what became of the same prompt the second time."""
    cached, prompt = again.facts.cached_tokens, again.facts.prompt_tokens
    if cached is None or prompt is None:
        times = {"first_ms": first.first_token_ms, "again_ms": again.first_token_ms}
        return Observation("cache", "untold", "note", times)
    if cached == 0:
        return Observation("cache", "miss", "good", {"prompt_tokens": prompt})
    return Observation("cache", "hit", "good", {"cached_tokens": cached, "prompt_tokens": prompt})


def _emptying(probed: Probed) -> Observation:
    return Observation("emptying", "possible" if probed.cache_reset.value else "impossible", "note")


async def _traffic(calls: ControlCalls, dialect: Dialect, watch_s: float) -> Observation:
    """Watch the server for a while with nothing of ours on it."""
    path, page = await _metrics(calls, dialect)
    before = _state(dialect, page)
    if before.busy is None:
        return Observation("traffic", "unknown", "note")
    await asyncio.sleep(watch_s)
    after = _state(dialect, await _page(calls, path))
    requests = max(foreign_requests(before, after, 0) or 0, after.busy or 0)
    if requests:
        return Observation("traffic", "some", "bad", {"requests": requests})
    return Observation("traffic", "none", "good", {"seconds": watch_s})


async def _metrics(calls: ControlCalls, dialect: Dialect) -> tuple[str | None, str | None]:
    """Return path and text of the server's metrics page, ``None`` twice if it has none that can be read."""
    for path in dialect.paths.metrics:
        page = await _page(calls, path)
        try:
            if page is not None:
                dialect.counters(page)
                dialect.state(page)
                return path, page
        except EngineProtocolError:
            continue  # some page, but not one of metrics
    return None, None


def _state(dialect: Dialect, page: str | None) -> ServerState:
    return ServerState() if page is None else dialect.state(page)


async def _page(calls: ControlCalls, path: str | None) -> str | None:
    if path is None:
        return None
    response = await calls.send("GET", path)
    return response.text if response.status_code == httpx.codes.OK else None


async def _settled(calls: ControlCalls, dialect: Dialect, path: str | None) -> str | None:
    """Return the metrics page once the server has written down the last request, which takes it a moment."""
    page = await _page(calls, path)
    for _ in range(10):
        if page is None or not dialect.state(page).busy:
            break
        await asyncio.sleep(0.1)
        page = await _page(calls, path)
    return page


def _grown(dialect: Dialect, before: str | None, after: str | None) -> SpecCounters | None:
    if before is None or after is None:
        return None
    then, now = dialect.counters(before), dialect.counters(after)
    return None if then is None or now is None else now - then


def _unknown(probed: Probed, *, drafts: bool) -> tuple[Unknown, ...]:
    """Return what the server would tell, or tell more finely, with another setting."""
    return tuple(
        Unknown(name, fact.remedy)
        for name, fact in probed.facts().items()
        if fact.remedy is not None and name not in _SAID_ELSEWHERE and (drafts or name not in _OF_DRAFTING)
    )
