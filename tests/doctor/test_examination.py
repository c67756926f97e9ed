"""The doctor over real sockets: what it says of servers that tell everything, something, nothing, or are none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from harness.access import AccessSpec, open_access
from harness.doctor.diagnosis import CODES, FACTS, Diagnosis, Observation
from harness.doctor.examination import Patient, examine
from harness.errors import UsageError
from tests.authority import Authority
from tests.doctor.plain_server import PlainServer
from tests.engines.wire_server import WireServer
from tests.fake_builtin import FakeBuiltin
from tests.fake_proxy import FakeProxy
from tests.fake_server import FakeLlama, FakeServer, Reply, Request, Script, json_reply
from tests.fake_vllm import TEXT, FakeVllm

KEY = "sk-0123456789"


async def examined(script: Script, **patient: Any) -> Diagnosis:
    """Return the diagnosis of a server that runs a script."""
    async with FakeServer(script) as server:
        return await examine(Patient(server.base_url, watch_s=0.02, timeout_s=5, **patient))


def codes(diagnosis: Diagnosis) -> dict[str, str]:
    """Return the code of every topic, after checking that each observation has the values that its text may ask for."""
    for item in diagnosis.observations:
        assert set(item.values) == set(CODES[f"{item.topic}.{item.code}"])
    assert {unknown.fact for unknown in diagnosis.unknown} <= set(FACTS)
    found = {item.topic: item.code for item in diagnosis.observations}
    assert len(found) == len(diagnosis.observations)
    return found


def seen(diagnosis: Diagnosis, topic: str) -> Observation:
    """Return the observation of a topic."""
    return next(item for item in diagnosis.observations if item.topic == topic)


def keyed(value: str = KEY) -> Any:
    """Return access with a key from the environment."""
    return open_access(AccessSpec(api_key_env="ENGINE_KEY"), environ={"ENGINE_KEY": value})


# What can be measured


async def test_server_that_tells_everything() -> None:
    """vLLM with per-request metrics: of 12 tokens one comes from the prompt and eleven from four rounds of 4 drafted, 2 accepted."""
    config = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}}
    diagnosis = await examined(FakeVllm(draft=(4, 2), per_request="detailed", config=config), kind="vllm")
    assert codes(diagnosis) == {
        "reach": "direct",
        "tls": "none",
        "key": "none",
        "clock": "untold",
        "models": "only",
        "engine": "told",
        "streaming": "good",
        "usage": "good",
        "tools": "unused",
        "logprobs": "missing",
        "speculation": "told",
        "acceptance": "round",
        "cache": "untold",
        "emptying": "possible",
        "traffic": "none",
    }
    assert seen(diagnosis, "engine").values == {"kind": "vllm", "version": "0.32.0"}
    assert seen(diagnosis, "speculation").values == {"accepted": 8, "drafted": 16, "rounds": 4}
    assert (diagnosis.fit, diagnosis.grade, diagnosis.kind, diagnosis.model) == (True, "acceptance", "vllm", "smol")
    assert [item.fact for item in diagnosis.unknown] == ["cached_tokens"]


async def test_server_that_counts_only() -> None:
    """vLLM without per-request metrics: speculation shows in the counters' growth over four answers (8 of 16 tokens each)."""
    diagnosis = await examined(FakeVllm(draft=(4, 2)), kind="vllm")
    found = codes(diagnosis)
    assert (found["speculation"], found["acceptance"]) == ("counted", "window")
    assert seen(diagnosis, "speculation").values == {"accepted": 32, "drafted": 64}
    assert (diagnosis.fit, diagnosis.grade) == (True, "totals")
    remedies = {item.fact: item.remedy for item in diagnosis.unknown}
    assert "--per-request-spec-decode-metrics" in remedies["per_request_acceptance"]


async def test_family_is_told_by_the_metrics_page() -> None:
    """A server that does not say who made it is asked as what its metrics page is named after."""
    diagnosis = await examined(FakeVllm())
    assert diagnosis.kind == "vllm"
    assert codes(diagnosis)["speculation"] == "off"
    assert (diagnosis.grade, [item.fact for item in diagnosis.unknown if item.fact == "counters"]) == ("undrafted", [])


async def test_llama_server() -> None:
    """llama-server is told by the owner of its models; its answers hold sums, no rounds without running sums."""
    diagnosis = await examined(FakeLlama(draft=(4, 2)))
    found = codes(diagnosis)
    assert diagnosis.kind == "llamacpp"
    assert (found["speculation"], found["acceptance"], found["cache"]) == ("told_sums", "request", "miss")
    assert {item.remedy for item in diagnosis.unknown} == {"--metrics", "--slots"}


async def test_builtin_server() -> None:
    """The builtin server drafts for a request that names a drafter; every round comes with the answer."""
    diagnosis = await examined(FakeBuiltin(drafts={"copy": (4, 2)}), extra_body={"drafter": "copy"})
    found = codes(diagnosis)
    assert diagnosis.kind == "builtin"
    assert (found["speculation"], found["acceptance"], found["traffic"]) == ("told", "round", "none")
    assert diagnosis.grade == "acceptance"


async def test_builtin_server_without_a_drafter_named() -> None:
    """Requests that name no drafter are not drafted for; the drafters that they could name are listed."""
    diagnosis = await examined(FakeBuiltin(specs={"copy": {}, "mtp": {}}), extra_body={"drafter": None})
    assert seen(diagnosis, "speculation").values == {"names": ["copy", "mtp"]}
    assert codes(diagnosis)["speculation"] == "by_request"
    assert codes(diagnosis)["acceptance"] not in ("round", "request")
    assert diagnosis.grade != "acceptance"


async def test_counts_that_are_all_zero_show_no_acceptance() -> None:
    """vLLM that says it drafts, and whose answers count nothing drafted, was not seen to tell acceptance."""
    config = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}}
    script = FakeVllm(draft=(0, 0), per_request="detailed", config=config)
    diagnosis = await examined(script, kind="vllm")
    found = codes(diagnosis)
    assert (found["speculation"], found["acceptance"], diagnosis.grade) == ("said", "unseen", "unseen")


async def test_plain_server() -> None:
    """A server of unknown make gives times and tokens; a prompt that came from its cache shows in the usage, a tool call as such."""
    diagnosis = await examined(PlainServer(cached=256))
    found = codes(diagnosis)
    assert (found["engine"], found["acceptance"], found["traffic"]) == ("unknown", "nowhere", "unknown")
    assert (found["tools"], found["logprobs"], found["cache"]) == ("structured", "good", "hit")
    assert seen(diagnosis, "cache").values == {"cached_tokens": 256, "prompt_tokens": 300}
    assert (diagnosis.fit, diagnosis.grade, diagnosis.kind) == (True, "tokens", "openai")


@pytest.mark.parametrize(("tools", "code"), [("text", "text"), ("refused", "refused"), ("ignored", "unused")])
async def test_tools(tools: str, code: str) -> None:
    """Tool calls as text, refused ones and ignored ones are told apart; none of them makes a server unfit."""
    diagnosis = await examined(PlainServer(tools=tools, logprobs=False))
    assert (codes(diagnosis)["tools"], codes(diagnosis)["logprobs"], diagnosis.fit) == (code, "missing", True)
    if code == "refused":
        assert "start me with a tool parser" in seen(diagnosis, "tools").values["why"]


async def test_no_usage() -> None:
    """Without counts in the stream only times can be measured, which is a warning."""
    diagnosis = await examined(PlainServer(tells_usage=False))
    assert (codes(diagnosis)["usage"], diagnosis.grade, diagnosis.fit) == ("missing", "times", True)


@pytest.mark.parametrize(("ahead_s", "level"), [(0, "good"), (600, "note")])
async def test_clock(ahead_s: int, level: str) -> None:
    """The server's date is compared with ours; being off is worth a note, since no figure uses it."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=ahead_s), usegmt=True)
    clock = seen(await examined(PlainServer(date=date)), "clock")
    assert (clock.code, clock.level) == ("told", level)
    assert abs(clock.values["offset_s"] - ahead_s) <= 3


@pytest.mark.parametrize(
    ("wires", "kind", "grade"),
    [
        (
            WireServer("sglang-0.5.23", pages={"/server_info": "server_info"}, asks="return_spec_tokens_details"),
            "sglang",
            "acceptance",
        ),
        (WireServer("sglang-0.5.9", metrics="/none", refuses="return_meta_info"), "openai", "tokens"),
        (WireServer("trtllm-1.3.0", metrics="/prometheus/metrics", pages={"/version": "version"}), "trtllm", "totals"),
        (WireServer("lmdeploy-0.18.0"), "lmdeploy", "totals"),
        (WireServer("vllm-0.32.0", pages={"/version": "version"}), "vllm", "acceptance"),
        (WireServer("openai-v1", metrics="/none"), "openai", "tokens"),
    ],
    ids=lambda value: value.release if isinstance(value, WireServer) else "",
)
async def test_releases(wires: WireServer, kind: str, grade: str) -> None:
    """Each family is recognised by its metrics page and asked in its own words; one that shows none is of no known make."""
    diagnosis = await examined(wires)
    codes(diagnosis)
    assert (diagnosis.kind, diagnosis.fit, diagnosis.grade) == (kind, True, grade)


# What makes a server unfit


async def test_no_streaming() -> None:
    """A server that sends answers whole is unfit: no token could be timed."""
    diagnosis = await examined(PlainServer(streams=False))
    assert (codes(diagnosis)["streaming"], diagnosis.obstacles, diagnosis.grade) == ("failed", ("streaming",), "unfit")
    assert "does not stream" in seen(diagnosis, "streaming").values["why"]


async def test_other_requests() -> None:
    """A server that works on two requests of others is unfit now."""

    def script(request: Request) -> Reply:
        if request.path == "/metrics":
            return Reply([(0, b"vllm:num_requests_running 2.0\n")], content_type=TEXT, framing="length")
        return FakeVllm()(request)

    diagnosis = await examined(script)
    assert diagnosis.obstacles == ("traffic",)
    assert seen(diagnosis, "traffic").values == {"requests": 2}


async def test_metrics_page_that_is_none() -> None:
    """A page that is no metrics page, where one should be, tells nothing and breaks nothing."""

    def script(request: Request) -> Reply:
        if request.path == "/metrics":
            return Reply([(0, b"<html>Sign in</html>")], content_type="text/html", framing="length")
        return PlainServer()(request)

    diagnosis = await examined(script, kind="vllm")
    assert (codes(diagnosis)["traffic"], diagnosis.fit) == ("unknown", True)


@pytest.mark.parametrize(
    "reply",
    [
        Reply([(0, b"<html>Intranet</html>")], 200, "text/html", "length"),
        Reply([(0, b"<html>Not Found</html>")], 404, "text/html", "length"),
        json_reply({"detail": "Not Found"}, 404),
        json_reply({"detail": "broken"}, 500),
        Reply([], 302, "text/plain", "length", headers={"location": "https://login.example/"}),
    ],
)
async def test_some_other_server(reply: Reply) -> None:
    """A web server without OpenAI's paths is named as that, with what it answered."""
    diagnosis = await examined(lambda _: reply)
    assert codes(diagnosis)["models"] == "no_interface"
    assert diagnosis.obstacles == ("models",)
    assert str(reply.status) in seen(diagnosis, "models").values["why"]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (json_reply({"models": ["m"]}), "JSON that has no list 'data'"),
        (json_reply({"data": []}), "an empty list of models"),
        (json_reply({"data": [{"name": "m"}]}), "models that have no text 'id'"),
        (Reply([(0, b"hello")], content_type="application/json", framing="length"), "no JSON: 'hello'"),
    ],
)
async def test_answers_that_are_no_list_of_models(reply: Reply, words: str) -> None:
    """What was wrong with the answer is said, not its status alone."""
    assert words in seen(await examined(lambda _: reply), "models").values["why"]


async def test_plain_http_to_a_port_of_tls(tmp_path: Path) -> None:
    """Where the port speaks TLS the address with http is asked about."""
    async with FakeServer(PlainServer(), tls=Authority.create(tmp_path).server()) as server:
        address = server.base_url.replace("https://", "http://")
        diagnosis = await examine(Patient(address, watch_s=0.02, timeout_s=5))
    assert "is it https?" in seen(diagnosis, "reach").values["why"]


async def test_still_loading() -> None:
    """503 means that the model is still being loaded."""
    diagnosis = await examined(lambda _: json_reply({"error": {"message": "Loading model", "code": 503}}, 503))
    assert (codes(diagnosis)["models"], diagnosis.fit) == ("loading", False)


async def test_models() -> None:
    """A model that is not served is refused with the names of those that are; of several the first is asked; a list need not exist."""
    several = ("a", "b")
    diagnosis = await examined(PlainServer(models=several), model="c")
    assert (codes(diagnosis)["models"], diagnosis.obstacles) == ("unlisted", ("models",))
    assert seen(diagnosis, "models").values == {"name": "c", "names": ["a", "b"]}
    assert seen(await examined(PlainServer(models=several)), "models").values == {"name": "a", "others": ["b"]}
    assert codes(await examined(PlainServer(models=several), model="b"))["models"] == "chosen"
    assert codes(await examined(PlainServer(models=None), model="m"))["models"] == "untold"


async def test_nothing_there() -> None:
    """A port where nothing listens is unfit; an address that is none is the user's mistake."""
    diagnosis = await examine(Patient("http://127.0.0.1:9"))
    assert (codes(diagnosis), diagnosis.fit) == ({"reach": "failed"}, False)
    with pytest.raises(UsageError, match="cannot use the address"):
        await examine(Patient("127.0.0.1:8000"))


# Keys, certificates, proxies


async def test_keys() -> None:
    """A missing key, a wrong one, a right one and one that nobody asked for are told apart; no diagnosis holds the key."""
    server = PlainServer(key=KEY)
    missing = await examined(server)
    assert (codes(missing)["key"], missing.obstacles) == ("refused", ("key",))
    assert "no key was sent" in seen(missing, "key").values["why"]
    wrong = await examined(server, access=keyed("sk-wrong-wrong"))
    assert "the key from $ENGINE_KEY was refused" in seen(wrong, "key").values["why"]
    right = await examined(server, access=keyed())
    assert (seen(right, "key").values, right.fit) == ({"source": "$ENGINE_KEY"}, True)
    assert codes(right)["key"] == "accepted"
    unneeded = await examined(PlainServer(), access=keyed())
    assert codes(unneeded)["key"] == "unneeded"
    assert "sk-" not in repr((missing, wrong, right, unneeded))


async def test_certificates(tmp_path: Path) -> None:
    """A certificate is trusted by its authority, refused without it, and taken unchecked only with a warning."""
    authority = Authority.create(tmp_path)
    async with FakeServer(PlainServer(), tls=authority.server()) as server:
        trusted, refused, unchecked = [
            await examine(Patient(server.base_url, open_access(AccessSpec(**spec)), watch_s=0, timeout_s=5))
            for spec in ({"ca_file": str(authority.ca_file)}, {}, {"verify": False})
        ]
    values = seen(trusted, "tls").values
    assert (values["name"], values["version"], trusted.fit) == ("127.0.0.1", "TLSv1.3", True)
    assert values["until"] > datetime.now(UTC).date().isoformat()
    assert (codes(refused), refused.fit) == ({"tls": "failed"}, False)
    assert "not trusted" in seen(refused, "tls").values["why"]
    assert (codes(unchecked)["tls"], seen(unchecked, "tls").level, unchecked.fit) == ("unchecked", "warning", True)


async def test_proxy(tmp_path: Path) -> None:
    """The way through a proxy is named, with a warning: its time is measured, too. A proxy without a way is an obstacle."""
    authority = Authority.create(tmp_path)
    async with FakeServer(PlainServer(), tls=authority.server("engine.example")) as server, FakeProxy() as proxy:
        access = open_access(AccessSpec(ca_file=str(authority.ca_file), proxy=proxy.url))
        patient = Patient(f"https://engine.example:{server.port}", access, watch_s=0, timeout_s=5)
        diagnosis = await examine(patient)
    reach = seen(diagnosis, "reach")
    assert (reach.code, reach.level, diagnosis.fit) == ("proxy", "warning", True)
    assert reach.values["proxy"] == proxy.url.removeprefix("http://")
    refused = await examine(patient)
    assert codes(refused) == {"reach": "failed"}
    assert "the proxy" in seen(refused, "reach").values["why"]
