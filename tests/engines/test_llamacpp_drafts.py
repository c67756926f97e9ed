"""The check of llama.cpp's draft models: what a file or a shipped drafter is, before anything is started."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from harness.engines.llamacpp_drafts import draft_model_faults
from harness.engines.llamacpp_options import check_arms, engine_config, longest_draft
from harness.errors import WorkloadError
from harness.workload import Arm
from tests.engines.test_llamacpp_options import complaints, workload


def text(value: str) -> bytes:
    """Return a GGUF string."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(path: Path, architecture: str) -> Path:
    """Write a GGUF file without tensors; a block size of 8 stands in it."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 2)
    head += text("general.architecture") + struct.pack("<I", 8) + text(architecture)
    head += text("dflash.block_size") + struct.pack("<II", 4, 8)
    path.write_bytes(head + b"\0" * 64)
    return path


@pytest.fixture
def drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of three kinds, and a package with a target, a DFlash 2 drafter of block 4, Medusa heads and a draft model."""
    for kind in ("dflash", "eagle3", "qwen3"):
        gguf(tmp_path / f"{kind}.gguf", kind)
    shipped = {
        "ref-koen": {"architectures": ["Qwen3ForCausalLM"]},
        "public-dflash2": {"architectures": ["DFlash2DraftModel"], "block_size": 4},
        "public-medusa": {"medusa_num_heads": 2},
        "draft-model": {"architectures": ["Qwen3ForCausalLM"]},
    }
    for name, config in shipped.items():
        (tmp_path / "ref" / name).mkdir(parents=True)
        (tmp_path / "ref" / name / "config.json").write_text(json.dumps(config))
        (tmp_path / "ref" / name / "model.safetensors").write_bytes(b"")
    monkeypatch.setenv("SPEC_HARNESS_REFERENCE", str(tmp_path / "ref"))
    monkeypatch.setenv("SPEC_HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_what_fits_passes_and_nothing_is_written(drafts: Path) -> None:
    """Each method with its kind of draft, as a file or by the short name; the check makes no GGUF files."""
    check_arms(
        workload(
            drafts,
            "- {name: baseline, method: none}\n"
            f"- {{name: a, method: draft-dflash, draft_model: {drafts}/dflash.gguf}}\n"
            "- {name: b, method: draft-dflash, draft_model: 'ref:public-dflash2', options: {n_max: 3}}\n"
            f"- {{name: c, method: draft-eagle3, draft_model: {drafts}/eagle3.gguf}}\n"
            "- {name: d, method: draft-simple, draft_model: 'ref:draft-model'}\n"
            f"- {{name: e, method: draft-simple, draft_model: {drafts}/qwen3.gguf}}\n",
            "{model: ref-koen}",
        )
    )
    assert not list(drafts.glob("cache/*.gguf"))


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        ("method: draft-dflash", "draft-dflash needs draft_model: the path"),
        ("method: draft-dflash, draft_model: FOLDER/eagle3.gguf", "FOLDER/eagle3.gguf is 'eagle3'; its method is draft-eagle3"),
        ("method: draft-dflash, draft_model: FOLDER/qwen3.gguf", "is 'model'; its method is draft-simple"),
        ("method: draft-simple, draft_model: 'ref:public-dflash2'", "is 'dflash'; its method is draft-dflash"),
        ("method: draft-simple, draft_model: 'ref:public-medusa'", "llama.cpp cannot run it; run it on the builtin engine"),
        ("method: draft-dflash, draft_model: FOLDER/dflash.gguf, options: {n_max: 8}", "FOLDER/dflash.gguf drafts at most 7 tokens"),
        ("method: draft-dflash, draft_model: 'ref:public-dflash2'", "n_max is 7, but the block of ref:public-dflash2 drafts at most 3"),
        ("method: draft-dflash, draft_model: 'ref:public-dflash3'", "did you mean ref:public-dflash2?"),
        ("method: ngram-mod, draft_model: 'ref:public-dflash2'", "takes no draft_model; only draft-simple, draft-dflash, draft-eagle3"),
        ("method: draft-dflash, draft_model: FOLDER/ref/public-dflash2", "drafters export --target FOLDER [--drafter CHECKPOINT]"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(drafts: Path, arm: str, said: str) -> None:
    """A draft of another kind, a block too long, a wrong name: each with its line and what to do."""
    given = f"- {{name: a, {arm.replace('FOLDER/', f'{drafts}/')}}}\n"
    with pytest.raises(WorkloadError) as caught:
        check_arms(workload(drafts, given, "{model: ref-koen}"))
    assert "w.yaml:5: " in str(caught.value)
    assert said.replace("FOLDER/", f"{drafts}/") in str(caught.value)


def test_an_attached_servers_draft_is_its_own_business(drafts: Path) -> None:
    """Where a server is attached nothing is looked up."""
    loaded = workload(drafts, "- {name: a, method: draft-dflash, draft_model: x, base_url: 'http://x:1'}\n")
    assert draft_model_faults(loaded, 0, loaded.workload.arms[0], 7) == []


def test_the_engine_gets_its_own_name_and_length() -> None:
    """Seven drafted tokens unless told otherwise, under the engine's own setting."""
    arm = Arm(name="a", method="draft-dflash", draft_model="x")
    assert engine_config(arm) == {
        "type": "draft-dflash",
        "settings": {"draft.n_max": 7, "draft.n_min": 0, "draft.p_min": 0.0, "draft.probabilistic": False},
    }
    assert longest_draft(arm) == 7


def test_engine_options(tmp_path: Path) -> None:
    """How attention is computed is the one engine option, with two values."""
    said = complaints(tmp_path, "- {name: a, method: none}\n", "\n  model: smollm2-135m\n  options: {attention: f32}")
    assert said == "w.yaml:5: attention is 'f32'; allowed: engine, float32"
