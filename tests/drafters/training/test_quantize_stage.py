"""``drafters quantize``: which tensors, which values, what the report says."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafters.catalog import build
from drafters.checkpoint import Checkpoint
from drafters.dflash2 import DFlash2Config, untrained
from drafters.dflash_config import DFlashConfig
from drafters.engine.target import DecoderModel
from drafters.quantization import quantize_dequantize
from drafters.specs import parse_spec
from drafters.training import quantize_stage
from drafters.training.frozen import FrozenTarget
from drafters.training.reference.model import build_target
from drafters.training.stage import StageError, digest, read_manifest

SMALL = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "head_dim": 8}


def quantized(model: Path, out: Path, *more: str, say: Callable[[str], None] = lambda line: None) -> Path:
    """Run the stage; return its checkpoint folder."""
    parser = argparse.ArgumentParser()
    quantize_stage.add_arguments(parser)
    options = parser.parse_args(["--model", str(model), "--out", str(out), *more])
    assert quantize_stage.run(options, say) == 0
    return out / "checkpoint"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny target as a Hugging Face folder."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("target")
    build_target(64, **SMALL, num_key_value_heads=2).save_pretrained(str(folder))
    return folder


@pytest.mark.parametrize("scheme", ["rtn4", "nf4"])
def test_a_quantized_target_computes_what_the_engine_computes_in_4_bits(
    target: Path, tmp_path: Path, scheme: Any
) -> None:
    """Loaded plain, the written target has the hidden states of the original loaded in 4 bits, bit for bit."""
    folder = quantized(target, tmp_path / "out", "--scheme", scheme)
    ids = torch.arange(12).unsqueeze(0)

    written = FrozenTarget.load(folder).hidden_states(ids, [12], [1, 2])
    deployed = FrozenTarget.load(target, scheme).hidden_states(ids, [12], [1, 2])

    assert torch.equal(written, deployed)


def test_embeddings_norms_and_head_of_a_target_stay_plain(target: Path, tmp_path: Path) -> None:
    """Only the layers' projections change, and the report lists which do."""
    folder = quantized(target, tmp_path / "out", "--scheme", "rtn4")
    before, after = load_file(target / "model.safetensors"), load_file(folder / "model.safetensors")

    changed = {name for name in before if not torch.equal(before[name], after[name])}

    report = json.loads((tmp_path / "out/report.json").read_text("utf-8"))
    assert changed == {name for name, entry in report["tensors"].items() if entry["held_as"] == "rtn4"}
    assert changed == {name for name in before if name.endswith("_proj.weight")}
    assert len(changed) == 14


def test_bytes_as_deployed_are_codes_and_scales(target: Path, tmp_path: Path) -> None:
    """A 32 × 32 projection takes 512 bytes of codes and 32 groups of four bytes instead of 4,096 bytes."""
    quantized(target, tmp_path / "out", "--scheme", "rtn4")

    report = json.loads((tmp_path / "out/report.json").read_text("utf-8"))
    entry = report["tensors"]["model.layers.0.self_attn.q_proj.weight"]
    assert (entry["shape"], entry["plain_bytes"], entry["deployed_bytes"]) == ([32, 32], 4096, 512 + 128)
    assert entry["rms_error"] > 0
    assert read_manifest(tmp_path / "out", "quantize").counts["deployed_bytes"] == report["deployed_bytes"]


def test_a_quantized_drafter_loads_and_keeps_what_is_no_projection(target: Path, tmp_path: Path) -> None:
    """DFlash 2: layers, fusion and the selector's projection take 4-bit values; codebooks, norms and kernels do not."""
    model = DecoderModel.load(target)
    backbone = DFlashConfig.for_target(model, block_size=4, num_layers=1)
    untrained(DFlash2Config(backbone, conv_group_size=16, selector_rank=8)).save(tmp_path / "drafter")

    folder = quantized(tmp_path / "drafter", tmp_path / "out", "--scheme", "nf4")

    before, after = Checkpoint.load(tmp_path / "drafter").tensors, Checkpoint.load(folder).tensors
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert "fc.weight" in changed
    assert "candidate_selector.hidden_projection.weight" in changed
    assert not any("codebook" in name or "norm" in name or "base_kernel" in name for name in changed)
    assert all(torch.equal(after[name], quantize_dequantize(before[name], "nf4")) for name in changed)
    build(parse_spec({"method": "dflash2", "num_tokens": 3, "model": str(folder)}), model, 64)


@pytest.mark.parametrize(
    ("name", "is_quantized"),
    [
        ("midlayer.self_attn.q_proj.weight", True),
        ("0.0.linear.weight", True),
        ("0.1.weight", False),
        ("lm_head.weight", False),
        ("mtp.fc.weight", True),
        ("mtp.pre_fc_norm_hidden.weight", False),
        ("candidate_selector.predecessor_codebook", False),
        ("layers.0.attention_conv.kernel_projection.weight", True),
    ],
)
def test_which_matrices_of_a_drafter_are_quantized(name: str, is_quantized: bool) -> None:
    """Projections are; heads, codebooks and norms are not."""
    assert quantize_stage.quantized_name(name, 2, target=False) is is_quantized


def test_a_change_is_reported_for_both_schemes(target: Path, tmp_path: Path) -> None:
    """With --base the report says for every way how many codes flipped and what is left, tensor by tensor and whole."""
    changed = tmp_path / "changed"
    changed.mkdir()
    tensors = {name: tensor + 1e-3 for name, tensor in load_file(target / "model.safetensors").items()}
    save_file(tensors, changed / "model.safetensors", metadata={"format": "pt"})
    (changed / "config.json").write_bytes((target / "config.json").read_bytes())
    said: list[str] = []

    quantized(changed, tmp_path / "out", "--scheme", "rtn4", "--base", str(target), say=said.append)

    change = json.loads((tmp_path / "out/report.json").read_text("utf-8"))["change"]
    assert {row["scheme"] for row in change["whole"]} == {"rtn4", "nf4"}
    assert len(change["whole"]) == 8
    assert len(change["tensors"]) == 14
    assert change["whole"][0]["norm"] == pytest.approx(1e-3 * change["whole"][0]["codes"] ** 0.5, rel=1e-4)
    assert any("codes flipped" in line for line in said)


def test_what_is_done_is_not_done_again_and_other_work_is_refused(target: Path, tmp_path: Path) -> None:
    """The same call says that all is done; another scheme in the same folder is refused."""
    said: list[str] = []
    quantized(target, tmp_path / "out", "--scheme", "rtn4")
    quantized(target, tmp_path / "out", "--scheme", "rtn4", say=said.append)

    assert "is complete" in said[0]
    with pytest.raises(StageError, match=r"scheme was 'rtn4', now 'nf4'"):
        quantized(target, tmp_path / "out", "--scheme", "nf4")


def test_a_base_of_other_tensors_is_refused(target: Path, tmp_path: Path) -> None:
    """A base with a tensor less is no base; nothing counts as finished."""
    other = tmp_path / "other"
    other.mkdir()
    tensors = load_file(target / "model.safetensors")
    tensors.pop("model.norm.weight")
    save_file(tensors, other / "model.safetensors")
    (other / "config.json").write_bytes((target / "config.json").read_bytes())

    with pytest.raises(StageError, match=r"model\.norm\.weight among them"):
        quantized(target, tmp_path / "out", "--scheme", "rtn4", "--base", str(other))
    assert not (tmp_path / "out").exists()


def test_weights_without_a_projection_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """A norm alone leaves nothing to quantize."""
    folder = tmp_path / "norms"
    folder.mkdir()
    save_file({"norm.weight": torch.ones(4)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}", "utf-8")

    with pytest.raises(StageError, match="has no projection that can be quantized"):
        quantized(folder, tmp_path / "out", "--scheme", "nf4")
    assert not (tmp_path / "out").exists()


def test_the_output_does_not_lie_in_the_model(target: Path, tmp_path: Path) -> None:
    """Files beside the weights would change what the model is."""
    before = digest(target)
    with pytest.raises(StageError, match="which is read; give a folder outside it"):
        quantized(target, target / "sub", "--scheme", "rtn4")
    assert digest(target) == before


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    """The message says what is missing; no folder is made."""
    with pytest.raises(StageError, match=r"lacks config\.json"):
        quantized(tmp_path, tmp_path / "out", "--scheme", "rtn4")
    assert not (tmp_path / "out").exists()
