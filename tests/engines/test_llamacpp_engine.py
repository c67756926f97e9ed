"""The real llama.cpp server: three arms up at once, short answers, and the engine's own counters as the judge."""

import asyncio
import contextlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.engines.base import StreamFacts
from harness.engines.counters import parse_samples
from harness.engines.llamacpp import LlamaCppEngine
from harness.errors import EngineStartError, EngineUnreachable
from harness.records import SpecCounters
from harness.workload import Arm, EngineSpec

pytestmark = pytest.mark.engine

SPEC = EngineSpec(model="smollm2-135m", context_tokens=512)
ARMS = [
    Arm(name="baseline", method="none"),
    Arm(name="lookup", method="ngram-simple"),
    Arm(name="known", method="synthetic", options={"synth_len": 3.0}),
]
ENGLISH = (
    "The quarterly meeting of the Busan branch was moved from Monday to Thursday afternoon. Please bring the quarterly figures "
    "of the Busan branch. Repeat this text exactly, twice."
)
KOREAN = "하나 이상의 셀을 표시합니다. 하나 이상의 셀을 숨깁니다.\nCopy the text above exactly."


@dataclass(frozen=True)
class Answer:
    """One finished answer with what the reader and the server's counters said of it."""

    text: str
    finish: str
    facts: StreamFacts
    server: SpecCounters
    server_passes: int


async def ask(engine: LlamaCppEngine, arm: str, prompt: str, **body: Any) -> Answer:
    """Send one chat completion to an arm that works on nothing else."""
    before, passes_before = await engine.counters(arm), await decode_calls(engine, arm)
    endpoint, reader = engine.endpoint(arm), engine.reader(arm)
    request = {
        "messages": [{"role": "user", "content": prompt}], "stream": True, "stream_options": {"include_usage": True},
        "temperature": 0, "top_p": 1, "max_tokens": 48, **body, **endpoint.extra_body,
    }  # fmt: skip
    parts, finish = [], ""
    async with httpx.AsyncClient(trust_env=False, timeout=120) as client:
        response = await client.post(f"{endpoint.base_url}/v1/chat/completions", json=request)
    for number, line in enumerate(response.text.splitlines()):
        if line.startswith("data: {"):
            chunk = json.loads(line.removeprefix("data: "))
            reader.chunk(number, chunk)
            for choice in chunk["choices"]:
                parts.append(choice["delta"].get("content") or "")
                finish = choice.get("finish_reason") or finish
    assert await engine.drain(arm)
    after = await engine.counters(arm)
    assert before is not None
    assert after is not None
    # one decode call for the prompt, which fits one batch; the others are passes over generated tokens
    passes = await decode_calls(engine, arm) - passes_before - 1
    return Answer("".join(parts), finish, reader.facts(), after - before, passes)


async def decode_calls(engine: LlamaCppEngine, arm: str) -> int:
    """Return the server's own count of decode calls."""
    async with httpx.AsyncClient(trust_env=False) as client:
        page = await client.get(f"{engine.endpoint(arm).base_url}/metrics")
    return next(int(item.value) for item in parse_samples(page.text) if item.name == "llamacpp:n_decode_total")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppEngine]:
    """The three arms, up for all tests of this file."""
    pytest.importorskip("xllamacpp")
    folder = tmp_path_factory.mktemp("engine")
    made = LlamaCppEngine(SPEC, ARMS, concurrency=2, folder=folder, prompt_cache="reset")
    asyncio.run(made.start())
    yield made
    asyncio.run(made.stop())
    assert not any(made.alive(arm.name) for arm in ARMS)


def counts(spec: SpecCounters) -> tuple[int | None, int, int, list[int]]:
    """Return the counters without the zeros of positions that no draft reached."""
    positions = spec.num_accepted_tokens_per_pos or ()
    return spec.num_drafts, spec.num_draft_tokens, spec.num_accepted_tokens, [count for count in positions if count]


async def test_drafting_changes_no_output_and_is_counted_to_the_token(engine: LlamaCppEngine) -> None:
    """Greedy answers are equal with and without drafting, and each request's counts are those of the server's counters."""
    plain, drafted = await ask(engine, "baseline", ENGLISH), await ask(engine, "lookup", ENGLISH)
    assert drafted.text == plain.text
    assert drafted.facts.spec is not None
    assert counts(drafted.facts.spec) == counts(drafted.server)
    assert drafted.facts.spec.num_accepted_tokens > 10
    assert drafted.facts.spec_source == "round"
    assert drafted.facts.decode_passes == drafted.server_passes
    assert (plain.facts.spec, plain.facts.decode_passes) == (None, plain.server_passes)
    assert plain.server.num_draft_tokens == 0


async def test_the_same_prompt_drafts_the_same_again(engine: LlamaCppEngine) -> None:
    """ngram-simple keeps nothing between requests: after another prompt the first gives the same counts."""
    first = await ask(engine, "lookup", ENGLISH)
    await ask(engine, "lookup", KOREAN)
    again = await ask(engine, "lookup", ENGLISH)
    assert again.facts.spec == first.facts.spec


async def test_hangul_of_three_tokens_a_chunk_keeps_exact_totals(engine: LlamaCppEngine) -> None:
    """Where a chunk holds several tokens, totals and passes still are those of the server."""
    answer = await ask(engine, "lookup", KOREAN)
    assert answer.facts.spec is not None
    assert answer.facts.spec.num_draft_tokens == answer.server.num_draft_tokens
    assert answer.facts.spec.num_accepted_tokens == answer.server.num_accepted_tokens
    assert answer.facts.decode_passes == answer.server_passes


async def test_a_stop_text_inside_an_accepted_run(engine: LlamaCppEngine) -> None:
    """A run cut by a stop text keeps its accepted tokens in the counts, and the passes are right all the same."""
    answer = await ask(engine, "lookup", ENGLISH, stop=["Thursday"])
    assert answer.finish == "stop"
    assert answer.facts.spec is not None
    assert answer.facts.output_tokens is not None
    assert answer.facts.spec.num_accepted_tokens == answer.server.num_accepted_tokens > answer.facts.output_tokens
    assert answer.facts.decode_passes == answer.server_passes


async def test_a_known_acceptance_length_is_recovered(engine: LlamaCppEngine) -> None:
    """A synthetic length of 3 is found again within four standard errors over the rounds that could draft in full."""
    full: list[int] = []
    for number in range(
        10
    ):  # text that turns in a short circle drafts less than 4 tokens, so the number of requests varies
        answer = await ask(engine, "known", f"{ENGLISH} {number}", ignore_eos=True, max_tokens=96)
        full += [item.num_accepted_tokens for item in answer.facts.rounds or () if item.num_draft_tokens == 4]
        if len(full) >= 60:
            break
    assert len(full) >= 60
    mean = sum(full) / len(full)
    deviation = math.sqrt(sum((count - mean) ** 2 for count in full) / (len(full) - 1))
    assert abs(1 + mean - 3) < 4 * deviation / math.sqrt(len(full))


async def test_a_reset_empties_the_prompt_cache(engine: LlamaCppEngine) -> None:
    """A prompt asked again comes from the cache, and after a reset it does not."""
    await ask(engine, "baseline", ENGLISH, max_tokens=1)
    cached = await ask(engine, "baseline", ENGLISH, max_tokens=1)
    assert cached.facts.prompt_tokens is not None
    assert cached.facts.cached_tokens == cached.facts.prompt_tokens - 1
    assert await engine.reset_prompt_cache("baseline")
    fresh = await ask(engine, "baseline", ENGLISH, max_tokens=1)
    assert fresh.facts.cached_tokens == 0


async def test_sampling_is_the_plain_distribution(engine: LlamaCppEngine) -> None:
    """The server reports the short sampler chain that was sent, without top_k or min_p."""
    endpoint = engine.endpoint("baseline")
    async with httpx.AsyncClient(trust_env=False) as client:
        body = {"prompt": "1", "n_predict": 1, "temperature": 1.0, **endpoint.extra_body}
        answer = (await client.post(f"{endpoint.base_url}/completion", json=body)).json()
    assert answer["generation_settings"]["samplers"] == ["temperature", "top_p"]


async def test_tokens_and_description(engine: LlamaCppEngine) -> None:
    """Tokens carry no begin mark, and the description names package, model hash and what each arm really drafts with."""
    assert await engine.tokenize("baseline", "Hello") == (19556,)
    described = await engine.describe()
    assert described["model"]["sha256"] == "f0089e79d6755eb5fbbf61cf4a16ba6bd79641f199875d1dc38cef994afdd0fd"
    assert {name: arm["drafter"] for name, arm in described["arms"].items()} == {
        "baseline": "none", "lookup": "ngram-simple", "known": "ngram-simple",
    }  # fmt: skip
    assert described["arms"]["lookup"]["options"] == {"size_n": 3, "size_m": 8, "min_hits": 1}
    assert (described["arms"]["baseline"]["n_slots"], described["arms"]["baseline"]["context_tokens"]) == (2, 512)
    json.dumps(described)


async def test_attaching_by_address(engine: LlamaCppEngine, tmp_path: Path) -> None:
    """Running servers are reached by address, read like started ones, left alone by stop, and cannot be restarted."""
    spec = SPEC.model_copy(update={"model": "whatever"})
    arms = [arm.model_copy(update={"base_url": engine.endpoint(arm.name).base_url + "/"}) for arm in ARMS[:2]]
    attached = LlamaCppEngine(spec, arms, concurrency=1, folder=tmp_path)
    await attached.start()
    assert (await ask(attached, "lookup", ENGLISH)).text == (await ask(attached, "baseline", ENGLISH)).text
    assert not await attached.reset_prompt_cache("lookup")
    with pytest.raises(EngineUnreachable, match="was not started here"):
        await attached.restart("lookup")
    assert (await attached.describe())["attached"]
    await attached.stop()
    assert engine.alive("lookup")


@pytest.mark.parametrize(
    ("method", "server", "said"),
    [
        (
            "none",
            "lookup",
            "is method 'none', but the server at .* drafts with 'ngram-simple'; start it with --spec-type none",
        ),
        ("ngram-mod", "baseline", "is method 'ngram-mod', but the server at .* drafts with 'none'"),
    ],
)
async def test_an_attached_server_that_drafts_otherwise_is_refused(
    engine: LlamaCppEngine, tmp_path: Path, method: str, server: str, said: str
) -> None:
    """A baseline that drafts, or a drafter that does not, is found before anything is measured."""
    arm = Arm(name="a", method=method, base_url=engine.endpoint(server).base_url)
    with pytest.raises(EngineStartError, match=said):
        await LlamaCppEngine(SPEC, [arm], concurrency=1, folder=tmp_path).start()


async def test_no_server_at_the_address(tmp_path: Path) -> None:
    """An address where nothing answers is named."""
    arm = Arm(name="a", method="none", base_url="http://127.0.0.1:9")
    with pytest.raises(EngineUnreachable, match=r"no healthy llama-server at http://127.0.0.1:9 for arm 'a'"):
        await LlamaCppEngine(SPEC, [arm], concurrency=1, folder=tmp_path).start()


async def test_a_server_that_died_is_noticed_and_restarted(engine: LlamaCppEngine) -> None:
    """After a kill the arm is not alive and control calls say so; a restart brings it back."""
    process = engine._servers["lookup"].process
    assert process is not None
    process.kill()
    assert not engine.alive("lookup")
    with pytest.raises(EngineUnreachable, match="arm 'lookup'"):
        await engine.counters("lookup")
    await engine.restart("lookup")
    assert (await ask(engine, "lookup", ENGLISH)).facts.spec_source == "round"


async def test_a_context_beyond_the_model_is_refused(tmp_path: Path) -> None:
    """More context than the model was trained for is an error that says how much there is, and no server stays behind."""
    spec = SPEC.model_copy(update={"context_tokens": 16384})
    engine = LlamaCppEngine(spec, ARMS[:1], concurrency=1, folder=tmp_path)
    with pytest.raises(
        EngineStartError, match=r"has 8192 tokens of context for a request, but engine.context_tokens is 16384"
    ):
        await engine.start()
    assert not engine.alive("baseline")


async def test_a_refused_configuration_quotes_the_server(tmp_path: Path) -> None:
    """What the engine itself refuses is in the error, in its own words."""
    arm = Arm(name="a", method="synthetic", options={"synth_len": 9.0})
    engine = LlamaCppEngine(SPEC, [arm], concurrency=1, folder=tmp_path)
    with pytest.raises(
        EngineStartError, match=r"(?s)arm 'a' ended with exit code 1.*acceptance length must be finite and within"
    ):
        await engine.start()
    with contextlib.suppress(EngineUnreachable):
        await engine.stop()
