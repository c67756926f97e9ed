"""EAGLE-3: fused levels, a vocabulary of its own, chains and trees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import rms_norm

from drafters.base import Commit, Draft, DraftRequest
from drafters.catalog import build
from drafters.checkpoint import Checkpoint
from drafters.eagle3 import Eagle3, feature_layers, tensor_shapes, untrained
from drafters.layers import CachedRows, DecoderLayer
from drafters.specs import Eagle3Spec, SpecError
from tests.drafters.feeding import (
    OneHot,
    assert_chunks_do_not_matter,
    assert_rejected_drafts_leave_no_trace,
    assert_together_is_as_alone,
    draft_of,
    one_hot,
    opened,
    target_features,
)
from tests.drafters.models import VOCAB, lean, prompt

# Draft ids 0 to 3 stand for these target ids, so the offsets are 1, 2, 2 and 4.
KNOWN = (1, 3, 4, 7)


def by_hand(*levels: float, **config: Any) -> Checkpoint:
    """A layer that adds nothing: what comes out is the sum of the three levels with these weights. The head knows four
    tokens."""
    made = untrained(OneHot(), draft_vocab_size=4)
    tensors = {
        name: torch.ones_like(tensor) if tensor.dim() == 1 else torch.zeros_like(tensor)
        for name, tensor in made.tensors.items()
    }
    tensors["fc.weight"] = torch.cat([weight * torch.eye(8) for weight in levels], dim=1)
    tensors["lm_head.weight"] = torch.eye(8)[list(KNOWN)]
    tensors["d2t"] = torch.tensor([1, 2, 2, 4])
    tensors["t2d"] = torch.tensor([token in KNOWN for token in range(8)])
    return Checkpoint({**made.config, **config}, tensors)


def make(tree_nodes: int | None = None) -> Eagle3:
    """Random weights for a tiny target of which it knows 40 tokens; four deep."""
    return Eagle3(untrained(lean("llama"), 40), lean("llama"), 4, tree_nodes, top_k=3)


def plain_logs(checkpoint: Checkpoint, tokens: Sequence[int], path: Sequence[int]) -> Tensor:
    """Log probabilities [draft vocab] after ``tokens`` and drafted ones: passes over all pairs, nothing cached."""
    target = lean("llama")
    shape = checkpoint.layer_shape(attention_width=2)
    shapes = tensor_shapes(shape, checkpoint.number("draft_vocab_size"), target.vocab_size)
    weights = checkpoint.fitted(shapes, target.dtype, target.device)
    layer = DecoderLayer(shape, weights, "midlayer.")

    def norm(rows: Tensor, name: str) -> Tensor:
        return rms_norm(rows, (shape.hidden_size,), weights[f"{name}.weight"], shape.eps)

    with torch.inference_mode():
        low, mid, high = target_features("llama", tokens[:-1], feature_layers(target.num_layers)).unbind(1)
        hidden = torch.cat((low, mid, high), dim=-1) @ weights["fc.weight"].T
        ids = [*tokens[1:], *path]
        for length in range(len(tokens) - 1, len(ids) + 1):
            embedded = target.embed(torch.tensor(ids[:length]))
            both = torch.cat((norm(embedded, "midlayer.input_layernorm"), norm(hidden, "midlayer.hidden_norm")), dim=-1)
            rows = CachedRows.chain(layer.new_cache(length), 0, length)
            hidden = torch.cat((hidden, layer(both, hidden, [rows])[-1:]))
        return torch.log_softmax(norm(hidden[-1:], "norm") @ weights["lm_head.weight"].T, dim=-1)[0]


def target_ids(checkpoint: Checkpoint) -> list[int]:
    """The target's id of each draft id."""
    offsets: list[int] = checkpoint.tensors["d2t"].tolist()
    return [draft_id + offset for draft_id, offset in enumerate(offsets)]


def paths_of(draft: Draft) -> list[tuple[int, ...]]:
    """The tokens from the root to each node of a tree."""
    assert draft.parents is not None
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(draft.token_ids, draft.parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths


def test_levels_are_low_middle_and_high() -> None:
    """36 layers as published; below six they are clamped to what lies between embeddings and normed state."""
    assert feature_layers(36) == (2, 18, 33)
    assert feature_layers(6) == (2, 3, 3)
    assert feature_layers(5) == (2, 2, 2)
    assert feature_layers(4) == (1, 2, 2)
    assert feature_layers(2) == (1, 1, 1)


@pytest.mark.parametrize(("levels", "token"), [((1, 0, 0), 1), ((0, 1, 0), 4), ((0, 0, 1), 7), ((2, 1, 1), 1)])
def test_draft_ids_become_target_ids(levels: tuple[float, float, float], token: int) -> None:
    """The last state says 1, 4 and 7 in its levels, draft ids 0, 2 and 3; its own output says the same again."""
    drafter = Eagle3(by_hand(*levels), OneHot(), 3)
    drafter.open(0, 20)
    drafter.commit([Commit(0, 0, (1, 2, 5), one_hot([[3, 3, 3], [1, 4, 7]]))])
    assert drafter.feature_layers == (2, 3, 3)
    assert draft_of(drafter, (1, 2, 5)) == Draft((token, token, token))
    assert draft_of(drafter, (1, 2, 5), 1) == Draft((token,))
    assert drafter.logits(0).shape == (4,)


def test_a_tree_keeps_the_likeliest_paths() -> None:
    """The state says 4 with 0.7 and 7 with 0.2, and so does every output: 4 twice has 0.5 and stands before 7 alone; six
    nodes are both tokens, each with both below it."""
    state = 2 * one_hot([[4, 4, 4]]) + one_hot([[7, 7, 7]])
    bushy = Eagle3(by_hand(0, 0, 1), OneHot(), 2, tree_nodes=6, top_k=2)
    bushy.open(0, 20)
    bushy.commit([Commit(0, 0, (1, 2), state)])
    assert bushy.tree
    assert draft_of(bushy, (1, 2)) == Draft((4, 7, 4, 7, 4, 7), parents=(-1, -1, 0, 0, 1, 1))
    assert draft_of(bushy, (1, 2), 3) == Draft((4, 7, 4), parents=(-1, -1, 0))
    assert draft_of(bushy, (1, 2), 2) == Draft((4, 4), parents=(-1, 0))
    assert draft_of(bushy, (1, 2), 1) == Draft((4,), parents=(-1,))


@pytest.mark.parametrize("nodes", [1, 4, 7])
def test_a_tree_is_the_best_of_all_paths(nodes: int) -> None:
    """With five draft tokens there are 155 paths up to depth three; a tree of n nodes has the n likeliest of them,
    each likelihood computed from whole passes."""
    checkpoint, tokens = untrained(lean("llama"), 5, seed=3), prompt(1, 8)
    ids = target_ids(checkpoint)
    scores: dict[tuple[int, ...], float] = {}
    level: dict[tuple[int, ...], float] = {(): 0.0}
    for _ in range(3):
        level = {
            (*path, token): score + log
            for path, score in level.items()
            for token, log in zip(ids, plain_logs(checkpoint, tokens, path).tolist(), strict=True)
        }
        scores |= level
    assert len(scores) == 155
    best = sorted(scores, key=lambda path: -scores[path])[:nodes]
    drafter = opened(Eagle3(checkpoint, lean("llama"), 3, tree_nodes=nodes, top_k=5), "llama", tokens)
    draft = draft_of(drafter, tokens)
    assert len(draft) == nodes
    assert set(paths_of(draft)) == set(best)


def test_cached_drafts_are_those_of_whole_passes() -> None:
    """Four tokens, drafted after a rejected draft and a second commit, equal those computed without any cache."""
    drafter, checkpoint, tokens = make(), untrained(lean("llama"), 40), prompt(1, 11)
    opened(drafter, "llama", tokens[:6])
    draft_of(drafter, tokens[:6])
    features = target_features("llama", tokens[:-1], drafter.feature_layers)
    drafter.commit([Commit(0, 6, tuple(tokens[6:]), features[5:])])
    path: list[int] = []
    for _ in range(4):
        path.append(target_ids(checkpoint)[int(plain_logs(checkpoint, tokens, path).argmax())])
    assert draft_of(drafter, tokens).token_ids == tuple(path)


def test_a_tree_of_one_child_each_is_the_chain() -> None:
    """The same four tokens, each the parent of the next."""
    tokens = prompt(5, 9)
    chain = draft_of(opened(make(), "llama", tokens), tokens)
    thin = Eagle3(untrained(lean("llama"), 40), lean("llama"), 4, tree_nodes=4, top_k=1)
    assert len(chain) == 4
    assert draft_of(opened(thin, "llama", tokens), tokens) == Draft(chain.token_ids, parents=(-1, 0, 1, 2))


def test_trees_are_well_formed_and_as_large_as_asked() -> None:
    """At most three different children a node, no node deeper than four, exactly the nodes asked for."""
    tokens = prompt(6, 9)
    drafter = opened(make(tree_nodes=20), "llama", tokens)
    for nodes in (1, 2, 11, 20):
        draft = drafter.propose([DraftRequest(0, tokens, nodes)])[0]
        assert len(draft) == nodes
        assert max(draft.depths()) <= 4
        assert len(set(paths_of(draft))) == nodes
        assert draft.parents is not None
        assert all(draft.parents.count(parent) <= 3 for parent in draft.parents)


def test_a_smaller_vocabulary_drafts_only_what_it_knows() -> None:
    """Five of 61 tokens, whatever the state."""
    checkpoint = untrained(lean("llama"), 5)
    known = set(target_ids(checkpoint))
    assert len(known) == 5
    assert [token for token in range(VOCAB) if checkpoint.tensors["t2d"][token]] == sorted(known)
    tokens = prompt(7, 9)
    tree = Eagle3(checkpoint, lean("llama"), 3, tree_nodes=30, top_k=8)
    assert set(draft_of(opened(tree, "llama", tokens), tokens).token_ids) <= known


@pytest.mark.parametrize("tree_nodes", [None, 9])
def test_a_saved_checkpoint_drafts_the_same(tree_nodes: int | None, tmp_path: Path) -> None:
    """Published names on disk, offsets as whole numbers; what is loaded drafts as what was saved."""
    checkpoint, target, tokens = untrained(lean("llama"), 40, seed=5), lean("llama"), prompt(1, 9)
    checkpoint.save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert {"fc.weight", "midlayer.hidden_norm.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"} <= set(tensors)
    assert (tensors["d2t"].dtype, tensors["t2d"].dtype) == (torch.int64, torch.bool)
    loaded = build(Eagle3Spec(model=tmp_path, num_tokens=4, tree_nodes=tree_nodes), target, 100)
    assert isinstance(loaded, Eagle3)
    saved = opened(Eagle3(checkpoint, target, 4, tree_nodes), "llama", tokens)
    assert torch.equal(opened(loaded, "llama", tokens).logits(0), saved.logits(0))
    assert draft_of(loaded, tokens) == draft_of(saved, tokens)


def test_the_other_published_name_of_the_layer_is_read() -> None:
    """``layers.0.`` for ``midlayer.``, with the architecture's other name."""
    checkpoint, tokens = untrained(lean("llama"), 40), prompt(1, 9)
    renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in checkpoint.tensors.items()}
    other = Checkpoint({**checkpoint.config, "architectures": ["Eagle3LlamaForCausalLM"]}, renamed)
    drafter = opened(Eagle3(other, lean("llama"), 4), "llama", tokens)
    assert draft_of(drafter, tokens) == draft_of(opened(make(), "llama", tokens), tokens)


def test_a_checkpoint_may_name_its_levels() -> None:
    """Embeddings, first and last state; without the key the rule for six layers."""
    named = by_hand(1, 1, 1, eagle_aux_hidden_state_layer_ids=[0, 1, 6])
    assert Eagle3(named, OneHot()).feature_layers == (0, 1, 6)
    assert Eagle3(by_hand(1, 1, 1, eagle_aux_hidden_state_layer_ids=None), OneHot()).feature_layers == (2, 3, 3)


@pytest.mark.parametrize(
    ("config", "tensors", "said"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, {}, "allowed: LlamaForCausalLMEagle3, Eagle3LlamaForCausalLM"),
        ({"hidden_size": 16}, {}, "hidden size is 16, the target's 8"),
        ({"draft_vocab_size": 5}, {}, r"lm_head\.weight of the checkpoint has shape \(4, 8\)"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 7]}, {}, "allowed: three of 0 to 6"),
        ({}, {"d2t": torch.tensor([1, 3, 4, 7])}, "do not name the same 4 ids below 8; d2t holds offsets"),
        ({}, {"t2d": torch.ones(8, dtype=torch.bool)}, "do not name the same 4 ids"),
        ({}, {"embed_tokens.weight": torch.zeros(8, 8)}, r"has no use for embed_tokens\.weight"),
    ],
)
def test_what_does_not_fit_is_refused(config: dict[str, Any], tensors: dict[str, Tensor], said: str) -> None:
    """Target ids in place of offsets among them: that would draft wrong tokens without a sign."""
    checkpoint = by_hand(1, 1, 1, **config)
    with pytest.raises(SpecError, match=said):
        Eagle3(Checkpoint(checkpoint.config, {**checkpoint.tensors, **tensors}), OneHot())


@pytest.mark.parametrize("tree_nodes", [None, 9])
def test_sequences_are_drafted_together_and_do_not_mix(tree_nodes: int | None) -> None:
    """One call for three sequences gives each what it gets alone."""
    assert_together_is_as_alone(lambda: make(tree_nodes))


@pytest.mark.parametrize("tree_nodes", [None, 9])
def test_a_rejected_draft_changes_nothing(tree_nodes: int | None) -> None:
    """The layer's own K/V is rolled back by the commit, and does not depend on the pieces a prompt comes in."""
    assert_rejected_drafts_leave_no_trace(lambda: make(tree_nodes))
    assert_chunks_do_not_matter(lambda: make(tree_nodes))
