"""What answers tell of their speculative decoding, in every spelling, and what is not believed."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engines.told import Told, cached_in, told_in
from harness.records import SpecCounters


def vllm(**changed: Any) -> dict[str, Any]:
    """vLLM's chunk with the usage: three rounds of two drafted tokens that accepted 2, 0 and 1."""
    told = {
        "acceptance_histogram": [1, 1, 1], "num_spec_steps": 3, "num_draft_tokens": 6, "num_accepted_draft_tokens": 3,
        "per_step_accepted": [2, 0, 1], "per_step_drafted": [2, 2, 2],
    }  # fmt: skip
    return {"choices": [], "metrics": {"speculative_decoding": {**told, **changed}}}


def test_vllm_tells_sums_positions_and_rounds() -> None:
    """Of three rounds two accepted at least one token and one accepted two."""
    assert told_in(vllm()) == Told(SpecCounters(3, 6, 3, (2, 1)), ((2, 2), (2, 0), (2, 1)))


def test_a_histogram_may_be_sparse() -> None:
    """A release that writes only the places that it has means the same."""
    told = told_in(vllm(acceptance_histogram={"0": 1, "1": 1, "2": 1}))
    assert told is not None
    assert told.spec.num_accepted_tokens_per_pos == (2, 1)


def test_an_answer_for_which_nothing_was_drafted_tells_zeros() -> None:
    """No rounds is a count, not an unknown one."""
    told = told_in(vllm(acceptance_histogram={}, num_spec_steps=0, num_draft_tokens=0, num_accepted_draft_tokens=0,
                        per_step_accepted=None, per_step_drafted=None))  # fmt: skip
    assert told == Told(SpecCounters(0, 0, 0, ()), None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_accepted_draft_tokens": 7},
        {"num_spec_steps": 4},
        {"acceptance_histogram": [0, 2, 1]},
        {"per_step_accepted": [2, 1, 1]},
        {"num_draft_tokens": None},
    ],
    ids=["more accepted than drafted", "rounds", "histogram", "steps", "missing"],
)
def test_counts_that_do_not_add_up_are_not_believed(wrong: dict[str, Any]) -> None:
    """Sums, histogram and rounds must agree, and no more can be accepted than was drafted."""
    assert told_in(vllm(**wrong)) is None


@pytest.mark.parametrize(
    "names",
    [
        ("spec_num_correct_drafts", "spec_num_proposed_drafts", "spec_correct_drafts_histogram"),
        ("spec_accepted_drafts", "spec_proposed_drafts", "spec_accept_histogram"),
        ("spec_accept_token_num", "spec_draft_token_num", "spec_accept_histogram"),
    ],
)
@pytest.mark.parametrize("where", ["sglext", "choice", "root"])
def test_sglang_is_read_under_all_its_names_and_in_all_its_places(names: tuple[str, str, str], where: str) -> None:
    """Two verify calls that accepted 3 and 1 of three drafted tokens; every pass of SGLang is one."""
    accepted, drafted, histogram = names
    told = {"spec_verify_ct": 2, accepted: 4, drafted: 6, histogram: [0, 1, 0, 1], "spec_accept_length": 3.0}
    places: dict[str, dict[str, Any]] = {
        "sglext": {"choices": [], "sglext": {"spec_tokens_details": told}},
        "choice": {"choices": [{"index": 0, "meta_info": told}]},
        "root": {"choices": [], "meta_info": told},
    }
    assert told_in(places[where]) == Told(SpecCounters(2, 6, 4, (2, 1, 1)), None, every_pass=True)


def test_chunks_of_plain_servers_tell_nothing() -> None:
    """Nulls, absent fields and metrics of another kind are no acceptance."""
    chunks: list[dict[str, Any]] = [
        {}, {"metrics": None}, {"metrics": {"speculative_decoding": None}}, {"choices": [], "sglext": None},
    ]  # fmt: skip
    assert [told_in(chunk) for chunk in chunks] == [None] * 4


def test_cached_tokens_stand_in_the_usage_or_in_sglangs_tiers() -> None:
    """The usage counts, else what came from device, host and storage together; a name of a storage is no number."""
    assert cached_in({"usage": {"prompt_tokens_details": {"cached_tokens": 7}}}) == 7
    tiers = {"device": 4, "host": 2, "storage": 1, "storage_backend": "file"}
    assert cached_in({"sglext": {"cached_tokens_details": tiers}}) == 7
    assert cached_in({"usage": {"prompt_tokens": 9, "prompt_tokens_details": None}}) is None
