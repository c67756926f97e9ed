"""A smaller model as drafter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from drafters.base import Commit, Draft, DraftRequest, Sampling
from drafters.catalog import build
from drafters.draft_model import DraftModel
from drafters.engine.kv_cache import KvCache
from drafters.engine.target import DecoderModel, Output, Span
from drafters.specs import DraftModelSpec, SpecError
from tests.drafters.models import FAMILIES, VOCAB, greedy, lean, prompt, reference


class Watched(DecoderModel):
    """Writes down the rows of each pass."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.fed: list[int] = []

    def forward(self, spans: Sequence[Span], cache: KvCache, feature_layers: Sequence[int] = ()) -> Output:
        """Note the rows, then run them."""
        self.fed.append(sum(len(span.token_ids) for span in spans))
        return super().forward(spans, cache, feature_layers)


def opened(drafter: DraftModel, tokens: list[int], max_length: int = 100) -> DraftModel:
    """The drafter with one sequence, 0, that has these tokens."""
    drafter.open(0, max_length)
    drafter.commit([Commit(0, 0, tuple(tokens))])
    return drafter


@pytest.mark.parametrize("length", [5, 80])
def test_it_drafts_what_its_model_would_say(length: int) -> None:
    """Greedy drafts are its model's greedy text, after short prompts and after ones digested ahead."""
    drafter = opened(DraftModel(lean("qwen3"), VOCAB, 200, 4), prompt(1, length))
    assert drafter.propose([DraftRequest(0, prompt(1, length), 4)]) == [
        Draft(tuple(greedy("qwen3", prompt(1, length), 4)))
    ]


def test_rejected_tokens_leave_no_trace() -> None:
    """After a draft of which one token was kept, the next is that of a model that never saw the others."""
    tokens = prompt(2, 9)
    drafter = opened(DraftModel(lean("llama"), VOCAB, 200, 4), tokens)
    first = drafter.propose([DraftRequest(0, tokens, 4)])[0].token_ids
    tokens = [*tokens, first[0], (first[1] + 1) % VOCAB]
    drafter.commit([Commit(0, 9, tuple(tokens[9:]))])
    assert drafter.propose([DraftRequest(0, tokens, 4)])[0].token_ids == tuple(greedy("llama", tokens, 4))


def test_sequences_are_drafted_together_and_do_not_mix() -> None:
    """Three sequences with lengths 1, 4 and 2 in one call, of which one is new to the model."""
    texts = [prompt(seed, 6 + seed) for seed in range(3)]
    drafter = DraftModel(lean("llama"), VOCAB, 200, 4)
    for number, text in enumerate(texts):
        drafter.open(number, 50)
        drafter.commit([Commit(number, 0, tuple(text))])
    drafter.propose([DraftRequest(0, texts[0], 2), DraftRequest(1, texts[1], 2)])
    requests = [DraftRequest(n, text, k) for n, (text, k) in enumerate(zip(texts, (1, 4, 2), strict=True))]
    for request, draft in zip(requests, drafter.propose(requests), strict=True):
        assert draft.token_ids == tuple(greedy("llama", list(request.token_ids), request.num_tokens))


def test_sampled_drafts_carry_the_distribution_they_came_from() -> None:
    """Rows sum to one, give the drawn token a chance, keep to top-k; a greedy neighbour's draft is one-hot."""
    tokens = prompt(3, 9)
    drafter = opened(DraftModel(lean("llama"), VOCAB + 3, 200, 4), tokens)
    drafter.open(1, 50)
    drafter.commit([Commit(1, 0, tuple(tokens))])
    warm = DraftRequest(0, tokens, 4, Sampling(1.0, top_k=5), torch.Generator().manual_seed(1))
    sampled, plain = drafter.propose([warm, DraftRequest(1, tokens, 2)])
    assert sampled.probs is not None
    assert sampled.probs.shape == (4, VOCAB + 3)
    assert (sampled.probs > 0).sum(-1).tolist() == [5] * 4
    assert sampled.probs.sum(-1).tolist() == pytest.approx([1.0] * 4)
    assert all(float(sampled.probs[i, token]) > 0 for i, token in enumerate(sampled.token_ids))
    assert (plain.probs, plain.token_ids) == (None, tuple(greedy("llama", tokens, 2)))


def test_without_room_it_drafts_nothing_until_there_is_some() -> None:
    """Memory for one sequence of 40: the second waits, and drafts once the first is gone."""
    tokens = prompt(4, 9)
    drafter = opened(DraftModel(lean("llama"), VOCAB, 50, 4), tokens, 40)
    drafter.open(1, 40)
    drafter.commit([Commit(1, 0, tuple(tokens))])
    requests = [DraftRequest(0, tokens, 2), DraftRequest(1, tokens, 2)]
    assert [len(draft) for draft in drafter.propose(requests)] == [2, 0]
    drafter.release(0)
    assert drafter.propose(requests[1:])[0].token_ids == tuple(greedy("llama", tokens, 2))


@pytest.mark.parametrize("cached", [True, False])
def test_a_known_beginning_is_fed_again_only_where_reuse_is_off(cached: bool) -> None:
    """60 tokens left by a finished sequence: the next one with the same 60 feeds its 40 others, or all 100 less the
    last."""
    model = Watched(reference("llama"))
    drafter = opened(DraftModel(model, VOCAB, 400, 2), prompt(5, 61))
    drafter.release(0)
    tokens = prompt(5, 61)[:60] + prompt(6, 41)
    drafter.open(1, 120)
    drafter.commit([Commit(1, 0, tuple(tokens), cached=cached)])
    assert model.fed == [60, 40 if cached else 100]
    assert drafter.propose([DraftRequest(1, tokens, 2)])[0].token_ids == tuple(greedy("llama", tokens, 2))


def test_a_large_backlog_is_digested_in_passes_of_512_rows() -> None:
    """Eight prompts of 101 tokens at once: 64 of each, then 36 of each; the last tokens wait for the draft."""
    model = Watched(reference("llama"))
    drafter = DraftModel(model, VOCAB, 1000, 2)
    texts = [prompt(seed, 101) for seed in range(8)]
    for number in range(8):
        drafter.open(number, 120)
    drafter.commit([Commit(number, 0, tuple(text)) for number, text in enumerate(texts)])
    assert model.fed == [512, 288]
    for draft, text in zip(drafter.propose([DraftRequest(n, t, 2) for n, t in enumerate(texts)]), texts, strict=True):
        assert draft.token_ids == tuple(greedy("llama", text, 2))
    assert model.fed == [512, 288, 8, 8]


def test_a_backlog_left_by_lack_of_room_is_digested_before_the_draft() -> None:
    """Room for one: the second of two prompts of 101 tokens is fed when it drafts, 100 tokens first, then the last."""
    model = Watched(reference("llama"))
    tokens = prompt(7, 101)
    drafter = opened(DraftModel(model, VOCAB, 150, 2), tokens, 120)
    drafter.open(1, 120)
    drafter.commit([Commit(1, 0, tuple(tokens))])
    assert model.fed == [100]
    drafter.release(0)
    assert drafter.propose([DraftRequest(1, tokens, 2)])[0].token_ids == tuple(greedy("llama", tokens, 2))
    assert model.fed == [100, 100, 1, 1]


def test_a_model_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    """Padding may differ, tokenizers may not; built from its description as from a folder."""
    FAMILIES["llama"]().save_pretrained(tmp_path)
    spec = DraftModelSpec(model=tmp_path, num_tokens=3)
    drafter = build(spec, lean("qwen2"), 100)
    assert (drafter.max_nodes, drafter.tree, drafter.feature_layers) == (3, False, ())
    with pytest.raises(SpecError, match="has 61 entries, the target's 2000; give a model with the target's tokenizer"):
        DraftModel(lean("llama"), 2000, 100)


def test_a_folder_without_a_model_is_refused_in_words(tmp_path: Path) -> None:
    """None there, one of another family, one whose weights are gone: an error of the description, not of the loader."""
    with pytest.raises(SpecError, match=r"draft_model: .*none holds no config\.json; give a local Hugging Face model"):
        build(DraftModelSpec(model=tmp_path / "none"), lean("llama"), 100)
    GPT2LMHeadModel(GPT2Config(vocab_size=10, n_embd=8, n_layer=1, n_head=1)).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(SpecError, match="draft_model: model type 'gpt2' given; this engine runs llama"):
        build(DraftModelSpec(model=tmp_path / "gpt2"), lean("llama"), 100)
    FAMILIES["llama"]().save_pretrained(tmp_path / "gone")
    (tmp_path / "gone" / "model.safetensors").unlink()
    with pytest.raises(SpecError, match=r"draft_model: .*gone cannot be loaded .*; get the model again"):
        build(DraftModelSpec(model=tmp_path / "gone"), lean("llama"), 100)


def test_a_model_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    """Vocabularies of one size with other texts: the first id that differs is named. Padding and tokens added beside the
    vocabulary may differ, and a folder without a tokenizer is taken at its word."""
    for name, texts in (("target", ["a", "b", "c"]), ("same", ["a", "b", "c", "more"]), ("other", ["a", "c", "b"])):
        FAMILIES["llama"]().save_pretrained(tmp_path / name)
        made = {"model": {"vocab": {text: index for index, text in enumerate(texts)}}, "added_tokens": [{"id": 60}]}
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(made), encoding="utf-8")
    target = DecoderModel.load(tmp_path / "target")
    assert build(DraftModelSpec(model=tmp_path / "same"), target, 100).max_nodes == 4
    with pytest.raises(
        SpecError, match=r"draft_model: token 1 is 'c' in .*other and 'b' in .*target; give a model with"
    ):
        build(DraftModelSpec(model=tmp_path / "other"), target, 100)
    (tmp_path / "other" / "tokenizer.json").unlink()
    assert build(DraftModelSpec(model=tmp_path / "other"), target, 100).max_nodes == 4
