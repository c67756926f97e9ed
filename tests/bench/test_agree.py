"""The comparison of both engines' answers: what counts as the same, what as a tie, and what the command's exit code is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.agree import arms_of, exit_code, steps, summary
from bench.agree_answers import Outcome, Side, compare, top_two_gap
from harness.engines.base import Endpoint
from harness.engines.builtin_reader import BuiltinReader
from harness.engines.llamacpp_reader import LlamaCppReader
from harness.errors import UsageError
from harness.records import SpecCounters
from harness.workload import load
from tests.fake_builtin import FakeBuiltin
from tests.fake_server import FakeLlama, FakeServer, Reply, json_reply

WORKLOADS = Path(__file__).parents[2] / "workloads"
BODY = {"messages": [{"role": "user", "content": "회의 자료를 보내 주세요"}], "max_tokens": 9, "temperature": 0}
TOO_LONG = {
    "llamacpp": json_reply({"error": {"code": 400, "type": "exceed_context_size_error", "message": "too long"}}, 400),
    "builtin": json_reply({"error": {"message": "too long", "type": "x", "code": "context_length_exceeded"}}, 400),
}
LOADING = json_reply({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, 503)


def token(text: str, best: float, second: float) -> dict[str, Any]:
    """One token with the log probabilities of the two best."""
    top = [{"token": text, "logprob": best}, {"token": "x", "logprob": second}]
    return {"token": text, "bytes": list(text.encode()), "logprob": best, "top_logprobs": top}


CONTENT = [token("가", -0.5, -4.0), token("나", -1.0, -1.25), token("다", -0.1, -3.0)]


async def asked(llamacpp: FakeLlama, builtin: FakeBuiltin) -> Outcome:
    """Compare one step on two scripted servers."""
    async with FakeServer(llamacpp) as one, FakeServer(builtin) as other, httpx.AsyncClient() as client:
        their_side = Side(Endpoint(one.base_url, "m"), lambda: LlamaCppReader(drafts=True, longest_draft=2))
        extra = {"drafter": "copy", "return_rounds": True}
        our_side = Side(Endpoint(other.base_url, "m", extra_body=extra), lambda: BuiltinReader(same_clock=True))
        return await compare(client, their_side, our_side, "w/t/0", BODY)


def scores(content: list[dict[str, Any]]) -> Reply:
    """An answer with log probabilities."""
    return json_reply({"choices": [{"message": {"content": ""}, "logprobs": {"content": content}}]})


def test_the_gap_is_that_of_the_first_token_beyond_the_agreed_text() -> None:
    """Texts that agree on one letter part in the second token, which here is a tie of 0.25; letters can part within a byte."""
    assert top_two_gap(CONTENT, "가".encode()) == 0.25
    assert top_two_gap(CONTENT, b"") == 3.5
    assert top_two_gap(CONTENT, "가나".encode()) == pytest.approx(2.9)
    assert top_two_gap(CONTENT, "가나".encode()[:-1]) == 0.25


def test_where_our_text_ends_no_gap_is_known() -> None:
    """The last agreed token did not decide, so its gap says nothing."""
    assert top_two_gap(CONTENT, "가나다".encode()) is None
    assert top_two_gap([], b"") is None


async def test_equal_answers_come_with_the_counts_of_both() -> None:
    """The same text is equal, and each side's rounds are read by its own adapter; a server that sums them up leaves them unknown."""
    found = await asked(FakeLlama(draft=(2, 1)), FakeBuiltin(drafts={"copy": (2, 1)}))
    assert (found.verdict, found.ended) == ("equal", False)
    assert found.counts is not None
    assert [(side.num_drafts, side.num_draft_tokens, side.num_accepted_tokens) for side in found.counts] == [
        (None, 8, 4),
        (4, 8, 4),
    ]
    assert "rounds – | 4, drafted 8 | 8, accepted 4 | 4" in summary([found], 1e-3)


async def test_only_a_prompt_beyond_the_context_is_too_long() -> None:
    """The builtin engine also keeps room for the answer, llama.cpp does not.

    Servers that are still loading, or refuse for another reason, answered nothing: that is a difference.
    """
    long = FakeLlama(faults={0: TOO_LONG["llamacpp"]}), FakeBuiltin(faults={0: TOO_LONG["builtin"]})
    assert (await asked(*long)).verdict == "too long"
    loading = FakeLlama(faults={0: LOADING}), FakeBuiltin(faults={0: LOADING})
    found = await asked(*loading)
    assert (found.verdict, found.gap) == ("refused", None)
    assert "Loading model" in found.llamacpp
    no_room = FakeLlama(), FakeBuiltin(faults={0: TOO_LONG["builtin"]})
    assert (await asked(*no_room)).verdict == "too long"
    one = await asked(FakeLlama(faults={0: TOO_LONG["llamacpp"]}), FakeBuiltin(drafts={"copy": (2, 1)}))
    assert (one.verdict, one.builtin) == ("refused", "an answer")


async def test_texts_that_part_are_told_with_their_gap() -> None:
    """The builtin engine is asked again; where it refuses that, the gap is unknown and nothing breaks."""
    other = FakeLlama(answer=lambda body: ["보고서 ", "없음 "])
    found = await asked(other, FakeBuiltin(drafts={"copy": (2, 1)}, faults={1: scores(CONTENT)}))
    assert (found.verdict, found.gap) == ("text", 3.5)
    assert found.llamacpp.endswith("(stop)") and found.builtin.endswith("(length)")
    refused = await asked(other, FakeBuiltin(drafts={"copy": (2, 1)}, faults={1: LOADING}))
    assert (refused.verdict, refused.gap) == ("text", None)


def test_the_exit_code_needs_an_equal_answer_and_no_difference_beyond_a_tie() -> None:
    """Ties pass beside equal answers; an unknown gap is no tie; comparing nothing is no success."""
    equal, long = Outcome("a", "equal"), Outcome("b", "too long")
    tie, fault = Outcome("c", "text", gap=1e-4), Outcome("d", "text", gap=0.2)
    assert exit_code([equal, long, tie], 1e-3) == 0
    for bad in (fault, Outcome("e", "text"), Outcome("f", "refused"), Outcome("g", "prompt tokens")):
        assert exit_code([equal, bad], 1e-3) == 1
    assert exit_code([long, tie], 1e-3) == exit_code([], 1e-3) == 1


def test_the_summary_adds_counts_and_tells_what_they_differ_in() -> None:
    """An accepted end token that llama.cpp counts otherwise is told apart from other differences."""
    counts = SpecCounters(4, 8, 4), SpecCounters(4, 8, 5)
    end = Outcome("a", "equal", ended=True, counts=counts)
    cut = replace(end, ended=False)
    same = Outcome("b", "equal", counts=(counts[0], counts[0]))
    more = Outcome("c", "equal", ended=True, counts=(counts[0], SpecCounters(3, 6, 5)))
    lines = summary([end, cut, same, more, Outcome("d", "text", gap=0.25)], 1e-3).splitlines()
    assert lines == [
        "5 steps: 4 equal, 1 text; beyond a tie of 0.001: 1; largest gap where texts part: 0.25",
        "4 equal answers, llama.cpp | builtin: rounds 16 | 15, drafted 32 | 30, accepted 16 | 19",
        "acceptance length, llama.cpp | builtin: 2.000 | 2.267",
        "counts of 1 the same; of 1 the same but for one accepted token less on llama.cpp, where the answer ended itself; "
        "of 2 others",
    ]
    assert len(summary([Outcome("a", "equal")], 1e-3).splitlines()) == 1


def test_one_name_becomes_an_arm_of_each_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods follow the checkpoint; a block drafts all it holds unless told otherwise; what llama.cpp lacks is said."""
    shipped = {
        "ref-koen": {"architectures": ["Qwen3ForCausalLM"]},
        "public-dflash2": {"architectures": ["DFlash2DraftModel"], "block_size": 8},
        "public-eagle3": {"architectures": ["LlamaForCausalLMEagle3"]},
        "draft-model": {"architectures": ["Qwen3ForCausalLM"]},
        "public-medusa": {"medusa_num_heads": 2},
    }
    for name, config in shipped.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        (tmp_path / name / "model.safetensors").write_bytes(b"")
    monkeypatch.setenv("SPEC_HARNESS_REFERENCE", str(tmp_path))
    told = {name: arms_of(f"ref:{name}", None) for name in ("public-dflash2", "public-eagle3", "draft-model")}
    assert {
        name: (a.method, a.options["n_max"], b.method, b.options["num_tokens"]) for name, (a, b) in told.items()
    } == {
        "public-dflash2": ("draft-dflash", 7, "dflash2", 7),
        "public-eagle3": ("draft-eagle3", 4, "eagle3", 4),
        "draft-model": ("draft-simple", 4, "draft_model", 4),
    }
    theirs, ours = arms_of("ref:public-dflash2", 3)
    assert (theirs.options["n_max"], ours.options["num_tokens"]) == (3, 3)
    assert [arm.method for arm in arms_of(None, None)] == ["none", "none"]
    with pytest.raises(UsageError, match="ref:public-medusa is of a method that llama"):
        arms_of("ref:public-medusa", None)


def test_steps_have_the_recorded_history() -> None:
    """Every second step is taken, from the first on; a later step carries the answers before it."""
    path = WORKLOADS / "coding-en.yaml"
    whole, half = list(steps([path], 1)), list(steps([path], 2))
    assert half == whole[::2]
    first, second = whole[0][1]["messages"], whole[1][1]["messages"]
    assert len(second) > len(first)
    assert "assistant" in json.dumps(second)


def test_few_steps_of_few_tasks_are_taken() -> None:
    """Two tasks spread over each of two files, the first step of each; answers are as long as the task allows, or as told."""
    paths = [WORKLOADS / "coding-en.yaml", WORKLOADS / "essay-ko.yaml"]
    few = list(steps(paths, 1, limit_tasks=2, limit_steps=1))
    assert [name.split("/")[0] for name, _ in few] == ["coding-en"] * 2 + ["essay-ko"] * 2
    assert [name.split("/")[2] for name, _ in few] == ["0"] * 4
    first = load(paths[0]).tasks[0]
    assert few[0][1]["max_tokens"] == min(160, first.steps[0].max_tokens)
    assert {body["max_tokens"] for _, body in steps(paths, 1, 1, 1, max_tokens=5)} == {5}


def test_a_task_of_two_workloads_is_asked_once() -> None:
    """A file that mixes the tasks of another adds only what that one does not have."""
    alone = list(steps([WORKLOADS / "essay-ko.yaml"], 1))
    both = list(steps([WORKLOADS / "essay-ko.yaml", WORKLOADS / "essay-ko.yaml"], 1))
    assert both == alone
