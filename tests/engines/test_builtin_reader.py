"""Rounds out of the builtin server's stream: counts, times, and answers that do not add up."""

from typing import Any

import pytest

from harness.engines.base import StreamFacts
from harness.engines.builtin_reader import BuiltinReader
from harness.errors import EngineProtocolError
from harness.records import Round, SpecCounters


def told(index: int, t_ns: int, drafted: int, accepted: int, tokens: int) -> dict[str, Any]:
    """Return one round as the server tells it: 10, 20 and 30 ns of drafting, verifying and the rest, two in the batch, prompts beside."""
    return {
        "round_index": index, "t_ns": t_ns, "batch_size": 2, "num_draft_tokens": drafted, "num_accepted_tokens": accepted,
        "num_tokens": tokens, "draft_ns": 10, "verify_ns": 20, "host_ns": 30, "prefill_tokens": 64, "context_tokens": 700,
    }  # fmt: skip


# 1 first token + 3 + 1 + 2: a round that accepts two of four, one without a draft, one whose last token a stop rule cut
ROUNDS = [told(7, 100, 4, 2, 3), told(8, 140, 0, 0, 1), told(9, 190, 4, 2, 2)]


def last_chunk(completion: int = 7, rounds: Any = ROUNDS) -> dict[str, Any]:
    """Return the chunk with usage and metrics."""
    usage = {"prompt_tokens": 30, "completion_tokens": completion, "prompt_tokens_details": {"cached_tokens": 16}}
    return {"choices": [], "usage": usage, "metrics": {"time_to_first_token_ms": 1.5, "rounds": rounds}}


def read(chunk: dict[str, Any], *, same_clock: bool = True, t_ns: int = 5000) -> StreamFacts:
    """Return what a reader makes of a text chunk and the last one."""
    reader = BuiltinReader(same_clock=same_clock)
    reader.chunk(1, {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]})
    reader.chunk(t_ns, chunk)
    return reader.facts()


def test_counts_are_sums_over_rounds() -> None:
    """Three passes, two of them with a draft, eight drafted, four accepted; the cut token changes none of that."""
    facts = read(last_chunk())
    assert (facts.prompt_tokens, facts.cached_tokens, facts.output_tokens) == (30, 16, 7)
    assert (facts.decode_passes, facts.spec_source) == (3, "round")
    assert facts.spec == SpecCounters(2, 8, 4, (2, 2))


def test_rounds_keep_the_servers_figures() -> None:
    """Times on the server's clock, the batch, the engine's round number, the parts of the round and its tokens are kept."""
    rounds = read(last_chunk()).rounds
    assert rounds is not None
    assert rounds[0] == Round(
        100, 4, 2, 2, round_index=7, draft_ns=10, verify_ns=20, host_ns=30, prefill_tokens=64, context_tokens=700
    )
    assert [item.t_ns for item in rounds] == [100, 140, 190]


def test_another_machines_clock_is_shifted() -> None:
    """For a server elsewhere the last round falls on the arrival of its chunk and the distances stay."""
    rounds = read(last_chunk(), same_clock=False, t_ns=5000).rounds
    assert rounds is not None
    assert [item.t_ns for item in rounds] == [4910, 4950, 5000]


def test_a_baseline_has_drafted_nothing_for_certain() -> None:
    """Rounds without a draft give known zeros and as many passes as tokens after the first."""
    facts = read(last_chunk(3, [told(1, 10, 0, 0, 1), told(2, 20, 0, 0, 1)]))
    assert facts.spec == SpecCounters(0, 0, 0, ())
    assert facts.decode_passes == 2


def test_one_token_needs_no_round() -> None:
    """An answer of one token comes from the prompt alone."""
    facts = read(last_chunk(1, []))
    assert (facts.decode_passes, facts.rounds) == (0, ())


def test_a_stream_that_broke_off_tells_nothing() -> None:
    """Without the chunk with the usage every fact is unknown."""
    reader = BuiltinReader(same_clock=True)
    reader.chunk(1, {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]})
    assert reader.facts() == StreamFacts()


def test_rounds_that_do_not_tile_the_answer_are_refused() -> None:
    """Eight tokens cannot come of a first one and rounds of three, one and two."""
    with pytest.raises(EngineProtocolError, match="has 8 tokens, but the first one and 3 rounds make 7"):
        read(last_chunk(8))


def test_rounds_that_are_missing_are_noticed() -> None:
    """A server that answers without rounds, although asked, is no builtin server."""
    with pytest.raises(EngineProtocolError, match=r"no metrics.rounds; is it a builtin server\?"):
        read(last_chunk(7, None))
