"""Descriptions of drafters: what is accepted, and what a wrong one is told."""

from __future__ import annotations

import subprocess
import sys

import pytest

from drafters.base import Draft, Sampling
from drafters.specs import SPECS, PromptLookupSpec, SpecError, parse_spec


def test_method_selects_the_spec() -> None:
    """The method alone decides the type; everything else has a default."""
    assert parse_spec({"method": "prompt_lookup"}) == PromptLookupSpec(num_tokens=8, min_ngram=2, max_ngram=4)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"method": "eagel3"}, "unknown method 'eagel3' (did you mean 'eagle3'?); known: dflash, dflash2, "),
        ({"num_tokens": 3}, "no 'method' among the keys ['num_tokens']"),
        ({"method": "mtp", "num_token": 3}, "mtp: unknown key 'num_token' (did you mean 'num_tokens'?); allowed: "),
        ({"method": "mtp", "num_tokens": 8}, "mtp: 'num_tokens' is 8: input should be less than or equal to 7"),
        ({"method": "draft_model"}, "draft_model: 'model' is missing"),
        ({"method": "prompt_lookup", "min_ngram": 5}, "prompt_lookup: min_ngram 5 is above max_ngram 4"),
        ({"method": "prompt_lookup", "max_ngram": 17}, "'max_ngram' is 17: input should be less than or equal to 16"),
        ({"method": "synthetic", "acceptance": 1.5}, "synthetic: acceptance is 1.5; allowed: probabilities"),
        ({"method": ["mtp"]}, "unknown method ['mtp']"),
        (
            {"method": "dflash", "block_size": 4, "num_tokens": 7},
            "dflash: num_tokens is 7, but a block of 4 drafts at most 3; give",
        ),
        (
            {"method": "dflash2", "num_tokens": 8},
            "dflash2: num_tokens is 8, but a block of 8 drafts at most 7; give num_tokens 7",
        ),
    ],
)
def test_a_wrong_description_is_told_what_is_allowed(data: dict[str, object], said: str) -> None:
    """The message names what was given and what to write instead."""
    with pytest.raises(SpecError) as caught:
        parse_spec(data)
    assert said in str(caught.value)


def test_a_block_alone_says_how_much_is_drafted() -> None:
    """A small block without a length drafts all it can, and its description can be read again; a checkpoint brings its own block."""
    small = parse_spec({"method": "dflash", "block_size": 4})
    assert small.num_tokens == 3
    assert parse_spec(small.model_dump(mode="json")) == small
    assert parse_spec({"method": "dflash2"}).num_tokens == 7
    assert parse_spec({"method": "dflash", "model": "trained", "num_tokens": 15}).num_tokens == 15


def test_every_method_has_its_own_implementation() -> None:
    """No two methods share a class, so none is silently carried out by another's."""
    implementations = [spec.implementation for spec in SPECS.values()]
    assert len(set(implementations)) == len(implementations) == 9


def test_describing_and_scheduling_need_no_torch() -> None:
    """Specs, catalog, draft types, sequence state and scheduler are importable where torch is not installed."""
    modules = "drafters.specs, drafters.catalog, drafters.base, drafters.engine.sequence, drafters.engine.scheduler"
    code = f"import sys; sys.modules['torch'] = None; import {modules}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_tree_tells_the_depth_of_its_nodes() -> None:
    """Two children of the root, one grandchild under the second."""
    assert Draft((5, 6, 7), parents=(-1, -1, 1)).depths() == (1, 1, 2)


def test_cutting_a_tree_keeps_whole_branches() -> None:
    """Parents stand before children, so a prefix of the nodes is a tree again."""
    assert Draft((5, 6, 7), parents=(-1, 0, 1)).truncated(2) == Draft((5, 6), parents=(-1, 0))


def test_a_shallower_tree_keeps_its_shape() -> None:
    """Of two branches, one three deep, nodes below depth two go and the others are renumbered."""
    deep = Draft((5, 6, 7, 8, 9), parents=(-1, 0, 1, -1, 3))
    assert deep.shallow(2) == Draft((5, 6, 8, 9), parents=(-1, 0, -1, 2))
    assert deep.shallow(3) is deep
    assert Draft((5, 6, 7)).shallow(1) == Draft((5,))


@pytest.mark.parametrize("parents", [(0,), (-2,), (-1, 1)])
def test_a_node_cannot_hang_on_itself_or_a_later_one(parents: tuple[int, ...]) -> None:
    """A parent's index is below its child's, which rules out cycles."""
    with pytest.raises(ValueError, match="parent of draft node"):
        Draft(tuple(range(len(parents))), parents=parents)


@pytest.mark.parametrize("wrong", [{"temperature": -1.0}, {"top_p": 0.0}, {"top_k": -1}, {"temperature": float("nan")}])
def test_sampling_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    """Each parameter has its range and says it."""
    with pytest.raises(ValueError, match="allowed"):
        Sampling(**wrong)  # type: ignore[arg-type]
