"""Prometheus pages, recorded and hand-made, and what is read out of them."""

from pathlib import Path

import pytest

from harness.engines.counters import parse_samples, spec_counters
from harness.errors import EngineProtocolError
from harness.records import SpecCounters

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_recorded_llamacpp_page() -> None:
    """A page of llama.cpp b11549 after some drafting gives its four counters."""
    text = (FIXTURES / "llamacpp_b11549_ngrammod_metrics_after.txt").read_text()
    assert spec_counters(text) == SpecCounters(7, 56, 30, (6, 6, 3, 3, 3, 3, 3, 3))


def test_recorded_llamacpp_page_before_the_first_draft() -> None:
    """A page of a server that has drafted nothing yet gives known zeros, so that a later page can be compared with it."""
    before = spec_counters((FIXTURES / "llamacpp_b11549_ngrammod_metrics_before.txt").read_text())
    after = spec_counters((FIXTURES / "llamacpp_b11549_ngrammod_metrics_after.txt").read_text())
    assert before == SpecCounters(0, 0, 0, ())
    assert before is not None
    assert after is not None
    assert after - before == SpecCounters(7, 56, 30, (6, 6, 3, 3, 3, 3, 3, 3))


def test_engines_are_summed() -> None:
    """Lines of several vLLM engines are added, whether or not their names end in _total."""
    text = """
    # HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
    vllm:spec_decode_num_drafts_total{engine="0",model_name="a, \\"b\\""} 24.0
    vllm:spec_decode_num_drafts_total{engine="1",model_name="a"} 6.0
    vllm:spec_decode_num_draft_tokens{engine="0"} 96.0
    vllm:spec_decode_num_draft_tokens{engine="1"} 4.0
    vllm:spec_decode_num_accepted_tokens{engine="0"} 60 1700000000000
    vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 21.0
    vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 2.0
    vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="2"} 1.0
    vllm:spec_decode_num_drafts_created{engine="0"} 1.7959696648530245e+09
    """
    assert spec_counters(text) == SpecCounters(30, 100, 60, (23, 0, 1))


def test_a_page_without_the_counters_is_unknown() -> None:
    """A server without speculative counters gives None, not zeros."""
    assert spec_counters("llamacpp:prompt_tokens_total 78\nsomething_else NaN\n") is None


def test_missing_positions_are_unknown_once_something_was_drafted() -> None:
    """Without lines per position a drafting server's positions are None, and so is an absent count of drafts."""
    text = "vllm:spec_decode_num_draft_tokens_total 8\nvllm:spec_decode_num_accepted_tokens_total 3\n"
    assert spec_counters(text) == SpecCounters(None, 8, 3, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<html>502</html>", "line 1 is not of the form"),
        ("a_total 1\nllamacpp:spec_decode_num_drafts_total many", "line 2: 'many' is not a number"),
        ("llamacpp:spec_decode_num_drafts_total 1.5", "a counter is a whole number"),
        ("llamacpp:spec_decode_num_drafts_total NaN", "a counter is a whole number"),
        ("a{b=1} 2", "labels 'b=1'"),
        ('llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="x"} 1', "position 'x'"),
        ("llamacpp:spec_decode_num_drafts_total 1", "not spec_decode_num_draft_tokens"),
    ],
)
def test_malformed_pages_are_named(text: str, said: str) -> None:
    """A page that is not as the adapter knows it raises an error that names the fault."""
    with pytest.raises(EngineProtocolError, match=said.replace("(", r"\(")):
        spec_counters(text)


def test_samples_keep_name_labels_and_value() -> None:
    """A sample is its name, its labels and its number."""
    (sample,) = parse_samples('x:y{a="1",b="2"} 3\n')
    assert (sample.name, sample.labels, sample.value) == ("x:y", {"a": "1", "b": "2"}, 3.0)
