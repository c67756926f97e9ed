"""Medusa's heads, as a chain and as a tree."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from drafters.base import Commit, Draft
from drafters.catalog import build
from drafters.checkpoint import Checkpoint
from drafters.medusa import FILE_NAME, Medusa, TreeBuffers, tree_buffers, untrained
from drafters.specs import MedusaSpec, SpecError
from tests.drafters.feeding import (
    OneHot,
    assert_chunks_do_not_matter,
    assert_rejected_drafts_leave_no_trace,
    assert_together_is_as_alone,
    draft_of,
    one_hot,
    opened,
)
from tests.drafters.models import lean, prompt

PATHS = ((0,), (1,), (0, 0), (0, 1), (1, 0))


def counting(heads: int, block: float = 0.0) -> Checkpoint:
    """Head i says the token i + 1 further than the one it reads; ``block`` times the identity is the W of each."""
    tensors: dict[str, torch.Tensor] = {}
    for head in range(heads):
        tensors[f"{head}.0.linear.weight"] = block * torch.eye(8)
        tensors[f"{head}.0.linear.bias"] = torch.zeros(8)
        tensors[f"{head}.1.weight"] = torch.eye(8).roll(head + 1, 0)
    return Checkpoint({"medusa_num_heads": heads, "medusa_num_layers": 1}, tensors)


def make(paths: tuple[tuple[int, ...], ...] | None) -> Medusa:
    """Random heads on a tiny target of 32 dimensions, which all families of the tests have."""
    return Medusa(untrained(lean("llama"), 4), lean("llama"), 4, paths)


def test_each_head_reads_the_state_of_the_last_prediction() -> None:
    """The last of two states says 3, so the heads say 4, 5 and 6, for the positions after the last token."""
    drafter = Medusa(counting(3), OneHot(), 3)
    drafter.open(0, 20)
    drafter.commit([Commit(0, 0, (1, 2, 5), one_hot([[6], [3]]))])
    assert drafter.feature_layers == (6,)
    assert draft_of(drafter, (1, 2, 5)) == Draft((4, 5, 6))
    assert draft_of(drafter, (1, 2, 5), 2) == Draft((4, 5))


def test_a_head_adds_the_silu_of_its_block() -> None:
    """With W the identity an entry of 1 becomes 1 + SiLU(1) = 1.7311, and 0 stays 0."""
    drafter = Medusa(counting(1, block=1.0), OneHot(), 1)
    drafter.open(0, 20)
    drafter.commit([Commit(0, 0, (1, 5), one_hot([[3]]))])
    assert drafter.logits(0)[0].tolist() == pytest.approx([0, 0, 0, 0, 1.7310585786, 0, 0, 0])


def test_heads_without_a_projection_use_the_targets() -> None:
    """With W the identity 1 becomes 1.7311 where it stands, and the target's head says the same token again."""
    own = counting(2, block=1.0)
    blocks = {name: tensor for name, tensor in own.tensors.items() if "linear" in name}
    drafter = Medusa(Checkpoint({**own.config, "original_lm_head": True}, blocks), OneHot(), 2)
    drafter.open(0, 20)
    drafter.commit([Commit(0, 0, (1, 5), one_hot([[3]]))])
    assert drafter.logits(0)[0].tolist() == pytest.approx([0, 0, 0, 1.7310585786, 0, 0, 0, 0])
    assert draft_of(drafter, (1, 5)) == Draft((3, 3))
    with pytest.raises(SpecError, match=r"has no use for 0\.1\.weight"):
        Medusa(Checkpoint({**own.config, "original_lm_head": True}, own.tensors), OneHot())
    with pytest.raises(SpecError, match="'yes' for 'original_lm_head'; allowed: true or false"):
        Medusa(Checkpoint({**own.config, "original_lm_head": "yes"}, blocks), OneHot())


def test_a_tree_takes_ranks_of_heads() -> None:
    """The state says 3, then 5: head 0 ranks 4 and 6, head 1 ranks 5 and 7; paths in any order give the same tree."""
    drafter = Medusa(counting(2), OneHot(), paths=PATHS[::-1])
    drafter.open(0, 20)
    drafter.commit([Commit(0, 0, (1, 2), one_hot([[3]]) + 0.5 * one_hot([[5]]))])
    assert (drafter.tree, drafter.max_nodes) == (True, 5)
    assert draft_of(drafter, (1, 2)) == Draft((4, 6, 5, 7, 5), parents=(-1, -1, 0, 0, 1))
    assert draft_of(drafter, (1, 2), 3) == Draft((4, 6, 5), parents=(-1, -1, 0))


def test_a_tree_is_laid_out_level_by_level() -> None:
    """Two roots, two children of the first and one of the second."""
    assert tree_buffers(PATHS) == TreeBuffers(parents=(-1, -1, 0, 0, 1), heads=(0, 0, 1, 1, 1), ranks=(0, 1, 0, 1, 0))


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ([], "no path"),
        ([[]], "none empty"),
        ([[0], [0]], "each path once"),
        ([[-1]], "ranks from 0"),
        ([[0], [1, 0]], r"path \[1, 0\] without \[1\]; give every prefix"),
    ],
)
def test_what_is_no_tree_is_refused(paths: list[list[int]], said: str) -> None:
    """Empty, repeated, negative and hanging paths are named."""
    with pytest.raises(SpecError, match=said):
        tree_buffers(paths)


@pytest.mark.parametrize("paths", [((0,), (0, 0), (0, 0, 0)), ((8,),)])
def test_a_tree_beyond_the_heads_is_refused(paths: tuple[tuple[int, ...], ...]) -> None:
    """Two heads reach no third token, and eight tokens have no ninth rank."""
    with pytest.raises(SpecError, match="allowed: depth 2, one a head, and ranks to 7"):
        Medusa(counting(2), OneHot(), paths=paths)


@pytest.mark.parametrize("paths", [None, PATHS])
def test_a_saved_checkpoint_drafts_the_same(paths: tuple[tuple[int, ...], ...] | None, tmp_path: Path) -> None:
    """Published names on disk; logits and drafts of the loaded heads are those of the saved ones."""
    checkpoint, target, tokens = untrained(lean("llama"), 3, seed=5), lean("llama"), prompt(1, 9)
    checkpoint.save(tmp_path, FILE_NAME)
    names = {f"{i}.{name}" for i in range(3) for name in ("0.linear.weight", "0.linear.bias", "1.weight")}
    assert set(load_file(tmp_path / FILE_NAME)) == names
    loaded = build(MedusaSpec(model=tmp_path, num_tokens=3, tree=paths), target, 100)
    assert isinstance(loaded, Medusa)
    saved = opened(Medusa(checkpoint, target, 3, paths), "llama", tokens)
    assert torch.equal(opened(loaded, "llama", tokens).logits(0), saved.logits(0))
    assert draft_of(loaded, tokens) == draft_of(saved, tokens)


def test_a_checkpoint_of_another_description_is_refused() -> None:
    """A head too few, a head too many, and heads for another vocabulary."""
    tensors = counting(2).tensors
    with pytest.raises(SpecError, match=r"lacks 2\.0\.linear\.bias, 2\.0\.linear\.weight, 2\.1\.weight"):
        Medusa(Checkpoint({"medusa_num_heads": 3, "medusa_num_layers": 1}, tensors), OneHot())
    with pytest.raises(SpecError, match=r"has no use for 1\.0\.linear\.bias"):
        Medusa(Checkpoint({"medusa_num_heads": 1, "medusa_num_layers": 1}, tensors), OneHot())
    with pytest.raises(SpecError, match=r"has shape \(8, 8\); its configuration and the target ask for \(9, 9\)"):
        Medusa(counting(2), OneHot(9))


@pytest.mark.parametrize("paths", [None, PATHS])
def test_sequences_are_drafted_together_and_do_not_mix(paths: tuple[tuple[int, ...], ...] | None) -> None:
    """One call for three sequences gives each what it gets alone."""
    assert_together_is_as_alone(lambda: make(paths))


@pytest.mark.parametrize("paths", [None, PATHS])
def test_a_rejected_draft_changes_nothing(paths: tuple[tuple[int, ...], ...] | None) -> None:
    """The next draft depends on what was committed alone, in however many pieces it came."""
    assert_rejected_drafts_leave_no_trace(lambda: make(paths))
    assert_chunks_do_not_matter(lambda: make(paths))
