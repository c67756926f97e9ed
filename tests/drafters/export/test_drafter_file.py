"""Drafters as GGUF: names, shapes and layers as llama.cpp reads them, and clear words for what it cannot run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from drafters.checkpoint import Checkpoint
from drafters.engine.assembly import weights_digest
from drafters.export import About, drafter_file
from drafters.training import export_stage
from drafters.training.stage import StageError, digest
from tests.drafters.export.folders import save_drafter, tiny_target

ABOUT = About("draft")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny target."""
    return tiny_target(tmp_path_factory.mktemp("model") / "target")


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Keys and tensors of a file."""
    reader = GGUFReader(path)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    return fields, {tensor.name: np.array(tensor.data) for tensor in reader.tensors}


@pytest.mark.parametrize("method", ["dflash", "dflash2"])
def test_dflash(tmp_path: Path, target: Path, method: str) -> None:
    """All weights are in the file as they were; layers count by their inputs, one above the published output ids."""
    folder = save_drafter(method, target, tmp_path / "d")
    drafter_file(folder, target, ABOUT).write(tmp_path / "d.gguf")
    fields, tensors = read(tmp_path / "d.gguf")
    checkpoint = Checkpoint.load(folder)
    ids = checkpoint.config["dflash_config"]["target_layer_ids"]
    assert fields["general.architecture"] == "dflash"
    assert fields["dflash.target_layers"] == [layer + 1 for layer in ids]
    assert (fields["dflash.block_size"], fields["dflash.attention.causal"]) == (4, False)
    assert fields["tokenizer.ggml.mask_token_id"] == checkpoint.config["dflash_config"]["mask_token_id"]
    assert fields["dflash.context_length"] == 2048  # the target's, so that no sequence is cut
    assert sorted(value.size for value in tensors.values()) == sorted(t.numel() for t in checkpoint.tensors.values())
    wanted = checkpoint.tensors["layers.1.self_attn.o_proj.weight"].numpy()
    assert np.array_equal(tensors["blk.1.attn_output.weight"], wanted)
    if method == "dflash2":
        base = checkpoint.tensors["layers.0.mlp_conv.base_kernel"].numpy()
        assert np.array_equal(tensors["blk.0.ffn_conv_base"], base)
        assert np.array_equal(
            tensors["selector_successor.weight"], checkpoint.tensors["candidate_selector.successor_codebook"].numpy()
        )


def test_eagle3_names_target_ids(tmp_path: Path, target: Path) -> None:
    """The map to the target's vocabulary holds ids, where the checkpoint has offsets."""
    folder = save_drafter("eagle3", target, tmp_path / "d")
    drafter_file(folder, target, ABOUT).write(tmp_path / "d.gguf")
    fields, tensors = read(tmp_path / "d.gguf")
    checkpoint = Checkpoint.load(folder)
    assert tensors["d2t"].tolist() == checkpoint.tensors["t2d"].nonzero().flatten().tolist()
    assert fields["eagle3.target_layers"] == list(checkpoint.config["eagle_aux_hidden_state_layer_ids"])
    assert tensors["blk.0.attn_q.weight"].shape[1] == 2 * fields["eagle3.target_hidden_size"]
    assert fields["drafters.source.sha256"] == weights_digest(folder)[0]


def test_eagle3_rotates_neighbours(tmp_path: Path, target: Path) -> None:
    """llama.cpp rotates rows 0 and 1, 2 and 3 … of a head together, transformers 0 and n / 2, 1 and n / 2 + 1 …"""
    folder = save_drafter("eagle3", target, tmp_path / "d")
    drafter_file(folder, target, ABOUT).write(tmp_path / "d.gguf")
    fields, tensors = read(tmp_path / "d.gguf")
    checkpoint, size = Checkpoint.load(folder), fields["eagle3.attention.key_length"]
    for name, heads in (("q", "eagle3.attention.head_count"), ("k", "eagle3.attention.head_count_kv")):
        given = checkpoint.tensors[f"midlayer.self_attn.{name}_proj.weight"].numpy()
        for head in range(fields[heads]):
            rows = given[head * size : (head + 1) * size]
            made = tensors[f"blk.0.attn_{name}.weight"][head * size : (head + 1) * size]
            assert np.array_equal(made[0::2], rows[: size // 2])
            assert np.array_equal(made[1::2], rows[size // 2 :])


def test_a_draft_model_takes_the_targets_tokenizer(tmp_path: Path, target: Path) -> None:
    """A draft model's folder without tokenizer files is written with those of the target."""
    small = tiny_target(tmp_path / "small", num_hidden_layers=1)
    (small / "tokenizer.json").unlink()
    file = drafter_file(small, target, ABOUT)
    assert file.architecture == "qwen3"
    assert file.keys["tokenizer.ggml.pre"] == "qwen2"


@pytest.mark.parametrize(("method", "said"), [("medusa", "'medusa', which llama.cpp"), ("mtp", "'MTPDraftModel'")])
def test_methods_that_llamacpp_does_not_have(tmp_path: Path, target: Path, method: str, said: str) -> None:
    """Medusa and MTP are refused with what is allowed and where they run."""
    with pytest.raises(StageError, match=said) as caught:
        drafter_file(save_drafter(method, target, tmp_path / "d"), target, ABOUT)
    assert "run the others on the builtin engine" in str(caught.value)


def test_a_table_of_ngrams_is_no_drafter_of_llamacpp(tmp_path: Path, target: Path) -> None:
    """A folder with a corpus is told what it is."""
    (tmp_path / "corpus.txt").write_text("1 2 3\n")
    with pytest.raises(StageError, match="table of n-grams"):
        drafter_file(tmp_path, target, ABOUT)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target_layer_ids": [3]}, "behind the final norm"),
        ({"selector_top_k": 16}, "hidden size of 272 or more"),
        ({"mask_token_id": None}, "mask_token_id None; allowed: an integer"),
    ],
)
def test_dflash2_that_llamacpp_would_refuse(tmp_path: Path, target: Path, changes: dict[str, Any], said: str) -> None:
    """What its loader would refuse, or read otherwise, is refused here and named."""
    folder = save_drafter("dflash2", target, tmp_path / "d")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["dflash_config"] |= changes
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(StageError, match=said):
        drafter_file(folder, target, ABOUT)


def test_a_drafter_of_another_target(tmp_path: Path, target: Path) -> None:
    """A target of another width or depth is told with both sizes, a damaged checkpoint by its folder."""
    other = tiny_target(tmp_path / "other", num_hidden_layers=3)
    for method in ("dflash", "eagle3"):
        folder = save_drafter(method, target, tmp_path / method)
        wide = tiny_target(tmp_path / f"wide-{method}", hidden_size=32)
        with pytest.raises(StageError, match="own target"):
            drafter_file(folder, wide, ABOUT)
    with pytest.raises(StageError, match="4 layers of width 64"):
        drafter_file(tmp_path / "dflash", other, ABOUT)
    (tmp_path / "dflash" / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(StageError, match="cannot be read"):
        drafter_file(tmp_path / "dflash", target, ABOUT)


def test_the_stage_writes_one_file_and_says_what(tmp_path: Path, target: Path) -> None:
    """The command writes target and drafter, and refuses a folder as its file."""
    parser = argparse.ArgumentParser()
    export_stage.add_arguments(parser)
    said: list[str] = []
    for more in ([], ["--drafter", str(save_drafter("dflash", target, tmp_path / "d")), "--dtype", "f16"]):
        given = ["--target", str(target), "--out", str(tmp_path / "o" / "m.gguf"), "--licence", "apache-2.0", *more]
        assert export_stage.run(parser.parse_args(given), said.append) == 0
    assert ["qwen3" in said[0], "dflash, 25 tensors, f16" in said[1]] == [True, True]
    with pytest.raises(StageError, match="is a folder"):
        export_stage.run(parser.parse_args(["--target", str(target), "--out", str(tmp_path)]), said.append)


def test_only_an_earlier_export_is_replaced(tmp_path: Path, target: Path) -> None:
    """Notes, a GGUF of somebody else and a link stay as they are; what this command wrote is written anew."""
    parser = argparse.ArgumentParser()
    export_stage.add_arguments(parser)
    own, notes, other, link = (tmp_path / name for name in ("own.gguf", "notes.txt", "other.gguf", "link.gguf"))
    notes.write_text("mine", "utf-8")
    other.write_bytes(b"GGUF of somebody else")
    link.symlink_to(tmp_path / "nowhere")
    for out in (own, own):
        assert export_stage.run(parser.parse_args(["--target", str(target), "--out", str(out)]), print) == 0
    for out in (notes, other, link):
        with pytest.raises(StageError, match="is there and is no earlier export; give another path"):
            export_stage.run(parser.parse_args(["--target", str(target), "--out", str(out)]), print)
    assert (notes.read_text("utf-8"), other.read_bytes(), link.is_symlink()) == ("mine", b"GGUF of somebody else", True)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "new.gguf", "sub/new.gguf"])
def test_nothing_is_written_into_what_is_read(tmp_path: Path, target: Path, name: str) -> None:
    """Neither over the weights nor beside them, of target and drafter."""
    parser = argparse.ArgumentParser()
    export_stage.add_arguments(parser)
    drafter = save_drafter("dflash", target, tmp_path / "d")
    before = {folder: digest(folder) for folder in (target, drafter)}
    for folder in before:
        given = ["--target", str(target), "--drafter", str(drafter), "--out", str(folder / name)]
        with pytest.raises(StageError, match="which is read"):
            export_stage.run(parser.parse_args(given), print)
    assert {folder: digest(folder) for folder in (target, drafter)} == before
