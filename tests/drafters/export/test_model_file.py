"""A target as GGUF: every weight, every token, the same bytes each time, and clear words for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader
from transformers import AutoModelForCausalLM

from drafters.convert import convert
from drafters.engine.assembly import weights_digest
from drafters.export import About, model_file
from drafters.training.stage import StageError
from tests.drafters.export.folders import tiny_target
from tests.drafters.models import FAMILIES

ABOUT = About("tiny", "apache-2.0", "made here")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny target in bfloat16, as models are shipped."""
    return tiny_target(tmp_path_factory.mktemp("model") / "target", torch.bfloat16)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Every weight of a Hugging Face folder, as float32."""
    loader: Any = AutoModelForCausalLM
    state: dict[str, torch.Tensor] = loader.from_pretrained(folder, dtype=torch.float32).state_dict()
    return state


def edited(target: Path, folder: Path, name: str, **changes: Any) -> Path:
    """A copy of the target with keys of one of its JSON files changed."""
    folder.mkdir()
    for file in target.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    value = json.loads((folder / name).read_text("utf-8"))
    (folder / name).write_text(json.dumps({**value, **changes}), "utf-8")
    return folder


def test_weights_and_tokenizer_come_back_exactly(tmp_path: Path, target: Path) -> None:
    """Read back by the project's own converter, the file gives the same weights, bit for bit, and the same tokenizer."""
    model_file(target, ABOUT).write(tmp_path / "m.gguf")
    convert(tmp_path / "m.gguf", tmp_path / "back")
    first, second = weights(target), weights(tmp_path / "back")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    given, back = (
        json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"] for folder in (target, tmp_path / "back")
    )
    assert back["merges"] == given["merges"]
    assert {token: back["vocab"][token] for token in given["vocab"]} == given["vocab"]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_every_family_comes_back(tmp_path: Path, target: Path, family: str) -> None:
    """Llama's rotated rows, Qwen 2's biases and an untied head all come back as they were."""
    torch.manual_seed(1)
    model = FAMILIES[family]()
    model.resize_token_embeddings(json.loads((target / "config.json").read_text("utf-8"))["vocab_size"])
    model.save_pretrained(tmp_path / "model")
    model_file(tmp_path / "model", ABOUT, tokenizer=target).write(tmp_path / "m.gguf")
    convert(tmp_path / "m.gguf", tmp_path / "back")
    first, second = weights(tmp_path / "model"), weights(tmp_path / "back")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_same_model_gives_the_same_bytes(tmp_path: Path, target: Path) -> None:
    """Two exports are one file, and a third replaces it."""
    for name in ("a.gguf", "b.gguf", "b.gguf"):
        model_file(target, ABOUT).write(tmp_path / name)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.gguf", "b.gguf"]


def test_what_the_file_says_of_itself(tmp_path: Path, target: Path) -> None:
    """Name, licence, source, chat template, both end tokens; rows without a token are marked unused."""
    model_file(target, ABOUT).write(tmp_path / "m.gguf")
    fields = {key: field.contents() for key, field in GGUFReader(tmp_path / "m.gguf").fields.items()}
    assert [fields[f"general.{key}"] for key in ("architecture", "name", "license", "source", "file_type")] == [
        "qwen3", "tiny", "apache-2.0", "made here", 0,
    ]  # fmt: skip
    assert "<tool_response>" in fields["tokenizer.chat_template"]
    assert (fields["tokenizer.ggml.eos_token_id"], fields["tokenizer.ggml.eot_token_id"]) == (2, 0)
    assert (fields["tokenizer.ggml.pre"], fields["tokenizer.ggml.add_bos_token"]) == ("qwen2", False)
    assert fields["drafters.source.sha256"] == weights_digest(target)[0]  # by which the builtin engine names the folder
    assert fields["tokenizer.ggml.token_type"][:4] == [3, 3, 3, 4]  # marks of turns are control, <tool_call> is text
    assert fields["tokenizer.ggml.token_type"][-3:] == [5, 5, 5]


def test_shorter_types_round_matrices_alone(tmp_path: Path, target: Path) -> None:
    """In f16 and bf16 files the norms stay float32, and weights that were bfloat16 lose nothing as bf16."""
    for dtype, kind in (("f16", GGMLQuantizationType.F16), ("bf16", GGMLQuantizationType.BF16)):
        model_file(target, ABOUT).write(tmp_path / f"{dtype}.gguf", dtype)
        tensors = {tensor.name: tensor for tensor in GGUFReader(tmp_path / f"{dtype}.gguf").tensors}
        assert tensors["blk.0.attn_q.weight"].tensor_type == kind
        assert tensors["blk.0.attn_norm.weight"].tensor_type == GGMLQuantizationType.F32
    convert(tmp_path / "bf16.gguf", tmp_path / "back")
    first, second = weights(target), weights(tmp_path / "back")
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("config.json", {"architectures": ["GemmaForCausalLM"]}, "allowed: LlamaForCausalLM, Qwen2ForCausalLM, Qwen3F"),
        ("config.json", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope type 'yarn'"),
        ("config.json", {"use_sliding_window": True}, "sliding window are not exported"),
        ("config.json", {"vocab_size": 100}, "give the tokenizer of this model"),
        (
            "config.json",
            {"max_position_embeddings": None},
            "config.json has None for 'max_position_embeddings'; allowed",
        ),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}, r"not known here \(Whitespace"),
        ("tokenizer.json", {"normalizer": {"type": "Lowercase"}}, "normalizer Lowercase"),
        ("tokenizer.json", {"model": {"type": "WordPiece"}}, "allowed: byte-level BPE"),
        (
            "tokenizer.json",
            {"model": {"type": "BPE", "merges": []}},
            r"not as a tokenizer is written \(KeyError: 'vocab'\)",
        ),
        ("tokenizer.json", {"model": {"type": "BPE", "vocab": {"a": 0}}}, r"is written \(KeyError: 'merges'\)"),
        ("tokenizer.json", {"added_tokens": [{"id": 0}]}, r"is written \(KeyError: 'content'\)"),
        (
            "tokenizer.json",
            {"pre_tokenizer": {"pretokenizers": [{"type": "Split", "behavior": "Isolated"}, {"type": "ByteLevel"}]}},
            r"is written \(KeyError: 'use_regex'\)",
        ),
        ("tokenizer.json", {"model": []}, "allowed: byte-level BPE|not as a tokenizer is written"),
        ("generation_config.json", {"eos_token_id": [0, 1, 2, 3]}, "4 end tokens; allowed: 3"),
    ],
)
def test_what_llamacpp_would_run_otherwise_is_refused(
    tmp_path: Path, target: Path, name: str, changes: dict[str, Any], said: str
) -> None:
    """Another architecture, rotation, tokenizer or set of end tokens is named, with what is allowed."""
    with pytest.raises(StageError, match=said):
        model_file(edited(target, tmp_path / "m", name, **changes), ABOUT)


@pytest.mark.parametrize(("order", "adds"), [(["mark", "text"], True), (["text", "mark"], False), (["text"], False)])
def test_only_a_token_before_the_text_is_a_first_token(
    tmp_path: Path, target: Path, order: list[str], adds: bool
) -> None:
    """A template that puts a token after the text, as the end of it, does not begin one."""
    pieces = {
        "mark": {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
        "text": {"Sequence": {"id": "A", "type_id": 0}},
    }
    template = {"type": "TemplateProcessing", "single": [pieces[name] for name in order]}
    post = {"type": "Sequence", "processors": [{"type": "ByteLevel"}, template]}
    folder = edited(target, tmp_path / "m", "tokenizer.json", post_processor=post)
    assert model_file(folder, ABOUT).keys["tokenizer.ggml.add_bos_token"] is adds


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, target: Path) -> None:
    """A folder in the file's place and a folder that cannot be made are told, and no part stays behind."""
    (tmp_path / "m.gguf").mkdir()
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "m.gguf", tmp_path / "file" / "m.gguf"):
        with pytest.raises(StageError, match="cannot be written"):
            model_file(target, ABOUT).write(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "m.gguf"]


def test_values_are_the_folders(tmp_path: Path, target: Path) -> None:
    """One weight, looked at in both files."""
    model_file(target, ABOUT).write(tmp_path / "m.gguf")
    tensors = {tensor.name: tensor for tensor in GGUFReader(tmp_path / "m.gguf").tensors}
    wanted = weights(target)["model.layers.3.mlp.down_proj.weight"].numpy()
    assert np.array_equal(tensors["blk.3.ffn_down.weight"].data, wanted)
