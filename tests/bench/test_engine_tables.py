"""Arithmetic of the engine benchmark, on samples made by hand."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from bench.engine_arms import Round, RoundSums
from bench.engine_tables import report
from bench.peers_http import decode_rate
from drafters.engine.records import RoundRecord

SECOND = 1_000_000_000


def record(batch: int, forward_ns: int, prefill: int = 0, drafted: int = 0, accepted: int = 0) -> RoundRecord:
    """A round with a drafter that takes 5 ns."""
    return RoundRecord(
        round_index=0,
        t_ns=0,
        batch_size=batch,
        prefill_tokens=prefill,
        context_tokens=0,
        num_draft_tokens=drafted,
        num_accepted_tokens=accepted,
        draft_ns=5,
        verify_ns=forward_ns,
        forward_ns=forward_ns,
        host_ns=0,
    )


def sample(case: str, arm: str, rate: float, prompt: int = 0, number: int = 0, **sums: int) -> dict[str, Any]:
    """One run of an arm, 60 tokens; rounds of 100 ms, of which the forward takes 80."""
    place = {"case": case, "arm": arm, "prompt": prompt, "round": number, "tokens": 60}
    rounds = {"batch": 1, "rounds": 10, "drafting_rounds": 0, "tokens": 10, "drafted": 0, "accepted": 0}
    times = {"forward_ns": 800_000_000, "draft_ns": 0, "wall_ns": SECOND, "outside_ns": 200_000_000}
    return {**place, "whole_per_s": rate, "decode_per_s": rate, "sums": {**rounds, **times, **sums}}


def file(**sections: dict[str, Any]) -> dict[str, Any]:
    """A whole file around sections: 100 MB of weights, memory of 10 GB/s."""
    return {
        "settings": {"threads": 1, "torch": "2", "transformers": "5"},
        "machine": {"read_bytes_per_s": 1e10, "vector_bytes_per_s": 5e9, "flops_per_s": 1e12},
        "target": {"storage": "float32", "weight_bytes": 100_000_000},
        "sections": sections,
    }


def line(text: str, words: str) -> str:
    """The line of the last table that holds ``words``."""
    return next(line for line in reversed(text.splitlines()) if words in line)


def test_rate_leaves_first_tokens_out() -> None:
    """A rate counts what came after each answer's first chunk."""
    assert decode_rate([[(0, 1), (SECOND, 3), (2 * SECOND, 1)]]) == 2.0


def test_rate_covers_the_time_in_which_all_answers_are_written() -> None:
    """Only the span in which every answer has begun and none has ended counts: one second here, with one token of each."""
    early = [(0, 1), (1 * SECOND, 1), (2 * SECOND, 1)]
    late = [(1 * SECOND, 1), (2 * SECOND, 1), (3 * SECOND, 1)]
    assert decode_rate([early, late]) == 2.0


def test_rate_is_unknown_without_overlap() -> None:
    """Answers written one after the other have no common rate."""
    assert decode_rate([[(0, 1), (1, 1)], [(5, 1), (6, 1)]]) is None


def test_sums_take_full_rounds_without_prompts() -> None:
    """Rounds with another batch or with prompt tokens are left out, and what is left of the wall time is outside."""
    rounds = [
        Round(record(2, forward_ns=80, drafted=4, accepted=3), wall_ns=100, tokens=5),
        Round(record(1, forward_ns=80), wall_ns=100, tokens=1),
        Round(record(2, forward_ns=80, prefill=9), wall_ns=100, tokens=2),
    ]
    sums = RoundSums.of(rounds, batch=2)
    assert (sums.rounds, sums.tokens, sums.accepted, sums.outside_ns) == (1, 5, 3, 15)


def test_memory_bound_is_printed() -> None:
    """100 MB at 10 GB/s are 10 ms, so 100 tokens a second."""
    assert "100.0 tokens/s" in report(file(d={"samples": [], "complete": True}))


@pytest.mark.parametrize(("rate", "word"), [(12.9, "NOT reached"), (13.1, "  reached")])
def test_ratio_is_held_against_its_floor(rate: float, word: str) -> None:
    """1.3 times 10 tokens a second is the floor of section (a)."""
    arms = {"transformers, lookup": 10.0, "ours, plain": 10.0, "ours, lookup controlled": rate}
    samples = [sample("copy", arm, speed) for arm, speed in arms.items()]
    text = report(file(a={"samples": samples, "differences": [], "complete": True}))
    assert word in line(text, "controller / transformers")


def test_ratio_of_several_prompts_is_one_of_sums() -> None:
    """Prompts at 60 and 10 tokens a second take 1 + 6 s, the peer's 2 + 5 at 30 and 12: equal, though 2 and 0.83 each."""
    rates = {"ours, lookup controlled": (60.0, 10.0), "transformers, lookup": (30.0, 12.0)}
    samples = [sample("copy", arm, rate, prompt=at) for arm, pair in rates.items() for at, rate in enumerate(pair)]
    text = report(file(a={"samples": samples, "differences": [], "complete": True}))
    assert "1.000" in line(text, "controller / transformers")
    assert "by prompt 2.00, 0.83" in line(text, "controller / transformers")


def test_run_that_the_other_arm_has_not_made_does_not_count() -> None:
    """Of a section broken off, only the prompt that both arms have run is judged: 20 over 10."""
    ours = [sample("copy", "ours, lookup controlled", rate, prompt=at) for at, rate in enumerate((20.0, 500.0))]
    theirs = [sample("copy", "transformers, lookup", 10.0)]
    text = report(file(a={"samples": ours + theirs, "differences": []}))
    assert "2.000" in line(text, "controller / transformers")


def test_lengths_of_n_grams_are_printed() -> None:
    """Which runs of tokens each lookup compares stands above the table."""
    ngrams = {"ours": [2, 4], "transformers": [1, 2]}
    text = report(file(a={"samples": [], "differences": [], "ngrams": ngrams, "complete": True}))
    assert "ours: 4 down to 2; transformers: 2 down to 1" in text


def test_share_outside_is_held_against_its_ceiling() -> None:
    """A fifth of the round outside is more than the tenth allowed."""
    text = report(file(d={"samples": [sample("copy", "plain", 1.0)], "complete": True}))
    assert "0.200" in line(text, "share outside")
    assert "NOT reached" in line(text, "share outside")


def test_realised_speed_up_is_held_against_what_costs_allow() -> None:
    """Twice the tokens a round at equal times allow 2 · 100 / 80 = 2.5 and gave 2: four fifths."""
    samples = [sample("1", "plain", 1.0), sample("1", "lookup k 4", 1.0, accepted=10, tokens=20)]
    text = report(file(e={"samples": samples, "complete": True}))
    assert "0.800" in line(text, "realised / AL")


def test_missing_arm_is_not_measured() -> None:
    """A section that was broken off says so and gives no verdict on what it lacks."""
    text = report(file(c={"samples": [sample("1", "ours, HTTP", 10.0)]}))
    assert "broken off" in text
    assert "not measured" in line(text, "llama.cpp")
