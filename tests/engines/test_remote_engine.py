"""Servers by address: reached, asked, checked against their arms, and read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.engines.remote import RemoteEngine
from harness.errors import EngineRefused, EngineUnreachable
from harness.records import SpecCounters
from harness.workload import Arm, EngineSpec
from tests.fake_server import FakeServer, json_reply
from tests.fake_vllm import FakeVllm

Made = tuple[str, str, Callable[..., Any]]
"""Name, method and server of an arm."""


@asynccontextmanager
async def engine(*arms: Made, kind: str = "vllm", start: bool = True, **spec: Any) -> AsyncIterator[RemoteEngine]:
    """Yield the engine of these arms, each with a server of its own."""
    async with AsyncExitStack() as stack:
        made = []
        for name, method, script in arms:
            server = await stack.enter_async_context(FakeServer(script))
            made.append(Arm(name=name, method=method, base_url=server.base_url))
        found = RemoteEngine(EngineSpec(kind=kind, **spec), made, concurrency=4, folder=Path("unused"))  # type: ignore[arg-type]
        if start:
            await found.start()
        yield found


async def refusal(*arms: Made, **spec: Any) -> str:
    """Return why these servers are refused."""
    with pytest.raises(EngineRefused) as caught:
        async with engine(*arms, **spec):
            pass
    return str(caught.value)


DETAILED: dict[str, Any] = {"draft": (3, 2), "per_request": "detailed"}


async def test_two_servers_are_described_as_they_are() -> None:
    """Version, model and drafting come from the servers; what each told stands under its arm, with how it was found."""
    async with engine(("baseline", "none", FakeVllm()), ("eagle3", "eagle3", FakeVllm(**DETAILED))) as made:
        told = await made.describe()
        assert (told["engine"], told["attached"], told["version"]) == ("vllm", True, "0.32.0")
        assert told["model"] == {"name": "smol", "max_model_len": 4096}
        assert [told["probed"][name]["drafts"]["value"] for name in ("baseline", "eagle3")] == [False, True]
        assert told["probed"]["eagle3"]["per_request_acceptance"]["value"] == "round"
        sources = [told["probed"][name]["acceptance_source"] for name in ("baseline", "eagle3")]
        assert sources == [None, "told with each answer, round by round"]
        assert made.endpoint("eagle3").model == "smol"
        assert made.window("baseline") is None
        assert not made.carries_state("eagle3")
        assert not made.shares_cache()


async def test_all_arms_are_asked_alike() -> None:
    """Baseline and drafter send the same extra fields, those of the workload among them."""
    options = {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
    arms = (("baseline", "none", FakeVllm()), ("eagle3", "eagle3", FakeVllm(**DETAILED)))
    async with engine(*arms, options=options) as made:
        bodies = [made.endpoint(name).extra_body for name in ("baseline", "eagle3")]
    assert bodies[0] == bodies[1]
    assert bodies[0]["chat_template_kwargs"] == {"enable_thinking": False}


async def test_control_calls_reach_the_arms_own_server() -> None:
    """Counters, state, tokens and cache are those of the arm."""
    script = FakeVllm(draft=(3, 2), config={})
    async with engine(("baseline", "none", FakeVllm()), ("ngram", "ngram", script)) as made:
        assert await made.counters("baseline") is None
        assert await made.counters("ngram") == SpecCounters(8, 24, 16, None)  # two questions of four rounds
        assert (await made.state("ngram")).finished == 2
        assert await made.drain("ngram")
        assert await made.reset_prompt_cache("ngram")
        assert not await made.reset_prompt_cache("baseline")
        assert script.resets == 1
        assert len(await made.tokenize("baseline", "a b c") or ()) == 3


async def test_one_arm_whose_answers_do_not_tell_gives_all_a_window() -> None:
    """Reading counters takes time between requests, so the baseline reads them too."""
    async with engine(("baseline", "none", FakeVllm()), ("ngram", "ngram", FakeVllm(draft=(3, 2)))) as made:
        assert made.window("baseline") is not None
        assert made.window("ngram") is not None
        source = (await made.describe())["probed"]["ngram"]["acceptance_source"]
    assert source.startswith(
        "by the server's counters, of single requests at concurrency 1 alone; to have it told with each answer"
    )


@pytest.mark.parametrize(
    ("arm", "spec", "wanted"),
    [
        (("baseline", "none", FakeVllm(**DETAILED)), {}, "is the baseline (method none), but the server of arm 'baseline' at"),
        (("eagle3", "eagle3", FakeVllm()), {}, "drafts nothing: the metrics page has no counters of speculative decoding"),
        (
            ("eagle", "eagle", FakeVllm(**DETAILED, config={"speculative_config": {"method": "eagle3"}})),
            {},
            "is method 'eagle', but the server of arm 'eagle' at",
        ),
        (("a", "none", FakeVllm()), {"model": "smoll"}, "does not know the model 'smoll'; it serves smol"),
        (("a", "none", FakeVllm(models=("x", "y"))), {}, "serves x, y; say which with engine.model or --model"),
        (("a", "none", FakeVllm(key="right")), {}, "answered 401: '{\"error\": \"Unauthorized\"}'; no key was sent; put it into"),
        (("a", "none", FakeVllm(max_model_len=512)), {}, "has 512 tokens of context for a request, but engine.context_tokens is 4096"),
        (
            ("a", "none", FakeVllm(config={"scheduler_config": {"max_num_seqs": 2}})),
            {},
            "works on 2 requests at once (max-num-seqs), but the highest concurrency is 4",
        ),
        (
            ("a", "none", lambda _: json_reply({"data": [{"id": "m"}], "choices": [{"message": {"content": "x"}}]})),
            {},
            "does not stream its answers",
        ),
    ],
    ids=[
        "baseline drafts", "drafter does not", "other drafter", "unknown model", "several models", "no key", "too small",
        "too few places", "no stream",
    ],
)  # fmt: skip
async def test_a_server_that_is_not_what_its_arm_says_is_refused(arm: Made, spec: dict[str, Any], wanted: str) -> None:
    """The message says what the server showed and what to do; nothing is measured."""
    assert wanted in await refusal(arm, **spec)


async def test_a_server_as_it_is_may_do_what_it_likes() -> None:
    """Method served checks no drafter; what was seen decides how its answers are read."""
    async with engine(("server", "served", FakeVllm(metrics=False)), start_timeout_s=1) as made:
        assert (await made.describe())["probed"]["server"]["acceptance_source"].startswith("unknown: no answer told")
    async with engine(("server", "served", FakeVllm(**DETAILED))) as made:
        assert (await made.describe())["probed"]["server"]["drafts"]["value"] is True


async def test_options_are_claims_that_the_server_can_refute() -> None:
    """The server drafts three tokens, the arm says five."""
    config = {"speculative_config": {"method": "eagle3", "num_speculative_tokens": 3}}
    async with FakeServer(FakeVllm(**DETAILED, config=config)) as server:
        arm = Arm(name="e", method="eagle3", base_url=server.base_url, options={"num_speculative_tokens": 5})
        made = RemoteEngine(EngineSpec(kind="vllm"), [arm], concurrency=1, folder=Path("unused"))
        with pytest.raises(
            EngineRefused, match=r"says num_speculative_tokens is 5, but the server of arm 'e' at \S+ has 3"
        ):
            await made.start()


async def test_arms_must_serve_one_model() -> None:
    """Two names that nobody asked for may be two models."""
    arms = (("baseline", "none", FakeVllm()), ("eagle3", "eagle3", FakeVllm(**DETAILED, models=("other",))))
    assert "arms 'baseline' and 'eagle3' serve different models (smol; other)" in await refusal(*arms)


async def test_a_server_that_still_loads_is_waited_for() -> None:
    """It says 503 once, then it is ready; one that goes on saying so is given up after start_timeout_s."""
    async with engine(("a", "none", FakeVllm(loading=1))) as made:
        assert (await made.state("a")).busy == 0
    with pytest.raises(EngineUnreachable, match="still says 503"):
        async with engine(("a", "none", FakeVllm(loading=99)), start_timeout_s=0.01):
            pass


async def test_a_server_that_is_not_there() -> None:
    """The address is named, and what to do."""
    arm = Arm(name="a", method="none", base_url="http://127.0.0.1:9")
    made = RemoteEngine(EngineSpec(kind="openai"), [arm], concurrency=1, folder=Path("unused"))
    with pytest.raises(
        EngineUnreachable, match=r"127\.0\.0\.1:9 does not answer .*start the server, or correct base_url"
    ):
        await made.start()
    with pytest.raises(EngineUnreachable, match="was not started here"):
        await made.restart("a")
    assert made.alive("a")
    await made.stop()


async def test_a_gateway_tells_servers_apart_by_the_name_of_the_model() -> None:
    """Two arms of kind openai at one address: each sends its own name, and they share a cache."""
    script = FakeVllm(models=("plain", "fast"))
    async with FakeServer(script) as server:
        arms: Sequence[Arm] = [
            Arm(name=name, method=method, base_url=server.base_url, options={"model": model})
            for name, method, model in (("baseline", "none", "plain"), ("drafted", "served", "fast"))
        ]
        made = RemoteEngine(EngineSpec(kind="openai"), arms, concurrency=1, folder=Path("unused"))
        await made.start()
        assert [made.endpoint(arm.name).model for arm in arms] == ["plain", "fast"]
        assert made.shares_cache()
        assert await made.counters("drafted") is None
