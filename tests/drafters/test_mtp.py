"""Multi-token prediction, and the decoder layer it shares with EAGLE-3."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import rms_norm

from drafters.base import Commit, Draft
from drafters.catalog import build
from drafters.checkpoint import Checkpoint
from drafters.layers import CachedRows, DecoderLayer, LayerShape
from drafters.mtp import AFTER, BEFORE, Mtp, tensor_shapes, untrained
from drafters.specs import MtpSpec, SpecError
from tests.drafters.feeding import (
    CLOSE,
    OneHot,
    assert_chunks_do_not_matter,
    assert_rejected_drafts_leave_no_trace,
    assert_together_is_as_alone,
    draft_of,
    one_hot,
    opened,
    target_features,
)
from tests.drafters.models import lean, prompt, reference

NOTHING = torch.zeros(8, 8)
NEXT = torch.eye(8).roll(1, 0)  # the state of token t becomes that of t + 1


def by_hand(of_embedding: Tensor, of_hidden: Tensor, recursion: str = AFTER, **changed: Tensor) -> Checkpoint:
    """A layer that adds nothing: what comes out is u_t, made by these two halves of ``mtp.fc``; norms weigh 1."""
    checkpoint = untrained(OneHot(), recursion=recursion)
    tensors = {
        name: torch.ones_like(tensor) if tensor.dim() == 1 else torch.zeros_like(tensor)
        for name, tensor in checkpoint.tensors.items()
    }
    tensors["mtp.fc.weight"] = torch.cat((of_embedding, of_hidden), dim=1)
    return Checkpoint(checkpoint.config, tensors | {f"mtp.{name}.weight": tensor for name, tensor in changed.items()})


def make(recursion: str = AFTER) -> Mtp:
    """Random weights for a tiny target, drafts of seven."""
    return Mtp(untrained(lean("llama"), recursion=recursion), lean("llama"), 7)


def plain_drafts(checkpoint: Checkpoint, tokens: Sequence[int], count: int) -> list[int]:
    """What is drafted after ``tokens``: every token from one pass over all pairs, nothing cached."""
    target = lean("llama")
    shape = checkpoint.layer_shape(qk_norm=True)
    weights = checkpoint.fitted(tensor_shapes(shape), target.dtype, target.device)
    layer = DecoderLayer(shape, weights, "mtp.layers.0.")

    def norm(rows: Tensor, name: str) -> Tensor:
        return rms_norm(rows, (shape.hidden_size,), weights[f"mtp.{name}.weight"], shape.eps)

    with torch.inference_mode():
        hidden = target_features("llama", tokens[:-1], (target.num_layers,))[:, 0]
        ids = list(tokens[1:])
        for _ in range(count):
            embedded = norm(target.embed(torch.tensor(ids)), "pre_fc_norm_embedding")
            u = torch.cat((embedded, norm(hidden, "pre_fc_norm_hidden")), dim=-1) @ weights["mtp.fc.weight"].T
            rows = CachedRows.chain(layer.new_cache(len(ids)), 0, len(ids))
            output = layer(norm(u, "layers.0.input_layernorm"), u, [rows])[-1:]
            normed = norm(output, "norm")
            ids.append(int(target.head(normed).argmax()))
            hidden = torch.cat((hidden, normed if checkpoint.config["mtp_recursion"] == AFTER else output))
    return ids[len(tokens) - 1 :]


def test_the_embedding_is_that_of_the_token_after_the_state() -> None:
    """Counting from the last committed token, 5, and then from each drafted one."""
    drafter = Mtp(by_hand(NEXT, NOTHING), OneHot(), 4)
    drafter.open(0, 20)
    drafter.commit([Commit(0, 0, (1, 2, 5), one_hot([[6], [3]]))])
    assert drafter.feature_layers == (6,)
    assert draft_of(drafter, (1, 2, 5)) == Draft((6, 7, 0, 1))
    assert draft_of(drafter, (1, 2, 5), 2) == Draft((6, 7))


def test_the_state_is_the_targets_and_then_its_own() -> None:
    """Counting from the last state, which says 3, and then from each output."""
    drafter = Mtp(by_hand(NOTHING, NEXT), OneHot(), 4)
    drafter.open(0, 20)
    drafter.commit([Commit(0, 0, (1, 2, 5), one_hot([[6], [3]]))])
    assert draft_of(drafter, (1, 2, 5)) == Draft((4, 5, 6, 7))


@pytest.mark.parametrize(("recursion", "tokens"), [(AFTER, (0, 1)), (BEFORE, (0, 0))])
def test_the_recursion_feeds_the_output_after_or_before_the_final_norm(recursion: str, tokens: tuple[int, int]) -> None:
    """Entries (1, 2) are swapped to (2, 1) and weighed three to one: (6, 1), token 0. Fed back after the norm they are
    swapped to (1, 6), (3, 6), token 1; before it (2, 1) is swapped to (1, 2), (3, 2), token 0."""
    swap = torch.eye(8)[[1, 0, 2, 3, 4, 5, 6, 7]]
    weigh = torch.tensor([3.0, 1, 1, 1, 1, 1, 1, 1])
    drafter = Mtp(by_hand(NOTHING, swap, recursion, norm=weigh), OneHot(), 2)
    drafter.open(0, 20)
    drafter.commit([Commit(0, 0, (4, 4), one_hot([[0]]) + 2 * one_hot([[1]]))])
    assert draft_of(drafter, (4, 4)) == Draft(tokens)


@pytest.mark.parametrize("recursion", [AFTER, BEFORE])
def test_cached_drafts_are_those_of_whole_passes(recursion: str) -> None:
    """Seven tokens, drafted after a rejected draft and a second commit, equal those computed without any cache."""
    drafter, tokens = make(recursion), prompt(1, 11)
    opened(drafter, "llama", tokens[:6])
    draft_of(drafter, tokens[:6])
    features = target_features("llama", tokens[:-1], drafter.feature_layers)
    drafter.commit([Commit(0, 6, tuple(tokens[6:]), features[5:])])
    plain = plain_drafts(untrained(lean("llama"), recursion=recursion), tokens, 7)
    assert draft_of(drafter, tokens).token_ids == tuple(plain)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_the_decoder_layer_is_that_of_transformers(family: str) -> None:
    """Fed in two pieces, a family's first layer gives its hidden states, with and without normed queries and keys."""
    model, tokens = lean(family), prompt(4, 12)
    config: Any = model.config
    weights = {f"x.{name}": tensor for name, tensor in reference(family).model.layers[0].state_dict().items()}
    shape = LayerShape(
        hidden_size=32,
        intermediate_size=48,
        heads=4,
        kv_heads=2,
        head_dim=model.head_dim,
        attention_size=32,
        eps=model.eps,
        rope_theta=config.rope_parameters["rope_theta"],
        qk_norm=family == "qwen3",
    )
    layer = DecoderLayer(shape, weights, "x.")
    cache = layer.new_cache(12)
    states = target_features(family, tokens, (0, 1))
    normed = rms_norm(states[:, 0], (32,), weights["x.input_layernorm.weight"], model.eps)
    with torch.inference_mode():
        first = layer(normed[:7], states[:7, 0], [CachedRows.chain(cache, 0, 7)])
        second = layer(normed[7:], states[7:, 0], [CachedRows.chain(cache, 7, 5)])
    torch.testing.assert_close(torch.cat((first, second)), states[:, 1], rtol=0, atol=CLOSE)


@pytest.mark.parametrize("beside", [False, True])
def test_a_saved_checkpoint_drafts_the_same(beside: bool, tmp_path: Path) -> None:
    """Published names on disk, by themselves or beside a target's own; what is loaded drafts as what was saved."""
    checkpoint, target, tokens = untrained(lean("llama"), seed=5), lean("llama"), prompt(1, 9)
    others = {"model.norm.weight": torch.ones(32)} if beside else {}
    Checkpoint(checkpoint.config, {**checkpoint.tensors, **others}).save(tmp_path)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert {"mtp.fc.weight", "mtp.layers.0.self_attn.q_norm.weight", "mtp.pre_fc_norm_hidden.weight"} <= names
    loaded = build(MtpSpec(model=tmp_path, num_tokens=5), target, 100)
    assert isinstance(loaded, Mtp)
    saved = opened(Mtp(checkpoint, target, 5), "llama", tokens)
    assert torch.equal(opened(loaded, "llama", tokens).logits(0), saved.logits(0))
    assert draft_of(loaded, tokens) == draft_of(saved, tokens)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"num_nextn_predict_layers": 2}, "has 2 layers of prediction"),
        ({"mtp_recursion": "sideways"}, "'sideways' for 'mtp_recursion'; allowed: 'after_norm', 'before_norm'"),
        ({"hidden_size": 16}, "hidden size is 16, the target's 8"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope type 'yarn'"),
        ({"num_attention_heads": None}, "None for 'num_attention_heads'"),
        ({"head_dim": 7}, "1 heads of 7"),
    ],
)
def test_what_cannot_be_run_is_refused(changed: dict[str, Any], said: str) -> None:
    """Each key with what it has and what is allowed."""
    checkpoint = untrained(OneHot())
    with pytest.raises(SpecError, match=said):
        Mtp(Checkpoint({**checkpoint.config, **changed}, checkpoint.tensors), OneHot())


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    """Empty, and with a file that is no safetensors."""
    with pytest.raises(SpecError, match=r"lacks config\.json or a \.safetensors file"):
        Checkpoint.load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"no")
    with pytest.raises(SpecError, match="cannot be read"):
        Checkpoint.load(tmp_path)


def test_a_commit_that_skips_or_lacks_features_is_refused() -> None:
    """Position 1 is next; features from 2 on, or none, would be paired with the wrong tokens."""
    drafter = Mtp(by_hand(NEXT, NOTHING), OneHot())
    drafter.open(0, 20)
    drafter.commit([Commit(0, 0, (1, 2), one_hot([[2]]))])
    with pytest.raises(ValueError, match="features from position 2 on given for sequence 0; next is 1"):
        drafter.commit([Commit(0, 3, (4,), one_hot([[4]]))])
    with pytest.raises(ValueError, match="has no features"):
        drafter.commit([Commit(0, 2, (4,))])


def test_a_sequence_may_be_longer_than_the_first_table_of_angles() -> None:
    """600 slots need more than the 512 positions there are at first; the drafts are the same."""
    tokens = prompt(1, 9)
    short, long = opened(make(), "llama", tokens), make()
    long.open(1, 600)
    opened(long, "llama", tokens)
    assert draft_of(long, tokens) == draft_of(short, tokens)


@pytest.mark.parametrize("recursion", [AFTER, BEFORE])
def test_sequences_are_drafted_together_and_do_not_mix(recursion: str) -> None:
    """One call for three sequences gives each what it gets alone."""
    assert_together_is_as_alone(lambda: make(recursion))


def test_a_rejected_draft_changes_nothing() -> None:
    """The layer's own K/V is rolled back by the commit, and does not depend on the pieces a prompt comes in."""
    assert_rejected_drafts_leave_no_trace(make)
    assert_chunks_do_not_matter(make)
