"""A tiny target and its drafters as they ship, written as GGUF and run by the real llama.cpp over HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import torch
from transformers import AutoTokenizer

from drafters import eagle3
from drafters.catalog import build
from drafters.checkpoint import Checkpoint
from drafters.engine.assembly import weights_digest
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request
from drafters.specs import DFlash2Spec, DFlashSpec, DrafterSpec, DraftModelSpec, Eagle3Spec
from drafters.training.reference.tokenizer import render_chat
from harness.engines.llamacpp import LlamaCppEngine
from harness.errors import ModelError
from harness.models import resolve
from harness.workload import Arm, EngineSpec
from tests.drafters.export.folders import CODE, ENGLISH, KOREAN, loaded, save_drafter, tiny_target

pytestmark = pytest.mark.engine
pytest.importorskip("xllamacpp")

ARMS = (
    Arm(name="baseline", method="none"),
    Arm(name="dflash", method="draft-dflash", draft_model="ref:public-dflash", options={"n_max": 3}),
    Arm(name="dflash2", method="draft-dflash", draft_model="ref:public-dflash2", options={"n_max": 3}),
    Arm(name="eagle3", method="draft-eagle3", draft_model="ref:public-eagle3"),
    Arm(name="itself", method="draft-simple", draft_model="ref:draft-model"),
)
TOKENS = 24


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout in which models ship: a target in bfloat16, three untrained drafters, and the target as draft model."""
    place = tmp_path_factory.mktemp("reference")
    target = tiny_target(place / "ref-koen", torch.bfloat16)
    tiny_target(place / "draft-model", torch.bfloat16)
    for method in ("dflash", "dflash2"):
        save_drafter(method, target, place / f"public-{method}")
    save_lucky_eagle3(target, place / "public-eagle3")
    return place


def save_lucky_eagle3(target: Path, folder: Path) -> None:
    """Write an untrained drafter that knows two tokens, those that the target writes most, and attends strongly: some of what it
    drafts is accepted, and which of it hangs on every part of its layer. The seed is one where the way of rotation shows."""
    counts = Counter(token for tokens, _, _ in builtin(target, prompts(target), None) for token in tokens)
    ids = torch.tensor(sorted(token for token, _ in counts.most_common(2)))
    made = eagle3.untrained(loaded(target), len(ids), seed=4)
    known = torch.zeros(made.config["vocab_size"], dtype=torch.bool)
    known[ids] = True
    strong = {name: 4 * tensor if ".self_attn." in name else tensor for name, tensor in made.tensors.items()}
    Checkpoint(made.config, {**strong, "d2t": ids - torch.arange(len(ids)), "t2d": known}).save(folder)


@pytest.fixture
async def engine(
    reference: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LlamaCppEngine]:
    """All arms on llama.cpp, in float32 throughout; the files are written by the first test and found by the others."""
    monkeypatch.setenv("SPEC_HARNESS_REFERENCE", str(reference))
    monkeypatch.setenv("SPEC_HARNESS_CACHE", str(reference.parent / "cache"))
    spec = EngineSpec(kind="llamacpp", model="ref-koen", context_tokens=512, options={"attention": "float32"})
    made = LlamaCppEngine(spec, ARMS, concurrency=1, folder=tmp_path_factory.mktemp("engine"))
    await made.start()
    yield made
    await made.stop()


def prompts(target: Path) -> list[list[int]]:
    """Token ids of a chat prompt around each text."""
    tokenizer = AutoTokenizer.from_pretrained(target)
    texts = ["".join(piece for piece, _ in render_chat([("user", text)])) for text in (ENGLISH, KOREAN, CODE)]
    return [tokenizer.encode(text + "<|im_start|>assistant\n", add_special_tokens=False) for text in texts]


def builtin(target: Path, asked: list[list[int]], spec: DrafterSpec | None) -> list[tuple[list[int], int, int]]:
    """The builtin engine's greedy answers in float32, one after the other, with tokens drafted and accepted."""
    model = loaded(target)
    runner = Runner(model, 1024, {} if spec is None else {"drafter": build(spec, model, 1024)})
    made, drafted, accepted = [], 0, 0
    for prompt in asked:
        running = runner.add(Request(tuple(prompt), TOKENS, drafter=None if spec is None else "drafter"))
        while runner.busy:
            runner.step()
        counted = runner.counters
        made.append(
            (
                running.token_ids[len(prompt) :],
                counted.num_draft_tokens - drafted,
                counted.num_accepted_tokens - accepted,
            )
        )
        drafted, accepted = counted.num_draft_tokens, counted.num_accepted_tokens
    return made


async def llamacpp(engine: LlamaCppEngine, arm: str, asked: list[list[int]]) -> list[tuple[list[int], int, int]]:
    """The same of one arm's server."""
    made = []
    async with httpx.AsyncClient(base_url=engine.endpoint(arm).base_url, timeout=60) as client:
        for prompt in asked:
            body = {"prompt": prompt, "n_predict": TOKENS, "temperature": 0, "return_tokens": True}
            answer = (await client.post("/completion", json=body)).json()
            timings = answer["timings"]
            made.append((answer["tokens"], timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)))
    return made


async def test_both_engines_write_the_same(engine: LlamaCppEngine, reference: Path) -> None:
    """Texts of any kind become the same token ids. Greedy tokens in float32 are those of the builtin engine, with every drafter
    and without, and each drafter's rounds are the builtin engine's own: as many drafted and accepted in each answer."""
    target = reference / "ref-koen"
    described = await engine.describe()
    assert described["model"]["source_sha256"] == weights_digest(target)[0]  # by which the builtin engine names it
    tokenizer = AutoTokenizer.from_pretrained(target)
    for text in (
        ENGLISH,
        KOREAN,
        CODE,
        f"<|im_start|>user\n{KOREAN}<|im_end|>\n",
        "<tool_call>{}</tool_call>",
        "각 힣 𝄞 é",
    ):
        assert await engine.tokenize("baseline", text) == tuple(tokenizer.encode(text, add_special_tokens=False)), text
    asked = prompts(target)
    plain = builtin(target, asked, None)
    assert len({token for tokens, _, _ in plain for token in tokens}) > 20  # the target says different things
    assert await llamacpp(engine, "baseline", asked) == plain
    specs: dict[str, DrafterSpec] = {
        "dflash": DFlashSpec(model=reference / "public-dflash", num_tokens=3),
        "dflash2": DFlash2Spec(model=reference / "public-dflash2", num_tokens=3),
        "eagle3": Eagle3Spec(model=reference / "public-eagle3"),
        "itself": DraftModelSpec(model=reference / "draft-model"),
    }
    for arm, spec in specs.items():
        theirs, ours = await llamacpp(engine, arm, asked), builtin(target, asked, spec)
        assert [tokens for tokens, _, _ in theirs] == [tokens for tokens, _, _ in plain], arm
        assert theirs == ours, arm
        assert all(drafted > 0 for _, drafted, _ in theirs), arm
        if arm == "eagle3":
            assert sum(accepted for _, _, accepted in theirs) > 3
    assert all(accepted == drafted for _, drafted, accepted in await llamacpp(engine, "itself", asked))


def test_the_files_are_made_once(reference: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second resolving writes nothing, a cut-short file is made again, and the name of the file follows the weights."""
    monkeypatch.setenv("SPEC_HARNESS_REFERENCE", str(reference))
    monkeypatch.setenv("SPEC_HARNESS_CACHE", str(reference.parent / "once"))
    assert resolve("ref:public-dflash", fetch=False).sha256 is None
    stages: list[tuple[str, float]] = []
    first = resolve("ref:public-dflash", progress=lambda stage, fraction: stages.append((stage, fraction)))
    assert (first.name, first.licence, first.kind, stages[-1]) == (
        "public-dflash",
        "apache-2.0",
        "F32",
        ("convert", 1.0),
    )
    written = first.path.stat().st_mtime_ns
    assert resolve("ref:public-dflash") == first
    assert first.path.stat().st_mtime_ns == written
    whole = first.path.read_bytes()
    first.path.write_bytes(whole[:-1])
    assert resolve("ref:public-dflash").path.read_bytes() == whole
    assert [path.name for path in first.path.parent.glob("*.gguf")] == [first.path.name]
    (reference / "draft-model" / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"cannot write ref:draft-model as GGUF \(exit code 2\)"):
        resolve("ref:draft-model")
