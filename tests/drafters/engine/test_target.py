"""The lean forward against transformers, family by family."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from drafters.catalog import build
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request
from drafters.engine.target import DecoderModel, Span, TargetError
from drafters.projections import Int4
from drafters.quantization import Scheme, quantize_dequantize
from drafters.specs import PromptLookupSpec
from tests.drafters.models import FAMILIES, SIZES, lean, prompt, reference

# float64 keeps 15 digits; a few hundred sums of numbers near 1 lose three of them at most.
CLOSE = 1e-11


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_hidden_states_are_those_of_transformers(family: str) -> None:
    """Every logit and every hidden state, embeddings and the normed last one included."""
    tokens = prompt(1, 40)
    model = lean(family)
    want = reference(family)(torch.tensor([tokens]), output_hidden_states=True)
    layers = tuple(range(model.num_layers + 1))
    got = model.forward([Span(3, 0, tokens, 40)], model.new_cache(50), layers)
    assert got.features is not None
    torch.testing.assert_close(got.logits, want.logits[0], rtol=0, atol=CLOSE)
    for index in layers:
        torch.testing.assert_close(got.features[:, index], want.hidden_states[index][0], rtol=0, atol=CLOSE)


@pytest.mark.parametrize("family", FAMILIES)
def test_ragged_chunks_give_the_logits_of_whole_prompts(family: str) -> None:
    """Three sequences fed in uneven chunks, side by side, end with the logits of each fed whole."""
    model = lean(family)
    prompts = [prompt(2, 30), prompt(3, 9), prompt(4, 50)]
    slots = [60, 0, 10]
    cache = model.new_cache(100)
    done = [0, 0, 0]
    chunks = [(7, 1, 36), (1, 3, 4), (20, 0, 9), (1, 4, 0), (1, 1, 1)]
    logits: list[list[torch.Tensor]] = [[], [], []]
    for chunk in chunks:
        running = [index for index in range(3) if chunk[index]]
        spans = [Span(slots[i], done[i], prompts[i][done[i] : done[i] + chunk[i]], chunk[i]) for i in running]
        parts = torch.split(model.forward(spans, cache).logits, [chunk[i] for i in running])
        for index, part in zip(running, parts, strict=True):
            logits[index].append(part)
            done[index] += chunk[index]
    assert done == [30, 9, 50]
    for tokens, parts_of_one in zip(prompts, logits, strict=True):
        want = reference(family)(torch.tensor([tokens])).logits[0]
        torch.testing.assert_close(torch.cat(parts_of_one), want, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("family", ["llama", "qwen3-moe"])
def test_each_path_of_a_tree_has_the_logits_of_its_chain(family: str) -> None:
    """A node sees the prefix and its ancestors only, at the position of its depth; its cousins do not exist for it."""
    model = lean(family)
    prefix, root = prompt(5, 20), 7
    nodes, parents = [11, 12, 13, 14, 15], (-1, -1, 0, 1, 3)
    paths = {2: [11, 13], 4: [12, 14, 15]}
    cache = model.new_cache(40)
    model.forward([Span(0, 0, prefix, 0)], cache)
    logits = model.forward([Span(0, 20, [root, *nodes], 6, parents)], cache).logits
    for node, path in paths.items():
        want = reference(family)(torch.tensor([[*prefix, root, *path]])).logits[0, -1]
        torch.testing.assert_close(logits[node + 1], want, rtol=0, atol=CLOSE)


def test_compacting_the_accepted_path_continues_like_a_chain() -> None:
    """After the path (1, 3) is moved into place, the next token's logits are those of the chain alone."""
    model = lean("llama")
    prefix = prompt(6, 10)
    cache = model.new_cache(30, num_feature_layers=1)
    model.forward([Span(0, 0, prefix, 0)], cache, (1,))
    taken = model.forward([Span(0, 10, [7, 11, 12, 13, 14], 0, (-1, -1, 0, 1))], cache, (1,)).features
    cache.compact(11, (1, 3))
    logits = model.forward([Span(0, 13, [9], 1)], cache).logits[0]
    want = reference("llama")(torch.tensor([[*prefix, 7, 12, 14, 9]])).logits[0, -1]
    torch.testing.assert_close(logits, want, rtol=0, atol=CLOSE)
    assert cache.features is not None
    assert taken is not None
    torch.testing.assert_close(cache.features[10:13], taken[[0, 2, 4]], rtol=0, atol=0)


def test_copied_slots_stand_for_the_tokens_they_came_from() -> None:
    """A prefix copied to another sequence's slots is as good as one computed there."""
    model = lean("qwen3")
    tokens = prompt(7, 12)
    cache = model.new_cache(40)
    want = model.forward([Span(0, 0, tokens, 1)], cache).logits
    cache.copy(0, 20, 11)
    torch.testing.assert_close(model.forward([Span(20, 11, tokens[11:], 1)], cache).logits, want, rtol=0, atol=CLOSE)


def test_a_saved_folder_loads_and_says_the_same(tmp_path: Path) -> None:
    """Loading from a folder gives the logits of the model that was saved, in the type asked for."""
    torch.manual_seed(0)
    saved = FAMILIES["qwen3-moe"]()
    saved.save_pretrained(tmp_path)
    model = DecoderModel.load(tmp_path, dtype=torch.float32)
    tokens = prompt(8, 10)
    got = model.forward([Span(0, 0, tokens, 10)], model.new_cache(10)).logits
    # float32 keeps 7 digits of numbers near 10.
    torch.testing.assert_close(got, saved(torch.tensor([tokens])).logits[0], rtol=0, atol=1e-4)


def test_bfloat16_runs_and_stays_near_float64() -> None:
    """The pass works in bfloat16; 8 bits of mantissa over two layers stay within a tenth of the logits' spread."""
    model = DecoderModel(reference("llama", dtype=torch.bfloat16))
    tokens = prompt(9, 16)
    got = model.forward([Span(0, 0, tokens, 16)], model.new_cache(16)).logits.double()
    want = lean("llama").forward([Span(0, 0, tokens, 16)], lean("llama").new_cache(16)).logits
    assert float((got - want).abs().mean()) < 0.1 * float(want.std())


@pytest.mark.parametrize("scheme", ["rtn4", "nf4"])
@pytest.mark.parametrize("family", ["llama-untied-bias-rope3", "qwen3", "qwen3-moe"])
def test_quantized_logits_are_those_of_transformers_with_quantized_weights(family: str, scheme: Scheme) -> None:
    """Every projection of every layer, each expert too; embeddings, norms, biases, router and head stay as they are."""
    tokens = prompt(11, 30)
    model = copy.deepcopy(reference(family))
    for name, parameter in model.named_parameters():
        if "_proj" in name and not name.endswith("bias"):
            matrices = parameter.data if parameter.dim() == 3 else parameter.data.unsqueeze(0)
            for matrix in matrices:
                matrix.copy_(quantize_dequantize(matrix, scheme))
    got = DecoderModel(reference(family), weights=scheme)
    logits = got.forward([Span(0, 0, tokens, 30)], got.new_cache(30)).logits
    torch.testing.assert_close(logits, model(torch.tensor([tokens])).logits[0], rtol=0, atol=CLOSE)
    assert not torch.allclose(logits, lean(family).forward([Span(0, 0, tokens, 30)], got.new_cache(30)).logits)


@pytest.mark.parametrize("scheme", ["rtn4", "nf4"])
@pytest.mark.parametrize("family", ["llama", "qwen3-moe"])
def test_drafting_changes_no_token_of_a_quantized_target(family: str, scheme: Scheme) -> None:
    """In float32, three requests of uneven lengths together: with nine rows a round as with one."""
    target = DecoderModel(reference(family, dtype=torch.float32), weights=scheme)
    answers = []
    for drafter in ("lookup", None):
        runner = Runner(target, 300, {"lookup": build(PromptLookupSpec(min_ngram=1), target, 300)})
        running = [runner.add(Request(tuple(prompt(seed, 9 * seed)), 40, drafter=drafter)) for seed in (1, 2, 3)]
        while runner.busy:
            runner.step()
        answers.append([sequence.token_ids for sequence in running])
        assert (runner.counters.num_accepted_tokens > 0) == (drafter is not None)
    assert answers[0] == answers[1]


def test_it_says_how_weights_are_held_and_what_a_step_reads() -> None:
    """Llama: two layers of 32 · 64 (q, k, v), 32 · 32, 32 · 96 and 48 · 32 weights and two norms of 32, the final norm,
    the head of 61 · 32 and one row of 32. Of six experts in Qwen3-MoE a token visits two."""
    layer = 32 * 64 + 32 * 32 + 32 * 96 + 48 * 32 + 2 * 32
    assert lean("llama").weight_bytes == 8 * (2 * layer + 32 + 61 * 32 + 32)
    moe = lean("qwen3-moe")
    expert, router = 32 * 48 + 24 * 32, 6 * 32
    assert moe.layers[0].mlp.weight_bytes == 8 * (router + 2 * expert)
    assert lean("llama").storage == "float64"
    small = DecoderModel(reference("llama", dtype=torch.float32), weights="rtn4")
    assert small.storage.startswith("4-bit round-to-nearest in groups of 32, dequantized to float32")
    assert small.weight_bytes == 4 * (2 * layer + 32 + 61 * 32 + 32)  # nothing is saved where nothing is packed
    assert DecoderModel(reference("llama"), weights="nf4").storage == (
        "NF4 in blocks of 64, dequantized to float64; embeddings, norms and head plain"
    )
    with pytest.raises(TargetError, match="weights 'int8' given; allowed: plain, rtn4, nf4"):
        DecoderModel(reference("llama"), weights="int8")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ({32}, "32, 4 of 8 projections packed for an int4 product, the others dequantized to bfloat16"),
        ({32, 64, 96}, "32, packed for an int4 product; embeddings"),
        (set(), "32, dequantized to bfloat16"),
    ],
)
def test_storage_counts_the_projections_that_are_packed(
    monkeypatch: pytest.MonkeyPatch, outputs: set[int], said: str
) -> None:
    """Two layers of four: into heads (64 outputs) and out of them (32), into the MLP (96) and out of it (32)."""
    monkeypatch.setattr(Int4, "suits", staticmethod(lambda weight: weight.shape[0] in outputs))
    assert said in DecoderModel(reference("llama", dtype=torch.bfloat16), weights="rtn4").storage


def test_what_it_cannot_run_is_refused_by_name(tmp_path: Path) -> None:
    """Another family, quantized weights, a window, moving angles, an empty folder and a position past the end, each with a
    reason."""
    GPT2LMHeadModel(GPT2Config(vocab_size=10, n_embd=8, n_layer=1, n_head=1)).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(TargetError, match="'gpt2' given; this engine runs llama"):
        DecoderModel.load(tmp_path / "gpt2")
    with pytest.raises(TargetError, match="holds no config"):
        DecoderModel.load(tmp_path)
    window: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}
    with pytest.raises(TargetError, match="sliding-window"):
        DecoderModel(Qwen2ForCausalLM(Qwen2Config(**SIZES, **window)))
    moving = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    with pytest.raises(TargetError, match="'dynamic' changes with the length"):
        DecoderModel(LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=moving)))
    with pytest.raises(TargetError, match="'gelu' given; this engine runs models with 'silu'"):
        DecoderModel(LlamaForCausalLM(LlamaConfig(**SIZES, hidden_act="gelu")))
    packed: Any = LlamaForCausalLM(LlamaConfig(**SIZES))
    packed.config.quantization_config = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    with pytest.raises(TargetError, match=r"weights are quantized \(fp8\); this engine runs plain ones"):
        DecoderModel(packed)
    model = lean("llama")
    with pytest.raises(ValueError, match="position 256 asked for"):
        model.forward([Span(0, 256, [1], 1)], model.new_cache(300))


def test_a_damaged_folder_is_refused_and_not_filled_up(tmp_path: Path) -> None:
    """A configuration that is no JSON, no weights, one tensor missing, which transformers would draw at random."""
    FAMILIES["qwen3"]().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        TargetError, match=r"lack model\.layers\.1\.mlp\.up_proj\.weight and 0 more; get the model again"
    ):
        DecoderModel.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"short")
    with pytest.raises(TargetError, match="cannot be loaded"):
        DecoderModel.load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(TargetError, match="cannot be loaded"):
        DecoderModel.load(tmp_path)
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(TargetError, match=r"config\.json cannot be used"):
        DecoderModel.load(tmp_path)
