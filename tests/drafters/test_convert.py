"""GGUF files become folders that transformers and this engine read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType, quants
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from drafters.convert import ConvertError, convert, main
from drafters.engine.target import DecoderModel
from drafters.gguf_tokenizer import tokenizer_of
from tests.drafters.gguf_files import TOKENS, write_gguf
from tests.drafters.models import reference

FIELDS: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.merges": [],
    "tokenizer.ggml.bos_token_id": 0,
}


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_converted_model_is_the_one_that_went_into_the_file(family: str, tmp_path: Path) -> None:
    """Every weight, tied heads and biases of q, k and v included, and so the logits, bit by bit in float32."""
    model = reference(family, dtype=torch.float32)
    write_gguf(tmp_path / "model.gguf", model, family)
    convert(tmp_path / "model.gguf", tmp_path / "made")
    made: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "made", dtype=torch.float32)
    assert made.config.tie_word_embeddings == model.config.tie_word_embeddings
    want = model.state_dict()
    assert made.state_dict().keys() == want.keys()
    assert all(torch.equal(tensor, want[name]) for name, tensor in made.state_dict().items())
    torch.testing.assert_close(made.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq)
    assert DecoderModel.load(tmp_path / "made").vocab_size == len(TOKENS)


def test_biases_and_an_untied_head_come_along(tmp_path: Path) -> None:
    """A llama with biases everywhere; those of q and k are reordered as their weights are."""
    model = reference("llama-untied-bias-rope3", dtype=torch.float32)
    write_gguf(tmp_path / "model.gguf", model, "llama")
    convert(tmp_path / "model.gguf", tmp_path / "made")
    made: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "made", dtype=torch.float32)
    want = model.state_dict()
    assert all(torch.equal(tensor, want[name]) for name, tensor in made.state_dict().items())


def test_tokenizer_template_and_end_tokens_come_along(tmp_path: Path) -> None:
    """Merges, special tokens, the chat template and every token that ends a turn, for transformers' own loaders."""
    write_gguf(
        tmp_path / "model.gguf",
        reference("qwen2", dtype=torch.float32),
        "qwen2",
        keys={"tokenizer.ggml.eot_token_id": 7},
    )
    convert(tmp_path / "model.gguf", tmp_path / "made")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "made")
    text = tokenizer.apply_chat_template([{"role": "user", "content": "ab ab"}], tokenize=False)
    assert text == "<|start|>ab ab<|end|>"
    ids = tokenizer(text)["input_ids"]
    assert [TOKENS[index] for index in ids] == ["<|start|>", "ab", "Ġab", "<|end|>"]
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special_tokens=True) == "ab ab"
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|start|>", "<|end|>")
    assert GenerationConfig.from_pretrained(tmp_path / "made").eos_token_id == [1, 7]


@pytest.mark.parametrize(
    ("cut", "text", "pieces"),
    [
        ("gpt-2", "It's 2024!", ["It", "'s", "Ġ2024", "!"]),
        ("smollm", "It's 2024!", ["It", "'s", "Ġ", "2", "0", "2", "4", "!"]),
        ("qwen2", "It's 2024!", ["It", "'s", "Ġ", "2", "0", "2", "4", "!"]),
        ("llama-bpe", "It's 2024!", ["It", "'s", "Ġ", "202", "4", "!"]),
        ("gpt-2", "a\n  b", ["a", "ĊĠ", "Ġb"]),
        ("qwen2", "a\n  b", ["a", "Ċ", "Ġ", "Ġb"]),
        ("qwen2", "IT'S a_b", ["IT", "'S", "Ġa", "_b"]),
        ("gpt-2", "IT'S a_b", ["IT", "'", "S", "Ġa", "_", "b"]),
    ],
)
def test_text_is_cut_as_the_file_says(cut: str, text: str, pieces: list[str]) -> None:
    """Digits one by one, by threes or as they come; case of contractions; line ends; a sign before letters."""
    tokenizer = tokenizer_of(FIELDS | {"tokenizer.ggml.pre": cut})
    cutting = tokenizer.backend_tokenizer.pre_tokenizer
    assert [piece for piece, _ in cutting.pre_tokenize_str(text)] == pieces


def test_a_beginning_token_is_added_where_the_file_asks_for_one() -> None:
    """By its own word, or by the way of the Llama 3 family; a template's own is not doubled."""
    assert tokenizer_of(FIELDS)("a")["input_ids"] == [56]
    assert tokenizer_of(FIELDS | {"tokenizer.ggml.add_bos_token": True})("a")["input_ids"] == [0, 56]
    assert tokenizer_of(FIELDS | {"tokenizer.ggml.pre": "llama-bpe"})("a")["input_ids"] == [0, 56]
    assert tokenizer_of(FIELDS)("a", add_special_tokens=False)["input_ids"] == [56]


def test_quantized_tensors_become_the_floats_they_stand_for(tmp_path: Path) -> None:
    """A block of eight-bit weights, as the gguf package dequantizes it, in shape and type."""
    model = reference("qwen2", dtype=torch.float32)
    values = model.model.layers[0].mlp.up_proj.weight.detach().numpy()
    packed = quants.quantize(values, GGMLQuantizationType.Q8_0)
    write_gguf(tmp_path / "model.gguf", model, "qwen2", quantized={"blk.0.ffn_up.weight": GGMLQuantizationType.Q8_0})
    convert(tmp_path / "model.gguf", tmp_path / "made")
    made: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "made", dtype=torch.float32)
    want = torch.from_numpy(quants.dequantize(packed, GGMLQuantizationType.Q8_0))
    assert torch.equal(made.model.layers[0].mlp.up_proj.weight, want)
    assert not torch.equal(want, torch.from_numpy(values))


@pytest.mark.parametrize(
    ("kind", "keys", "said"),
    [
        ("gemma3", {}, "holds a 'gemma3' model; allowed: llama, qwen2, qwen3"),
        ("qwen2", {"qwen2.rope.scaling.type": "yarn"}, "stretches its positions (rope scaling 'yarn')"),
        ("qwen2", {"tokenizer.ggml.model": "llama"}, "tokenizer is 'llama'; allowed: 'gpt2'"),
        ("qwen2", {"tokenizer.ggml.pre": "tekken"}, "cut as 'tekken' before the merges; known: gpt-2, llama-bpe"),
        ("qwen2", {"qwen2.block_count": None}, "does not say qwen2.block_count"),
        ("qwen2", {"tokenizer.ggml.merges": ["a x"]}, "merge 'a x' makes no token"),
    ],
)
def test_a_file_of_another_kind_is_refused_and_leaves_nothing(
    kind: str, keys: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """What was found, what is allowed; no folder, no part of one."""
    write_gguf(tmp_path / "model.gguf", reference("qwen2", dtype=torch.float32), kind, keys=keys)
    with pytest.raises(ConvertError) as caught:
        convert(tmp_path / "model.gguf", tmp_path / "made")
    assert said in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_an_unknown_tensor_is_refused_half_way_and_leaves_nothing(tmp_path: Path) -> None:
    """A qwen3 file with a tensor of some later kind: ignoring it would give another model."""
    model = reference("qwen2", dtype=torch.float32)
    write_gguf(tmp_path / "model.gguf", model, "qwen2", extra="blk.1.attn_sinks.weight")
    with pytest.raises(ConvertError, match=r"tensor 'blk\.1\.attn_sinks\.weight' that is not known"):
        convert(tmp_path / "model.gguf", tmp_path / "made")
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_bad_paths_are_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No file, no GGUF file, a folder in use; the command says so and ends with 2."""
    (tmp_path / "text.gguf").write_text("not a model at all", encoding="utf-8")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    for source, folder, said in (
        ("none.gguf", "made", "there is no file"),
        ("text.gguf", "made", "cannot be read as GGUF"),
        ("text.gguf", "used", "is there and not empty"),
    ):
        assert main([str(tmp_path / source), str(tmp_path / folder)]) == 2
        assert said in capsys.readouterr().err


def test_the_command_makes_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty folder that is there gives way; every weight is read once."""
    write_gguf(tmp_path / "model.gguf", reference("qwen3", dtype=torch.float32), "qwen3")
    (tmp_path / "made").mkdir()
    assert main([str(tmp_path / "model.gguf"), str(tmp_path / "made")]) == 0
    assert "made" in capsys.readouterr().err
    assert {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    } <= {path.name for path in (tmp_path / "made").iterdir()}
    shares: list[float] = []
    convert(tmp_path / "model.gguf", tmp_path / "again", shares.append)
    assert shares == sorted(shares)
    assert (len(shares), shares[-1]) == (len(reference("qwen3").state_dict()), 1.0)
