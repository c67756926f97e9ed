"""The lean forward against transformers, family by family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from drafters.engine.target import DecoderModel, Span, TargetError
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
